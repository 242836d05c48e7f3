"""How much of the hardware a job uses and where the rest goes: utilisation, measured against estimate, and the wall time by parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from traceread.errors import Notice
from traceread.measurements.classes import StepClass
from traceread.measurements.collectives import RankCollectives
from traceread.measurements.estimates import Estimates, estimate
from traceread.measurements.kernels import KernelTable
from traceread.measurements.launches import Launches
from traceread.measurements.matrix_work import MatrixWork, find_matrix_work
from traceread.measurements.precision import prevailing_format
from traceread.measurements.reconciliation import ExposedParts, Part, Reconciliation, reconcile
from traceread.measurements.regimes import Pace, Regimes, find_paces, find_regimes
from traceread.measurements.steps import Steps
from traceread.measurements.traffic import Traffic, sum_traffic
from traceread.measurements.utilisation import Utilisation, measure_utilisation
from traceread.model import ActivityKind, CopyKind, Device, Trace
from traceread.records import record
from traceread.run import Described, Run

MATRIX_FAMILIES = ("gemm", "attention", "convolution")
"""Families of kernels that multiply matrices."""

_ENOUGH_COVERAGE = 0.5


@record
class RankWork:
    """What one rank contributes to efficiency, over its used steps.

    Attributes:
        traffic: what it sends.
        copied: bytes copied to the device, per step.
        precision: number format of its matrix products, and what shows it; None if nothing does.
        matrices: matrix products by recorded shapes.
        families, phases: kernels and launches of families of kernels, and of phases of the step.
    """

    traffic: Traffic = field(default_factory=Traffic)
    copied: int = 0
    precision: tuple[str, str] | None = None
    matrices: MatrixWork = field(default_factory=MatrixWork)
    families: tuple[Pace, ...] = ()
    phases: tuple[Pace, ...] = ()


@record
class StepTimes:
    """The mean step of the slowest rank.

    Attributes:
        class_ns: time of each class; they sum to the step.
        hidden_communication_ns: communication under computing.
    """

    class_ns: Mapping[StepClass, int]
    hidden_communication_ns: int

    @property
    def step_ns(self) -> int:
        """The step."""
        return sum(self.class_ns.values())


@record
class Efficiency:
    """How much of the hardware a job uses.

    Attributes:
        run: what is known about the job beside the trace.
        sources: where each field of it comes from.
        utilisation: tokens per second, MFU, HFU.
        estimates: the least times of a step beside the measured ones.
        reconciliation: the wall time by parts.
        sent: bytes that the critical rank sends to its peers in a step, as far as sizes are recorded.
        matrices: matrix products of that rank by recorded shapes.
        regimes: what bounds its kernels.
    """

    run: Run
    sources: Mapping[str, str]
    utilisation: Utilisation
    estimates: Estimates
    reconciliation: Reconciliation
    sent: int = 0
    matrices: MatrixWork = field(default_factory=MatrixWork)
    regimes: Regimes = field(default_factory=Regimes)

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Warnings about its figures."""
        return (*self.utilisation.notices, *self._doubts())

    def _doubts(self) -> Iterator[Notice]:
        """What cannot be: more than the peak, or more FLOPs than were executed."""
        u = self.utilisation
        if u.mfu is not None and u.mfu > 1:
            yield Notice(
                "mfu-above-peak", f"MFU comes out at {100 * u.mfu:.0f} %: the model, the batch, the number of GPUs or the peak is wrong"
            )
        coverage = self.matrices.coverage
        if u.model_flops is None or coverage < _ENOUGH_COVERAGE:
            return
        executed = self.matrices.flops / coverage
        if 2 * u.model_flops > 3 * executed:
            asked = f"training as described takes {u.model_flops / 1e12:.3g} TFLOP a step and GPU"
            message = (
                f"{asked}, and the recorded shapes add up to {executed / 1e12:.3g}: a forward pass alone, or another batch; MFU is too high"
            )
            yield Notice("flops-not-executed", message)

    def mfu_at(self, step_ns: int) -> float | None:
        """MFU if a step took so long; None where MFU is not known."""
        return self.utilisation.mfu_at(step_ns)

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON builtins; times are ns per step, rates per second."""
        u = self.utilisation
        return {
            "run": self.run.to_dict(),
            "sources": dict(self.sources),
            "gpus": u.gpus,
            "gpus_source": u.gpus_source,
            "precision": u.precision,
            "precision_source": u.precision_source or None,
            "peak_flops": u.peak.flops,
            "peak_source": u.peak.source,
            "matmul_flops": u.matmul_flops,
            "tokens_per_step": {kind: getattr(u.tokens, kind) for kind in _KINDS},
            "tokens_source": u.tokens_source or None,
            "tokens_per_s": {kind: u.tokens_per_s(kind) for kind in _KINDS},
            "convention": None if u.flops is None else u.flops.convention,
            "flops_per_token": None
            if u.flops is None
            else {"model": u.flops.model, "causal": u.flops.causal, "parameters": u.flops.without_attention, "hardware": u.flops.hardware},
            "mfu": u.mfu,
            "mfu_causal": u.mfu_causal,
            "mfu_without_attention": u.mfu_without_attention,
            "mfu_untraced": u.mfu_untraced,
            "hfu": u.hfu,
            "missing": list(u.missing),
            "sent_bytes": self.sent,
            "least_step_ns": self.estimates.least_step_ns,
            "estimates": [
                {
                    "resource": str(row.resource),
                    "measured_ns": row.measured_ns,
                    "exposed_ns": row.exposed_ns,
                    "least_ns": row.least_ns,
                    "ceiling_ns": row.ceiling_ns,
                    "reached": row.reached,
                    "gap_ns": row.gap_ns,
                    "reason": row.reason,
                    "done": row.done,
                }
                for row in self.estimates.rows
            ],
            "model_least_ns": u.time_of(u.model_flops),
            "reconciliation": {
                **{str(part): self.reconciliation.ns[part] for part in Part},
                "transfer": self.reconciliation.transfer_ns,
                "wait": self.reconciliation.wait_ns,
                "again_known": self.reconciliation.again_known,
            },
            "matrix_work": self.matrices.to_dict({} if u.gpu is None else u.gpu.flops),
            "regimes": self.regimes.to_dict(),
        }


_KINDS = ("valid", "padded", "dropped")


def measure_work(
    trace: Trace,
    launches: Launches,
    steps: Steps,
    kernels: KernelTable,
    collectives: RankCollectives,
    phases: npt.NDArray[np.integer],
) -> RankWork:
    """What one rank contributes; `phases` is the phase of each activity as in regimes.PHASES."""
    matrices = find_matrix_work(trace, launches, steps)
    families, of_phase = find_paces(trace, launches, steps, phases)
    return RankWork(
        traffic=sum_traffic(collectives, steps),
        copied=_copied(trace, steps),
        precision=_precision(matrices, kernels),
        matrices=matrices,
        families=families,
        phases=of_phase,
    )


def measure_efficiency(
    described: Described,
    times: StepTimes,
    work: RankWork,
    devices: Sequence[Device],
    world_size: int | None,
    waiting: ExposedParts | None = None,
) -> Efficiency:
    """The efficiency of a job by its slowest rank.

    Args:
        described: what is known about the job beside the trace.
        times: mean step of that rank.
        work: what it does.
        devices: GPUs of the loaded ranks.
        world_size: number of ranks as recorded.
        waiting: how its exposed communication splits, where that is known.
    """
    utilisation = measure_utilisation(described, times.step_ns, devices, world_size, work.precision)
    estimates = estimate(utilisation, described.run, times.class_ns, times.hidden_communication_ns, work.traffic, work.copied)
    parts = reconcile(times.class_ns, utilisation.model_flops, utilisation.hardware_flops, waiting)
    launching = times.class_ns[StepClass.LAUNCH_BOUND]
    regimes = find_regimes(work.families, work.phases, work.matrices.kinds, utilisation.gpu, times.step_ns, launching, work.matrices.steps)
    return Efficiency(described.run, described.sources, utilisation, estimates, parts, work.traffic.sent, work.matrices, regimes)


def _precision(matrices: MatrixWork, kernels: KernelTable) -> tuple[str, str] | None:
    """The prevailing number format by recorded dtypes where they cover most of the time, else by kernel names."""
    if matrices.coverage >= _ENOUGH_COVERAGE and matrices.precision is not None:
        return matrices.precision, "recorded dtypes"
    named = prevailing_format((row.name, row.total_ns) for row in kernels.rows if row.family in MATRIX_FAMILIES)
    return None if named is None else (named, "kernel names")


def _copied(trace: Trace, steps: Steps) -> int:
    """Bytes copied to the device per used step; 0 where sizes are not recorded."""
    a = trace.activities
    used = np.array([*steps.used, False], bool)
    if not used.any() or len(steps.window_of) != len(a):
        return 0
    mine = (a.kind == ActivityKind.MEMCPY) & (a.copy_kind == CopyKind.HOST_TO_DEVICE) & (a.bytes > 0) & used[steps.window_of]
    return int(a.bytes[mine].sum()) // int(used.sum())
