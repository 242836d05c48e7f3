"""What bounds the kernels: the host that launches them, memory, or arithmetic; for each family, each phase of the step and the step.

A kernel that is shorter than the host needs to launch the next one cannot keep the GPU busy: with t_k and t_cpu the mean length of a kernel
and the host's time from launch to launch, the GPU is busy for at most t_k / max(t_k, t_cpu). Otherwise FLOPs and bytes of recorded shapes
decide: more FLOPs a byte than the GPU's peak over its memory bandwidth is compute-bound. Without shapes it is the kind of the kernels, and
said so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.categories import FAMILIES
from traceread.measurements.launches import Launches
from traceread.measurements.matrix_work import KindWork
from traceread.measurements.pace import LONGEST_NS
from traceread.measurements.peaks import Gpu
from traceread.measurements.steps import Steps
from traceread.model import ActivityKind, Category, IntColumn, MatrixKind, Trace
from traceread.records import record

PHASES = ("forward", "backward", "optimizer")
"""Names of the phases of a step by their code."""

_BUSY_ENOUGH = 0.9
_FAR_BELOW = 0.2  # of peak and of bandwidth: neither of them is what bounds a kernel
_WORTH = 100  # idle time for launching counts from a hundredth of the step on
_MATRIX = tuple(kind.key for kind in MatrixKind)
_MEMORY = ("normalisation", "softmax", "elementwise", "reduction", "optimizer", "embedding", "memory")


class Regime(StrEnum):
    """What bounds kernels."""

    OVERHEAD = "overhead-bound"
    MEMORY = "memory-bound"
    COMPUTE = "compute-bound"
    UNKNOWN = "not known"


def busy_share(kernel_ns: float, launch_ns: float) -> float:
    """The share of time that a GPU can be busy with kernels of one length, launched at one pace: t_k / max(t_k, t_cpu)."""
    longest = max(kernel_ns, launch_ns)
    return kernel_ns / longest if longest > 0 else 0.0


@record
class Pace:
    """Kernels of one family or phase over the used steps of a rank.

    Attributes:
        name: of the family or phase.
        kernels: how many.
        ns: their time, summed.
        launch_ns: host time from launch to launch, for each kernel; -1 where launches are not recorded.
    """

    name: str
    kernels: int
    ns: int
    launch_ns: int

    @property
    def kernel_ns(self) -> int:
        """Mean length of a kernel."""
        return self.ns // self.kernels if self.kernels else 0

    @property
    def busy_share(self) -> float | None:
        """The share of time that the GPU can be busy with them; None where launches are not recorded."""
        return None if self.launch_ns < 0 else busy_share(self.kernel_ns, self.launch_ns)


@record
class Bound:
    """What bounds a family of kernels, or the step.

    Attributes:
        pace: kernels and launches.
        regime: what bounds them.
        measured: by FLOPs and bytes of recorded shapes, or by launches; else by the kind of the kernels.
        evidence: why, in words.
    """

    pace: Pace
    regime: Regime
    measured: bool
    evidence: str


@record
class Regimes:
    """What bounds the kernels of a rank.

    Attributes:
        families: of computing kernels, the longest first.
        phases: kernels and launches of forward, backward and optimizer, where they are recorded.
        shares: of the step, by regime: its kernels' time, and for launching the time the GPU idles for it.
    """

    families: tuple[Bound, ...] = ()
    phases: tuple[Pace, ...] = ()
    shares: Mapping[Regime, float] | None = None

    @property
    def step(self) -> Regime | None:
        """What bounds most of the step; None where nothing is computed."""
        if not self.shares or not any(self.shares.values()):
            return None
        return max(self.shares, key=lambda r: (self.shares[r], -list(Regime).index(r)))  # type: ignore[index]

    def to_dict(self) -> dict[str, Any]:
        """The regimes as JSON builtins."""
        return {
            "step": None if self.step is None else str(self.step),
            "shares": {str(r): share for r, share in (self.shares or {}).items()},
            "families": [
                {**_pace_dict(b.pace), "regime": str(b.regime), "measured": b.measured, "evidence": b.evidence} for b in self.families
            ],
            "phases": [_pace_dict(p) for p in self.phases],
        }


def _pace_dict(pace: Pace) -> dict[str, Any]:
    return {
        "name": pace.name,
        "kernels": pace.kernels,
        "ns": pace.ns,
        "kernel_ns": pace.kernel_ns,
        "launch_ns": None if pace.launch_ns < 0 else pace.launch_ns,
        "busy_share": pace.busy_share,
    }


def find_paces(
    trace: Trace, launches: Launches, steps: Steps, phases: npt.NDArray[np.integer]
) -> tuple[tuple[Pace, ...], tuple[Pace, ...]]:
    """Kernels and launches of each family and of each phase, over the used steps of a rank.

    Args:
        trace: the rank.
        launches: of its activities.
        steps: its steps.
        phases: for each activity its position in PHASES, -1 where that is not recorded.
    """
    a = trace.activities
    used = np.array([*steps.used, False], bool)
    if len(steps.window_of) != len(a):
        return (), ()
    rows = np.flatnonzero((a.category == Category.COMPUTE) & (a.kind == ActivityKind.KERNEL) & used[steps.window_of])
    launched = launches.known[rows]
    calls, call = intervals.distinct(launches.call[rows[launched]])
    after = _time_to_next(trace, launches)[calls]

    def pace(name: str, which: npt.NDArray[np.bool_]) -> Pace:
        mine = rows[which]
        launching = intervals.unique(call[which[launched]])
        between = after[launching]
        between = between[(between >= 0) & (between <= LONGEST_NS)]
        ns = int((a.end_ns[mine] - a.start_ns[mine]).sum())
        if not len(between):
            return Pace(name, len(mine), ns, -1)
        middle = (len(between) - 1) // 2
        median = int(np.partition(between, middle)[middle])
        return Pace(name, len(mine), ns, median * len(launching) // len(mine))

    families = [pace(FAMILIES[f], a.family[rows] == f) for f in intervals.unique(a.family[rows]).tolist()]
    of_phase = [pace(name, phases[rows] == code) for code, name in enumerate(PHASES)]
    known = [p for p in of_phase if p.kernels and p.launch_ns >= 0]
    families.sort(key=lambda p: (-p.ns, p.name))
    return tuple(families), tuple(known) if len(known) > 1 else ()


def _time_to_next(trace: Trace, launches: Launches) -> IntColumn:
    """For each call the time from its start to that of the next launch on its thread, -1 if there is none or it launches nothing."""
    owners = np.flatnonzero(launches.owners > 0)
    order = owners[intervals.group_order(trace.calls.thread[owners], len(trace.threads))]  # calls are in order of start
    same = trace.calls.thread[order[1:]] == trace.calls.thread[order[:-1]]
    after = np.full(len(trace.calls), -1, np.int64)
    after[order[:-1][same]] = (trace.calls.start_ns[order[1:]] - trace.calls.start_ns[order[:-1]])[same]
    return after


def find_regimes(
    families: Sequence[Pace],
    phases: Sequence[Pace],
    kinds: Sequence[KindWork],
    gpu: Gpu | None,
    step_ns: int,
    launching_ns: int,
    steps: int,
) -> Regimes:
    """What bounds each family, and the step.

    Args:
        families: kernels and launches of each.
        phases: of each phase.
        kinds: matrix products by recorded shapes.
        gpu: peaks and memory bandwidth of the GPU, where known.
        step_ns: mean step.
        launching_ns: of it, idle because the host launches too slowly.
        steps: number of used steps.
    """
    work = {k.kind.key: k for k in kinds if k.operators}
    late = launching_ns * _WORTH >= step_ns > 0
    bounds = tuple(_bound(pace, work.get(pace.name), gpu, late) for pace in families)
    total = step_ns * max(steps, 1)
    shares = dict.fromkeys(Regime, 0.0)
    for bound in bounds:
        shares[bound.regime] += bound.pace.ns / total if total else 0.0
    shares[Regime.OVERHEAD] += launching_ns / step_ns if step_ns else 0.0
    return Regimes(bounds, tuple(phases), shares)


def _bound(pace: Pace, work: KindWork | None, gpu: Gpu | None, late: bool) -> Bound:
    busy = pace.busy_share
    if late and busy is not None and busy < _BUSY_ENOUGH:
        return Bound(pace, Regime.OVERHEAD, True, "shorter than the time to the next launch")
    peaks = {} if gpu is None else gpu.flops
    known = None if work is None else [p for p in work.flops if p in peaks]
    if work is not None and work.intensity is not None and gpu is not None and gpu.bandwidth and known:
        reached, moved = work.peak_share(peaks), work.bytes * 10**9 / work.ns / gpu.bandwidth if work.ns else None
        if reached is not None and moved is not None and max(reached, moved) < _FAR_BELOW:
            below = f"{100 * reached:.1f} % of the peak and {100 * moved:.1f} % of the bandwidth: too small to fill the GPU, or slow"
            return Bound(pace, Regime.UNKNOWN, True, below)
        precision = max(known, key=lambda p: work.flops[p])
        ridge = peaks[precision] / gpu.bandwidth
        regime = Regime.COMPUTE if work.intensity >= ridge else Regime.MEMORY
        side = "above" if regime is Regime.COMPUTE else "below"
        return Bound(pace, regime, True, f"{work.intensity:,.0f} FLOP a byte, {side} the {ridge:,.0f} of the {gpu.key} in {precision}")
    if pace.name in _MATRIX:
        return Bound(pace, Regime.COMPUTE, False, "by kind; recorded shapes would tell")
    if pace.name in _MEMORY:
        return Bound(pace, Regime.MEMORY, False, "by kind: a few FLOP a byte")
    return Bound(pace, Regime.UNKNOWN, False, "kernels of many kinds")
