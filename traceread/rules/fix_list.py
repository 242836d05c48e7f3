"""The fix list: findings of all ranks in the order in which they save most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from traceread.findings import Finding, Skipped
from traceread.measurements.classes import StepClass
from traceread.measurements.replay import Removal, Replay
from traceread.rules.inspection import Inspection

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

REPLAYED, ESTIMATED, SIZE_OF_LOSS = "replayed", "estimated", "size of the loss"

LEAST_SHARE = 100
"""A fix is worth a line from a hundredth of the step on."""
_CLOSE = 50
"""Savings that differ by less than a fiftieth are equal: the fix that asks for less comes first."""


@dataclass(frozen=True)
class ReplayQuality:
    """How far savings can be trusted.

    Attributes:
        error: of the replay of the unchanged steps, as a share of them; None where nothing could be replayed.
        steps, of: replayed steps, and used ones.
        reason: why no saving is predicted, "" where it is.
        queue: launches that the queue holds; None where the capture does not show it.
    """

    error: float | None
    steps: int
    of: int
    reason: str = ""
    queue: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The quality as JSON builtins."""
        return {"error": self.error, "steps": self.steps, "of": self.of, "reason": self.reason or None, "queue": self.queue}


@dataclass(frozen=True)
class FixList:
    """The answer to "what first?".

    Attributes:
        findings: in order.
        skipped: rules that could not look on any rank.
        quality: of the savings.
        step_ns: mean step of the slowest rank before any fix.
    """

    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    quality: ReplayQuality = field(default_factory=lambda: ReplayQuality(None, 0, 0, "nothing to replay"))
    step_ns: int = 0

    def plot(self, dark: bool = False) -> Figure:
        """The step now, and after each fix with all above it."""
        from traceread.figures.fix_list import plot_fix_list

        return plot_fix_list(self, dark)

    def with_mfu(self, mfu_at: Callable[[int], float | None]) -> FixList:
        """The list with the MFU that follows from each step time."""
        known = [f if f.step_ns_after is None else replace(f, mfu_after=mfu_at(f.step_ns_after)) for f in self.findings]
        return replace(self, findings=tuple(known))


def make_fix_list(ranks: Mapping[int, Inspection], critical: int, step_ns: int, used_steps: int) -> FixList:
    """The fix list of a job, judged by its slowest rank, whose mean step takes `step_ns`.

    What was found on other ranks only does not shorten the slowest one's step and is left out.
    """
    slowest = ranks[critical]
    found = _merged(ranks, slowest)
    replay = Replay(slowest.graph) if slowest.graph is not None else None
    quality = _quality(replay, used_steps)
    findings = _by_size(found, step_ns) if replay is None or quality.reason else _by_saving(found, replay, step_ns)
    return FixList(findings, _skipped_everywhere(ranks), quality, step_ns)


def _merged(ranks: Mapping[int, Inspection], slowest: Inspection) -> list[Finding]:
    """The findings of the slowest rank with all ranks on which the same was found."""
    where: dict[tuple[str, str], list[int]] = {}
    for rank, inspection in ranks.items():
        for finding in inspection.found.findings:
            where.setdefault((finding.rule, finding.title), []).append(rank)
    return [replace(f, ranks=tuple(sorted(set(where[f.rule, f.title])))) for f in slowest.found.findings]


def _quality(replay: Replay | None, used_steps: int) -> ReplayQuality:
    if replay is None:
        return ReplayQuality(None, 0, used_steps, "the launches that a replay needs were not recorded")
    steps = len(replay.measured_ns)
    queue = replay.graph.depth if replay.graph.depth_seen else None
    reason = "" if replay.trusted else f"the replay of the unchanged steps is off by {100 * replay.error:.0f} %"
    return ReplayQuality(replay.error, steps, used_steps, reason, queue)


def _by_size(found: Sequence[Finding], step_ns: int) -> tuple[Finding, ...]:
    """The findings by the time they stand for; no saving is predicted."""
    kept = [f for f in found if (f.total_loss_ns * LEAST_SHARE >= step_ns and f.total_loss_ns > 0) or not f.loss_ns]
    kept.sort(key=lambda f: (-f.total_loss_ns, f.effort, f.rule, f.title))
    return tuple(_finished(f, saving_kind=SIZE_OF_LOSS if f.loss_ns else "") for f in kept)


def _by_saving(found: Sequence[Finding], replay: Replay, step_ns: int) -> tuple[Finding, ...]:
    """The findings by what they save one after the other, then those whose saving cannot be replayed."""
    least = max(step_ns // LEAST_SHARE, int(replay.error * step_ns), 1)
    alone = {i: replay.saving([_removal(f)]) for i, f in enumerate(found) if _removal(f)}
    left = [i for i, saving in alone.items() if saving >= least]
    result: list[Finding] = []
    gone: list[Removal] = []
    reached = 0
    while left:
        savings = alone if not gone else {i: replay.saving([*gone, _removal(found[i])]) for i in left}
        next_ = {i: _counted(found[i], savings[i] - reached) for i in left}
        top = max(next_.values())
        close = [i for i in left if next_[i] * _CLOSE >= top * (_CLOSE - 1)]
        best = min(close, key=lambda i: (found[i].effort, -savings[i], found[i].rule, found[i].title))
        if savings[best] - reached < least and result:
            break
        overlap = _beside(found[best])
        result.append(
            _finished(
                found[best],
                saving_kind=REPLAYED,
                saving_ns=savings[best] - reached,
                saving_alone_ns=alone[best],
                saving_overlap_ns=max(replay.saving([overlap]), 0) if overlap else None,
                step_ns_after=step_ns - savings[best],
            )
        )
        reached = savings[best]
        gone.append(_removal(found[best]))
        left.remove(best)
    for i in left:  # what these would save by themselves something above already saves; they are worth a line if they ask for less
        if alone[i] >= 3 * least and found[i].effort < max(f.effort for f in result):
            result.append(_finished(found[i], saving_kind=REPLAYED, saving_ns=0, saving_alone_ns=alone[i], step_ns_after=step_ns - reached))
    rest = [f for i, f in enumerate(found) if i not in alone and (not f.loss_ns or f.total_loss_ns >= least)]
    rest.sort(key=lambda f: (-f.total_loss_ns, f.effort, f.rule, f.title))
    return (*result, *(_finished(f) for f in rest))


def _counted(finding: Finding, saving: int) -> int:
    """What a saving counts in the order of the list.

    An ideal graph that launches everything at once hides a slow loader as well, and still the loader is the cause: such a saving
    counts up to the time that launches are charged with.
    """
    return min(saving, finding.total_loss_ns) if finding.step_class is StepClass.LAUNCH_BOUND else saving


def _removal(finding: Finding) -> Removal:
    return finding.loss.removal if finding.loss is not None else Removal()


def _beside(finding: Finding) -> Removal | None:
    return finding.loss.beside if finding.loss is not None and finding.loss.beside else None


def _finished(finding: Finding, **answers: object) -> Finding:
    return replace(finding, loss=None, **answers)  # type: ignore[arg-type]


def _skipped_everywhere(ranks: Mapping[int, Inspection]) -> tuple[Skipped, ...]:
    """The rules that could not look on any rank."""
    lists = [i.found.skipped for i in ranks.values()]
    common = set.intersection(*({s.rule for s in skipped} for skipped in lists)) if lists else set()
    return tuple(s for s in lists[0] if s.rule in common) if lists else ()
