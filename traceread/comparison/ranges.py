"""The user's own ranges on both sides, matched by path, else by the last name where only one range has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from traceread.comparison.side import SavedRange, Side
from traceread.records import record


@record
class Open:
    """A range of one side over its steps.

    Attributes:
        count: how often it was opened.
        host_ns, gpu_ns: open on the host; the GPU busy with what was launched in it.
        steps: over so many steps.
    """

    count: int
    host_ns: int
    gpu_ns: int
    steps: int

    @property
    def host_step_ns(self) -> int:
        """Host time per step."""
        return _rounded(self.host_ns, self.steps)

    @property
    def gpu_step_ns(self) -> int:
        """GPU time per step."""
        return _rounded(self.gpu_ns, self.steps)

    def to_dict(self) -> dict[str, Any]:
        """The range as JSON builtins."""
        opened = self.count / self.steps if self.steps else 0.0
        return {"opened": opened, "host_ns": self.host_step_ns, "gpu_ns": self.gpu_step_ns}


@record
class RangeChange:
    """A range on both sides; None where it is not there.

    Attributes:
        path: names from the outermost to this one, as after, else as before.
        before, after: the range.
    """

    path: tuple[str, ...]
    before: Open | None
    after: Open | None

    @property
    def gpu_difference_ns(self) -> int:
        """GPU time per step, after minus before."""
        return (self.after.gpu_step_ns if self.after else 0) - (self.before.gpu_step_ns if self.before else 0)

    @property
    def host_difference_ns(self) -> int:
        """Host time per step, after minus before."""
        return (self.after.host_step_ns if self.after else 0) - (self.before.host_step_ns if self.before else 0)

    def to_dict(self) -> dict[str, Any]:
        """The change as JSON builtins."""
        return {
            "path": list(self.path),
            "before": None if self.before is None else self.before.to_dict(),
            "after": None if self.after is None else self.after.to_dict(),
            "gpu_difference_ns": self.gpu_difference_ns,
            "host_difference_ns": self.host_difference_ns,
        }


def compare_ranges(before: Side, after: Side) -> tuple[RangeChange, ...]:
    """Every range of the two sides, the largest change of GPU time first, then of host time."""
    old = {tuple(r.path): r for r in before.saved.ranges}
    new = {tuple(r.path): r for r in after.saved.ranges}
    renamed = _moved([p for p in old if p not in new], [p for p in new if p not in old])
    changes = []
    for path, range_ in new.items():
        source = path if path in old else renamed.get(path)
        changes.append(RangeChange(path, None if source is None else _open(old.pop(source), before), _open(range_, after)))
    changes += [RangeChange(path, _open(range_, before), None) for path, range_ in old.items()]
    return tuple(sorted(changes, key=lambda c: (-abs(c.gpu_difference_ns), -abs(c.host_difference_ns), c.path)))


def _moved(old: Sequence[tuple[str, ...]], new: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], tuple[str, ...]]:
    """New paths whose last name one old path has too, and no other of either side."""

    def alone(paths: Sequence[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        names = [p[-1] for p in paths]
        return {p[-1]: p for p in paths if names.count(p[-1]) == 1}

    before, after = alone(old), alone(new)
    return {path: before[name] for name, path in after.items() if name in before}


def _open(range_: SavedRange, side: Side) -> Open:
    return Open(range_.count, range_.host_ns, range_.gpu_ns, side.kernel_steps)


def _rounded(total: int, count: int) -> int:
    return (2 * total + count) // (2 * count) if count else 0
