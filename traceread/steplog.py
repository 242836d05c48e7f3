"""Step logs as traceread.capture.StepTimer writes them: JSON lines, one for each interval and each thing that happens to a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import msgspec

from traceread.errors import InputError, Notice, TraceNotFound
from traceread.records import record
from traceread.run import Described, run_of

PATTERN = "steps*.jsonl"

_LONGEST_LINE = 1 << 20
_CHUNK = 1 << 20

Kind = Literal["start", "interval", "checkpoint", "eval", "restart", "end"]
Amount = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log. What a kind of line does not have is None.

    Attributes:
        t: when it was written, ns since 1970.
        kind: what it says.
        run, segment, rank: the run, how often it was started again before, the rank that wrote it.
        step, tokens: steps and tokens of all ranks done so far; of a start: where it goes on.
        steps: of an interval.
        step_ns, step_ns_max: mean step of the interval, mean and maximum over ranks.
        slowest_rank: whose step is the longest.
        data_wait_ns: of a step, on the rank that waits longest.
        tokens_per_s: of all ranks.
        allocated_bytes, reserved_bytes: peaks within the interval, of the rank with the most.
        loss: mean over the tokens of the interval; text for nan and infinity.
        grad_norm: largest of the interval.
        batch_ids: batches of the interval.
        dropped: lines lost so far.
        parent, recipe: of a start: the run it goes on from, and the hash of its recipe.
        world_size, gpu, device_bytes, multiprocessors: of a start: ranks and their device.
        described: of a start: fields of run.json.
        checkpoint, duration_ns: of a checkpoint or an evaluation.
        metrics: of an evaluation.
        reason: of an end.
    """

    t: Amount
    kind: Kind
    run: str = ""
    segment: Amount = 0
    rank: Amount = 0
    step: Amount = 0
    tokens: Amount = 0
    steps: Amount | None = None
    step_ns: Amount | None = None
    step_ns_max: Amount | None = None
    slowest_rank: Amount | None = None
    data_wait_ns: Amount | None = None
    tokens_per_s: float | None = None
    allocated_bytes: Amount | None = None
    reserved_bytes: Amount | None = None
    loss: float | str | None = None
    grad_norm: float | str | None = None
    batch_ids: list[Any] | None = None
    dropped: Amount = 0
    parent: str | None = None
    recipe: str | None = None
    world_size: Amount | None = None
    gpu: str | None = None
    device_bytes: Amount | None = None
    multiprocessors: Amount | None = None
    described: dict[str, Any] | None = None
    checkpoint: str | None = None
    duration_ns: Amount | None = None
    metrics: dict[str, float | str] | None = None
    reason: str | None = None

    @property
    def wall_ns(self) -> int:
        """Time of an interval's steps on the slowest rank; 0 where it is not recorded."""
        return (self.step_ns_max or self.step_ns or 0) * (self.steps or 0)


@record
class Segment:
    """A run from one start to the next, or to its end.

    Attributes:
        path: its file.
        entries: its lines in their order; the first one is its start.
        size: of the file in bytes.
        notices: what was odd.
    """

    path: Path
    entries: tuple[Entry, ...]
    size: int = 0
    notices: tuple[Notice, ...] = ()

    @property
    def start(self) -> Entry:
        """Its first line."""
        return self.entries[0]

    @property
    def intervals(self) -> tuple[Entry, ...]:
        """Its intervals."""
        return tuple(e for e in self.entries if e.kind == "interval")

    @property
    def gpus(self) -> int:
        """Ranks, one GPU each; one where that is not logged."""
        return self.start.world_size or 1

    @property
    def described(self) -> Described:
        """What its start says about the job."""
        return run_of(self.start.described or {}, self.path.name)


def find_logs(paths: Sequence[str | Path]) -> list[Path]:
    """The step logs in these files and directories, however deep.

    Raises:
        TraceNotFound: there is none.
    """
    found: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            found += sorted(p for p in path.rglob(PATTERN) if p.is_file())
        elif path.is_file():
            found.append(path)
        else:
            raise TraceNotFound(f"{path} does not exist", f"ls -l {quote(str(path.parent))}")
    if not found:
        raise TraceNotFound(
            f"no step log ({PATTERN}) in {', '.join(map(str, paths))}", "write one with traceread.capture.StepTimer: see docs/steplog.md"
        )
    return list(dict.fromkeys(found))


def read_log(path: Path) -> list[Segment]:
    """The segments in a file: one as StepTimer writes them, several where somebody put logs one after the other.

    A last line without an end is left out; lines that cannot be understood are left out and counted in a notice.

    Raises:
        InputError: the file cannot be read, or not one line of it is of a step log.
    """
    decoder = msgspec.json.Decoder(Entry)
    segments: list[list[Entry]] = []
    damaged = 0
    try:
        size = path.stat().st_size
        for line in _lines(path):
            try:
                entry = decoder.decode(line) if line else None
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                entry = None
            if entry is None:
                damaged += 1
            elif not segments or entry.kind in ("start", "restart") or (entry.run, entry.segment) != _whose(segments[-1]):
                segments.append([entry])
            else:
                segments[-1].append(entry)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", f"ls -l {quote(str(path))}") from error
    if not segments:
        if damaged:
            raise InputError(f"{path} is no step log", "write one with traceread.capture.StepTimer: see docs/steplog.md")
        return []
    notices = [Notice("damaged-log", f"{damaged} lines of {path.name} cannot be understood and are left out")] if damaged else []
    dropped = sum(entries[-1].dropped for entries in segments)
    if dropped:
        notices.append(Notice("dropped-lines", f"{dropped} lines of {path.name} never reached the disk"))
    share = size // len(segments)
    return [Segment(path, tuple(entries), share, tuple(notices if i == 0 else ())) for i, entries in enumerate(segments)]


def _whose(entries: Sequence[Entry]) -> tuple[str, int]:
    return entries[0].run, entries[0].segment


def _lines(path: Path) -> Iterator[bytes | None]:
    """Whole lines that are not empty; None for one that is longer than any of ours. A last one without an end is not there."""
    rest, skipping = b"", False
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                if skipping:
                    skipping = False
                    yield None
                elif line.strip():
                    yield line if len(line) <= _LONGEST_LINE else None
            if len(rest) > _LONGEST_LINE:
                rest, skipping = b"", True
