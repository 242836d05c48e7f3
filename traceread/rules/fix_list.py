"""The fix list: findings of all ranks in the order in which they save most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from traceread.findings import Finding, Skipped
from traceread.measurements.classes import StepClass
from traceread.measurements.replay import Removal
from traceread.measurements.replay_job import JobGraph, JobRemoval, JobReplay, alone
from traceread.records import record
from traceread.rules.inspection import Inspection

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

REPLAYED, ESTIMATED, SIZE_OF_LOSS = "replayed", "estimated", "size of the loss"

LEAST_SHARE = 100
"""A fix is worth a line from a hundredth of the step on."""
_CLOSE = 50
"""Savings that differ by less than a fiftieth are equal: the fix that asks for less comes first."""
_ALSO = 3
"""What saves nothing more after the others is worth a line from so many hundredths of the step by itself on."""


@record
class ReplayQuality:
    """How far savings can be trusted.

    Attributes:
        error: of the replay of the unchanged steps, as a share of them; None where nothing could be replayed.
        steps, of: replayed steps, and used ones.
        reason: why no saving is predicted, "" where it is.
        queue: launches that the queue holds; None where the capture does not show it.
        counts_steps: whether what is replayed are steps; else it is the whole capture.
    """

    error: float | None
    steps: int
    of: int
    reason: str = ""
    queue: int | None = None
    counts_steps: bool = True

    def to_dict(self) -> dict[str, Any]:
        """The quality as JSON builtins."""
        return {"error": self.error, "steps": self.steps, "of": self.of, "reason": self.reason or None, "queue": self.queue}


@record
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

    def __repr__(self) -> str:
        return f"<FixList {len(self.findings)} findings, {len(self.skipped)} rules could not look>"

    def _repr_html_(self) -> str:
        from traceread.reporters.notebook import fix_list_html

        return fix_list_html(self)

    def plot(self, dark: bool = False) -> Figure:
        """The step now, and after each fix with all above it."""
        from traceread.figures.fix_list import plot_fix_list

        return plot_fix_list(self, dark)

    def with_mfu(self, mfu_at: Callable[[int], float | None]) -> FixList:
        """The list with the MFU that follows from each step time."""
        known = [f if f.step_ns_after is None else replace(f, mfu_after=mfu_at(f.step_ns_after)) for f in self.findings]
        return replace(self, findings=tuple(known))


@record
class _Candidate:
    """A finding with what its fix takes away.

    Attributes:
        finding: with the time it stands for on the slowest rank.
        removal: on every rank on which it was found and that is replayed.
        beside: the same work set aside, not made shorter.
    """

    finding: Finding
    removal: JobRemoval
    beside: JobRemoval = field(default_factory=dict)


def make_fix_list(
    ranks: Mapping[int, Inspection],
    critical: int,
    step_ns: int,
    used_steps: int,
    *,
    job: JobGraph | None = None,
    class_ns: Sequence[int] = (),
    compared: Sequence[Finding] = (),
    not_compared: Sequence[Skipped] = (),
    counts_steps: bool = True,
) -> FixList:
    """The fix list of a job, judged by the mean step of its slowest rank.

    Args:
        ranks: what was found on each rank.
        critical: the slowest.
        step_ns: its mean step.
        used_steps: how many that is the mean of.
        job: the ranks that are replayed together; without it the slowest is replayed alone.
        class_ns: what each class holds in the mean step.
        compared: findings of rules that compare ranks.
        not_compared: such rules that could not look.
        counts_steps: whether there are steps; else the whole capture is taken for one.
    """
    graph = ranks[critical].graph
    if job is None and graph is not None:
        job = alone(graph)
    rest = [replace(c, finding=_besides(c.finding, compared, class_ns)) for c in _merged(ranks, critical, job)]
    candidates = [*rest, *(_Candidate(f, _changes({critical: _removal(f)})) for f in compared)]
    replay = JobReplay(job) if job is not None else None
    quality = _quality(replay, used_steps, counts_steps)
    findings = _by_size(candidates, step_ns) if replay is None or quality.reason else _by_saving(candidates, replay, step_ns)
    return FixList(findings, (*_skipped_everywhere(ranks), *not_compared), quality, step_ns)


def _merged(ranks: Mapping[int, Inspection], critical: int, job: JobGraph | None) -> list[_Candidate]:
    """What was found, once for all ranks on which the same was found.

    What was found on other ranks only is left out where they are not replayed with the slowest one.
    """
    replayed = job.graphs if job is not None else ()
    found: dict[tuple[str, str], dict[int, Finding]] = {}
    for rank in sorted(ranks, key=lambda r: r != critical):
        for finding in ranks[rank].found.findings:
            found.setdefault((finding.rule, finding.title), {}).setdefault(rank, finding)
    result: list[_Candidate] = []
    for by_rank in found.values():
        first = next(iter(by_rank))
        if first == critical or first in replayed:
            finding = replace(by_rank[first], ranks=tuple(sorted(by_rank)))
            there = {rank: f for rank, f in by_rank.items() if rank in replayed}
            beside = _changes({r: f.loss.beside for r, f in there.items() if f.loss is not None and f.loss.beside is not None})
            result.append(_Candidate(finding, _changes({r: _removal(f) for r, f in there.items()}), beside))
    return result


def _besides(finding: Finding, compared: Sequence[Finding], class_ns: Sequence[int]) -> Finding:
    """The finding with its share of the time that findings about the ranks leave of each class."""
    left = []
    for step_class, ns in finding.loss_ns:
        taken = sum(t for one in compared for c, t in one.loss_ns if c is step_class)
        whole = max(class_ns[step_class], taken) if taken else 1
        left.append((step_class, ns * (whole - taken) // whole))
    return replace(finding, loss_ns=tuple(left))


def _removal(finding: Finding) -> Removal:
    return finding.loss.removal if finding.loss is not None else Removal()


def _changes(removal: JobRemoval) -> JobRemoval:
    """Without ranks on which nothing changes."""
    return {rank: one for rank, one in removal.items() if one}


def _quality(replay: JobReplay | None, used_steps: int, counts_steps: bool) -> ReplayQuality:
    if replay is None:
        return ReplayQuality(None, 0, used_steps, "the launches that a replay needs were not recorded", counts_steps=counts_steps)
    steps = len(replay.measured_ns)
    queue = replay.graph.depth if replay.graph.depth_seen else None
    unchanged = "steps" if counts_steps else "capture"
    reason = "" if replay.trusted else f"the replay of the unchanged {unchanged} is off by {100 * replay.error:.0f} %"
    return ReplayQuality(replay.error, steps, used_steps, reason, queue, counts_steps)


def _by_size(found: Sequence[_Candidate], step_ns: int) -> tuple[Finding, ...]:
    """The findings by the time they stand for; no saving is predicted."""
    least = max(step_ns // LEAST_SHARE, 1)
    kept = [c.finding for c in found if c.finding.total_loss_ns >= least or not (c.removal or c.finding.loss_ns)]
    kept.sort(key=lambda f: (-f.total_loss_ns, *_order(f)))
    return tuple(_finished(f, saving_kind=SIZE_OF_LOSS if f.loss_ns else "") for f in kept)


def _by_saving(found: Sequence[_Candidate], replay: JobReplay, step_ns: int) -> tuple[Finding, ...]:
    """The findings by what they save one after the other, then those whose saving cannot be replayed."""
    least = max(step_ns // LEAST_SHARE, int(replay.error * step_ns), 1)
    alone = {i: replay.saving([one.removal]) for i, one in enumerate(found) if one.removal}
    left = [i for i, saving in alone.items() if max(saving, found[i].finding.total_loss_ns) >= least]
    result: list[Finding] = []
    gone: list[JobRemoval] = []
    reached = 0
    while left:
        savings = alone if not gone else {i: replay.saving([*gone, found[i].removal]) for i in left}
        next_ = {i: _counted(found[i].finding, savings[i] - reached) for i in left}
        top = max(next_.values())
        close = [i for i in left if next_[i] * _CLOSE >= top * (_CLOSE - 1)]
        best = min(close, key=lambda i: _order(found[i].finding))
        if savings[best] - reached < least:
            break
        result.append(
            _finished(
                found[best].finding,
                why=" ".join(
                    (found[best].finding.why, *_remarks(found[best].finding, alone[best], savings[best] - reached, least, replay.job))
                ),
                saving_kind=REPLAYED,
                saving_ns=savings[best] - reached,
                saving_alone_ns=alone[best],
                saving_overlap_ns=max(replay.saving([found[best].beside]), 0) if found[best].beside else None,
                step_ns_after=step_ns - savings[best],
            )
        )
        reached = savings[best]
        gone.append(found[best].removal)
        left.remove(best)
    for i in left:  # what these would save by themselves something above already saves
        one = found[i].finding
        cheaper = any(one.effort < f.effort for f in result)
        if alone[i] >= _ALSO * least and (cheaper or _is_cause(one, _ALSO * least)):
            result.append(_finished(one, saving_kind=REPLAYED, saving_ns=0, saving_alone_ns=alone[i], step_ns_after=step_ns - reached))
    rest = [one.finding for i, one in enumerate(found) if i not in alone]
    rest = [f for f in rest if not f.loss_ns or f.total_loss_ns >= least]
    rest.sort(key=lambda f: (-f.total_loss_ns, *_order(f)))
    return (*result, *(_finished(f) for f in rest))


def _remarks(finding: Finding, alone: int, saving: int, least: int, job: JobGraph) -> list[str]:
    """Why a saving is not what the time lost makes one expect."""
    remarks = []
    if alone - finding.total_loss_ns >= least:
        remarks.append("Without it the host also gets ahead, which closes gaps that follow.")
    if saving - alone >= least:
        remarks.append("It saves more once what stands above is done.")
    if finding.step_class is StepClass.EXPOSED_COMMUNICATION and len(job.graphs) == 1:
        remarks.append("Waiting for other ranks is in it; only with their traces can it be told from moving data.")
    return remarks


def _order(finding: Finding) -> tuple[object, ...]:
    """What comes first among equals: what asks for less, then what more time was lost to."""
    return (finding.effort, -finding.total_loss_ns, finding.rule, finding.title)


def _is_cause(finding: Finding, ns: int) -> bool:
    """Whether so much time is lost to it directly; launches are what is left of the host when all else is taken away."""
    return finding.total_loss_ns >= ns and finding.step_class is not StepClass.LAUNCH_BOUND


def _counted(finding: Finding, saving: int) -> int:
    """What a saving counts in the order of the list.

    An ideal graph that launches everything at once hides a slow loader as well, and still the loader is the cause: such a saving
    counts up to the time that launches are charged with.
    """
    return min(saving, finding.total_loss_ns) if finding.step_class is StepClass.LAUNCH_BOUND else saving


def _finished(finding: Finding, **answers: object) -> Finding:
    return replace(finding, loss=None, **answers)  # type: ignore[arg-type]


def _skipped_everywhere(ranks: Mapping[int, Inspection]) -> tuple[Skipped, ...]:
    """The rules that could not look on any rank."""
    lists = [i.found.skipped for i in ranks.values()]
    common = set.intersection(*({s.rule for s in skipped} for skipped in lists)) if lists else set()
    return tuple(s for s in lists[0] if s.rule in common) if lists else ()
