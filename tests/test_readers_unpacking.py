import base64
import gzip
import random
import zipfile
import zlib

import pytest

from traceread.errors import CorruptTrace, InputError, LimitExceeded, TraceNotFound, TracereadError
from traceread.readers.options import ReadOptions
from traceread.readers.unpacking import Unpacked

TEXT = b"".join(b"line %d\n" % i for i in range(40_000))


def unpack(path, **options):
    unpacked = Unpacked(path, ReadOptions(**{"chunk_bytes": 1000, **options}))
    return b"".join(unpacked.blocks()), unpacked.cut


def zipped(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "trace.zip"])  # names say nothing
@pytest.mark.parametrize("pack", [lambda t: t, gzip.compress, lambda t: gzip.compress(t[:9]) + gzip.compress(t[9:]) + bytes(512)])
def test_packing_is_told_by_content(tmp_path, name, pack):
    path = tmp_path / name
    path.write_bytes(pack(TEXT))
    assert unpack(path) == (TEXT, "")


def test_a_zip_of_one_file_beside_empty_folders(tmp_path):
    path = zipped(tmp_path / "trace.json", **{"run/": b"", "run/trace.json": TEXT})
    assert unpack(path) == (TEXT, "")


def test_a_zip_of_several_files_is_refused(tmp_path):
    path = zipped(tmp_path / "traces.zip", a=b"1", b=b"2")
    with pytest.raises(InputError, match=r"zip of 2 files") as caught:
        unpack(path)
    assert "unzip traces.zip" in caught.value.hint


def test_an_empty_zip_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"zip of 0 files"):
        unpack(zipped(tmp_path / "traces.zip"))


def test_a_cut_zip_is_corrupt(tmp_path):
    path = zipped(tmp_path / "traces.zip", a=TEXT)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(CorruptTrace, match="broken zip"):
        unpack(path)


def test_an_encrypted_zip_is_refused(tmp_path):
    path = zipped(tmp_path / "traces.zip", a=TEXT)
    packed = bytearray(path.read_bytes())
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        packed[packed.index(signature) + flags] |= 1
    path.write_bytes(bytes(packed))
    with pytest.raises(InputError, match="cannot be unpacked") as caught:
        unpack(path)
    assert caught.value.hint == "Unpack it first: unzip traces.zip"


def test_damage_inside_a_zip_keeps_what_came_before(tmp_path):
    path = zipped(tmp_path / "traces.zip", a=TEXT)
    packed = bytearray(path.read_bytes())
    packed[len(packed) // 2] ^= 0xFF
    path.write_bytes(bytes(packed))
    text, cut = unpack(path)
    assert "damaged" in cut
    assert text[:1000] == TEXT[:1000]


@pytest.mark.parametrize("kept", [1, 5, 9, 10, 11, 5000, -8, -1])
def test_a_cut_gzip_gives_what_is_there(tmp_path, kept):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(TEXT)[:kept] if kept != 1 else b"\x1f\x8b")
    text, cut = unpack(path)
    assert cut == "the gzip data ends early"
    assert TEXT.startswith(text)
    if kept < 0:
        assert text == TEXT


def test_bytes_after_gzip_are_said(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(TEXT) + b"garbage")
    assert unpack(path) == (TEXT, "bytes that are not gzip follow its data")


def test_damage_inside_gzip_keeps_what_came_before(tmp_path):
    path = tmp_path / "trace.json.gz"
    packed = bytearray(gzip.compress(TEXT))
    packed[len(packed) // 2 :] = b"\xff" * (len(packed) // 2)
    path.write_bytes(bytes(packed))
    text, cut = unpack(path)
    assert "gzip data" in cut
    assert text
    assert TEXT.startswith(text[:1000])


def test_a_wrong_checksum_is_said(tmp_path):
    path = tmp_path / "trace.json.gz"
    packed = bytearray(gzip.compress(TEXT))
    packed[-6] ^= 1
    path.write_bytes(bytes(packed))
    text, cut = unpack(path)
    assert "gzip data is damaged" in cut
    assert text == TEXT


@pytest.mark.parametrize("where", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("pack", [lambda p, t: p.write_bytes(gzip.compress(t)), lambda p, t: zipped(p, a=t)])
def test_what_comes_before_damage_does_not_depend_on_the_length_of_blocks(tmp_path, pack, where):
    path = tmp_path / "trace.json"
    content = random.Random(1).randbytes(3000).hex().encode() + TEXT
    pack(path, content)
    packed = bytearray(path.read_bytes())
    at = int(len(packed) * where)
    packed[at : at + 20] = b"\xff" * 20
    path.write_bytes(bytes(packed))
    results = [unpack(path, chunk_bytes=size) for size in (64, 1000, 1 << 20)]
    assert results[0] == results[1] == results[2]
    assert results[0][0][:500] == content[:500]
    assert results[0][1]


# One bit of a table of codes is wrong: zlib refuses all of it, isal reads on and finds that the checksum is another.
FOR_ONE_DECODER_ONLY = base64.b64decode(
    "H4sIAAAAAAAAA2WMQQrDIBQFr1LeWkq0jUFPUiglGPux0JqKMQsJ3r1/Eciiu5kHf+4b0gsWNwh4V5jelGf6sM4uEnugGMfB8FAW2Gun5bkXeK4Ztm/i7x7SOkaKPtUj4b"
    "+pni5yTyjVyT1gBFwOvG2YaiEGqbQZdGuPHwVoaliZAAAA"
)


def test_nor_where_decoders_disagree_about_damage(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(FOR_ONE_DECODER_ONLY)
    results = [unpack(path, chunk_bytes=size) for size in (10, 50, 700, 1 << 20)]
    assert results[0][0].startswith(b'[{"ph":"X","cat":"kernel","name":"gemm_')
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_wrong_checksum_of_a_zip_costs_no_text(tmp_path, method):
    path = tmp_path / "trace.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a", TEXT)
    packed = path.read_bytes()
    checksum = zlib.crc32(TEXT).to_bytes(4, "little")
    path.write_bytes(packed.replace(checksum, bytes(4)))
    text, cut = unpack(path)
    assert text == TEXT
    assert "zip data is damaged" in cut


def test_a_zip_of_a_file_without_a_name(tmp_path):
    path = tmp_path / "trace.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(""), TEXT)
    assert unpack(path) == (TEXT, "")


def test_a_zip_packed_otherwise_than_by_deflate_is_refused(tmp_path):
    path = tmp_path / "trace.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a", TEXT)
    with pytest.raises(InputError, match="not packed by deflate") as caught:
        unpack(path)
    assert caught.value.hint == "Unpack it first: unzip trace.zip"


@pytest.mark.parametrize("pack", [lambda p, t: p.write_bytes(t), lambda p, t: p.write_bytes(gzip.compress(t)), lambda p, t: zipped(p, a=t)])
def test_bombs_are_stopped_at_the_limit(tmp_path, pack):
    path = tmp_path / "trace.json"
    pack(path, bytes(1_000_000))
    assert len(unpack(path, max_uncompressed_bytes=1_000_000)[0]) == 1_000_000
    with pytest.raises(LimitExceeded, match="more than 999999 bytes") as caught:
        unpack(path, max_uncompressed_bytes=999_999)
    assert "--max-uncompressed SIZE" in caught.value.hint


def test_no_file(tmp_path):
    with pytest.raises(TraceNotFound, match="does not exist"):
        unpack(tmp_path / "trace.json")


def test_a_directory_is_no_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        unpack(tmp_path)


@pytest.mark.parametrize("pack", [lambda p, t: p.write_bytes(t), lambda p, t: p.write_bytes(gzip.compress(t)), lambda p, t: zipped(p, a=t)])
def test_progress_grows_to_the_total(tmp_path, pack):
    path = tmp_path / "trace.json"
    pack(path, TEXT)
    seen = []
    unpack(path, progress=lambda done, total: seen.append((done, total)))
    done = [d for d, _ in seen]
    assert done == sorted(done)
    assert seen[-1][0] == seen[-1][1]


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (lambda t: t.rindex(b"PK\x05\x06") + 16, b"\xff\xff\xff\x7f"),  # the list of files begins behind the file
        (lambda t: t.rindex(b"PK\x05\x06") + 12, b"\xff\xff\xff\x7f"),  # and is longer than it
        (lambda t: t.rindex(b"PK\x01\x02") + 6, b"\xff\x00"),  # a version of 25.5
        (lambda t: t.rindex(b"PK\x01\x02") + 8, b"\x00\x08"),  # names in UTF-8
        (lambda t: t.rindex(b"PK\x01\x02") + 42, b"\xff\xff\xff\x7f"),  # the file is elsewhere
        (lambda t: t.index(b"PK\x03\x04") + 6, b"\x00\x08"),
        (lambda t: t.index(b"PK\x03\x04") + 26, b"\xff\xff"),
    ],
)
def test_a_zip_that_lies_about_itself_is_refused_or_read(where, value, tmp_path):
    path = zipped(tmp_path / "a.zip", café=TEXT)
    content = bytearray(path.read_bytes().replace("café".encode(), b"caf\xff\xff"))
    at = where(bytes(content))
    content[at : at + len(value)] = value
    path.write_bytes(bytes(content))
    try:
        text, cut = unpack(path)
    except TracereadError as refused:
        text, cut, message = TEXT, refused.hint, refused.message
    else:
        message = str(path)
    assert text == TEXT or cut
    assert str(path) in message
    assert "Check that it is a file" not in cut
