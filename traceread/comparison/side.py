"""One side of a comparison: what is needed of a report, read from its JSON (format 1), whether just made or saved long ago."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec

from traceread.errors import InputError
from traceread.measurements.classes import CLASSES
from traceread.report import FORMAT, Report, median, shared_out

_LARGEST_FILE = 1 << 30
_HEAD, _TAIL = 1 << 16, 1 << 12


class SavedRank(msgspec.Struct, frozen=True):
    """A rank as the JSON describes it."""

    rank: int
    device: str | None = None
    host: str | None = None
    versions: dict[str, str] = {}
    recorded: list[str] = []
    rows: dict[str, int] = {}


class SavedWarning(msgspec.Struct, frozen=True):
    """A warning of the report."""

    slug: str
    message: str = ""
    rank: int | None = None


class SavedProfile(msgspec.Struct, frozen=True):
    """What was captured."""

    source: str
    title: str = ""
    base_ns: str = "0"
    world_size: int | None = None
    ranks: list[SavedRank] = []
    warnings: list[SavedWarning] = []


class SavedSteps(msgspec.Struct, frozen=True):
    """Where the steps come from and which are used."""

    source: str
    name: str = ""
    used: list[str] = []
    fallback: list[dict[str, Any]] = []


class SavedWindow(msgspec.Struct, frozen=True):
    """A step of a rank with its classes."""

    rank: int
    step: str
    start_ns: int
    end_ns: int
    classes: dict[str, int]
    used: bool = False
    partial: bool = False
    hidden_communication: int = 0
    hidden_copy: int = 0
    exposed_wait: int | None = None


class SavedSummary(msgspec.Struct, frozen=True):
    """The report's summary, as far as the windows do not say it; None where an older version did not write it."""

    critical_rank: int
    exposed_wait_ns: int | None = None
    exposed_transfer_ns: int | None = None
    exposed_not_split_ns: int | None = None
    waiting_is_lower_bound: bool = False


class SavedKernel(msgspec.Struct, frozen=True):
    """A kernel or copy of the critical rank, summed over its used steps."""

    name: str
    category: str
    family: str
    count: int
    total_ns: int
    exposed_ns: int = 0
    op: str = ""


class SavedRange(msgspec.Struct, frozen=True):
    """A range of the user's on the critical rank, summed over its used steps."""

    path: list[str]
    count: int
    host_ns: int
    gpu_ns: int


class SavedFinding(msgspec.Struct, frozen=True):
    """A line of the fix list."""

    rule: str
    title: str
    class_: str | None = msgspec.field(name="class", default=None)
    loss_ns: dict[str, int] = {}
    saving_ns: int | None = None


class SavedReport(msgspec.Struct, frozen=True):
    """The JSON of a report, format 1; fields that are not here are skipped."""

    format: int
    traceread: str
    profile: SavedProfile
    steps: SavedSteps
    partition: list[SavedWindow]
    summary: SavedSummary | None
    kernels: list[SavedKernel] = []
    families: list[SavedKernel] = []
    ranges: list[SavedRange] = []
    findings: list[SavedFinding] = []
    efficiency: dict[str, Any] = {}


class Side:
    """One side of a comparison.

    Attributes:
        saved: the report behind it.
        file: where it was saved, None if it was made just now.
        report: the report itself, None if it was saved: what is not in its JSON, such as the timeline.
    """

    def __init__(self, saved: SavedReport, file: Path | None = None, report: Report | None = None) -> None:
        self.saved = saved
        self.file = file
        self.report = report

    def __repr__(self) -> str:
        return f"<Side {self.title}, {len(self.step_ns)} steps>"

    @property
    def title(self) -> str:
        """What the report was made of."""
        return self.saved.profile.title

    @property
    def has_work(self) -> bool:
        """Whether there is a used window of GPU work."""
        return self.saved.summary is not None and bool(self.windows)

    @property
    def critical_rank(self) -> int:
        """The rank whose steps are compared."""
        return -1 if self.saved.summary is None else self.saved.summary.critical_rank

    @cached_property
    def windows(self) -> tuple[SavedWindow, ...]:
        """The critical rank's windows that the summary is of."""
        wanted = set(self.saved.steps.used)
        mine = [w for w in self.saved.partition if w.rank == self.critical_rank and w.used]
        return tuple(w for w in mine if w.step in wanted) or tuple(mine)

    @cached_property
    def step_ns(self) -> tuple[int, ...]:
        """Length of each used step."""
        return tuple(w.end_ns - w.start_ns for w in self.windows)

    @cached_property
    def class_steps(self) -> dict[str, tuple[int, ...]]:
        """For each class its time in each used step."""
        return {name: tuple(w.classes.get(name, 0) for w in self.windows) for name in CLASSES}

    @cached_property
    def class_ns(self) -> dict[str, int]:
        """Mean time per step of each class; they sum to `mean_ns`."""
        totals = [sum(steps) for steps in self.class_steps.values()]
        return dict(zip(CLASSES, shared_out(totals, max(len(self.windows), 1)), strict=True))

    @property
    def mean_ns(self) -> int:
        """Mean step."""
        return sum(self.class_ns.values())

    @property
    def median_ns(self) -> int:
        """Median step."""
        return median(self.step_ns) if self.step_ns else 0

    @cached_property
    def hidden_steps(self) -> dict[str, tuple[int, ...]]:
        """Communication and copies beside the classes, in each used step."""
        return {
            "hidden_communication": tuple(w.hidden_communication for w in self.windows),
            "hidden_copy": tuple(w.hidden_copy for w in self.windows),
        }

    @cached_property
    def rank_steps(self) -> dict[int, tuple[int, ...]]:
        """Length of each used step of every rank."""
        steps: dict[int, list[int]] = {}
        wanted = set(self.saved.steps.used)
        for window in self.saved.partition:
            if window.used and window.step in wanted:
                steps.setdefault(window.rank, []).append(window.end_ns - window.start_ns)
        return {rank: tuple(ns) for rank, ns in sorted(steps.items())}

    @cached_property
    def rank_own_ns(self) -> dict[int, int]:
        """Mean step of every rank without its waiting for the others, where that is told apart: what makes a rank slow itself."""
        wanted = set(self.saved.steps.used)
        own: dict[int, list[int]] = {}
        for w in self.saved.partition:
            if w.used and w.step in wanted:
                own.setdefault(w.rank, []).append(w.end_ns - w.start_ns - (w.exposed_wait or 0))
        return {rank: (2 * sum(ns) + len(ns)) // (2 * len(ns)) for rank, ns in sorted(own.items())}

    @cached_property
    def kernel_steps(self) -> int:
        """Steps that the sums of kernels and ranges are over: all that are used on the critical rank."""
        return sum(w.used and w.rank == self.critical_rank for w in self.saved.partition)

    @property
    def counts_steps(self) -> bool:
        """Whether its windows are steps, not one whole capture."""
        return self.saved.steps.source != "whole capture"

    @property
    def run(self) -> Mapping[str, Any]:
        """What is known about the job beside the trace, in the shape of run.json."""
        run = self.saved.efficiency.get("run")
        return run if isinstance(run, dict) else {}

    def warned(self, slug: str) -> tuple[SavedWarning, ...]:
        """The report's warnings of one kind."""
        return tuple(w for w in self.saved.profile.warnings if w.slug == slug)


def side_of(report: Report) -> Side:
    """A report as a side."""
    from traceread.reporters.json import report_dict, to_json

    return Side(_decoded(to_json(report_dict(report, 0)).encode("utf-8"), report.title), report=report)


def is_saved(path: Path) -> bool:
    """Whether a file is the JSON of a report: it says so near its beginning or its end, and is no trace."""
    if not path.is_file() or path.suffix.lower() != ".json":
        return False
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
            file.seek(max(path.stat().st_size - _TAIL, 0))
            tail = file.read(_TAIL)
    except OSError:
        return False
    return b'"traceread"' in head + tail and b'"traceEvents"' not in head


def read_saved(path: Path) -> Side:
    """A saved report as a side.

    Raises:
        InputError: the file cannot be read, is no report, or of a format this version does not know.
    """
    try:
        size = path.stat().st_size
        if size > _LARGEST_FILE:
            raise InputError(f"{path} is larger than a saved report can be", "give the JSON that traceread report wrote", "saved-report")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", f"ls -l {quote(str(path))}", "saved-report") from None
    return Side(_decoded(data, str(path)), path)


def _decoded(data: bytes, name: str) -> SavedReport:
    again = "save it anew: traceread report PATH -o baseline.json"
    try:
        saved = msgspec.json.decode(data, type=SavedReport)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{name} is not the JSON of a report: {error}", again, "saved-report") from None
    if saved.format != FORMAT:
        raise InputError(
            f"{name} has format {saved.format}, and this version reads {FORMAT}", "pip install --upgrade traceread", "saved-report"
        )
    problem = _problem(saved.partition)
    if problem:
        raise InputError(f"{name} is not as traceread wrote it: {problem}", again, "saved-report")
    return saved


def _problem(windows: Sequence[SavedWindow]) -> str:
    """What is wrong with the partition of a saved report, "" if nothing is."""
    for w in windows:
        unknown = sorted(set(w.classes) - set(CLASSES))
        if unknown:
            return f"class {unknown[0]!r} is not known"
        if min(w.classes.values(), default=0) < 0 or sum(w.classes.values()) != w.end_ns - w.start_ns:
            return f"the classes of {w.step} on rank {w.rank} do not sum to its length"
    return ""
