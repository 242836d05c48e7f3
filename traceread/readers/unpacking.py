"""One file as stored in, its unpacked bytes out: plain, gzip (several members too), or a zip that holds one file.

What a file is packed with is told by its first bytes, never by its name: captures get renamed.
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import IO

from traceread.errors import CorruptTrace, InputError, LimitExceeded, TraceNotFound
from traceread.readers.options import UNPACKED_FREELY, ReadOptions

GZIP_MAGIC = b"\x1f\x8b"
ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
_PACKED_BLOCK = 1 << 18
_ODD_ZIP = (OSError, ValueError, EOFError, NotImplementedError)
"""What the standard library raises beside its own error for places before the file, names that are no UTF-8, or a version of 60.3."""


class Unpacked:
    """A file whose unpacked bytes `blocks` yields.

    Attributes:
        path: the file.
        cut: why the packed data ended before its end, "" if it did not. Known after the last block.
        plain: the open file, once blocks of one that is not packed are asked for; None before, and if it is packed.
        size: bytes as stored, once blocks are asked for.
    """

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self.cut = ""
        self.plain: IO[bytes] | None = None
        self._options = options
        self._out = 0
        self._total: int | None = None
        self.size = 0

    def blocks(self) -> Generator[bytes, None, None]:
        """The bytes, a block at a time.

        Raises:
            TraceNotFound: there is no such file.
            InputError: it cannot be read, or the zip does not hold exactly one file.
            CorruptTrace: the zip is broken beyond reading.
            LimitExceeded: more than `max_uncompressed_bytes` came out, or more than `max_unpacked_ratio` allows.
        """
        limit = self._options.max_uncompressed_bytes
        for block in self._stored():
            self._out += len(block)
            if self._out > max(UNPACKED_FREELY, self._options.max_unpacked_ratio * self.size):
                raise LimitExceeded(
                    f"{self.path} unpacks to more than {self._options.max_unpacked_ratio} times its size, as no capture does",
                    "If you trust the file: --max-uncompressed SIZE reads so much of it",
                )
            if self._out > limit:
                raise LimitExceeded(
                    f"{self.path} unpacks to more than {limit} bytes", "If you trust the file: --max-uncompressed SIZE reads more of it"
                )
            yield block

    def move(self, offset: int) -> None:
        """Goes on with the bytes of a plain file from here; those before were read otherwise."""
        assert self.plain is not None
        self._out = self.plain.seek(offset)
        self._report(offset)

    def _stored(self) -> Iterator[bytes]:
        try:
            with self.path.open("rb") as file:
                self._total = self.size = self.path.stat().st_size
                magic = file.read(4)
                file.seek(0)
                if magic.startswith(GZIP_MAGIC):
                    yield from self._gunzip(file)
                elif magic in ZIP_MAGIC:
                    yield from self._unzip(file)
                else:
                    self.plain = file
                    while block := file.read(self._options.chunk_bytes):
                        self._report(file.tell())
                        yield block
        except FileNotFoundError as e:
            raise TraceNotFound(f"{self.path} does not exist", "Check the path; a directory or a pattern works as well") from e
        except OSError as e:
            raise InputError(f"{self.path} cannot be read: {e.strerror or e}", "Check that it is a file and that you may read it") from e

    def _gunzip(self, file: IO[bytes]) -> Iterator[bytes]:
        from isal import igzip_lib  # as zipfile below: plain files do without

        member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
        packed = b""
        start = out = 0
        while True:
            if member.eof:
                # Members may follow each other, and tape-like tools pad with zeros.
                packed = member.unused_data.lstrip(b"\0")
                while len(packed) < 2 and (block := file.read(_PACKED_BLOCK)):
                    packed = (packed + block).lstrip(b"\0")
                if not packed.startswith(GZIP_MAGIC):
                    self.cut = "bytes that are not gzip follow its data" if packed else ""
                    return
                start, out = file.tell() - len(packed), 0
                member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
            elif member.needs_input:
                packed = file.read(_PACKED_BLOCK)
                if not packed:
                    self.cut = "the gzip data ends early"
                    return
                self._report(file.tell())
            else:
                packed = b""
            try:
                block = member.decompress(packed, self._options.chunk_bytes)
            except (igzip_lib.error, ValueError) as e:  # type: ignore[misc]  # its stub takes the class for an instance
                self.cut = f"the gzip data is damaged ({e})"
                file.seek(start)
                _skip_gzip_header(file)
                yield from _up_to_damage(file, out)
                return
            if block:
                out += len(block)
                yield block

    def _unzip(self, file: IO[bytes]) -> Iterator[bytes]:
        import zipfile

        try:
            archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, *_ODD_ZIP) as e:
            raise CorruptTrace(f"{self.path} is a broken zip: {e}", "Copy it again from where it was recorded") from e
        members = [m for m in archive.infolist() if not m.filename.endswith("/")]
        if len(members) != 1:
            raise InputError(
                f"{self.path} is a zip of {len(members)} files; one trace per zip is read",
                f"Unpack it and give the directory: unzip {quote(self.path.name)} -d traces",
            )
        if members[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise InputError(f"{self.path} cannot be unpacked: its file is not packed by deflate", self._unzip_first())
        self._total = members[0].file_size
        start = out = 0
        try:
            with archive.open(members[0]) as stored:
                start = file.tell()  # the header of the member has been read
                while block := stored.read(self._options.chunk_bytes):
                    self._report(stored.tell())
                    out += len(block)
                    yield block
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as e:
            self.cut = f"the zip data is damaged ({e})"
            if members[0].compress_type == zipfile.ZIP_DEFLATED:
                file.seek(start)
                yield from _up_to_damage(file, out)
            else:
                file.seek(start + out)
                while block := file.read(min(self._options.chunk_bytes, max(0, members[0].file_size - out))):
                    out += len(block)
                    yield block
        except (RuntimeError, NotImplementedError) as e:  # encrypted, or patched data
            raise InputError(f"{self.path} cannot be unpacked: {e}", self._unzip_first()) from e

    def _unzip_first(self) -> str:
        return f"Unpack it first: unzip {quote(self.path.name)}"

    def _report(self, done: int) -> None:
        if self._options.progress is not None:
            self._options.progress(done, self._total)


def _up_to_damage(file: IO[bytes], skip: int) -> Iterator[bytes]:
    """What can be unpacked of the deflated data at the file's position without the first `skip` bytes, whatever its checksum says.

    As far as either decoder gets: each gives up on codes that the other understands, and only so it is the same however much the
    first attempt had unpacked. Only damaged files pay for it.
    """
    start = file.tell()
    for decoded in (_by_zlib, _by_isal):
        file.seek(start)
        done = 0
        for block in decoded(file):
            done += len(block)
            if done > skip:
                yield block[skip - done :]
                skip = done


def _by_zlib(file: IO[bytes]) -> Iterator[bytes]:
    """What zlib unpacks: it gives nothing of the call in which it meets damage, so calls get shorter there."""
    decoder = zlib.decompressobj(-zlib.MAX_WBITS)
    packed = b""
    size = _PACKED_BLOCK
    while size and not decoder.eof:
        packed = packed or file.read(_PACKED_BLOCK)
        before = decoder.copy()
        try:
            block = decoder.decompress(packed, size)
        except zlib.error:
            decoder = before
            size //= 2
            continue
        if not packed and not block:
            return
        packed = decoder.unconsumed_tail
        yield block


def _by_isal(file: IO[bytes]) -> Iterator[bytes]:
    """What isal unpacks; without the frame of gzip it gives all it can before it complains."""
    from isal import igzip_lib

    decoder = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_DEFLATE)
    with suppress(igzip_lib.error, ValueError):  # type: ignore[arg-type]  # its stub takes the class for an instance
        while not decoder.eof:
            packed = file.read(_PACKED_BLOCK) if decoder.needs_input else b""
            if decoder.needs_input and not packed:
                return
            yield decoder.decompress(packed, _PACKED_BLOCK)


def _skip_gzip_header(file: IO[bytes]) -> None:
    """Moves behind the header of a gzip member (RFC 1952, section 2.3)."""
    flags = file.read(10)[3:4]
    extra, name, comment, checksum = ((flags or b"\0")[0] & bit for bit in (4, 8, 16, 2))
    if extra:
        file.seek(int.from_bytes(file.read(2), "little"), 1)
    for text in (name, comment):
        while text and file.read(1).strip(b"\0"):
            pass
    if checksum:
        file.read(2)
