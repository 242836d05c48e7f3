"""Traces that one may send to others: names of kernels, ops and ranges and all times stay, the machine and its people do not.

What is kept is listed, format by format; whatever is not listed is left out. A copy takes its place only after its report was
compared with that of the original.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import IO, Any

from traceread.errors import InputError, OutputError, TracereadError
from traceread.readers import discover
from traceread.readers.formats import KINETO, REPORT_SUFFIXES
from traceread.readers.options import DEFAULTS, ReadOptions
from traceread.records import record
from traceread.remote import is_url
from traceread.run import FILE_NAME
from traceread.scrub import kineto, nsys
from traceread.scrub.checking import answers, comparable, difference
from traceread.scrub.job import kept_run
from traceread.scrub.texts import Texts

_NEW = "give a name that is not taken yet"
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


@record
class Scrubbed:
    """What was done.

    Attributes:
        path: the file or directory that was written.
        files: name of each file read, and of the one written for it.
        left_out: names of files beside the traces that were not copied.
        replaced: how many distinct hosts, users, paths and others got a stand-in.
        removed: how much of each kind was left out.
        differs: the first part of the report that is not the same, "" if all is.
    """

    path: Path
    files: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]
    replaced: Counter[str]
    removed: Counter[str]
    differs: str


def scrub(source: Path, target: Path, options: ReadOptions = DEFAULTS, *, allow_difference: bool = False) -> Scrubbed:
    """Writes a copy of a trace, or of the traces in a directory, that says nothing about the machine and the people.

    Args:
        source: a trace, or a directory of them, with run.json if there is one.
        target: what to write: a file for a file, a directory for a directory; it must not exist.
        options: limits and progress of reading.
        allow_difference: keep a copy whose report is not the same.

    Raises:
        TracereadError: as `traceread.analyze`, where the traces cannot be read.
        OutputError: the target exists or cannot be written, or the copy's report is another; nothing is left behind.
    """
    if is_url(str(source)):
        raise InputError(f"{source}: only files of this machine are scrubbed", "copy it here first")
    found = discover.find([source])
    names = _names(found.sources, target, is_folder=source.is_dir())
    _check_place(target, is_folder=source.is_dir())
    if not source.is_dir():
        _check_name(target, found.sources[0].format)
    texts, removed = Texts(), Counter[str]()
    with contextlib.ExitStack() as stack:
        originals = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="traceread-")))
        for trace, name in zip(found.sources, names, strict=True):
            _link(_readable(trace.path, options, stack), originals / name)
        descriptions = _descriptions(source) if source.is_dir() else []
        for description in descriptions:
            _link(description, originals / description.name)
        with _as_given(originals, dict(zip(names, (str(trace.path) for trace in found.sources), strict=True))):
            before = answers(originals, options)
        copies = stack.enter_context(_replacing(target, names, is_folder=source.is_dir()))
        _write(originals, copies, names, found.sources[0].format, texts, removed, options)
        for description in descriptions:
            text = json.dumps(kept_run(description, texts, removed), indent=1)
            (copies / description.name).write_text(text + "\n", "utf-8")
        texts.close()  # only what was replaced in the copies may be replaced in the report of the originals
        after = answers(copies, options)
        differs = difference(comparable(before, originals, texts), comparable(after, copies))
        if differs and not allow_difference:
            raise OutputError(
                f"{target} was not written: its report would differ from that of {source} in {differs}",
                "the file is damaged, or a name that had to be changed named steps or kernels; --allow-difference writes it all the same",
            )
    read = {*(trace.path.name for trace in found.sources), *(d.name for d in descriptions)}
    left_out = sorted(p.name for p in source.iterdir() if p.name not in read and p != target) if source.is_dir() else []
    files = [(trace.path.name, name) for trace, name in zip(found.sources, names, strict=True)]
    return Scrubbed(target, tuple(files), tuple(left_out), texts.counts, +removed, differs)


@contextlib.contextmanager
def _as_given(folder: Path, paths: dict[str, str]) -> Iterator[None]:
    """An error about a file names it as the user knows it."""
    try:
        yield
    except TracereadError as error:
        message, hint = error.message, error.hint
        for name, path in paths.items():
            there = re.compile(rf"(?:{re.escape(str(folder))}/)?{re.escape(name)}")
            message, hint = (there.sub(lambda _, path=path: path, text) for text in (message, hint))  # type: ignore[misc]
        raise type(error)(message, hint, error.slug) from None


def _names(sources: Sequence[discover.Source], target: Path, *, is_folder: bool) -> list[str]:
    """The names of the copies: of the file as given, in a directory by rank as far as it is known; theirs may tell the host."""
    if not is_folder:
        return [target.name]
    ranks = [discover.rank_in_name(s.path.name) if discover.rank_in_name(s.path.name) is not None else s.rank for s in sources]
    names, seen = [], Counter[int | None]()
    for trace, rank in zip(sources, ranks, strict=True):
        seen[rank] += 1
        several = "" if ranks.count(rank) == 1 else f"-{seen[rank]}"
        name = f"trace-{seen[rank]}" if rank is None else f"rank{rank}{several}"
        names.append(name + (".json.gz" if trace.format == KINETO else ".sqlite"))
    return names


def _check_place(target: Path, *, is_folder: bool) -> None:
    if is_folder and target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        hint = f"give a file in it: {quote(str(target / 'trace.json.gz'))}" if target.is_dir() and not is_folder else _NEW
        raise OutputError(f"{target} exists already, and nothing is ever overwritten", hint)
    if not target.parent.is_dir():
        raise OutputError(f"cannot write {target}: there is no directory {target.parent}", f"mkdir -p {quote(str(target.parent))}")


def _check_name(target: Path, format: str) -> None:
    if (target.suffix in (".json", ".gz", ".zip")) != (format == KINETO):
        holds, ending = ("a PyTorch trace", ".json.gz") if format == KINETO else ("an SQLite export", ".sqlite")
        raise OutputError(f"{target} would hold {holds}", f"end its name in {ending}")


def _readable(path: Path | str, options: ReadOptions, stack: contextlib.ExitStack) -> Path:
    """The file itself, or the export of a report."""
    path = Path(path)
    if path.suffix not in REPORT_SUFFIXES:
        return path
    from traceread.readers.nsys import exported

    return stack.enter_context(exported(path, options.nsys_timeout_s))


def _descriptions(folder: Path) -> list[Path]:
    """The files that describe the job."""
    of_job = folder / FILE_NAME
    return [of_job] if of_job.is_file() else sorted(folder.glob("run.rank*.json"))


def _link(path: Path, link: Path) -> None:
    """The file under another name: so both sides are read under the names of the copies, and a name cannot make a difference."""
    try:
        link.symlink_to(path.resolve())
    except OSError:
        shutil.copyfile(path, link)


def _write(
    originals: Path, copies: Path, names: Sequence[str], format: str, texts: Texts, removed: Counter[str], options: ReadOptions
) -> None:
    """Writes the copies; what is to be replaced is gathered from all before the first is written."""
    if format != KINETO:
        for name in names:
            nsys.learn(originals / name, texts, options)
        for name in names:
            nsys.write(originals / name, copies / name, texts, removed, options)
        return
    heads = [kineto.learn(originals / name, texts, options) for name in names]
    for name, (metadata, truncated) in zip(names, heads, strict=True):
        with _packed(copies / name) as out:
            kineto.write(originals / name, out, metadata, truncated, texts, removed, options)


@contextlib.contextmanager
def _packed(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, packed as its name says; no name and no time of this machine goes into it."""
    from isal import igzip

    with path.open("xb") as file:
        if path.suffix == ".gz":
            packed: Any = igzip.IGzipFile(filename="", mode="wb", compresslevel=2, fileobj=file, mtime=0)  # type: ignore[no-untyped-call]
            with packed:
                yield packed
        elif path.suffix == ".zip":
            with (
                zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
                archive.open(zipfile.ZipInfo("trace.json", _ZIP_DATE), "w", force_zip64=True) as member,
            ):
                yield member
        else:
            yield file


@contextlib.contextmanager
def _replacing(target: Path, names: Sequence[str], *, is_folder: bool) -> Iterator[Path]:
    """A directory beside the target whose files take its place once the block has ended well; else nothing of it is left.

    Raises:
        OutputError: they cannot be written.
    """
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", suffix=".part", dir=target.parent) as beside:
            copies = Path(beside, "copies")
            copies.mkdir()  # one with the permissions that new directories get here
            yield copies
            for file in copies.iterdir():
                with file.open("rb+") as written:
                    os.fsync(written.fileno())
            _check_place(target, is_folder=is_folder)  # it may have been made meanwhile
            (copies if is_folder else copies / names[0]).replace(target)
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror or error}", "choose another place") from None
