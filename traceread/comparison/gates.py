"""Gates: limits that a comparison or a report must keep, for continuous integration.

A gate fails when the difference is one that the steps show and its point estimate is beyond the limit. Where the steps cannot show a
difference as large as the limit, the gate is undecided: it says so, and fails only if it is strict.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from traceread.comparison.noise import Difference, Verdict
from traceread.errors import ComparisonError
from traceread.findings import Finding, Skipped
from traceread.measurements.classes import CLASSES
from traceread.records import record
from traceread.units import duration, percent, plural

if TYPE_CHECKING:
    from traceread.comparison import ReportDiff

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
_LIMIT = re.compile(r"\+?(\d{1,9})(?:\.(\d{1,6}))?\s*(%|ns|us|µs|ms|s)")
METRICS = ("step", "median", *CLASSES, "hidden_communication", "hidden_copy")
"""What a gate can be about: the mean step, the median step, a class, or what is hidden beside the classes."""


class State(StrEnum):
    """What became of a gate."""

    PASSED = "passed"
    FAILED = "failed"
    UNDECIDED = "undecided"


@record
class Gate:
    """The most that something may grow.

    Attributes:
        metric: one of METRICS.
        text: the limit as written, such as "2%" or "5ms".
        amount, per_cent: the limit in ns, or in millionths of a percent of what it was before.
    """

    metric: str
    text: str
    amount: int
    per_cent: bool

    def limit_ns(self, before_ns: int) -> int:
        """The limit in ns, of something that took so long before."""
        return before_ns * self.amount // 10**8 if self.per_cent else self.amount

    def __str__(self) -> str:
        return f"{self.metric} > +{self.text}"


@record
class GateResult:
    """A gate with what became of it, in one sentence."""

    name: str
    state: State
    message: str

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON builtins."""
        return {"gate": self.name, "state": str(self.state), "message": self.message}


def parse_gate(text: str) -> Gate:
    """The gate in "exposed_communication>+5ms" or "step>2%".

    Raises:
        ComparisonError: it cannot be understood.
    """
    metric, sign, limit = text.partition(">")
    metric = metric.strip().lower().replace("-", "_").replace(" ", "_")
    if not sign:
        raise ComparisonError(f"{text!r} is no gate", "write METRIC>LIMIT, such as 'exposed_communication>+5ms' or 'step>2%'", "gate")
    if metric not in METRICS:
        raise ComparisonError(f"{metric!r} cannot be a gate", f"one of: {', '.join(METRICS)}", "gate")
    return gate_of(metric, limit)


def gate_of(metric: str, limit: str) -> Gate:
    """The gate of a metric and a limit such as "2%" or "5ms".

    Raises:
        ComparisonError: the limit cannot be understood.
    """
    found = _LIMIT.fullmatch(limit.strip())
    if not found:
        raise ComparisonError(f"{limit.strip()!r} is no limit", "write a share or a time, such as 2% or 5ms", "gate")
    whole, part, unit = found[1], found[2] or "", found[3]
    millionths = int(whole) * 10**6 + int(part.ljust(6, "0") or 0)
    amount = millionths if unit == "%" else millionths * _UNITS[unit] // 10**6
    return Gate(metric, limit.strip().lstrip("+").replace(" ", ""), amount, unit == "%")


def check_gates(diff: ReportDiff, gates: Sequence[Gate]) -> tuple[GateResult, ...]:
    """What becomes of each gate."""
    return tuple(_check(diff, gate) for gate in gates)


def has_failed(results: Sequence[GateResult], strict: bool = False) -> bool:
    """Whether any gate failed; a strict one must be decided."""
    return any(r.state is State.FAILED or (strict and r.state is State.UNDECIDED) for r in results)


def _check(diff: ReportDiff, gate: Gate) -> GateResult:
    if diff.verdict in (Verdict.NOT_COMPARABLE, Verdict.NO_STEPS):
        differing = ", ".join(c.title for c in diff.fairness.mismatches)
        why = f"the sides are not comparable ({differing} differ)" if differing else "the captures name no steps"
        return GateResult(str(gate), State.UNDECIDED, f"{gate}: not decided, {why}")
    difference = diff.metric(gate.metric)
    limit = gate.limit_ns(difference.before_ns)
    seen = _seen(difference)
    if difference.error_ns is None or difference.visible_ns is None:
        return GateResult(str(gate), State.UNDECIDED, f"{gate}: not decided, {seen} with too few steps to say")
    beyond = difference.difference_ns > limit
    if difference.verdict is Verdict.SLOWER and beyond:
        return GateResult(str(gate), State.FAILED, f"{gate}: failed, {seen}")
    if difference.verdict is Verdict.NONE and (beyond or difference.visible_ns > limit):
        steps = difference.steps_to_show(limit)
        needed = f"about {plural(steps, 'step')} a side would" if steps else "no reasonable number would"
        return GateResult(str(gate), State.UNDECIDED, f"{gate}: not decided, {seen}; these steps cannot show that much, {needed}")
    return GateResult(str(gate), State.PASSED, f"{gate}: passed, {seen}")


def _seen(difference: Difference) -> str:
    change = difference.difference_ns
    share = f" ({percent(change, difference.before_ns)})" if difference.before_ns else ""
    error = "" if difference.error_ns is None else f" ± {duration(difference.error_ns)}"
    return f"{'+' if change > 0 else ''}{duration(change)}{error}{share}"


# Gates of one report.


class Severity(StrEnum):
    """How much of the step a finding stands for."""

    HIGH = "high"  # a tenth or more
    MEDIUM = "medium"  # 2 % or more
    LOW = "low"


_LEAST = {Severity.HIGH: 100, Severity.MEDIUM: 20, Severity.LOW: 0}  # thousandths of the step


def severity_of(finding: Finding, step_ns: int) -> Severity:
    """How severe a finding is: by what fixing it saves by itself, else by the time it stands for."""
    size = finding.saving_alone_ns if finding.saving_alone_ns is not None else finding.total_loss_ns
    return next(severity for severity, least in _LEAST.items() if 1000 * size >= least * step_ns)


def check_findings(
    findings: Sequence[Finding], skipped: Sequence[Skipped], step_ns: int, wanted: Sequence[str], rules: Collection[str]
) -> tuple[GateResult, ...]:
    """What becomes of gates on findings: each is the id of a rule, or the least severity that fails.

    Raises:
        ComparisonError: a name that is neither.
    """
    return tuple(_check_finding(findings, skipped, step_ns, name, rules) for name in wanted)


def _check_finding(
    findings: Sequence[Finding], skipped: Sequence[Skipped], step_ns: int, wanted: str, rules: Collection[str]
) -> GateResult:
    name = f"no {wanted}"
    if wanted in list(Severity):
        least = _LEAST[Severity(wanted)]
        found = [f for f in findings if _LEAST[severity_of(f, step_ns)] >= least]
        unseen = list(skipped)
    elif wanted in rules:
        found = [f for f in findings if f.rule == wanted]
        unseen = [s for s in skipped if s.rule == wanted]
    else:
        raise ComparisonError(
            f"{wanted!r} is neither a rule nor a severity", "traceread explain lists the rules; high, medium, low", "gate"
        )
    if found:
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        return GateResult(name, State.FAILED, f"{name}: failed, {found[0].title} ({found[0].rule}){more}")
    if unseen and wanted in rules:
        return GateResult(name, State.UNDECIDED, f"{name}: not decided, the rule could not look: {unseen[0].reason}")
    return GateResult(name, State.PASSED, f"{name}: passed")
