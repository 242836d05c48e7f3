"""What the step lost and gained class by class: an exact sum, in whole ns per step."""

from __future__ import annotations

from typing import Any

from traceread.comparison.noise import Difference, compare_means
from traceread.comparison.side import Side
from traceread.measurements.classes import CLASSES, StepClass
from traceread.records import record


@record
class ClassChange:
    """One class of the step on both sides.

    Attributes:
        step_class: the class.
        difference: of its mean time per step; the differences of all classes sum to that of the step.
    """

    step_class: StepClass
    difference: Difference

    @property
    def before_ns(self) -> int:
        """Mean time per step before."""
        return self.difference.before_ns

    @property
    def after_ns(self) -> int:
        """Mean time per step after."""
        return self.difference.after_ns

    @property
    def difference_ns(self) -> int:
        """After minus before."""
        return self.difference.difference_ns

    def to_dict(self) -> dict[str, Any]:
        """The change as JSON builtins."""
        return {"class": self.step_class.key, **self.difference.to_dict()}


def compare_classes(before: Side, after: Side) -> tuple[ClassChange, ...]:
    """The classes in table order."""
    return tuple(
        ClassChange(
            StepClass(i), compare_means(before.class_steps[name], after.class_steps[name], (before.class_ns[name], after.class_ns[name]))
        )
        for i, name in enumerate(CLASSES)
    )


@record
class PartChange:
    """A part of the communication or of the copies on both sides; None where a side does not know it.

    Attributes:
        name: key of the part.
        before_ns, after_ns: mean time per step.
    """

    name: str
    before_ns: int | None
    after_ns: int | None

    @property
    def difference_ns(self) -> int | None:
        """After minus before, None unless both are known."""
        return None if self.before_ns is None or self.after_ns is None else self.after_ns - self.before_ns

    def to_dict(self) -> dict[str, Any]:
        """The part as JSON builtins."""
        return {"part": self.name, "before_ns": self.before_ns, "after_ns": self.after_ns, "difference_ns": self.difference_ns}


def compare_parts(before: Side, after: Side) -> tuple[PartChange, ...]:
    """What exposed communication consists of, then what is hidden beside the classes.

    Waiting, transfer and what could not be told apart sum to exposed communication on each side.
    """
    split = (("waiting", "exposed_wait_ns"), ("transfer", "exposed_transfer_ns"), ("not_split", "exposed_not_split_ns"))
    parts = [PartChange(name, _of_summary(before, field), _of_summary(after, field)) for name, field in split]
    hidden = ("hidden_communication", "hidden_copy")
    return (*parts, *(PartChange(name, _mean(before.hidden_steps[name]), _mean(after.hidden_steps[name])) for name in hidden))


def _of_summary(side: Side, field: str) -> int | None:
    value: int | None = getattr(side.saved.summary, field, None)
    return value


def _mean(steps: tuple[int, ...]) -> int:
    return (2 * sum(steps) + len(steps)) // (2 * len(steps)) if steps else 0
