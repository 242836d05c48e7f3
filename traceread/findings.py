"""What the fix list is made of: findings with their evidence, and rules that could not look."""

from __future__ import annotations

from dataclasses import field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from traceread.measurements.classes import StepClass
from traceread.records import record

if TYPE_CHECKING:
    from traceread.rules.losses import Loss


class Effort(IntEnum):
    """How much a fix asks for; among equal savings the smallest comes first."""

    SETTING = 1  # an argument or an environment variable
    CODE = 2  # some lines of the training script
    DESIGN = 3  # how the model or the job is laid out


@record
class Evidence:
    """Where a finding can be seen.

    Attributes:
        rank, step: where.
        start_ns, end_ns: when.
        thread: the host thread concerned, "" if none.
        names: kernels, calls, ops and ranges that say so.
        source: "file:line function" of the user's code, "" without stacks.
    """

    rank: int
    step: str
    start_ns: int
    end_ns: int
    thread: str = ""
    names: tuple[str, ...] = ()
    source: str = ""

    def to_dict(self, base_ns: int = 0) -> dict[str, Any]:
        """The evidence as JSON builtins, its times counted from `base_ns`."""
        return {
            "rank": self.rank,
            "step": self.step,
            "start_ns": self.start_ns - base_ns,
            "end_ns": self.end_ns - base_ns,
            "thread": self.thread or None,
            "names": list(self.names),
            "source": self.source or None,
        }


@record
class Finding:
    """One entry of the fix list: a cause of lost time, how to confirm it, and what removing it saves.

    A rule yields it with a title and the loss it stands for; what follows `loss` is filled in when the list is made.

    Attributes:
        title: what is wrong, in one phrase; the same cause has the same title on every rank.
        loss: the time of one rank that it stands for; not part of the answer.
        why: one sentence with the numbers of this job.
        confirm, fix: how to check it, what to change; "" takes the manual's words.
        docs: pages of the documentation; () takes the manual's.
        recorded: recorded rows say so; else it is inferred.
        rule: id of the rule.
        effort: how much the fix asks for.
        ranks: where it was found.
        evidence: the longest places in different steps.
        loss_ns: mean time per step of the slowest rank that it stands for, by class.
        saving_ns: what it saves per step after everything above it in the list, None where that cannot be said.
        saving_alone_ns: what it saves by itself.
        saving_overlap_ns: what running beside other work would save by itself; communication and copies only.
        saving_kind: "replayed", "estimated", "size of the loss", or "" without a saving.
        step_ns_after: mean step after this and all findings above it.
        mfu_after: model FLOPs utilisation then, None where it is not known.
    """

    title: str
    loss: Loss | None = field(default=None, repr=False, compare=False)
    why: str = ""
    confirm: str = ""
    fix: str = ""
    docs: tuple[str, ...] = ()
    recorded: bool = True
    rule: str = ""
    effort: Effort = Effort.CODE
    ranks: tuple[int, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    loss_ns: tuple[tuple[StepClass, int], ...] = ()
    saving_ns: int | None = None
    saving_alone_ns: int | None = None
    saving_overlap_ns: int | None = None
    saving_kind: str = ""
    step_ns_after: int | None = None
    mfu_after: float | None = None

    def __repr__(self) -> str:
        saves = "" if self.saving_ns is None else f", saves {self.saving_ns:,} ns a step"
        return f"<Finding {self.rule}: {self.title}{saves}>"

    def _repr_html_(self) -> str:
        from traceread.reporters.notebook import finding_html

        return finding_html(self)

    @property
    def step_class(self) -> StepClass | None:
        """The class that holds most of its time, None if it holds none."""
        return max(self.loss_ns, key=lambda pair: (pair[1], -pair[0]))[0] if self.loss_ns else None

    @property
    def total_loss_ns(self) -> int:
        """Time per step that it stands for, over all classes."""
        return sum(ns for _, ns in self.loss_ns)

    @property
    def confidence(self) -> str:
        """How it is known: "recorded" or "inferred"."""
        return "recorded" if self.recorded else "inferred"

    def without_rows(self) -> Finding:
        """The finding without the rows it was made from."""
        return replace(self, loss=None)

    def to_dict(self, base_ns: int = 0) -> dict[str, Any]:
        """The finding as JSON builtins; times of its evidence count from `base_ns`."""
        step_class = self.step_class
        return {
            "rule": self.rule,
            "title": self.title,
            "class": None if step_class is None else step_class.key,
            "ranks": list(self.ranks),
            "confidence": self.confidence,
            "effort": self.effort.name.lower(),
            "why": self.why,
            "loss_ns": {c.key: ns for c, ns in self.loss_ns},
            "saving_ns": self.saving_ns,
            "saving_alone_ns": self.saving_alone_ns,
            "saving_overlap_ns": self.saving_overlap_ns,
            "saving_kind": self.saving_kind or None,
            "step_ns_after": self.step_ns_after,
            "mfu_after": self.mfu_after,
            "evidence": [e.to_dict(base_ns) for e in self.evidence],
            "confirm": self.confirm,
            "fix": self.fix,
            "docs": list(self.docs),
        }


@record
class Skipped:
    """A rule that could not look.

    Attributes:
        rule: its id.
        reason: what was missing.
        needs: the capabilities that were not recorded; () where it was something else.
    """

    rule: str
    reason: str
    needs: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The entry as JSON builtins."""
        return {"rule": self.rule, "reason": self.reason, "needs": list(self.needs)}
