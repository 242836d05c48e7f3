"""Two reports compared: per step, exactly, with what the steps can show and whether the comparison is fair."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceread.comparison.classes import ClassChange, PartChange, compare_classes, compare_parts
from traceread.comparison.efficiency import EfficiencyChange, compare_efficiency
from traceread.comparison.fairness import Declared, Fairness, check_fairness, refuse_different_windows, refuse_unusable
from traceread.comparison.kernels import BY_NAME, KernelChange, compare_families, compare_kernels
from traceread.comparison.noise import Difference, Verdict, compare_means, compare_medians, count_stalls
from traceread.comparison.outcomes import FindingChange, compare_findings
from traceread.comparison.ranges import RangeChange, compare_ranges
from traceread.comparison.side import Side
from traceread.measurements.classes import CLASSES
from traceread.records import record
from traceread.report import median

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

FORMAT = 1
"""Version of the JSON; fields are added, never renamed."""

_ENOUGH_FOR_P95 = 20


@record(eq=False)
class ReportDiff:
    """What changed from one report to another.

    Attributes:
        before, after: the two sides.
        fairness: whether they may be compared.
        step: the mean step of the critical rank; its difference is the sum of those of the classes.
        typical: the median step.
        classes: every class.
        parts: what exposed communication consists of, and what is hidden.
        families, kernels: of the critical rank, the largest change first.
        ranges: the user's own.
        findings: fixed, remaining, new.
        efficiency: tokens per second, MFU and what else is known.
    """

    before: Side
    after: Side
    fairness: Fairness
    step: Difference
    typical: Difference
    classes: tuple[ClassChange, ...]
    parts: tuple[PartChange, ...]
    families: tuple[KernelChange, ...]
    kernels: tuple[KernelChange, ...]
    ranges: tuple[RangeChange, ...]
    findings: tuple[FindingChange, ...]
    efficiency: EfficiencyChange

    def __repr__(self) -> str:
        from traceread.units import duration

        return f"<ReportDiff {duration(self.step.before_ns)} → {duration(self.step.after_ns)}, {self.verdict}>"

    @property
    def counts_steps(self) -> bool:
        """Whether the sides are steps, not whole captures."""
        return self.before.counts_steps and self.after.counts_steps

    @property
    def verdict(self) -> Verdict:
        """What can be said: of the mean step, or of the median step where stalls hide what the others show."""
        if not self.fairness.comparable:
            return Verdict.NOT_COMPARABLE
        if not self.counts_steps:
            return Verdict.NO_STEPS
        return self.typical.verdict if self.by_median else self.step.verdict

    @property
    def by_median(self) -> bool:
        """Whether the verdict is about the median step: a side has stalls, the mean shows nothing, and the median does."""
        return any(self.stalls) and not self.step.verdict.is_difference and self.typical.verdict.is_difference

    @cached_property
    def stalls(self) -> tuple[int, int]:
        """Steps of each side that stand out."""
        return count_stalls(self.before.step_ns), count_stalls(self.after.step_ns)

    @property
    def slowest_ns(self) -> tuple[int, int]:
        """The slowest step of each side."""
        return max(self.before.step_ns), max(self.after.step_ns)

    @property
    def p95_ns(self) -> tuple[int, int] | None:
        """The step that 95 % of each side's are no longer than; None with fewer than 20 steps."""
        if min(len(self.before.step_ns), len(self.after.step_ns)) < _ENOUGH_FOR_P95:
            return None
        before, after = (sorted(side.step_ns)[-(-95 * len(side.step_ns) // 100) - 1] for side in (self.before, self.after))
        return before, after

    @property
    def skew(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of each side the mean step of its slowest rank and of its median rank, waiting for others left out where it is told apart."""
        return _skew(self.before), _skew(self.after)

    @cached_property
    def pace(self) -> tuple[int, int] | None:
        """How much of the same work is done per time: (after, before) in ns of kernels as long as before, per second.

        For captures without steps: their length says nothing, what ran in it does. None where no kernel is on both sides.
        """
        same = [k for k in self.kernels if k.matched_by == BY_NAME and k.category == "compute" and k.before and k.after]
        old = sum(k.before.total_ns for k in same if k.before)
        new = sum(k.before.total_ns * k.after.count // k.before.count for k in same if k.before and k.after and k.before.count)
        spans = sum(self.before.step_ns), sum(self.after.step_ns)
        return (new * 10**9 // spans[1], old * 10**9 // spans[0]) if old and all(spans) else None

    def metric(self, name: str) -> Difference:
        """The difference of what gates call "step", "median", a class, "hidden_communication" or "hidden_copy".

        A "step" is the median one where the verdict is about that.
        """
        if name in CLASSES:
            return self.classes[CLASSES.index(name)].difference
        if name in ("hidden_communication", "hidden_copy"):
            return compare_means(self.before.hidden_steps[name], self.after.hidden_steps[name])
        return self.typical if name == "median" or self.by_median else self.step

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON builtins, format 1."""
        from traceread.reporters.diff import diff_dict

        return diff_dict(self)

    def to_frame(self) -> pd.DataFrame:
        """One row per class: class, before_ns, after_ns, difference_ns, error_ns (half of the 95 % interval), verdict."""
        import pandas as pd

        rows = [
            (c.step_class.key, c.before_ns, c.after_ns, c.difference_ns, c.difference.error_ns, str(c.difference.verdict))
            for c in self.classes
        ]
        return pd.DataFrame(rows, columns=["class", "before_ns", "after_ns", "difference_ns", "error_ns", "verdict"])

    def plot(self) -> Figure:
        """The waterfall from the step before to the step after."""
        from traceread.figures.diff import plot_difference

        return plot_difference(self)

    def save(self, path: str | Path) -> Path:
        """Writes the comparison in the format its extension names (.json, .md, .txt, .csv, .html) and returns the path.

        Raises:
            OutputError: unknown extension, or the file cannot be written; what was there before is kept.
        """
        from traceread.reporters.diff import save_diff

        return save_diff(self, Path(path))

    def _repr_html_(self) -> str:
        from traceread.reporters.diff import diff_html

        return diff_html(self)


def compare(before: Side, after: Side, allow_mismatch: Collection[str] = (), declared: Declared | None = None) -> ReportDiff:
    """The comparison of two sides.

    Args:
        before: one side.
        after: the other.
        allow_mismatch: compare keys that may differ.
        declared: values of compare keys that are not recorded, before and after.

    Raises:
        ComparisonError: a side is empty, without GPU work or truncated, or one counts steps and the other does not.
    """
    fairness = check_fairness(before, after, allow_mismatch, declared)
    refuse_unusable(before, "before", allow_mismatch)
    refuse_unusable(after, "after", allow_mismatch)
    refuse_different_windows(before, after)
    return ReportDiff(
        before=before,
        after=after,
        fairness=fairness,
        step=compare_means(before.step_ns, after.step_ns, (before.mean_ns, after.mean_ns)),
        typical=compare_medians(before.step_ns, after.step_ns),
        classes=compare_classes(before, after),
        parts=compare_parts(before, after),
        families=compare_families(before, after),
        kernels=compare_kernels(before, after),
        ranges=compare_ranges(before, after),
        findings=compare_findings(before, after),
        efficiency=compare_efficiency(before, after),
    )


def _skew(side: Side) -> tuple[int, int]:
    own = list(side.rank_own_ns.values())
    return (max(own), median(own)) if own else (0, 0)
