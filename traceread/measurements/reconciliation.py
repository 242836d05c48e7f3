"""Where the wall time of a step goes, from the model's own FLOPs to what nothing explains; the parts add up to it exactly."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from traceread.measurements.classes import StepClass
from traceread.records import record


class Part(StrEnum):
    """A part of the wall time."""

    MODEL = "model_compute"
    AGAIN = "recomputation_and_padding"
    COMMUNICATION = "exposed_communication"
    IMBALANCE = "pipeline_and_imbalance"
    HOST = "host_and_input"
    CHECKPOINT = "checkpoint"
    UNCLASSIFIED = "unclassified"

    @property
    def words(self) -> str:
        """The part in words."""
        return self.value.replace("_", " ")


_OF_CLASS = {
    StepClass.EXPOSED_COMMUNICATION: Part.COMMUNICATION,
    StepClass.EXPOSED_COPY: Part.HOST,
    StepClass.DATA_WAIT: Part.HOST,
    StepClass.HOST_SYNC: Part.HOST,
    StepClass.LAUNCH_BOUND: Part.HOST,
    StepClass.ALLOCATION: Part.HOST,
    StepClass.COMPILE: Part.HOST,
    StepClass.CHECKPOINT: Part.CHECKPOINT,
    StepClass.PROFILER: Part.UNCLASSIFIED,
    StepClass.QUEUED: Part.UNCLASSIFIED,
    StepClass.UNATTRIBUTED: Part.UNCLASSIFIED,
}


@record
class ExposedParts:
    """How exposed communication splits, where ranks can be compared.

    Attributes:
        transfer_ns: moving data.
        wait_ns: waiting for other ranks, for reasons that are not known.
        imbalance_ns: waiting for ranks that were later because of something they did, and for the next stage of a pipeline.
    """

    transfer_ns: int
    wait_ns: int
    imbalance_ns: int


@record
class Reconciliation:
    """The wall time of a step by parts.

    Attributes:
        ns: time of every part, in the order of Part.
        whole_ns: the step.
        transfer_ns, wait_ns: what exposed communication consists of; None where that cannot be told.
        again_known: whether it is known what is computed again; if not, it is in the model's compute.

    Raises:
        ValueError: the parts do not add up to the step, or one is negative.
    """

    ns: Mapping[Part, int]
    whole_ns: int
    transfer_ns: int | None = None
    wait_ns: int | None = None
    again_known: bool = True

    def __post_init__(self) -> None:
        if set(self.ns) != set(Part) or min(self.ns.values()) < 0 or sum(self.ns.values()) != self.whole_ns:
            raise ValueError(f"the parts add up to {sum(self.ns.values())}, not {self.whole_ns}")

    def share(self, part: Part) -> float:
        """The share of a part in the step."""
        return self.ns[part] / self.whole_ns if self.whole_ns else 0.0

    def rate_while_computing(self, mfu: float) -> float | None:
        """The share of the peak that the model's FLOPs reach in the time they take: MFU over the share of model compute."""
        share = self.share(Part.MODEL)
        return mfu / share if share else None


def reconcile(
    class_ns: Mapping[StepClass, int], model_flops: int | None, hardware_flops: int | None, waiting: ExposedParts | None = None
) -> Reconciliation:
    """The wall time of a step from the time of its classes.

    Compute is split in proportion to FLOPs: those of the model's valid tokens, and what is computed beyond them.

    Args:
        class_ns: mean time of each class.
        model_flops: of the model's valid tokens, on one GPU in a step.
        hardware_flops: of everything it computes; without either nothing is taken to be computed twice.
        waiting: how exposed communication splits.
    """
    ns = dict.fromkeys(Part, 0)
    for step_class, time in class_ns.items():
        if step_class is not StepClass.COMPUTE:
            ns[_OF_CLASS[step_class]] += time
    compute = class_ns.get(StepClass.COMPUTE, 0)
    known = model_flops is not None and hardware_flops is not None and hardware_flops > 0
    ns[Part.MODEL] = compute * min(model_flops, hardware_flops) // hardware_flops if known else compute  # type: ignore[operator,type-var]
    ns[Part.AGAIN] = compute - ns[Part.MODEL]
    whole = sum(ns.values())
    if waiting is None:
        return Reconciliation(ns, whole, again_known=known)
    imbalance = min(waiting.imbalance_ns, ns[Part.COMMUNICATION])
    ns[Part.IMBALANCE] += imbalance
    ns[Part.COMMUNICATION] -= imbalance
    transfer = min(waiting.transfer_ns, ns[Part.COMMUNICATION])
    return Reconciliation(ns, whole, transfer, ns[Part.COMMUNICATION] - transfer, known)
