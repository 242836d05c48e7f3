"""What became of the findings: fixed, new, remaining; what was promised for them, and how much their classes gave."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from traceread.comparison.side import SavedFinding, Side
from traceread.records import record


class Outcome(StrEnum):
    """What became of a finding."""

    FIXED = "fixed"
    REMAINING = "remaining"
    NEW = "new"


@record
class FindingChange:
    """A finding on both sides.

    Attributes:
        outcome: what became of it.
        rule, title: which.
        step_class: key of the class that holds most of its time, None if none does.
        before_ns, after_ns: time per step that it stands for; None where it is not found.
        predicted_ns: what fixing it was to save per step, None where that was not said.
        achieved_ns: how much less time its classes take, None for new ones.
    """

    outcome: Outcome
    rule: str
    title: str
    step_class: str | None
    before_ns: int | None
    after_ns: int | None
    predicted_ns: int | None
    achieved_ns: int | None

    def to_dict(self) -> dict[str, Any]:
        """The change as JSON builtins."""
        return {
            "outcome": str(self.outcome),
            "rule": self.rule,
            "title": self.title,
            "class": self.step_class,
            "before_ns": self.before_ns,
            "after_ns": self.after_ns,
            "predicted_ns": self.predicted_ns,
            "achieved_ns": self.achieved_ns,
        }


def compare_findings(before: Side, after: Side) -> tuple[FindingChange, ...]:
    """Fixed, remaining, then new findings, each in the order of their fix list."""
    pairs = _pairs(before.saved.findings, after.saved.findings)
    taken = {id(new) for _, new in pairs if new is not None}
    changes = [_change(old, new, before, after) for old, new in pairs]
    changes += [_change(None, new, before, after) for new in after.saved.findings if id(new) not in taken]
    return tuple(sorted(changes, key=lambda c: list(Outcome).index(c.outcome)))


def _pairs(before: list[SavedFinding], after: list[SavedFinding]) -> list[tuple[SavedFinding, SavedFinding | None]]:
    """Each earlier finding with the later one of the same title, else with the only other one of the same rule."""
    left = list(after)
    matched: dict[int, SavedFinding] = {}
    for same in (lambda f: (f.rule, f.title), lambda f: f.rule):
        for old in before:
            if id(old) in matched:
                continue
            alike = [new for new in left if same(new) == same(old)]
            rivals = [o for o in before if id(o) not in matched and same(o) == same(old)]
            if len(alike) == 1 and len(rivals) == 1:
                matched[id(old)] = alike[0]
                left = [new for new in left if new is not alike[0]]
    return [(old, matched.get(id(old))) for old in before]


def _change(old: SavedFinding | None, new: SavedFinding | None, before: Side, after: Side) -> FindingChange:
    finding = old or new
    assert finding is not None
    outcome = Outcome.NEW if old is None else Outcome.FIXED if new is None else Outcome.REMAINING
    classes = [] if old is None else [c for c in old.loss_ns if c in before.class_ns]
    return FindingChange(
        outcome=outcome,
        rule=finding.rule,
        title=finding.title,
        step_class=finding.class_,
        before_ns=None if old is None else sum(old.loss_ns.values()),
        after_ns=None if new is None else sum(new.loss_ns.values()),
        predicted_ns=None if old is None else old.saving_ns,
        achieved_ns=sum(before.class_ns[c] - after.class_ns[c] for c in classes) if classes else None,
    )
