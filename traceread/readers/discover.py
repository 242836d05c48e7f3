"""A path in, a `Profile` out: which files are traces, which rank each one is, and the traces themselves in order of rank.

A rank comes from what the trace states (distributedInfo, the captured environment, MPI), else from the name of its file, else
from the order of the files, which is said. Files that are not part of the profile are listed with the reason.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from shlex import quote

from traceread.errors import InputError, Notice, SelectionError, TraceNotFound, TracereadError, UnknownFormat
from traceread.model import NOT_RECORDED, Profile, Trace
from traceread.readers import kineto
from traceread.readers.formats import KINETO, NSYS, REPORT_SUFFIXES, format_of, head_of, is_json, rank_in_head
from traceread.readers.limits import refuse_more
from traceread.readers.options import DEFAULTS, Progress, ReadOptions
from traceread.readers.windows import captures, joined
from traceread.records import record
from traceread.remote import RemotePath, fetched, identity, is_url, listed
from traceread.remote import head_of as head_here


def _read_nsys(path: Path, options: ReadOptions) -> list[Trace]:
    from traceread.readers import nsys  # most captures are the other kind

    return nsys.read(path, options)


READERS = {KINETO: kineto.read, NSYS: _read_nsys}

_OWN_FILES = re.compile(r"run\.json|run\.rank\d+\.json|steps\.[\w.]+\.jsonl|truth\.json|traceread\.toml")
_RANK = re.compile(r"(?<![a-z])(?<!local[-_])rank[-_]?(\d{1,7})", re.IGNORECASE)
_WORKER = re.compile(r"(?<![a-z])worker[-_]?(\d{1,7})", re.IGNORECASE)
_WHAT_IS_READ = "traceread reads files of torch.profiler's export_chrome_trace and of: nsys export --type sqlite"


@record
class Source:
    """A file that holds traces, before it is read.

    Attributes:
        path: the file.
        format: "kineto" or "nsys".
        rank: its rank as far as its head or its name tell, None if they do not.
        rank_source: "distributedInfo", "file name" or "".
        size: bytes as stored, 0 if not known.
    """

    path: Path
    format: str
    rank: int | None = None
    rank_source: str = ""
    size: int = 0


@record
class Found:
    """The sources behind some paths, in order of rank and name, and the files left out with the reason."""

    sources: tuple[Source, ...]
    skipped: tuple[tuple[Path, str], ...] = ()

    def that_may_hold(self, ranks: Collection[int] | None) -> tuple[Source, ...]:
        """The sources that may hold one of these ranks, as far as is known without reading; all of them for None."""
        return tuple(s for s in self.sources if ranks is None or s.rank is None or s.rank in ranks)

    def ranks_beside(self, sources: Collection[Source]) -> frozenset[int]:
        """The ranks that the sources not among these state."""
        return frozenset(s.rank for s in self.sources if s.rank is not None) - {s.rank for s in sources}


def load_traces(
    paths: Sequence[str | Path],
    *,
    source: str | None = None,
    ranks: Collection[int] | None = None,
    options: ReadOptions = DEFAULTS,
) -> Profile:
    """All ranks of one capture, in order of rank; activities are not classified yet.

    Args:
        paths: files, directories (read without their subdirectories), glob patterns, and URLs of such.
        source: "kineto" or "nsys" where both are there.
        ranks: only these; files that cannot hold them are not read.
        options: limits, and a place to report progress over all files.

    Raises:
        TraceNotFound: there is no such file, or none that is a trace.
        UnknownFormat: a file given by name is neither.
        InputError: both formats, or two files that claim one rank.
        SelectionError: a rank that is not there.
        CorruptTrace, UnsupportedSchema, LimitExceeded: one of the files cannot be read; the message names it and its rank.
    """
    found = find(paths, source=source)
    needed = found.that_may_hold(ranks)
    others = found.ranks_beside(needed)
    traces, notices = ranked(_read(needed, options), others)
    if others and not_there(ranks, traces):
        # A name may say another rank than the trace itself, so before giving up everything is read.
        traces, notices = ranked(_read(found.sources, options))
    return profile_of(paths, found, traces, notices, ranks)


def profile_of(
    paths: Sequence[str | Path], found: Found, traces: Sequence[Trace], notices: Sequence[Notice], ranks: Collection[int] | None
) -> Profile:
    """The profile of these traces, of those with the wanted ranks if any are given.

    Raises:
        SelectionError: a rank that is not there.
    """
    if missing := not_there(ranks, traces):
        raise SelectionError(
            f"no rank {_numbers(missing)} in {_title(paths)}: it holds {_numbers(trace.rank for trace in traces)}",
            f"--ranks {_numbers(trace.rank for trace in traces)}",
        )
    kept = tuple(trace for trace in traces if ranks is None or trace.rank in ranks)
    return Profile(found.sources[0].format, _title(paths), kept, tuple(notices), found.skipped)


def not_there(ranks: Collection[int] | None, traces: Iterable[Trace]) -> frozenset[int]:
    """The wanted ranks that no trace has."""
    return frozenset(ranks or ()) - {trace.rank for trace in traces}


def find(paths: Sequence[str | Path], *, source: str | None = None) -> Found:
    """The files behind these paths that hold traces, without reading more than their heads.

    Raises TraceNotFound if there is none, UnknownFormat if a file given by name is none, InputError if both formats are there.
    """
    if source not in (None, KINETO, NSYS):
        raise SelectionError(f"no format {source!r}: there are {KINETO} and {NSYS}", f"--format {KINETO}")
    if not paths:
        raise TraceNotFound("no path was given", "traceread report DIRECTORY")
    sources: list[Source] = []
    skipped: list[tuple[Path, str]] = []
    seen: set[str] = set()
    listed = list(_listed(paths))
    exports = {path.with_suffix("") for path, _ in listed if path.suffix == ".sqlite"}
    for path, by_name in listed:
        target = os.path.realpath(path)
        if target in seen or (not by_name and _OWN_FILES.fullmatch(path.name)):
            continue
        seen.add(target)
        if not by_name and path.name.endswith(".tmp"):
            skipped.append((path, "left behind by a profiler that did not finish; it is read if its name is given"))
        elif not by_name and path.suffix in REPORT_SUFFIXES and path.with_suffix("") in exports:
            skipped.append((path, f"its export {path.with_suffix('.sqlite').name} is read instead"))
        else:
            found = _source(path, by_name)
            if isinstance(found, str):
                skipped.append((path, found))
            else:
                sources.append(found)
    chosen = _of_one_format(sources, skipped, source)
    if not chosen:
        raise _nothing_found(paths, skipped, source)
    order = sorted(chosen, key=lambda s: (s.rank is None, s.rank or 0, _natural(s.path)))
    return Found(tuple(order), tuple(skipped))


def read(source: Source, options: ReadOptions = DEFAULTS) -> list[Trace]:
    """The traces in one source, as its reader makes them; an error names the file and, where known, its rank."""
    try:
        if options.cache is None:
            return _read_whole(source, options)
        from traceread.cache import Cache

        cache = Cache(options.cache, options.limits)
        known = identity(source.path) if isinstance(source.path, RemotePath) else ""
        return cache.read(source.path, lambda: _read_whole(source, options), known)
    except TracereadError as error:
        message = error.message if str(source.path) in error.message else f"{source.path}: {error.message}"
        whose = "" if source.rank is None else f"rank {source.rank}: "
        raise type(error)(whose + message, error.hint, error.slug) from error
    except OSError as error:
        raise InputError(f"{source.path} cannot be read: {error.strerror or error}", f"ls -l {quote(str(source.path))}") from error


def _read_whole(source: Source, options: ReadOptions) -> list[Trace]:
    if not isinstance(source.path, RemotePath):
        traces = READERS[source.format](source.path, options)
    else:
        with fetched(source.path) as local:
            traces = [replace(trace, files=(source.path,)) for trace in READERS[source.format](local, options)]
    refuse_more(source.path, len(traces), options.max_gpus, "GPUs")
    refuse_more(source.path, max((len(trace.threads) for trace in traces), default=0), options.max_threads, "host threads")
    return traces


def rank_in_name(name: str) -> int | None:
    """The rank that the name of a file states: rank3, rank-3, rank_3, worker3; never r3, and not a local rank."""
    stated = _RANK.search(name) or _WORKER.search(name)
    return int(stated[1]) if stated else None


# --- which files -------------------------------------------------------------------------------------------------------------


def _listed(paths: Sequence[str | Path]) -> Iterator[tuple[Path, bool]]:
    """The files behind the paths, each with whether it was given by its own name."""
    for given in paths:
        if isinstance(given, str) and is_url(given):
            files = listed(given)
            yield from ((file, str(file) == given) for file in sorted(files, key=_natural))
            continue
        path = Path(given).expanduser()
        if path.is_dir():
            yield from ((file, False) for file in _files_in(path))
        elif path.exists():
            yield path, True
        elif glob.has_magic(str(path)):
            matches = sorted(map(Path, glob.glob(str(path))), key=_natural)  # noqa: PTH207 - a pattern may be absolute
            if not matches:
                raise TraceNotFound(f"no file matches {path}", _look_around(path.parent))
            for match in matches:
                yield from ((file, False) for file in (_files_in(match) if match.is_dir() else [match]))
        elif path.is_symlink():
            raise TraceNotFound(f"{path} is a link to a file that does not exist", f"ls -l {quote(str(path))}")
        else:
            raise TraceNotFound(f"{path} does not exist", _look_around(path.parent))


def _files_in(folder: Path) -> list[Path]:
    try:
        return sorted((entry for entry in folder.iterdir() if not entry.is_dir()), key=_natural)
    except OSError as error:
        raise InputError(f"{folder} cannot be read: {error.strerror}", f"ls -ld {quote(str(folder))}") from error


def _source(path: Path, by_name: bool) -> Source | str:
    """What a file is, or why it is none; a file given by its own name that is none raises UnknownFormat."""
    if isinstance(path, RemotePath):
        with head_here(path) as local:
            found = _source_here(local, by_name)
        return found if isinstance(found, str) else replace(found, path=path, size=max(path.size, 0))
    return _source_here(path, by_name)


def _source_here(path: Path, by_name: bool) -> Source | str:
    kind, instead = format_of(path)
    head = head_of(path) if kind == KINETO or (by_name and instead.startswith("JSON")) else b""
    if by_name and not kind:
        if not is_json(head):
            raise UnknownFormat(f"{path} is neither a PyTorch trace nor an Nsight Systems export: {instead}", _WHAT_IS_READ)
        kind = KINETO  # its reader knows better than its head, or says what is wrong
    if not kind:
        return instead
    size = path.stat().st_size
    stated = rank_in_head(head)
    if stated is not None:
        return Source(path, kind, stated, "distributedInfo", size)
    named = rank_in_name(path.name)
    return Source(path, kind, named, "" if named is None else "file name", size)


def _of_one_format(sources: Sequence[Source], skipped: list[tuple[Path, str]], wanted: str | None) -> list[Source]:
    first = {kind: next((s for s in sources if s.format == kind), None) for kind in (KINETO, NSYS)}
    if wanted is None and (trace := first[KINETO]) and (export := first[NSYS]):
        raise InputError(
            f"both formats are here, and one profile is made of one: {trace.path} is a PyTorch trace, {export.path} is of nsys",
            f"--format {KINETO}, or --format {NSYS}",
            "mixed-formats",
        )
    skipped += [(s.path, f"{s.format}, and --format {wanted} was asked for") for s in sources if wanted not in (None, s.format)]
    return [s for s in sources if wanted in (None, s.format)]


def _nothing_found(paths: Sequence[str | Path], skipped: Sequence[tuple[Path, str]], wanted: str | None) -> TraceNotFound:
    kind = {KINETO: "PyTorch trace", NSYS: "Nsight Systems export"}.get(wanted or "", "trace")
    there = "; ".join(f"{path.name}: {reason}" for path, reason in skipped[:5]) or "no files"
    more = f" and {len(skipped) - 5} more" if len(skipped) > 5 else ""
    folders = [
        entry.name for p in map(Path, paths) if p.is_dir() for entry in sorted(p.iterdir()) if entry.is_dir() and entry.name[0] != "."
    ]
    hint = f"Subdirectories are not searched: traceread report {quote(str(Path(paths[0], folders[0])))}" if folders else _WHAT_IS_READ
    return TraceNotFound(f"no {kind} in {_title(paths)} ({there}{more})", hint)


def _look_around(folder: Path) -> str:
    """A hint with a few of the names in a directory, or in the nearest one above it that exists."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    try:
        names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError:
        return f"ls {quote(str(folder))}"
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"{folder} holds {shown}" if names else f"{folder} is empty"


def _title(paths: Sequence[str | Path]) -> str:
    return str(paths[0]) + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")


def _natural(path: Path) -> list[tuple[int, str]]:
    """A key by which rank2 comes before rank10."""
    return [(int(part), "") if part.isdecimal() and part.isascii() else (-1, part) for part in re.split(r"(\d{1,18})", str(path)) if part]


# --- which rank --------------------------------------------------------------------------------------------------------------


def _read(sources: Sequence[Source], options: ReadOptions) -> list[tuple[Source, list[Trace]]]:
    """The traces of each source; progress counts over all of them."""
    sizes = [source.size for source in sources]
    result = []
    for i, source in enumerate(sources):
        own = options
        if options.progress is not None:
            own = replace(options, progress=part_of(options.progress, sum(sizes[:i]), sizes[i], sum(sizes)))
        result.append((source, read(source, own)))
    return result


def part_of(progress: Progress, before: int, size: int, total: int) -> Progress:
    """Progress of one file as progress of them all."""

    def report(done: int, of: int | None) -> None:
        progress(before + (size * min(done, of) // of if of else 0), total)

    return report


def ranked(
    read: Sequence[tuple[Source, list[Trace]]], taken: Collection[int] = (), numbers: Iterable[int] | None = None
) -> tuple[list[Trace], list[Notice]]:
    """The traces with their ranks, in order; successive captures of a rank joined.

    Args:
        read: the traces of each source.
        taken: ranks of sources that were not read.
        numbers: what traces that state no rank get, in order; the smallest that are free if None.

    Raises:
        InputError: two sources claim one rank.
    """
    notices: list[Notice] = []
    known: list[Trace] = []
    unknown: list[Trace] = []
    for source, traces in read:
        traces, shared = _without_shared_notices(traces)
        notices += shared
        for trace in _named(source, traces, notices):
            (unknown if trace.rank == NOT_RECORDED else known).append(trace)
    by_rank: dict[int, list[Trace]] = {}
    for trace in known:
        by_rank.setdefault(trace.rank, []).append(trace)
    unnumbered = captures(unknown)
    free = (number for number in (count() if numbers is None else numbers) if number not in by_rank and number not in taken)
    numbered = dict(zip(free, unnumbered, strict=False))
    if len(numbered) > 1 or (numbered and by_rank):
        shown = "; ".join(f"{number} is {_whose(group[0])}" for number, group in list(numbered.items())[:4])
        more = f" and {len(numbered) - 4} more" if len(numbered) > 4 else ""
        notices.append(Notice("rank-order", f"no rank is recorded for {len(numbered)} traces; they are numbered in order: {shown}{more}"))
    for number, group in numbered.items():
        by_rank[number] = [replace(trace, rank=number, rank_source="order") for trace in group]
    return [_one(rank, by_rank[rank]) for rank in sorted(by_rank)], notices


def _named(source: Source, traces: Sequence[Trace], notices: list[Notice]) -> Iterator[Trace]:
    """The traces of one file with the ranks that they, or else the name of the file, state; -1 where neither does."""
    in_name = rank_in_name(source.path.name)
    for trace in traces:
        if trace.rank != NOT_RECORDED and [t.rank for t in traces].count(trace.rank) > 1:
            # One process with several GPUs states one rank for all of them.
            yield replace(trace, rank=NOT_RECORDED, rank_source="")
        elif trace.rank == NOT_RECORDED and in_name is not None and len(traces) == 1:
            yield replace(trace, rank=in_name, rank_source="file name")
        else:
            if in_name not in (None, trace.rank) and len(traces) == 1:
                message = f"{source.path.name} says rank {in_name} in its name and {trace.rank} inside ({trace.rank_source}), which counts"
                notices.append(Notice("rank-name", message, trace.rank))
            yield trace


def _without_shared_notices(traces: Sequence[Trace]) -> tuple[list[Trace], list[Notice]]:
    """The traces of one file without the notices that all of them carry, and those notices, once."""
    if len(traces) < 2:
        return list(traces), []
    shared = [notice for notice in traces[0].notices if all(notice in trace.notices for trace in traces)]
    return [replace(t, notices=tuple(n for n in t.notices if n not in shared)) for t in traces], shared


def _one(rank: int, traces: Sequence[Trace]) -> Trace:
    """The trace of a rank, joined from its successive captures, with its number on its notices."""
    if len(captures(traces)) > 1:
        first, second = traces[0], next((t for t in traces[1:] if t.files != traces[0].files), traces[1])
        raise InputError(
            f"two files claim rank {rank}, and they are not successive captures of one process: {_whose(first)} and {_whose(second)}",
            f"Give one of them: traceread report {quote(str(first.files[0]))}",
            "duplicate-rank",
        )
    trace = joined(traces) if len(traces) > 1 else traces[0]
    return replace(trace, notices=tuple(replace(notice, rank=rank) for notice in trace.notices))


def _whose(trace: Trace) -> str:
    process = "" if trace.pid is None else f", pid {trace.pid}"
    device = "" if trace.device.index == NOT_RECORDED else f", device {trace.device.index}"
    return f"{trace.files[0].name}{process}{device}"


def _numbers(ranks: Iterable[int]) -> str:
    """Ranks as people write them: 0-3,7."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs) or "none"
