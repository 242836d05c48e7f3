"""Steps where nothing names them: repeating ranges projected onto the GPU, else the period of the launch sequence.

Only on request (`--step-range infer`); such steps are labelled as projected or inferred everywhere.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from traceread.measurements.launches import Launches
from traceread.measurements.steps import HostSegments, StepSource, WindowKind
from traceread.model import ActivityKind, IntColumn, RangeKind, Trace

_DIGITS = re.compile(r"\d+")
_SAME_LAUNCHES = 0.9
"""Share of launches that must repeat after one period."""
_AS_GOOD = 0.005
_PERIODS_TRIED = 48
_SHORTEST = 8
"""Launches of the shortest period looked for; shorter repetitions are layers and loops, not steps."""


def infer_segments(trace: Trace, launches: Launches) -> HostSegments | None:
    """The host time of the steps that the trace shows without naming them, None if nothing repeats."""
    if not launches.known.any():
        return None
    return _repeating_range(trace, launches) or _repeating_launches(trace, launches)


def _repeating_range(trace: Trace, launches: Launches) -> HostSegments | None:
    """The family of annotations that repeats without overlapping and holds the most GPU time; each reaches to the next."""
    ranges = trace.ranges
    rows = np.flatnonzero(ranges.kind == RangeKind.ANNOTATION)
    families: dict[str, list[int]] = {}
    for code in np.unique(ranges.name[rows]).tolist():
        families.setdefault(_DIGITS.sub("", trace.names[code]), []).append(code)
    duration = trace.activities.end_ns - trace.activities.start_ns
    total = int(duration[launches.known].sum())
    best: tuple[int, str, npt.NDArray[np.int64]] | None = None
    for name in sorted(families):
        mine = rows[np.isin(ranges.name[rows], np.array(families[name], np.int32))]
        mine = mine[np.argsort(ranges.start_ns[mine], kind="stable")]
        start, end = ranges.start_ns[mine], ranges.end_ns[mine]
        if len(mine) < 2 or np.any(start[1:] < end[:-1]):
            continue
        at = launches.start_ns
        i = np.searchsorted(start, at, side="right") - 1
        held = int(duration[launches.known & (i >= 0) & (at < end[np.maximum(i, 0)])].sum())
        if best is None or held > best[0]:
            best = (held, name, mine)
    if best is None or 2 * best[0] < total:
        return None
    _, name, mine = best
    start = ranges.start_ns[mine]
    return HostSegments(
        start=start,
        end=np.append(start[1:], ranges.end_ns[mine[-1]]),
        label=tuple(f"{trace.names[code]} [{i}]" for i, code in enumerate(ranges.name[mine].tolist())),
        kind=(WindowKind.STEP,) * len(mine),
        thread=ranges.thread[mine].astype(np.int64),
        open=ranges.open[mine] == 1,
        name=name,
        source=StepSource.PROJECTED,
    )


def _repeating_launches(trace: Trace, launches: Launches) -> HostSegments | None:
    """One segment per period of the sequence of launched kernels, cut where the host pauses longest before a launch."""
    activities = trace.activities
    kernels = np.flatnonzero(
        launches.known & (activities.kind == ActivityKind.KERNEL) | (launches.known & (activities.kind == ActivityKind.GRAPH))
    )
    kernels = kernels[np.lexsort((activities.start_ns[kernels], launches.start_ns[kernels]))]
    kernels = kernels[np.sort(np.unique(launches.call[kernels], return_index=True)[1])]  # a graph is one launch of many kernels
    names = activities.name[kernels]
    period = _period(names)
    if period is None:
        return None
    at = launches.start_ns[kernels]
    first = _phase(at, period)
    cuts = at[first::period]
    if len(cuts) < 2:
        return None
    last = launches.end_ns[kernels].max() if first + period * len(cuts) == len(kernels) else None
    start, end = (cuts, np.append(cuts[1:], last + 1)) if last is not None else (cuts[:-1], cuts[1:])
    return HostSegments(
        start=start,
        end=end,
        label=tuple(f"inferred step {i}" for i in range(len(start))),
        kind=(WindowKind.STEP,) * len(start),
        thread=np.full(len(start), -1, np.int64),
        open=np.zeros(len(start), bool),
        name=f"period of {period} launches",
        source=StepSource.INFERRED,
    )


def _period(names: npt.NDArray[np.int32]) -> int | None:
    """The distance after which most launches repeat, at least 90 % of them; None if there is none.

    Layers repeat inside a step, but not its first and last kernels, so a step repeats more exactly than a layer: the shortest
    distance that is as good as the best within half a per cent wins. Distances tried are those between neighbouring launches of
    one kernel: the most frequent ones, and those of the kernels that are launched least often, once per step.
    """
    order = np.lexsort((np.arange(len(names)), names))
    same = names[order][1:] == names[order][:-1]
    distance, of = np.diff(order)[same], names[order][1:][same]
    keep = (distance >= _SHORTEST) & (distance <= len(names) // 2)
    distance, of = distance[keep], of[keep]
    if not len(distance):
        return None
    values, counts = np.unique(distance, return_counts=True)
    frequent = values[np.argsort(-counts, kind="stable")[:_PERIODS_TRIED]]
    rarity = np.bincount(of)[of]
    rare = distance[np.argsort(rarity, kind="stable")[:_PERIODS_TRIED]]
    shares = {period: float(np.mean(names[period:] == names[:-period])) for period in np.unique(np.concatenate((frequent, rare))).tolist()}
    best = max(shares.values())
    if best < _SAME_LAUNCHES:
        return None
    return int(min(period for period, share in shares.items() if share >= best - _AS_GOOD))


def _phase(at: IntColumn, period: int) -> int:
    """The position in the period before which the host pauses longest, summed over the periods."""
    pause = np.diff(at, prepend=at[0])
    pause[0] = pause[period]  # what was before the first launch is not recorded
    whole = len(pause) // period * period
    return int(pause[:whole].reshape(-1, period).sum(axis=0).argmax())
