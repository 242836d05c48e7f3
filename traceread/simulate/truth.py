"""What is true of a simulated capture: steps, the cause of every idle interval, waiting and transfer of collectives, clocks.

Causes come from what the simulation did, not from the rows it leaves: a gap ends with an activity, the activity had a launch,
and what the launching thread was busy with until then is known, row or no row. Where a convention of the time model decides the
name (launch latency, restart after a wait, silence, nodes that were not recorded), it is applied here to those facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from traceread.simulate.host import Host
from traceread.simulate.program import Nature, Range
from traceread.simulate.recording import Capture, Clock, Ints, Rows, clock_of, record
from traceread.simulate.simulation import Run

SILENCE_NS = 1_000_000
"""A longer stretch of host time without rows is called unattributed."""
INPUT_SILENCE_NS = 100_000
"""From this length on it is called a data wait before the first copy to the device."""
RESTART_NS = 20_000
"""A wait that ended at most this long before the GPU ran dry owns the restart."""
DISPATCH_NS = 5_000
"""Longer gaps where unrecorded activities ran are called unattributed."""

FAR = 1 << 62

CAUSES = {
    Nature.CHECKPOINT: "checkpoint",
    Nature.DATA_WAIT: "data_wait",
    Nature.HOST_SYNC: "host_sync",
    Nature.ALLOCATION: "allocation",
    Nature.COMPILE: "compile",
}
BETWEEN = "between steps"
COLLECTOR = "gc.collect"
"""Python's garbage collector, where it is labelled: host execution, not silence."""


class Window(NamedTuple):
    """Window of a step on one rank."""

    step: str
    start: int
    end: int


class IdleInterval(NamedTuple):
    """Idle time and its cause."""

    step: str
    start: int
    end: int
    cause: str


class Transfer(NamedTuple):
    """One rank's part in a collective; `seen_wait` counts only peers that are written."""

    id: str
    operation: str
    start: int
    end: int
    wait: int
    transfer: int
    seen_wait: int


def windows_of(run: Run, rows: Rows, capture: Capture) -> list[Window]:
    """Windows of a rank, in order of time; they touch."""
    library = run.library
    ranges: list[int] = np.flatnonzero(np.isin(rows.range_name, _codes(library.ranges, "step"))).tolist()
    if not ranges:
        return []
    start = rows.range_start[ranges]
    labels = [capture.step_name(run.job.step_range, library.ranges[rows.range_name[i]].text) for i in ranges]
    recorded = rows.call >= 0
    launched = np.where(recorded, rows.call_start[rows.call], start[0] - 1)
    step = np.searchsorted(start, launched, side="right") - 1
    kernel = np.array([a.kind == "kernel" for a in library.activities])[rows.code] | rows.graph
    inside = np.ones(len(step), bool)
    if run.job.windows == "as recorded":
        inside = launched < rows.range_end[ranges][step]
    before = rows.end[step < 0]
    end = max(int(start[0]), int(before.max()) if len(before) else 0)
    result = []
    for i, label in enumerate(labels):
        begin = end
        end = max(end, _latest(rows, (step == i) & inside & kernel, (step == i) & inside))
        result.append(Window(label, begin, end))
        if run.job.windows == "as recorded" and i + 1 < len(labels):
            begin = end
            end = max(end, int(start[i + 1]), _latest(rows, (step == i) & ~inside & kernel, (step == i) & ~inside))
            result.append(Window(BETWEEN, begin, end))
    return result


def _latest(rows: Rows, *choices: np.ndarray) -> int:
    """The latest end of the first choice that holds any activity."""
    for choice in choices:
        if choice.any():
            return int(rows.end[choice].max())
    return 0


def _codes(ranges: Sequence[Range], *kinds: str) -> list[int]:
    """Codes of the range names of these kinds."""
    return [i for i, r in enumerate(ranges) if r.kind in kinds]


@dataclass(frozen=True)
class _Thread:
    """What one host thread was busy with: sorted, on the rank's clock."""

    waits: list[tuple[int, int, Nature]]
    handed: list[tuple[int, int, int]]  # start, end, the thread that was waited for


class _Story:
    """What the host threads of a rank did, on the rank's clock."""

    def __init__(self, run: Run, host: Host, rows: Rows, capture: Capture, clock: Clock) -> None:
        self._threads = [
            _Thread(
                sorted((clock(s.start), clock(s.end), s.nature) for s in host.spans if s.thread == thread.id),
                sorted((clock(h.start), clock(h.end), h.other) for h in host.hand_overs if h.thread == thread.id),
            )
            for thread in host.threads
        ]
        alive = _codes(run.library.ranges, "op", "profiler") + [i for i, r in enumerate(run.library.ranges) if r.text == COLLECTOR]
        kinds = np.isin(rows.range_name, alive) & (rows.range_thread <= 1)
        calls = rows.call_thread <= 1
        self.silences = _gaps(
            np.concatenate((rows.range_start[kinds], rows.call_start[calls])), np.concatenate((rows.range_end[kinds], rows.call_end[calls]))
        )
        frames = np.isin(rows.range_name, _codes(run.library.ranges, "python")) & (rows.range_thread <= 1)
        self.frame_edges = np.unique(np.concatenate((rows.range_start[frames], rows.range_end[frames])))
        self.overhead = sorted((clock(start), clock(end)) for start, end, _ in host.overhead)
        special = sorted([*self.overhead, *((start, end) for thread in self._threads for start, end, _ in thread.waits)])
        self.special_start = np.array([start for start, _ in special], np.int64)
        self.special_end = np.maximum.accumulate(np.array([end for _, end in special], np.int64))

    def busy_with(self, thread: int, start: int, end: int, waiting: tuple[int, ...] = ()) -> list[tuple[int, int, Nature]]:
        """What a thread, or the one it waits for, was busy with between two instants; the parts touch.

        `waiting`: threads that wait for this one; while the hand-over takes its time, two wait for each other.
        """
        doing = self._threads[thread]
        cuts = {start, end}
        layers = []
        for s, e, nature in doing.waits:
            if s < end and e > start:
                layers.append((max(s, start), min(e, end), nature))
        for s, e, other in doing.handed:
            if s < end and e > start and other not in waiting:
                layers += [part for part in self.busy_with(other, max(s, start), min(e, end), (*waiting, thread)) if part[2]]
        for s, e, _ in layers:
            cuts |= {s, e}
        points = sorted(cuts)
        parts = []
        for s, e in pairwise(points):
            natures = [nature for a, b, nature in layers if a <= s and e <= b]
            parts.append((s, e, min(natures, default=Nature.PLAIN)))
        return parts

    def without_overhead(self, start: int, end: int, cause: str) -> Iterator[tuple[int, int, str]]:
        """An interval with the profiler's own time taken out of it."""
        for s, e in self.overhead:
            if s < end and e > start:
                if s > start:
                    yield start, s, cause
                yield max(s, start), min(e, end), "profiler"
                start = min(e, end)
        if start < end:
            yield start, end, cause

    def drained_by(self, start: int) -> tuple[Nature, int, int] | None:
        """The wait during which, or shortly after which, the queue ran dry, with its bounds."""
        waits = [w for t in self._threads[:2] for w in t.waits if w[2] in (Nature.CHECKPOINT, Nature.DATA_WAIT, Nature.HOST_SYNC)]
        covering = [w for w in waits if w[0] <= start < w[1]]
        recent = [w for w in waits if start - RESTART_NS <= w[1] <= start]
        for found in (covering, recent):
            if found:
                s, e, nature = min(found, key=lambda w: (w[2], w[0] - w[1]))
                return nature, s, e
        return None


def _gaps(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The stretches that none of these intervals covers, the first and last unbounded."""
    if not len(start):
        return np.array([-FAR]), np.array([FAR])
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    free = np.flatnonzero(start[1:] > reach[:-1])
    return np.concatenate(([-FAR], reach[free], reach[-1:])), np.concatenate((start[:1], start[free + 1], [FAR]))


def idle_of(run: Run, host: Host, rows: Rows, capture: Capture, windows: list[Window]) -> list[IdleInterval]:
    """Every idle interval of a rank with its cause, in order of time."""
    if not windows:
        return []
    story = _Story(run, host, rows, capture, clock_of(run, host.rank))
    first, last = windows[0].start, windows[-1].end
    g0 = np.maximum.accumulate(np.append(first, rows.end))[:-1]
    g1 = np.minimum(rows.start, last)
    ends_with = np.flatnonzero(g1 > g0)
    g0, g1 = g0[ends_with], g1[ends_with]
    bounds = np.array([w.start for w in windows] + [last])
    pieces = _cut_at(g0, g1, ends_with, bounds)
    window = np.searchsorted(bounds[1:], pieces[0], side="right")
    copies = _first_copies(run, rows, windows)
    result: list[IdleInterval] = []
    g0, g1, ends_with = pieces
    call = rows.call[ends_with]
    known = call >= 0
    l0 = np.where(known, rows.call_start[call], 0)
    l1 = np.where(known, rows.call_end[call], 0)
    thread = np.where(known, rows.call_thread[call], 0)
    missed = _overlaps(g0, g1, rows.hidden_start, rows.hidden_end)
    plain = _nothing_but_execution(story, g0, g1)
    for i, (start, end) in enumerate(zip(g0.tolist(), g1.tolist(), strict=True)):
        step = windows[window[i]].step
        if not known[i]:
            parts = [(start, end, "unattributed")]
        elif l1[i] <= start:
            parts = [(start, end, "unattributed" if missed[i] and end - start > DISPATCH_NS else "queued")]
        elif plain[i]:
            parts = [(start, end, "launch_bound")]
        else:
            parts = list(_explain(story, start, end, int(l0[i]), int(thread[i]), copies[window[i]]))
        if not plain[i]:
            parts = _joined(part for whole in parts for part in story.without_overhead(*whole))
        result += [IdleInterval(step, a, b, cause) for a, b, cause in parts]
    return result


def _cut_at(start: Ints, end: Ints, what: Ints, bounds: Ints) -> tuple[Ints, Ints, Ints]:
    """Disjoint sorted intervals cut at sorted instants."""
    place = np.searchsorted(end, bounds, side="right")
    cuts = bounds[(place < len(start)) & (start[np.minimum(place, len(start) - 1)] < bounds)] if len(start) else bounds[:0]
    begins = np.sort(np.concatenate((start, cuts)))
    of = np.searchsorted(start, begins, side="right") - 1
    follows = np.append(begins[1:], end[-1:])
    return begins, np.minimum(end[of], follows), what[of]


def _overlaps(start: Ints, end: Ints, other_start: Ints, other_end: Ints) -> np.ndarray:
    """Which of the intervals overlap any of the others."""
    if not len(other_start):
        return np.zeros(len(start), bool)
    order = np.argsort(other_start)
    reach = np.maximum.accumulate(other_end[order])
    before = np.searchsorted(other_start[order], end, side="left") - 1
    return (before >= 0) & (reach[np.maximum(before, 0)] > start)


def _nothing_but_execution(story: _Story, start: Ints, end: Ints) -> np.ndarray:
    """Gaps so short and so far from any wait that the host was simply launching."""
    near = np.zeros(len(start), bool)
    if len(story.special_start):
        before = np.searchsorted(story.special_start, end, side="left") - 1
        near = (before >= 0) & (story.special_end[np.maximum(before, 0)] >= start - RESTART_NS)
    return ~near & (end - start < INPUT_SILENCE_NS)


def _first_copies(run: Run, rows: Rows, windows: list[Window]) -> list[int]:
    """For each window when the first copy to the device launched in its step starts; 0 if there is none."""
    into = np.array([a.copy == "HtoD" for a in run.library.activities])[rows.code] & (rows.call >= 0)
    starts = rows.start[into]
    return [next((int(s) for s in starts if w.start <= s < w.end), 0) for w in windows]


def _explain(story: _Story, start: int, end: int, launch: int, thread: int, first_copy: int) -> Iterator[tuple[int, int, str]]:
    """The causes of a gap that ended when a thread at last launched something."""
    drain = story.drained_by(start)
    budget = 0
    if drain is not None:
        _, s, e = drain
        budget = e - s - max(min(e, end) - max(s, start), 0)
    for s, e, nature in story.busy_with(thread, start, min(max(launch, start), end)):
        if nature:
            yield s, e, CAUSES[nature]
            continue
        for a, b, cause in (part for free in story.without_overhead(s, e, "") for part in _by_silence(story, *free, first_copy)):
            if cause:
                yield a, b, cause
                continue
            charged = min(budget, b - a)
            if charged and drain is not None:
                yield a, a + charged, CAUSES[drain[0]]
                budget -= charged
            if charged < b - a:
                yield a + charged, b, "launch_bound"
    if launch < end:
        call = max(launch, start)
        inside = [nature for s, e, nature in story.busy_with(thread, call, end) if nature in (Nature.COMPILE, Nature.HOST_SYNC)]
        yield call, end, CAUSES[inside[0]] if inside else "launch_bound"


def _by_silence(story: _Story, start: int, end: int, cause: str, first_copy: int) -> Iterator[tuple[int, int, str]]:
    """Plain host time, cut into execution ("") and silence (its cause); what has a cause already keeps it."""
    if cause:
        yield start, end, cause
        return
    begins, ends = story.silences
    at = start
    for i in range(int(np.searchsorted(ends, start, side="right")), int(np.searchsorted(begins, end, side="left"))):
        s, e = max(int(begins[i]), start), min(int(ends[i]), end)
        edges = story.frame_edges[np.searchsorted(story.frame_edges, s, side="right") : np.searchsorted(story.frame_edges, e, side="left")]
        points = [s, *edges.tolist(), e]
        for a, b in pairwise(points):
            cause = ""
            if b - a >= INPUT_SILENCE_NS and b <= first_copy:
                cause = "data_wait"
            elif b - a > SILENCE_NS:
                cause = "unattributed"
            if cause:
                if a > at:
                    yield at, a, ""
                yield a, b, cause
                at = b
    if end > at:
        yield at, end, ""


def _joined(parts: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """The parts with touching ones of the same cause made one."""
    joined: list[tuple[int, int, str]] = []
    for start, end, cause in parts:
        if joined and joined[-1][1] == start and joined[-1][2] == cause:
            joined[-1] = (joined[-1][0], end, cause)
        elif end > start:
            joined.append((start, end, cause))
    return joined


def transfers_of(run: Run, host: Host, rows: Rows, written: frozenset[int]) -> list[Transfer]:
    """Waiting and transfer of every recorded collective of a rank."""
    clock = clock_of(run, host.rank)
    device = host.device
    first, last = rows.window
    result = []
    for index, meeting in device.meetings.items():
        start, end = device.start[index], device.end[index]
        if not (first <= clock(start) and clock(end) <= last):
            continue
        awaited = [meeting.starts[peer][2] for peer in meeting.awaited(host.rank)]
        seen = [meeting.starts[peer][2] for peer in meeting.awaited(host.rank) if peer in written]
        ready = min(max([start, *awaited]), end)
        seen_ready = min(max([start, *seen]), end)
        result.append(
            Transfer(
                f"{meeting.spec.channel}#{meeting.number}",
                meeting.spec.operation,
                clock(start),
                clock(end),
                (ready - start) * run.tick,
                (end - ready) * run.tick,
                (seen_ready - start) * run.tick,
            )
        )
    return result


class StepTime(NamedTuple):
    """Length of the slowest rank's window in ns, over the steps after the first."""

    median: int
    mean: int


def step_time(run: Run) -> StepTime:
    """How long a step takes."""
    capture = Capture()
    lengths: list[list[int]] = []
    for host in run.hosts:
        windows = [w for w in windows_of(run, record(run, host, capture), capture) if w.step != BETWEEN]
        lengths.append([w.end - w.start for w in windows[1:]])
    slowest: list[int] = sorted(max(of_step) for of_step in zip(*lengths, strict=True))
    return StepTime((slowest[(len(slowest) - 1) // 2] + slowest[len(slowest) // 2]) // 2, sum(slowest) // len(slowest))
