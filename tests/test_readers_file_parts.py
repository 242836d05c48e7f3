"""Parts of a file scanned at once, against the same file read as one text."""

import gzip
import os
import random
import subprocess
import sys
import threading
from contextlib import ExitStack, closing

import pytest
from kineto_builder import two_steps
from test_readers_scanner import traced

from traceread.readers import file_parts, scanner
from traceread.readers.event_columns import Columns, decoded_many
from traceread.readers.file_parts import FileParts, Stretch, head_start
from traceread.readers.options import ReadOptions

pytestmark = pytest.mark.skipif(not scanner.is_available(), reason="the compiled scanner was not built")

NAMES = ["kernel", "},{", '},{\\"ph\\":\\"X\\"', "}, {", "aten::mm", "é", "}" * 40, "x" * 3000]


def event(number, name, inner=b'{"a":1},{"b":2}'):
    return b'{"ph":"X","cat":"kernel","name":"%s","pid":0,"tid":7,"ts":%d.5,"dur":2,"args":{"stream":7,"list":[%s]}}' % (
        name.encode(),
        number,
        inner,
    )


def damaged_texts(text):
    """Forty texts, the first as it is and the others with a few bytes wrong, each with what else is left to chance."""
    for i in range(40):
        chance = random.Random(i)
        damaged = bytearray(text)
        if i:
            at = chance.randrange(len(text))
            damaged[at : at + chance.choice((0, 1, 5))] = chance.choice((b"", b",", b'"', b"}", b"},{", b"]", b'},{"ph":"X"'))
        yield chance, damaged


def scanned(path, begin, stop, *, length=100, buffer_bytes=1 << 19, threads=1, early=False):
    """Times of the events in the parts of a file, and where each part ends."""
    with path.open("rb") as file, closing(FileParts(file.fileno(), Stretch(begin, stop, length, buffer_bytes, threads))) as parts:
        if early:
            parts.begin_early()
        columns, starts, ends = Columns(), [], []
        for part in parts:
            starts += columns.scanned(part.scan).start_ns.tolist()
            ends.append(part.end)
        return starts, ends


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("separator", [b",", b", ", b",\n  ", b"\n,\n" + b" " * 200])
def test_parts_are_read_as_the_whole_is(tmp_path, threads, separator, early):
    events = [event(i, random.Random(i).choice(NAMES)) for i in range(1, 200)]
    text = b"[" + separator.join(events) + b"]"
    path = tmp_path / "a.json"
    path.write_bytes(text)
    expected = Columns().batch(decoded_many(text[1:-1])).start_ns.tolist()
    for length in (50, 333, 5000, 1 << 20):
        starts, ends = scanned(path, 1, len(text) - 1 - len(events[-1]), threads=threads, length=length, early=early)
        assert starts == expected[:-1]
        assert text[ends[-1] :].strip(b", \n") == events[-1] + b"]"


@pytest.mark.parametrize("inner", [b'{"a":1},{"name":"in"}', b'{"a":{}}, {"ph":1}', b'"},{\\"ph\\":1"', b'{"a":1},{"ts":2,"dur":"3"}'])
def test_what_looks_like_an_event_at_most_ends_the_parts(tmp_path, inner):
    path = tmp_path / "a.json"
    text = b"[" + b",".join(event(i, "kernel", inner) for i in range(1, 60)) + b"]"
    path.write_bytes(text)
    for length in range(20, 400, 7):
        starts, ends = scanned(path, 1, len(text) - 200, length=length)
        assert starts == [1000 * i + 500 for i in range(1, len(starts) + 1)]
        assert not ends or text[ends[-1] :].startswith(b',{"ph":"X"')


def test_a_long_event_ends_the_parts(tmp_path):
    path = tmp_path / "a.json"
    text = b"[" + b",".join(event(i, "x" * (1500 if i == 5 else 2500 if i == 9 else 10)) for i in range(1, 30)) + b"]"
    path.write_bytes(text)
    starts, _ = scanned(path, 1, len(text) - 10, buffer_bytes=2000)
    assert starts == [1500, 2500, 3500, 4500, 5500, 6500, 7500, 8500]


def test_a_file_that_became_shorter(tmp_path):
    path = tmp_path / "a.json"
    text = b"[" + b",".join(event(i, "kernel") for i in range(1, 100)) + b"]"
    path.write_bytes(text[: len(text) // 2])
    starts, ends = scanned(path, 1, len(text))
    assert 0 < len(starts) < 99
    assert ends[-1] < len(text) // 2


@pytest.mark.parametrize("layout", ["kineto", "compact", "indent", "shuffled"])
@pytest.mark.parametrize("threads", [1, 3])
def test_traces_are_read_alike(tmp_path, layout, threads):
    path = tmp_path / "a.json"
    text = two_steps().text(layout=layout)
    assert len(text) > 3000
    for i, (chance, damaged) in enumerate(damaged_texts(text)):
        path.write_bytes(damaged)
        assert traced(path, chunk_bytes=chance.choice((64, 300, 1000)), threads=threads) == traced(path, compiled=False), i


def test_threads_leave_the_interpreter_as_it_was(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"[" + b",".join(event(i, "kernel") for i in range(1, 50)) + b"]")
    before = sys.getswitchinterval()
    with ExitStack() as files:
        at_once = []
        for _ in range(2):  # two who read at the same time, the first of whom ends first
            file = files.enter_context(path.open("rb"))
            at_once.append(FileParts(file.fileno(), Stretch(1, path.stat().st_size - 200, 100, 1 << 19, 2)))
            next(iter(at_once[-1]))
        assert sys.getswitchinterval() < before
        for parts in at_once:
            parts.close()
    assert sys.getswitchinterval() == before


def test_a_part_with_more_rows_than_those_before(tmp_path):
    short = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%d,"dur":2}'
    rows = [event(i, "x" * 2000) for i in range(1, 100)] + [short % i for i in range(100, 3000)]
    path = tmp_path / "a.json"
    text = b"[" + b",".join(rows) + b"]"
    path.write_bytes(text)
    starts, ends = scanned(path, 1, len(text) - 1 - len(rows[-1]), length=20_000)
    assert len(starts) == len(rows) - 1
    assert text[ends[-1] :] == b"," + rows[-1] + b"]"


def begun_early(path, **options):
    """How the parts of a trace are read after a head start: with what was begun, what a trace says, and what without."""
    options = {"threads": 2} | options
    with head_start(path, ReadOptions(**options), 0) as begun:
        seen = traced(path, **options, head_start=begun)
    return begun, seen, traced(path, **options)


@pytest.mark.parametrize("layout", ["kineto", "compact", "indent", "shuffled"])
def test_a_head_start_changes_nothing(tmp_path, layout):
    path = tmp_path / "a.json"
    text = two_steps().text(layout=layout)
    for i, (chance, damaged) in enumerate(damaged_texts(text)):
        path.write_bytes(damaged)
        begun, seen, expected = begun_early(path, chunk_bytes=chance.choice((64, 300, 1000)))
        assert seen == expected, i
        if not i:
            assert begun.taken(0, None) is None


def test_a_head_start_is_taken_once_and_by_whoever_reads_the_same(tmp_path):
    path, other = tmp_path / "a.json", tmp_path / "b.json"
    for each in (path, other):
        two_steps().write(each)
    options = ReadOptions(chunk_bytes=300, threads=2)
    begin = path.read_bytes().index(b"{", path.read_bytes().index(b"traceEvents"))
    stretch = Stretch.of(begin, path.stat().st_size, 2, options)
    with head_start(path, options, 0) as begun, path.open("rb") as file, other.open("rb") as another:
        assert begun.taken(another.fileno(), stretch) is None
        assert begun.taken(file.fileno(), stretch._replace(begin=begin + 1)) is None
        with closing(begun.taken(file.fileno(), stretch)) as parts:
            assert sum(part.scan.told.objects for part in parts) > 10
        assert begun.taken(file.fileno(), stretch) is None


def test_a_file_that_is_written_to_meanwhile_is_read_anew(tmp_path):
    path = tmp_path / "a.json"
    two_steps().write(path)
    options = {"chunk_bytes": 300, "threads": 2}
    with head_start(path, ReadOptions(**options), 0) as begun:
        begun._parts._early_thread.join()
        path.write_bytes(path.read_bytes().replace(b"ProfilerStep#", b"ProfilerStop#"))
        os.utime(path, (1, 1))  # the size is as it was
        seen = traced(path, **options, head_start=begun)
    assert seen == traced(path, **options)
    assert "ProfilerStop#5" in seen[0]["names"]


def test_what_no_head_start_is_made_of(tmp_path):
    path = tmp_path / "a.json"
    two_steps().write(path)

    def is_begun(path, least_bytes=0, **options):
        with head_start(path, ReadOptions(**({"threads": 2} | options)), least_bytes) as begun:
            return begun is not None

    assert is_begun(path)
    assert is_begun(path, path.stat().st_size)
    assert not is_begun(path, path.stat().st_size + 1)
    assert not is_begun(path, threads=1)
    assert not is_begun(path, compiled=False)
    assert not is_begun(tmp_path)
    assert not is_begun(tmp_path / "none.json")
    for text in (gzip.compress(path.read_bytes()), b"", b'{"a": 1}', b'{"traceEvents": []}'):
        (tmp_path / "other").write_bytes(text)
        assert not is_begun(tmp_path / "other")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        assert not is_begun(tmp_path / "pipe")


def test_a_head_start_has_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(file_parts, "_MOST_EARLY", 2)
    path = tmp_path / "a.json"
    path.write_bytes(b"[" + b",".join(event(i, "kernel") for i in range(1, 200)) + b"]")
    before = threading.active_count()
    begun, seen, expected = begun_early(path, chunk_bytes=300)
    assert begun is not None
    assert seen == expected
    with head_start(path, ReadOptions(chunk_bytes=300, threads=2), 0):  # nobody takes it
        pass
    assert threading.active_count() == before


def test_without_threads_there_is_no_head_start(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    two_steps().write(path)

    def start(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as context:
        context.setattr(threading.Thread, "start", start)
        with head_start(path, ReadOptions(chunk_bytes=300, threads=2), 0) as begun:
            pass
    assert traced(path, chunk_bytes=300, threads=2, head_start=begun) == traced(path, chunk_bytes=300, threads=2)


def test_scanning_begins_without_numpy():
    code = "import sys, traceread.readers.file_parts; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
