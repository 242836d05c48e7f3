"""How much of the hardware a job uses and where the rest goes: utilisation, measured against estimate, and the wall time by parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from traceread.errors import Notice
from traceread.measurements.classes import StepClass
from traceread.measurements.collectives import RankCollectives
from traceread.measurements.estimates import Estimates, estimate
from traceread.measurements.kernels import KernelTable
from traceread.measurements.precision import prevailing_format
from traceread.measurements.reconciliation import ExposedParts, Part, Reconciliation, reconcile
from traceread.measurements.steps import Steps
from traceread.measurements.traffic import Traffic, sum_traffic
from traceread.measurements.utilisation import Utilisation, measure_utilisation
from traceread.model import ActivityKind, CopyKind, Device, Trace
from traceread.run import Described, Run

MATRIX_FAMILIES = ("gemm", "attention", "convolution")
"""Families of kernels that multiply matrices."""


@dataclass(frozen=True)
class RankWork:
    """What one rank contributes to efficiency, over its used steps.

    Attributes:
        traffic: what it sends.
        copied: bytes copied to the device, per step.
        precision: number format that the names of its kernels show; None if they do not.
    """

    traffic: Traffic = field(default_factory=Traffic)
    copied: int = 0
    precision: str | None = None


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Efficiency:
    """How much of the hardware a job uses.

    Attributes:
        run: what is known about the job beside the trace.
        sources: where each field of it comes from.
        utilisation: tokens per second, MFU, HFU.
        estimates: the least times of a step beside the measured ones.
        reconciliation: the wall time by parts.
        sent: bytes that the critical rank sends to its peers in a step, as far as sizes are recorded.
    """

    run: Run
    sources: Mapping[str, str]
    utilisation: Utilisation
    estimates: Estimates
    reconciliation: Reconciliation
    sent: int = 0

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Warnings about its figures."""
        return self.utilisation.notices

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
        }


_KINDS = ("valid", "padded", "dropped")


def measure_work(trace: Trace, steps: Steps, kernels: KernelTable, collectives: RankCollectives) -> RankWork:
    """What one rank contributes."""
    names = [(row.name, row.total_ns) for row in kernels.rows if row.family in MATRIX_FAMILIES]
    return RankWork(sum_traffic(collectives, steps), _copied(trace, steps), prevailing_format(names))


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
    return Efficiency(described.run, described.sources, utilisation, estimates, parts, work.traffic.sent)


def _copied(trace: Trace, steps: Steps) -> int:
    """Bytes copied to the device per used step; 0 where sizes are not recorded."""
    a = trace.activities
    used = np.array([*steps.used, False], bool)
    if not used.any() or len(steps.window_of) != len(a):
        return 0
    mine = (a.kind == ActivityKind.MEMCPY) & (a.copy_kind == CopyKind.HOST_TO_DEVICE) & (a.bytes > 0) & used[steps.window_of]
    return int(a.bytes[mine].sum()) // int(used.sum())
