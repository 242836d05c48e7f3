"""Runs all rules on one rank: what they find, which of them could not look, and which failed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from traceread.errors import Notice
from traceread.findings import Finding, Skipped
from traceread.measurements.replay_graph import ReplayGraph
from traceread.model import Capability
from traceread.records import record
from traceread.rules import Facts, Loss, Rule
from traceread.rules.manual import read_manual


@record(eq=False)
class RankFindings:
    """What the rules say about one rank.

    Attributes:
        findings: with their losses; no time is in two of them.
        skipped: rules that could not look.
        notices: rules that failed.
    """

    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    notices: tuple[Notice, ...] = ()


def check_rank(facts: Facts, rules: Collection[Rule]) -> RankFindings:
    """The findings of one rank. Specific rules look first; what they find is no longer there for the others."""
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    notices: list[Notice] = []
    for rule in sorted((r for r in rules if not r.compares_ranks), key=lambda r: (r.turn, r.id)):
        missing = rule.needs - facts.trace.recorded
        if missing:
            skipped.append(_not_looked(rule, missing))
            continue
        if rule.beyond_first_step and facts.only_first_step:
            skipped.append(Skipped(rule.id, "the first step alone does not tell"))
            continue
        try:
            for finding in rule.check(facts):
                findings.append(_complete(facts, rule, finding))
                facts.claim(finding.loss or Loss())
        except (Exception, SystemExit) as error:  # a rule that fails must not cost the report
            notices.append(Notice("rule-failed", f"rule {rule.id} failed: {type(error).__name__}: {error}", facts.trace.rank))
    return RankFindings(tuple(findings), tuple(skipped), tuple(notices))


def _not_looked(rule: Rule, missing: Collection[Capability]) -> Skipped:
    needs = sorted(missing)
    return Skipped(rule.id, f"not recorded: {', '.join(need.words for need in needs)}", tuple(map(str, needs)))


def _complete(facts: Facts, rule: Rule, finding: object) -> Finding:
    """The finding with everything that follows from its loss and its rule."""
    if not isinstance(finding, Finding):
        raise TypeError(f"it yielded {type(finding).__name__}, not a Finding")
    loss = finding.loss or Loss()
    manual = read_manual(rule.manual)
    return replace(
        finding,
        loss=loss,
        rule=rule.id,
        effort=rule.effort,
        ranks=(facts.trace.rank,),
        evidence=finding.evidence or facts.evidence(loss),
        loss_ns=facts.losses_ns(loss),
        confirm=finding.confirm or manual.sections.get("How to confirm", ""),
        fix=finding.fix or manual.sections.get("What to try", ""),
        docs=finding.docs or manual.docs,
    )


def without_tables(finding: Finding, graph: ReplayGraph | None) -> Finding:
    """The finding with nothing of its loss but what a fix takes away, as far as it can be replayed."""
    if finding.loss is None or graph is None:
        return replace(finding, loss=None)
    beside = finding.loss.beside
    return replace(
        finding,
        loss=Loss(removal=finding.loss.removal.within(graph), beside=None if beside is None else beside.within(graph)),
    )
