"""Step windows: which stretch of the GPU's time belongs to which training step (section 4 of the time model).

Host ranges name the steps; the windows are where the GPU worked for them. Windows tile: no gap, no overlap.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.categories.host import CallRole, HostNames
from traceread.errors import SelectionError
from traceread.measurements.graphs import cut_graphs
from traceread.measurements.launches import Launches
from traceread.model import ActivityKind, ByteColumn, IntColumn, RangeKind, Trace
from traceread.records import record

BETWEEN = "between steps"
BETWEEN_CAPTURES = "between captures"
WHOLE = "whole capture"

_PROFILER_STEP = re.compile(r"^ProfilerStep#\d+$")
_STEP_WORD = re.compile(r"(?<![^\W\d_])(?:step|iteration|iter)(?![^\W\d_])", re.IGNORECASE)
_NOT_A_STEP = re.compile(r"optim|sched|zero_grad|lr_", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_NUMBER = re.compile(r"(?<![^\W\d_])(?:\w*step|iteration|iter)\D*?(\d+)", re.IGNORECASE)


class StepSource(StrEnum):
    """Where the steps of a trace come from."""

    RECORDED = "recorded"
    PROJECTED = "projected"
    INFERRED = "inferred"
    WHOLE_CAPTURE = "whole capture"


class WindowKind(StrEnum):
    """What a window stands for."""

    STEP = "step"
    BETWEEN = "between"
    WHOLE = "whole"


@record
class StepOptions:
    """How steps are found.

    Attributes:
        pattern: regular expression searched in the names of annotations; "infer" or "none" select those modes.
        micro_steps: consecutive ranges that make one step (gradient accumulation with one range per micro-batch).
    """

    pattern: str | None = None
    micro_steps: int = 1


@record
class Window:
    """One window of one rank, `[start_ns, end_ns)` on the device.

    Attributes:
        label: name of the step range, "between steps" or "whole capture".
        number: the step's own number, else its position among the steps; -1 for other windows.
        kind: step, between or whole.
        partial: why the step is incomplete, "" if it is complete.
        thread: thread of the host range, -1 if there is none.
        host_start_ns, host_end_ns: the host time whose launches belong to this window.
        launch_coverage: how many launches of kernels and graphs the host made in it own activities, and how many it made.
    """

    label: str
    number: int
    kind: WindowKind
    start_ns: int
    end_ns: int
    partial: str = ""
    thread: int = -1
    host_start_ns: int = 0
    host_end_ns: int = 0
    launch_coverage: tuple[int, int] = (0, 0)

    @property
    def duration_ns(self) -> int:
        """Length of the window."""
        return self.end_ns - self.start_ns

    @property
    def lacks_kernels(self) -> bool:
        """Whether more than a tenth of its launches own no activity: what runs on the GPU meanwhile is not known."""
        return _lacks_kernels(*self.launch_coverage)


@record(eq=False)
class Steps:
    """The windows of one rank in order of time.

    Attributes:
        source: where they come from.
        name: name of the range family without its number, "" for the whole capture.
        windows: step, between and whole windows; they tile.
        window_of: for each activity the position of the window its launch belongs to, -1 if none.
        used: for each window, whether summaries use it.
        excluded: (window position, reason) of the steps left out of summaries.
        fallback: "" or why excluded steps had to be used after all.
        step_thread: thread of the step ranges, else the thread with most launches; -1 if unknown.
    """

    source: StepSource
    name: str
    windows: tuple[Window, ...]
    window_of: npt.NDArray[np.int64]
    used: tuple[bool, ...]
    excluded: tuple[tuple[int, str], ...]
    fallback: str
    step_thread: int


@record(eq=False)
class HostSegments:
    """Host time, cut: segment i holds the launches in `[start[i], end[i])`."""

    start: IntColumn
    end: IntColumn
    label: tuple[str, ...]
    kind: tuple[WindowKind, ...]
    thread: npt.NDArray[np.int64]
    open: npt.NDArray[np.bool_]
    name: str
    source: StepSource = StepSource.RECORDED


@record(eq=False)
class _Family:
    """Rows of `trace.ranges` that name steps, sorted by start, with the name without digits."""

    name: str
    rows: npt.NDArray[np.int64]
    tiles: bool = field(default=False)
    """ProfilerStep: each range reaches to the start of the next whatever it holds."""


def find_steps(trace: Trace, launches: Launches, options: StepOptions, host_names: HostNames) -> Steps:
    """The windows of one rank; one window over the whole capture where nothing names steps.

    Raises:
        SelectionError: `options.pattern` is no regular expression, matches nothing, or matches ranges that overlap.
    """
    if options.pattern == "infer":
        from traceread.measurements.step_inference import infer_segments

        inferred = infer_segments(trace, launches)
        if inferred is not None:
            return _steps_from(trace, launches, inferred, host_names)
        return _whole_capture(trace, launches, host_names)
    family = None if options.pattern == "none" else find_family(trace, options.pattern, host_names)
    if family is None or not launches.known.any():
        return _whole_capture(trace, launches, host_names)
    segments = _segments(trace, launches, family, max(options.micro_steps, 1))
    return _steps_from(trace, launches, segments, host_names)


def find_family(trace: Trace, pattern: str | None, host_names: HostNames) -> _Family | None:
    """The ranges that name the steps, None if there are none."""
    ranges = trace.ranges
    rows = np.flatnonzero(ranges.kind == RangeKind.ANNOTATION)
    codes = intervals.unique(ranges.name[rows])
    names = {int(code): trace.names[code] for code in codes}
    if pattern is not None:
        return _family_by_pattern(trace, rows, names, pattern)
    users = [code for code, name in names.items() if host_names.user_meaning(name) == "step"]
    if users:
        family = _of_codes(trace, rows, users, "configured step")
        _refuse_overlap(trace, family, "the step ranges named in the configuration")
        return family
    profiler = [code for code, name in names.items() if _PROFILER_STEP.match(name)]
    if profiler:
        found = _of_codes(trace, rows, profiler, "ProfilerStep")
        return replace(found, tiles=True)
    return _largest_family(trace, rows, names)


def _of_codes(trace: Trace, rows: npt.NDArray[np.int64], codes: Sequence[int], name: str) -> _Family:
    mine = rows[np.isin(trace.ranges.name[rows], np.array(codes, np.int32))]
    return _Family(name, mine[np.argsort(trace.ranges.start_ns[mine], kind="stable")])


def _overlaps(trace: Trace, rows: npt.NDArray[np.int64]) -> bool:
    start, end = trace.ranges.start_ns[rows], trace.ranges.end_ns[rows]
    return bool(np.any(start[1:] < end[:-1]))


def _largest_family(trace: Trace, rows: npt.NDArray[np.int64], names: dict[int, str]) -> _Family | None:
    families: dict[str, list[int]] = {}
    for code, name in names.items():
        bare = _DIGITS.sub("", name)
        if _STEP_WORD.search(bare) and not _NOT_A_STEP.search(name):
            families.setdefault(bare, []).append(code)
    best: _Family | None = None
    best_total = -1
    for bare in sorted(families):
        family = _of_codes(trace, rows, families[bare], bare.strip(" #_-:.") or bare)
        total = int((trace.ranges.end_ns[family.rows] - trace.ranges.start_ns[family.rows]).sum())
        if total > best_total and not _overlaps(trace, family.rows):
            best, best_total = family, total
    return best


def _family_by_pattern(trace: Trace, rows: npt.NDArray[np.int64], names: dict[int, str], pattern: str) -> _Family:
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise SelectionError(f"--step-range {pattern!r} is not a regular expression: {error}", "quote special characters with \\") from None
    codes = [code for code, name in names.items() if wanted.search(name)]
    if not codes:
        some = sorted({_DIGITS.sub("N", name) for name in names.values()})[:12]
        raise SelectionError(
            f"--step-range {pattern!r} matches no range of rank {trace.rank}",
            "ranges there are: " + (", ".join(some) if some else "none") + "; or use --step-range infer",
        )
    family = _of_codes(trace, rows, codes, pattern)
    if all(_PROFILER_STEP.match(names[c]) for c in codes):
        return replace(family, tiles=True)
    _refuse_overlap(trace, family, f"the ranges that --step-range {pattern!r} matches")
    return family


def _refuse_overlap(trace: Trace, family: _Family, what: str) -> None:
    if _overlaps(trace, family.rows):
        raise SelectionError(
            f"{what} overlap on rank {trace.rank}, so they cannot be steps", "choose a pattern for ranges that follow each other"
        )


def _segments(trace: Trace, launches: Launches, family: _Family, micro_steps: int) -> HostSegments:
    ranges = trace.ranges
    rows = family.rows
    first, last = rows[::micro_steps], rows[np.minimum(np.arange(micro_steps - 1, len(rows) + micro_steps - 1, micro_steps), len(rows) - 1)]
    start, end = ranges.start_ns[first], ranges.end_ns[last]
    label = tuple(trace.names[code] for code in ranges.name[first].tolist())
    thread = ranges.thread[first].astype(np.int64)
    still_open = ranges.open[last] == 1
    as_they_are = not family.tiles and _hold_their_launches(trace, launches, start, end)
    if not as_they_are:
        end = np.append(start[1:], end[-1])
        return HostSegments(start, end, label, (WindowKind.STEP,) * len(start), thread, still_open, family.name)
    return _with_betweens(HostSegments(start, end, label, (WindowKind.STEP,) * len(start), thread, still_open, family.name), launches)


def _hold_their_launches(trace: Trace, launches: Launches, start: IntColumn, end: IntColumn) -> bool:
    """Whether at least 90 % of the GPU time launched between the first and the last range is launched inside a range."""
    duration = trace.activities.end_ns - trace.activities.start_ns
    at = launches.start_ns
    between = launches.known & (at >= start[0]) & (at < end[-1])
    inside = between & _inside(start, end, at)
    return 10 * int(duration[inside].sum()) >= 9 * int(duration[between].sum())


def _inside(start: IntColumn, end: IntColumn, at: IntColumn) -> npt.NDArray[np.bool_]:
    i = np.searchsorted(start, at, side="right") - 1
    inside: npt.NDArray[np.bool_] = (i >= 0) & (at < end[np.maximum(i, 0)])
    return inside


def _with_betweens(steps: HostSegments, launches: Launches) -> HostSegments:
    """The segments with one more between two ranges wherever something was launched there."""
    at = np.sort(launches.start_ns[launches.known])
    gap_start, gap_end = steps.end[:-1], steps.start[1:]
    launched = np.searchsorted(at, gap_end, side="left") > np.searchsorted(at, gap_start, side="left")
    where = np.flatnonzero(launched) + 1
    if not len(where):
        return steps
    label, kind = list(steps.label), list(steps.kind)
    for position in where[::-1].tolist():
        label.insert(position, BETWEEN)
        kind.insert(position, WindowKind.BETWEEN)
    return replace(
        steps,
        start=np.insert(steps.start, where, gap_start[launched]),
        end=np.insert(steps.end, where, gap_end[launched]),
        label=tuple(label),
        kind=tuple(kind),
        thread=np.insert(steps.thread, where, steps.thread[where - 1]),
        open=np.insert(steps.open, where, False),
    )


def _steps_from(trace: Trace, launches: Launches, segments: HostSegments, host_names: HostNames) -> Steps:
    segment_of = _segment_of(segments, launches)
    at, recorded = _kernel_launches(trace, launches, host_names)
    coverage = _launch_coverage(at, recorded, segments.start, segments.end)
    captures = _captures(trace)
    capture = np.searchsorted(np.array([start for start, _ in captures[1:]], np.int64), segments.start, side="right").tolist()
    ends = _window_ends(trace, segments, segment_of)
    last = np.searchsorted(at, segments.end) - 1
    for i in range(len(ends) - 1):
        # The work between two steps is over when the next one starts, not before; so is that of a step whose last kernels are missing.
        until_next = segments.kind[i] is WindowKind.BETWEEN or (_lacks_kernels(*coverage[i]) and not recorded[last[i]])
        if until_next and capture[i] == capture[i + 1]:
            ends[i] = max(ends[i], int(segments.start[i + 1]))
    begun = _first_starts(trace, segments, segment_of)  # earlier than the range only where the clocks of host and GPU disagree
    begin = _first_begin(trace, launches, min(int(segments.start[0]), begun[0]), captures[capture[0]])
    windows: list[Window] = []
    position = np.full(len(segments.label) + 1, -1)  # of a segment among the windows; -1 stays -1
    firsts = []
    ordinal = 0
    for i, (label, kind) in enumerate(zip(segments.label, segments.kind, strict=True)):
        if i and capture[i] != capture[i - 1]:  # nothing was recorded between two captures of a rank
            resumed = max(begin, _first_begin(trace, launches, min(int(segments.start[i]), begun[i]), captures[capture[i]]))
            windows.append(Window(BETWEEN_CAPTURES, -1, WindowKind.BETWEEN, begin, resumed))
            begin = resumed
        if not i or capture[i] != capture[i - 1]:
            firsts.append(len(windows))
        position[i] = len(windows)
        end = max(begin, ends[i])
        number = -1
        if kind is WindowKind.STEP:
            number = _number(label, ordinal)
            ordinal += 1
        window = Window(
            label=label,
            number=number,
            kind=kind,
            start_ns=begin,
            end_ns=end,
            thread=int(segments.thread[i]),
            host_start_ns=int(segments.start[i]),
            host_end_ns=int(segments.end[i]),
            launch_coverage=coverage[i],
        )
        windows.append(replace(window, partial=_why_partial(window, bool(segments.open[i]), i == len(segments.label) - 1, trace.truncated)))
        begin = end
    used, excluded, fallback = _choose_used(windows, firsts)
    own = segments.thread[segments.thread >= 0]
    thread = int(np.bincount(own).argmax()) if len(own) else _busiest_thread(trace, launches)
    return Steps(segments.source, segments.name, tuple(windows), position[segment_of], used, excluded, fallback, thread)


def _segment_of(segments: HostSegments, launches: Launches) -> npt.NDArray[np.int64]:
    at = launches.start_ns
    i = np.searchsorted(segments.start, at, side="right") - 1
    inside = launches.known & (i >= 0) & (at < segments.end[np.maximum(i, 0)])
    return np.where(inside, i, -1)


def _window_ends(trace: Trace, segments: HostSegments, window_of: npt.NDArray[np.int64]) -> list[int]:
    """Where each window ends by its own work: the latest end of its kernels and graphs, of everything only if it has none."""
    none = np.iinfo(np.int64).min
    activities = trace.activities
    count = len(segments.label)
    by_kernels, by_all = np.full(count, none), np.full(count, none)
    mine = window_of >= 0
    work = mine & ((activities.kind == ActivityKind.KERNEL) | (activities.kind == ActivityKind.GRAPH))
    np.maximum.at(by_kernels, window_of[work], activities.end_ns[work])
    np.maximum.at(by_all, window_of[mine], activities.end_ns[mine])
    ends = np.where(by_kernels > none, by_kernels, by_all)
    return [int(end) for end in ends]


def _first_starts(trace: Trace, segments: HostSegments, segment_of: npt.NDArray[np.int64]) -> list[int]:
    """The first start of what each segment launched, the largest integer if it launched nothing."""
    first = np.full(len(segments.label), np.iinfo(np.int64).max)
    mine = segment_of >= 0
    np.minimum.at(first, segment_of[mine], trace.activities.start_ns[mine])
    return [int(start) for start in first]


def _captures(trace: Trace) -> tuple[tuple[int, int], ...]:
    """Start and end of each capture of the rank; one without bounds where only one was taken."""
    far = np.iinfo(np.int64)
    return trace.windows_ns if len(trace.windows_ns) > 1 else ((int(far.min), int(far.max)),)


def _first_begin(trace: Trace, launches: Launches, range_start: int, capture: tuple[int, int]) -> int:
    """Where the first window of a capture begins: not before its range, nor before the end of what earlier launches still did."""
    activities = trace.activities
    begin = range_start
    inside = (activities.start_ns >= capture[0]) & (activities.start_ns < capture[1])
    earlier = inside & launches.known & (launches.start_ns < range_start)
    if earlier.any():
        begin = max(begin, int(activities.end_ns[earlier].max()))
    before = launched_before_capture(trace, launches, inside)
    if before.any():
        begin = max(begin, int(activities.end_ns[before].max()))
    return begin


def launched_before_capture(trace: Trace, launches: Launches, inside: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.bool_]:
    """True for activities launched before the capture; of several captures, before the one whose activities `inside` marks.

    They have no launch record and stand on their stream before the first activity that has one; on a stream where none has
    one, before the first such activity of the device. Without any launch record nothing is known, so none is marked.
    """
    activities = trace.activities
    if inside is None:
        inside = np.ones(len(activities), bool)
    known = launches.known & inside
    if not known.any():
        return np.zeros(len(activities), bool)
    position = np.arange(len(activities))
    streams, stream = intervals.distinct(activities.stream)
    first_known = np.full(len(streams), len(activities))
    np.minimum.at(first_known, stream[known], position[known])
    first_of_device = int(position[known].min())
    first_known[first_known == len(activities)] = first_of_device
    result: npt.NDArray[np.bool_] = inside & ~known & (position < first_known[stream])
    return result


def _kernel_launches(trace: Trace, launches: Launches, host_names: HostNames) -> tuple[IntColumn, npt.NDArray[np.bool_]]:
    """The starts of all launches of kernels and graphs that put work on this GPU, in order, and whether all their work is in the trace."""
    calls = trace.calls
    roles = host_names.call_roles(trace.names, calls.name)
    made = ((roles == CallRole.KERNEL_LAUNCH) | (roles == CallRole.GRAPH_LAUNCH)) & (calls.correlation > 0)
    rows = np.flatnonzero(made)
    rows = rows[~intervals.holds(_graph_captures(trace, roles), calls.start_ns[rows])]
    if len(trace.elsewhere):
        rows = rows[~np.isin(calls.correlation[rows], trace.elsewhere.correlation)]
    recorded = launches.owners[rows] > 0
    if not recorded.all():  # a runtime call and the driver call it makes carry one id, and one of them owns what was launched
        recorded[~recorded] = np.isin(calls.correlation[rows[~recorded]], calls.correlation[launches.owners > 0])
    cut = cut_graphs(trace, launches, roles == CallRole.GRAPH_LAUNCH)
    if cut.any():
        recorded &= ~np.isin(calls.correlation[rows], calls.correlation[cut])
    # Some profilers leave the id of a kernel out (RCCL's, by roctracer): then nobody knows whose it is, and it is not missing.
    kernels = (trace.activities.kind == ActivityKind.KERNEL) & ~launches.known
    if kernels.any() and not recorded.all():
        nobodys = int((kernels & ~launched_before_capture(trace, launches)).sum())
        recorded |= nobodys >= len(recorded) - int(recorded.sum())
    return calls.start_ns[rows], recorded


def _launch_coverage(at: IntColumn, recorded: npt.NDArray[np.bool_], start: IntColumn, end: IntColumn) -> list[tuple[int, int]]:
    """For each stretch of host time how many of its launches have their work in the trace, and how many it made."""
    first, stop = np.searchsorted(at, start), np.searchsorted(at, end)
    before = np.append(0, np.cumsum(recorded))
    return list(zip((before[stop] - before[first]).tolist(), (stop - first).tolist(), strict=True))


def _graph_captures(trace: Trace, roles: ByteColumn) -> intervals.Intervals:
    """When the process was capturing CUDA graphs: what is launched then runs when the graph is launched."""
    calls = trace.calls
    begin = calls.start_ns[roles == CallRole.CAPTURE_BEGIN]
    ends = np.append(np.sort(calls.end_ns[roles == CallRole.CAPTURE_END]), np.iinfo(np.int64).max)
    return intervals.union(begin, ends[np.searchsorted(ends, begin)])


def _lacks_kernels(matched: int, made: int) -> bool:
    return 10 * matched < 9 * made


def _why_partial(window: Window, still_open: bool, last: bool, truncated: bool) -> str:
    if window.start_ns >= window.end_ns:
        return "no time of its own on the GPU"
    if still_open:
        return "still running when the capture ended"
    if last and truncated:
        return "the file ends early"
    if window.lacks_kernels and last:
        matched, made = window.launch_coverage
        return f"the capture ended before {made - matched} of its {made} kernel launches ran"
    return _missing_kernels(window)


def _missing_kernels(window: Window) -> str:
    """How many launches of a window lack their work, "" if no more than a tenth."""
    matched, made = window.launch_coverage
    return f"{made - matched} of its {made} kernel launches lack kernels in the trace" if window.lacks_kernels else ""


def _choose_used(windows: Sequence[Window], firsts: Sequence[int]) -> tuple[tuple[bool, ...], tuple[tuple[int, str], ...], str]:
    """Which windows summaries use: neither a capture's first step nor partial ones, unless nothing would remain."""
    steps = [i for i, w in enumerate(windows) if w.kind is not WindowKind.BETWEEN]
    begun = [_first_with_time(windows, i) for i in firsts]
    reasons = {i: windows[i].partial or ("first step" if i in begun else "") for i in steps}
    good = [i for i in steps if not reasons[i]]
    fallback = ""
    if not good:
        complete = [i for i in steps if not windows[i].partial]
        good = complete or [i for i in steps if windows[i].end_ns > windows[i].start_ns] or steps
        fallback = "only the first step is complete" if complete else "no step is complete"
    chosen = set(good)
    used = tuple(i in chosen for i in range(len(windows)))
    excluded = tuple((i, reasons[i]) for i in steps if i not in chosen)
    return used, excluded, fallback


def _first_with_time(windows: Sequence[Window], i: int) -> int:
    """The first window of a capture that is not empty: what was launched before the capture is cut from that one."""
    while windows[i].end_ns <= windows[i].start_ns and i + 1 < len(windows) and windows[i + 1].label != BETWEEN_CAPTURES:
        i += 1
    return i


def _number(label: str, ordinal: int) -> int:
    found = _NUMBER.search(label)
    if found:
        return int(found.group(1)[:15])
    digits = _DIGITS.findall(label)
    return int(digits[-1][:15]) if digits else ordinal


def _busiest_thread(trace: Trace, launches: Launches) -> int:
    threads = trace.calls.thread[launches.owners > 0]  # a call that owns a whole CUDA graph is one launch
    return int(np.bincount(threads).argmax()) if len(threads) else -1


def _whole_capture(trace: Trace, launches: Launches, host_names: HostNames) -> Steps:
    """One window from the first activity's start to the last activity's end; one per capture where the rank has several."""
    activities = trace.activities
    windows: list[Window] = []
    window_of = np.full(len(activities), -1)
    kernel_launches = _kernel_launches(trace, launches, host_names)
    for start, end in _captures(trace):
        mine = np.flatnonzero((activities.start_ns >= start) & (activities.start_ns < end))
        if not len(mine):
            continue
        launched = mine[launches.known[mine]]
        # What was launched after all that is recorded would run after the window.
        last = launches.start_ns[launched].max(initial=start)
        covered = _launch_coverage(*kernel_launches, np.array([start]), np.array([last + 1]))
        window = Window(
            label=WHOLE,
            number=-1,
            kind=WindowKind.WHOLE,
            start_ns=int(activities.start_ns[mine].min()),
            end_ns=int(activities.end_ns[mine].max()),
            host_start_ns=start,
            host_end_ns=end,
            launch_coverage=covered[0],
        )
        if windows:
            window = replace(window, start_ns=max(window.start_ns, windows[-1].end_ns), end_ns=max(window.end_ns, windows[-1].end_ns))
            windows.append(Window(BETWEEN_CAPTURES, -1, WindowKind.BETWEEN, windows[-1].end_ns, window.start_ns))
        window_of[launched] = len(windows)
        windows.append(replace(window, partial=_missing_kernels(window)))
    used = tuple(w.kind is WindowKind.WHOLE for w in windows)
    return Steps(StepSource.WHOLE_CAPTURE, "", tuple(windows), window_of, used, (), "", _busiest_thread(trace, launches))
