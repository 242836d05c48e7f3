"""A comparison as one page that can be sent, in the look of the report's page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from traceread.comparison.gates import GateResult
from traceread.figures.diff import plot_difference, plot_side_by_side
from traceread.names import clean
from traceread.reporters.diff import blocks_of, diff_heading, kernel_rows, verdict_words
from traceread.reporters.document import Block, Column, Paragraph, Table, Tone
from traceread.reporters.page import render_sections
from traceread.reporters.sections import Grid, Part, Section, plots
from traceread.units import duration, percent, ratio

if TYPE_CHECKING:
    from traceread.comparison import ReportDiff

_KERNELS = 500


def render_diff_page(diff: ReportDiff, gates: Sequence[GateResult] = (), plotlyjs: str = "inline") -> str:
    """The page of a comparison; `plotlyjs` as for the page of a report."""
    head = (diff_heading(diff), (" ".join(filter(None, verdict_words(diff))),), tuple(_numbers(diff)))
    return render_sections(
        head, tuple(_sections(diff, gates)), f"traceread diff {diff.before.title} {diff.after.title} -o diff.html", plotlyjs
    )


def _numbers(diff: ReportDiff) -> list[tuple[str, str]]:
    numbers = [("before", duration(diff.step.before_ns)), ("after", duration(diff.step.after_ns))]
    if diff.verdict.is_difference:
        numbers.append(("change", percent(diff.step.difference_ns, diff.step.before_ns)))
        numbers.append(("steps per second", f"{ratio(diff.step.before_ns, diff.step.after_ns)} ×"))
    return numbers


def _sections(diff: ReportDiff, gates: Sequence[GateResult]) -> Iterator[Section]:
    blocks = blocks_of(diff, gates)

    def some(*names: str) -> tuple[Block, ...]:
        return tuple(block for name in names for block in blocks[name])

    yield Section(
        "classes", "Classes", "Where the step went", (*some("mixed", "gates", "classes"), *plots(("difference", plot_difference(diff))))
    )
    yield Section("parts", "Communication", "Communication and copies", some("parts"))
    yield Section("steps", "Steps", "How the steps are spread", some("steps"))
    yield Section("side-by-side", "Side by side", "A step of each side", tuple(_side_by_side(diff)))
    yield Section("findings", "Findings", "What became of the findings", some("findings"))
    yield Section("kernels", "Kernels", "Kernels and copies", tuple(_kernels(diff)))
    yield Section("ranges", "Ranges", "Ranges", some("ranges"))
    yield Section("fairness", "Fairness", "Whether it is a fair comparison", (*some("efficiency"), _keys(diff), *some("noted")))


def _side_by_side(diff: ReportDiff) -> Iterator[Part]:
    """A step of each side on one scale of time; a saved report holds none."""
    before, after = diff.before.report, diff.after.report
    if before is None or after is None:
        yield Paragraph("A saved report holds no timeline. To see both, give the captures themselves.", Tone.FAINT)
        return
    yield from plots(("side-by-side-plot", plot_side_by_side(before, after)))


def _kernels(diff: ReportDiff) -> Iterator[Part]:
    for id_, title, changes in (("families", "families", diff.families), ("all-kernels", "kernels and copies", diff.kernels)):
        changed = [k for k in changes if k.difference_ns][:_KERNELS]
        if changed:
            columns, rows = kernel_rows(diff, changed, title)
            yield Grid(id_, f"{title}, per step", Table(columns, rows), searchable=len(rows) > 15)


def _keys(diff: ReportDiff) -> Table:
    rows = tuple((c.key, c.title, clean(c.before), clean(c.after), c.state) for c in diff.fairness.checks)
    return Table((Column("key"), Column("what"), Column("before"), Column("after"), Column()), rows)
