"""Kernels of both sides, matched: by name, by name without shapes or template arguments, by the op that launches them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from traceread.comparison.kernel_names import shapeless, spelling, untyped
from traceread.comparison.side import SavedKernel, Side
from traceread.records import record

BY_NAME, BY_SHAPE, BY_TEMPLATE, BY_OP = "name", "name without shapes", "name without template arguments", "op"


@record
class Launched:
    """Kernels of one side, per step.

    Attributes:
        names: as recorded, longest first.
        count: launches over all steps.
        total_ns, exposed_ns: their time over all steps, and the part in which nothing of a class before theirs ran.
        steps: how many.
    """

    names: tuple[str, ...]
    count: int
    total_ns: int
    exposed_ns: int
    steps: int

    @property
    def step_ns(self) -> int:
        """Time per step."""
        return _rounded(self.total_ns, self.steps)

    @property
    def exposed_step_ns(self) -> int:
        """Exposed time per step."""
        return _rounded(self.exposed_ns, self.steps)

    @property
    def launch_ns(self) -> int:
        """Time per launch."""
        return _rounded(self.total_ns, self.count)

    @property
    def launches(self) -> float:
        """Launches per step."""
        return self.count / self.steps if self.steps else 0.0

    def to_dict(self) -> dict[str, Any]:
        """These kernels as JSON builtins."""
        return {
            "names": list(self.names),
            "step_ns": self.step_ns,
            "exposed_ns": self.exposed_step_ns,
            "launches": self.launches,
            "launch_ns": self.launch_ns,
        }


@record
class KernelChange:
    """A kernel, or a family of kernels, on both sides.

    Attributes:
        name: as recorded after, else before; the op where that is what both have in common; the family.
        category, family: what it is.
        matched_by: what both sides have in common; "" where it is on one side only, or a family.
        before, after: None where it is not there.
    """

    name: str
    category: str
    family: str
    matched_by: str
    before: Launched | None
    after: Launched | None

    @property
    def status(self) -> str:
        """Added, removed, or on both sides."""
        return "added" if self.before is None else "removed" if self.after is None else "both"

    @property
    def difference_ns(self) -> int:
        """Time per step, after minus before."""
        return (self.after.step_ns if self.after else 0) - (self.before.step_ns if self.before else 0)

    @property
    def exposed_difference_ns(self) -> int:
        """Exposed time per step, after minus before."""
        return (self.after.exposed_step_ns if self.after else 0) - (self.before.exposed_step_ns if self.before else 0)

    def to_dict(self) -> dict[str, Any]:
        """The change as JSON builtins."""
        return {
            "name": self.name,
            "category": self.category,
            "family": self.family,
            "status": self.status,
            "matched_by": self.matched_by or None,
            "before": None if self.before is None else self.before.to_dict(),
            "after": None if self.after is None else self.after.to_dict(),
            "difference_ns": self.difference_ns,
            "exposed_difference_ns": self.exposed_difference_ns,
        }


def compare_kernels(before: Side, after: Side) -> tuple[KernelChange, ...]:
    """Every kernel of the two sides, the largest change of time per step first."""
    left = list(before.saved.kernels), list(after.saved.kernels)
    changes: list[KernelChange] = []
    ways: tuple[tuple[str, Callable[[SavedKernel], str]], ...] = (
        (BY_NAME, lambda k: spelling(k.name)),
        (BY_SHAPE, lambda k: shapeless(k.name)),
        (BY_TEMPLATE, lambda k: untyped(k.name)),
        (BY_OP, lambda k: k.op),
    )
    for way, key in ways:
        groups = [_grouped(side, key) for side in left]
        for shared in [k for k in groups[0] if k in groups[1] and k[1]]:
            found = groups[0].pop(shared), groups[1].pop(shared)
            sides = _launched(found[0], before.kernel_steps), _launched(found[1], after.kernel_steps)
            name = shared[1] if way is BY_OP else sides[1].names[0]
            changes.append(KernelChange(name, shared[0], found[1][0].family, way, *sides))
        left = tuple([k for group in side.values() for k in group] for side in groups)  # type: ignore[assignment]
    for kernels in _grouped(left[0], lambda k: k.name).values():
        changes.append(_alone(kernels, _launched(kernels, before.kernel_steps), None))
    for kernels in _grouped(left[1], lambda k: k.name).values():
        changes.append(_alone(kernels, None, _launched(kernels, after.kernel_steps)))
    return _ordered(changes)


def compare_families(before: Side, after: Side) -> tuple[KernelChange, ...]:
    """Families of kernels, the largest change of time per step first."""
    groups = [_grouped(side.saved.families, lambda k: k.family) for side in (before, after)]
    changes = []
    for category, family in dict.fromkeys([*groups[0], *groups[1]]):
        sides = [
            _launched(group[category, family], side.kernel_steps) if (category, family) in group else None
            for group, side in zip(groups, (before, after), strict=True)
        ]
        changes.append(KernelChange(family, category, family, "", *sides))
    return _ordered(changes)


def _grouped(kernels: Iterable[SavedKernel], key: Callable[[SavedKernel], str]) -> dict[tuple[str, str], list[SavedKernel]]:
    groups: dict[tuple[str, str], list[SavedKernel]] = {}
    for kernel in kernels:
        groups.setdefault((kernel.category, key(kernel)), []).append(kernel)
    return groups


def _launched(kernels: Sequence[SavedKernel], steps: int) -> Launched:
    longest = sorted(kernels, key=lambda k: (-k.total_ns, k.name))
    sums = (sum(k.count for k in kernels), sum(k.total_ns for k in kernels), sum(k.exposed_ns for k in kernels))
    return Launched(tuple(k.name for k in longest), *sums, steps)


def _alone(kernels: Sequence[SavedKernel], before: Launched | None, after: Launched | None) -> KernelChange:
    return KernelChange(kernels[0].name, kernels[0].category, kernels[0].family, "", before, after)


def _ordered(changes: list[KernelChange]) -> tuple[KernelChange, ...]:
    def size(c: KernelChange) -> tuple[int, int, str]:
        return -abs(c.difference_ns), -max(side.step_ns if side else 0 for side in (c.before, c.after)), c.name

    return tuple(sorted(changes, key=size))


def _rounded(total: int, count: int) -> int:
    return (2 * total + count) // (2 * count) if count else 0
