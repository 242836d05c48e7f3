"""Measured against estimate: the least time a step needs for computing, communication and input, beside what it took.

The least times are what arithmetic allows, not what software reaches: FLOPs at the dense peak, bytes over the link, a batch from the
input pipeline. Each is compared with the part of the step it cannot be hidden in: communication and input can run beside computing,
so only what sticks out of it is a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from traceread.measurements.classes import StepClass
from traceread.measurements.traffic import Traffic
from traceread.measurements.utilisation import Utilisation
from traceread.records import record
from traceread.run import Run

_SECOND = 10**9
NEAR = 100
"""A gap of less than a hundredth of the step is not worth looking for."""
CEILING = 20
"""Computing within a twentieth of the measured ceiling is as good as it gets."""

_HOST = (StepClass.HOST_SYNC, StepClass.LAUNCH_BOUND, StepClass.ALLOCATION, StepClass.COMPILE)


class Resource(StrEnum):
    """What a step needs."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    INPUT = "input"
    HOST = "host"


@record
class Estimate:
    """One resource of the step.

    Attributes:
        resource: which.
        measured_ns: how long it was busy.
        exposed_ns: how much of that nothing before it in the order of the classes hides.
        least_ns: the least it can take; None if not known.
        gap_ns: by how much the step would be shorter at the least time, all else equal; None if not known.
        reason: how the least time comes about, or what is missing for it.
        done: nothing worth looking for is left.
        ceiling_ns: compute: the time at the rate that large products were measured to reach.
    """

    resource: Resource
    measured_ns: int
    exposed_ns: int
    least_ns: int | None
    gap_ns: int | None
    reason: str
    done: bool
    ceiling_ns: int | None = None

    @property
    def reached(self) -> float | None:
        """Least over measured time."""
        return None if self.least_ns is None or self.measured_ns <= 0 else self.least_ns / self.measured_ns


@record
class Estimates:
    """All resources, the largest gap first; those without an estimate last.

    Attributes:
        rows: one per resource.
        least_step_ns: the least time of a step in which everything else is hidden under the longest of compute, communication and
            input; None without an estimate of compute.
    """

    rows: tuple[Estimate, ...]
    least_step_ns: int | None

    def of(self, resource: Resource) -> Estimate:
        """The row of one resource."""
        return next(row for row in self.rows if row.resource is resource)

    @property
    def done(self) -> bool:
        """Whether no gap worth looking for is left."""
        return all(row.done for row in self.rows)


def estimate(
    utilisation: Utilisation, run: Run, class_ns: Mapping[StepClass, int], hidden_communication_ns: int, traffic: Traffic, copied: int
) -> Estimates:
    """The least times of a step beside the measured ones.

    Args:
        utilisation: FLOPs and peak.
        run: rates of link and input.
        class_ns: mean time of each class on the slowest rank.
        hidden_communication_ns: communication under computing.
        traffic: what that rank sends.
        copied: bytes that it copies to the device in a step.
    """
    step_ns = sum(class_ns.values())
    compute = _compute(utilisation, class_ns[StepClass.COMPUTE], step_ns)
    communication = _communication(run, class_ns, hidden_communication_ns, traffic, step_ns)
    rows = [compute, communication, _input(run, class_ns, copied, step_ns), _host(class_ns, step_ns)]
    if not communication.measured_ns:
        rows.remove(communication)
    rows.sort(key=lambda row: (row.gap_ns is None, -(row.gap_ns or 0), list(Resource).index(row.resource)))
    least = [row.least_ns for row in rows if row.least_ns is not None and row.resource is not Resource.HOST]
    return Estimates(tuple(rows), None if compute.least_ns is None else max(least))


def _near(gap_ns: int, step_ns: int) -> bool:
    return gap_ns * NEAR < step_ns


def _compute(u: Utilisation, measured: int, step_ns: int) -> Estimate:
    flops = u.hardware_flops if u.hardware_flops is not None else u.model_flops
    least = u.time_of(flops)
    if flops is None or least is None:
        return Estimate(Resource.COMPUTE, measured, measured, None, None, "; ".join(u.missing), False)
    gap = max(measured - least, 0)
    ceiling = u.time_of(flops, u.matmul_flops) if u.matmul_flops else None
    best = least if ceiling is None else max(ceiling, least)
    done = _near(gap, step_ns) or measured * CEILING <= best * (CEILING + 1)
    what = "model and recomputation" if u.hardware_flops != u.model_flops and u.hardware_flops is not None else "model"
    return Estimate(Resource.COMPUTE, measured, measured, least, gap, f"FLOPs of {what} at the dense peak", done, ceiling)


def _communication(run: Run, class_ns: Mapping[StepClass, int], hidden: int, traffic: Traffic, step_ns: int) -> Estimate:
    exposed = class_ns[StepClass.EXPOSED_COMMUNICATION]
    measured = exposed + hidden
    sized, all_ns = traffic.coverage
    if not measured:
        return Estimate(Resource.COMMUNICATION, 0, 0, 0, 0, "there is none", True)
    if run.link_bytes_per_s is None or not sized:
        missing = "the sizes of the collectives are not recorded" if not sized else "the link's rate is not known (--link)"
        return Estimate(Resource.COMMUNICATION, measured, exposed, None, exposed, missing, _near(exposed, step_ns))
    least = traffic.least_ns(run.link_bytes_per_s, run.link_latency_ns or 0)
    # What is longer than all computing cannot be hidden by it.
    gap = max(exposed - max(least - class_ns[StepClass.COMPUTE], 0), 0)
    reason = "bytes over the link" + (" and a latency for each round" if run.link_latency_ns else "")
    if sized < all_ns:
        reason += f"; sizes are recorded for {100 * sized // all_ns} % of the time, so it is a lower bound"
    return Estimate(Resource.COMMUNICATION, measured, exposed, least, gap, reason, _near(gap, step_ns))


def _input(run: Run, class_ns: Mapping[StepClass, int], copied: int, step_ns: int) -> Estimate:
    measured = class_ns[StepClass.DATA_WAIT] + class_ns[StepClass.EXPOSED_COPY]
    size = run.input_bytes_per_step or copied
    if run.input_bytes_per_s is None or not size:
        reason = "not known; hidden if a batch is fetched and copied while the one before trains"
        return Estimate(Resource.INPUT, measured, measured, None, measured, reason, _near(measured, step_ns))
    least = round(size * _SECOND / run.input_bytes_per_s)
    gap = max(measured - max(least - (step_ns - measured), 0), 0)
    what = "bytes of a batch" if run.input_bytes_per_step else "bytes copied to the device"
    return Estimate(Resource.INPUT, measured, measured, least, gap, f"{what} at the rate of the input pipeline", _near(gap, step_ns))


def _host(class_ns: Mapping[StepClass, int], step_ns: int) -> Estimate:
    measured = sum(class_ns[c] for c in _HOST)
    reason = "nothing, if the host runs ahead of the GPU"
    return Estimate(Resource.HOST, measured, measured, 0, measured, reason, _near(measured, step_ns))
