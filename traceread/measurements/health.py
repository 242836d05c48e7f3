"""What a trace says that cannot be quite true: checks whose findings stand beside the numbers as warnings with a count.

Only activities whose end cannot be true are left out; no other check changes a total.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.categories import FAMILIES, possible_communication
from traceread.errors import Notice
from traceread.measurements.classes import Reason
from traceread.measurements.idle import Idle, launch_share
from traceread.measurements.launches import Launches
from traceread.measurements.partition import Busy
from traceread.measurements.step_inference import infer_segments
from traceread.measurements.steps import WHOLE, Steps, StepSource, Window
from traceread.model import ActivityKind, Calls, Category, RangeKind, Ranges, Trace
from traceread.names import and_more, clean, kernel_title, shorten
from traceread.units import duration, percent, plural

OVERLAP_NS = 50_000
"""Longer overlaps on one stream are not programmatic dependent launch, whose overlaps last a few microseconds."""
IMPOSSIBLE_NS = 3_600 * 10**9
"""No kernel or copy of a training step runs an hour."""

CLOCKS_NS = 10**9
"""The clocks of host and GPU differ by less."""

Rows = TypeVar("Rows", Calls, Ranges)

_NAMED = 3
_OTHER = FAMILIES.index("other")
_CPU_BACKENDS = ("gloo:", "mpi:", "ucc:")
_NCCL = re.compile(r"(?:nccl|rccl|xccl):|nccl(?:All|Reduce|Broadcast|Bcast|Send|Recv)")
_COLLECTIVE = re.compile(
    _NCCL.pattern + r"|(?:c10d|_c10d_functional(?:_autograd)?)::_?(?:all|reduce|broadcast|gather|scatter|send|recv|barrier)"
)


def without_impossible(trace: Trace) -> tuple[Trace, tuple[Notice, ...]]:
    """The trace without what cannot last as long as recorded, because its end was never written, and warnings that count it.

    Activities of more than an hour, or that go on when the capture is over, are left out: kept, a single one would be the whole busy time
    and swallow the steps that follow.
    Calls and ranges of more than an hour that end more than an hour after all GPU work get no length: kept, they would be what the
    host did ever since.
    """
    trace, of_gpu = _without_endless_activities(trace)
    trace, of_host = _without_endless_host_rows(trace)
    return trace, (*of_gpu, *of_host)


def _without_endless_activities(trace: Trace) -> tuple[Trace, tuple[Notice, ...]]:
    a = trace.activities
    length = a.end_ns - a.start_ns
    endless = length > IMPOSSIBLE_NS
    if trace.capture_ns is not None:  # what runs when the profiler stops is waited for, and nothing is recorded later
        stop = trace.capture_ns[1]
        endless |= (a.start_ns < stop) & (a.end_ns > stop + CLOCKS_NS)
    count = int(endless.sum())
    if not count:
        return trace, ()
    message = (
        f"{count} of {len(length)} activities ({percent(count, len(length))}) are left out: they last more than an hour or beyond the end "
        f"of the capture, the longest {duration(int(length[endless].max()))}, so their ends were never written; where they ran the GPU "
        "looks idle"
    )
    return replace(trace, activities=a.take(~endless)), (Notice("impossible-duration", message, trace.rank),)


def _without_endless_host_rows(trace: Trace) -> tuple[Trace, tuple[Notice, ...]]:
    if not len(trace.activities):
        return trace, ()
    last = int(trace.activities.end_ns.max()) + IMPOSSIBLE_NS
    of_calls, of_ranges = (_endless(table, last) for table in (trace.calls, trace.ranges))
    count = int(of_calls.sum() + of_ranges.sum())
    if not count:
        return trace, ()
    message = (
        f"{plural(count, 'call or range', 'calls and ranges')} of the host last more than an hour and end more than an hour after all GPU "
        "work, so the ends were never written; they count as if they had ended at once"
    )
    trace = replace(trace, calls=_ended_at_once(trace.calls, of_calls), ranges=_ended_at_once(trace.ranges, of_ranges))
    return trace, (Notice("impossible-duration", message, trace.rank),)


def _endless(table: Calls | Ranges, last: int) -> npt.NDArray[np.bool_]:
    late: npt.NDArray[np.bool_] = table.end_ns > last
    if late.any():
        late &= table.end_ns - table.start_ns > IMPOSSIBLE_NS
    return late


def _ended_at_once(table: Rows, which: npt.NDArray[np.bool_]) -> Rows:
    table = table.replace(end_ns=np.where(which, table.start_ns, table.end_ns))
    return table.take(intervals.time_order(table.start_ns, -table.end_ns))


def check_health(trace: Trace, launches: Launches, steps: Steps, busy: Busy, idle: Idle, *, infer: bool = False) -> tuple[Notice, ...]:
    """Warnings about one rank's trace, each with its number; empty for a healthy one. `infer`: steps were to be found in what repeats."""
    checks = (
        _no_gpu_work(trace),
        _launch_coverage(trace, launches, steps),
        _lost_kernels(trace, steps),
        _graph_nodes(trace, steps, idle),
        _stream_overlaps(trace, busy),
        _possible_communication(trace, busy),
        _communication_not_recorded(trace),
        _before_launch(trace, launches),
        _steps_not_inferred(trace, steps) if infer else _steps_to_infer(trace, launches, steps),
    )
    return tuple(Notice(slug, message, trace.rank) for check in checks for slug, message in check)


def _no_gpu_work(trace: Trace) -> Iterator[tuple[str, str]]:
    if not len(trace.activities):
        counted = ((len(trace.calls), "API call"), (len(trace.ranges), "host range"))
        what = " and ".join(plural(count, thing) for count, thing in counted if count)
        only = f", only {what}" if what else ""
        yield "no-gpu-work", f"no GPU work was recorded{only}; this says nothing about whether the GPU was idle"


def _launch_coverage(trace: Trace, launches: Launches, steps: Steps) -> Iterator[tuple[str, str]]:
    known, total = launch_share(trace, launches, steps)
    low = np.flatnonzero(10 * known < 9 * total)
    if len(low):
        worst = int(low[np.argmin(known[low] / np.maximum(total[low], 1))])
        yield (
            "launches-not-recorded",
            f"only {percent(int(known[worst]), int(total[worst]))} of the GPU time of {_title(steps.windows[worst])}{_and_more(len(low))} "
            "has a record of its launch, so why the GPU idles there is not said",
        )


def _lost_kernels(trace: Trace, steps: Steps) -> Iterator[tuple[str, str]]:
    lost = [(w.launch_coverage[1] - w.launch_coverage[0], w) for w in steps.windows if w.launch_coverage[0] < w.launch_coverage[1]]
    if lost:
        count, worst = max(lost, key=lambda pair: pair[0])
        yield (
            "launches-without-kernels",
            f"{count} of {worst.launch_coverage[1]} kernel launches of {_title(worst)}{_and_more(len(lost))} lack kernels in the trace; "
            "where those ran the GPU looks idle",
        )


def _graph_nodes(trace: Trace, steps: Steps, idle: Idle) -> Iterator[tuple[str, str]]:
    missing = idle.reason == Reason.GRAPH_NODES_NOT_RECORDED
    if not missing.any():
        return
    lost = np.zeros(len(steps.windows), np.int64)
    np.add.at(lost, idle.window[missing], (idle.end_ns - idle.start_ns)[missing])
    length = np.array([w.duration_ns for w in steps.windows], np.int64)
    over = np.flatnonzero(20 * lost > length)
    if len(over):
        worst = int(over[np.argmax(lost[over] / np.maximum(length[over], 1))])
        yield (
            "graph-nodes-not-recorded",
            f"{duration(int(lost[worst]))} of {_title(steps.windows[worst])} ({percent(int(lost[worst]), int(length[worst]))})"
            f"{_and_more(len(over))} lie inside CUDA graph launches and have no kernel: the profiler did not record all kernels of the "
            "graphs, so the idle time is an upper bound",
        )


def _stream_overlaps(trace: Trace, busy: Busy) -> Iterator[tuple[str, str]]:
    """Activities that go on after the next one of their stream has begun, which a stream does not do."""
    a = trace.activities
    order = np.lexsort((a.start_ns, a.stream))
    start, end, stream, own = a.start_ns[order], a.end_ns[order], a.stream[order], a.correlation[order]
    # activities of one CUDA graph launch run in branches that are reported on one stream
    together = (own[1:] == own[:-1]) & (own[1:] > 0)
    excess = np.where((stream[1:] == stream[:-1]) & ~together & (end[1:] > start[1:]), end[:-1] - start[1:], 0)
    long = excess > OVERLAP_NS
    total = int(excess[long].sum())
    if total * 100 > busy.any.total:
        yield (
            "stream-overlap",
            f"{int(long.sum())} of {len(order)} activities last more than {duration(OVERLAP_NS)} beyond the start of the next one of their "
            f"stream, {duration(total)} together: their recorded durations are too long",
        )


def _possible_communication(trace: Trace, busy: Busy) -> Iterator[tuple[str, str]]:
    """Kernels that no pattern knows and whose names read like communication: they count as compute."""
    a = trace.activities
    unknown = (a.kind == ActivityKind.KERNEL) & (a.category == Category.COMPUTE) & (a.family == _OTHER) & (a.name >= 0)
    codes = intervals.unique(a.name[unknown])
    suspects = codes[possible_communication([trace.names[code] for code in codes.tolist()])]
    rows = unknown & np.isin(a.name, suspects)
    covered = intervals.union(a.start_ns[rows], a.end_ns[rows]).total
    if covered * 100 > busy.any.total:
        named = _first_names([trace.names[code] for code in suspects.tolist()], kernel_title)
        yield (
            "possible-communication",
            f"{percent(covered, busy.any.total)} of the GPU's busy time is of kernels whose names are not known and read like "
            f"communication ({named}); they count as compute unless [[kernels]] in traceread.toml says otherwise",
        )


def _communication_not_recorded(trace: Trace) -> Iterator[tuple[str, str]]:
    """Collectives of a GPU backend were called, and nothing on the GPU belongs to one. A job of one rank moves nothing."""
    a, ranges = trace.activities, trace.ranges
    if not len(a) or trace.world_size == 1 or (a.category == Category.COMMUNICATION).any():
        return
    host = ((ranges.kind == RangeKind.OP) | (ranges.kind == RangeKind.ANNOTATION)) & (ranges.name >= 0)
    names = [trace.names[code] for code in intervals.unique(ranges.name[host]).tolist()]
    on_cpu = any(name.startswith(_CPU_BACKENDS) for name in names)  # then an operator of c10d may be the CPU's
    called = [name for name in names if (_NCCL if on_cpu else _COLLECTIVE).match(name) is not None]
    if called:
        yield (
            "communication-not-recorded",
            f"collectives were called ({_first_names(called, clean)}) and no communication kernel is "
            "in the trace: that none is exposed does not mean that there was none",
        )


def _before_launch(trace: Trace, launches: Launches) -> Iterator[tuple[str, str]]:
    lead = np.where(launches.known, launches.start_ns - trace.activities.start_ns, 0)
    count = int((lead > 0).sum())
    if count:
        yield (
            "kernel-before-launch",
            f"{count} of {int(launches.known.sum())} activities start before the call that launched them, by up to "
            f"{duration(int(lead.max()))}: the clocks of host and GPU disagree",
        )


def _and_more(count: int) -> str:
    return f", and of {plural(count - 1, 'more step')}," if count > 1 else ""


def _first_names(names: Sequence[str], title: Callable[[str], str]) -> str:
    return and_more([*(shorten(title(name), 60) for name in names[:_NAMED]), *names[_NAMED:]], _NAMED, ", ")


def _title(window: Window) -> str:
    return f"the {window.label}" if window.label == WHOLE else window.label


def _steps_not_inferred(trace: Trace, steps: Steps) -> Iterator[tuple[str, str]]:
    if steps.source is StepSource.WHOLE_CAPTURE and len(trace.activities):
        yield (
            "steps-not-inferred",
            "nothing here repeats evenly enough to be taken for steps, so the capture is read as a whole",
        )


def _steps_to_infer(trace: Trace, launches: Launches, steps: Steps) -> Iterator[tuple[str, str]]:
    """Not a fault: the capture names no steps, but something in it repeats."""
    if steps.source is not StepSource.WHOLE_CAPTURE:
        return
    segments = infer_segments(trace, launches)
    if segments is not None and len(segments.label) > 1:
        yield (
            "steps-not-named",
            f"nothing names the steps, so the capture is read as a whole; --step-range infer would divide it into "
            f"{len(segments.label)} stretches that repeat ({segments.name}): steps perhaps, or parts of one",
        )
