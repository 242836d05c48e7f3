"""Facts of the job: what rules read that compare ranks."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from traceread.errors import Notice
from traceread.findings import Evidence, Finding, Skipped
from traceread.measurements.classes import StepClass
from traceread.measurements.rank_facts import RankFacts
from traceread.measurements.ranks import RankTable
from traceread.records import record
from traceread.rules import Rule
from traceread.rules.inspection import Inspection
from traceread.rules.losses import Loss
from traceread.rules.manual import read_manual


@record(eq=False)
class JobFacts:
    """What is known about the ranks together.

    Attributes:
        critical: the rank whose step is the job's.
        inspection: what was found on it, and what a replay of it can take away.
        ranks: every loaded rank.
        table: the ranks side by side.
    """

    critical: int
    inspection: Inspection
    ranks: Sequence[RankFacts]
    table: RankTable

    @property
    def own(self) -> RankFacts:
        """The critical rank."""
        return next(r for r in self.ranks if r.rank == self.critical)

    @property
    def a_step(self) -> str:
        """What follows a mean: " a step", or "" where the capture names no steps."""
        return " a step" if self.own.steps.name else ""

    @property
    def all_steps(self) -> str:
        """What sums are over."""
        return "the recorded steps" if self.own.steps.name else "the capture"

    def per_step(self, ns: int) -> int:
        """A sum over the critical rank's used steps as the mean of one."""
        count = max(len(self.own.used_windows), 1)
        return (2 * ns + count) // (2 * count)

    def own_ns(self, *classes: StepClass) -> int:
        """Time of the critical rank's used steps, of these classes or all."""
        return int(self.own.partition.class_ns[self.own.used][:, list(classes or StepClass)].sum())

    def reduced(self, step_class: StepClass, keep: int) -> Loss:
        """The loss of a class on the critical rank of which a fix leaves so many thousandths."""
        removal = self.inspection.classes.get(step_class)
        return Loss(removal=replace(removal, keep=keep)) if removal is not None else Loss()

    def evidence(self, names: Sequence[str]) -> tuple[Evidence, ...]:
        """The first used steps of the critical rank, with names that say more."""
        return tuple(Evidence(self.critical, w.label, w.start_ns, w.end_ns, names=tuple(names)) for w in self.own.used_windows[:3])


def check_job(job: JobFacts, rules: Collection[Rule]) -> tuple[list[Finding], list[Skipped], list[Notice]]:
    """What the rules that compare ranks find, which could not look, and which failed; with one rank of several none can look."""
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    notices: list[Notice] = []
    for rule in sorted((r for r in rules if r.compares_ranks), key=lambda r: (r.turn, r.id)):
        if len(job.ranks) < 2:
            if (job.own.world_size or 1) > 1:
                skipped.append(Skipped(rule.id, f"one of {job.own.world_size} ranks is loaded"))
            continue
        manual = read_manual(rule.manual)
        try:
            for finding in rule.check(job):
                findings.append(
                    replace(
                        finding,
                        rule=rule.id,
                        effort=rule.effort,
                        ranks=finding.ranks or (job.critical,),
                        loss=Loss() if finding.loss is None else finding.loss,
                        confirm=finding.confirm or manual.sections.get("How to confirm", ""),
                        fix=finding.fix or manual.sections.get("What to try", ""),
                        docs=finding.docs or manual.docs,
                    )
                )
        except (Exception, SystemExit) as error:  # a rule that fails must not cost the report
            notices.append(Notice("rule-failed", f"rule {rule.id} failed: {type(error).__name__}: {error}"))
    return findings, skipped, notices
