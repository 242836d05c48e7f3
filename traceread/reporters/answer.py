"""The report as a document: what holds the run back, and the numbers behind it."""

from __future__ import annotations

from traceread.measurements.steps import StepSource, WindowKind
from traceread.report import RankReport, Report, Summary
from traceread.reporters.document import Bar, Block, Column, Document, Listing, Name, Paragraph, Table, Tone
from traceread.reporters.efficiency import efficiency_blocks, mfu_missing
from traceread.reporters.fixes import fix_listing, not_looked_at
from traceread.reporters.gaps import GAPS, gap_listing
from traceread.reporters.headline import heading, headline
from traceread.reporters.kernels import per_step
from traceread.reporters.losses import class_lines
from traceread.reporters.ranks import SHOWN, rank_table
from traceread.reporters.recording import missing
from traceread.reporters.warnings import warning_lines
from traceread.units import duration, percent, plural, unit_for

KERNELS = 5
"""Kernels and copies shown."""


def report_document(report: Report, gaps: int = GAPS) -> Document:
    """Everything `traceread report` shows."""
    step, *loss = headline(report)
    summary = report.summary
    found: list[Block | None] = []
    if summary is None:
        found += host_blocks(report)
    else:
        critical = report.rank(summary.critical_rank)
        found += [class_table(report, summary, critical), fix_listing(report)]
        found += [rank_table(report, summary), *efficiency_blocks(report)]
        found += [_kernel_table(critical), gap_listing(report, gaps)]
    said = [Paragraph(step), Paragraph(" ".join(loss), Tone.STRONG)] if loss else [Paragraph(step, Tone.STRONG)]
    blocks = [*said, *found, *_closing(report)]
    return Document(heading(report), tuple(block for block in blocks if block is not None))


def class_table(report: Report, summary: Summary, critical: RankReport) -> Table:
    """The classes of the mean step of the critical rank, with what stands behind each."""
    mean = summary.mean_ns
    unit = unit_for(mean)
    rows = tuple(
        (line.title, Bar(line.ns, mean, line.key), duration(line.ns, unit), percent(line.ns, mean), line.detail)
        for line in class_lines(summary, critical)
    )
    beside = [("communication", summary.hidden_communication_ns), ("copies", summary.hidden_copy_ns)]
    hidden = ", ".join(f"{what} {duration(ns, unit)}" for what, ns in beside if ns)
    whole = critical.steps.source is StepSource.WHOLE_CAPTURE
    what = "the capture" if whole else "mean step" if len(summary.step_ns) > 1 else "the step"
    title = f"{what} of rank {critical.rank}" if len(report.ranks) > 1 else what
    return Table(
        (Column(title), Column(), Column("time", right=True), Column("share", right=True), Column(grows=True)),
        rows,
        total=("sum", "", duration(mean, unit), percent(mean, mean), f"hidden beside it: {hidden}" if hidden else ""),
        note="; ".join(text for text in (_outside(report), _recording_cost(report, summary)) if text),
    )


def _recording_cost(report: Report, summary: Summary) -> str:
    """What the profiler itself costs, by a step that ran without it; "" where nobody timed one, and where there are no steps."""
    untraced = report.described.run.untraced_step_ns
    critical = report.rank(summary.critical_rank)
    if untraced is None or critical.steps.source is StepSource.WHOLE_CAPTURE:
        return ""
    cost = summary.mean_ns - untraced
    text = f"without the profiler a step takes {duration(untraced)}"
    if cost <= 0:
        return f"{text}, no less than recorded"
    return f"{text}: recording costs {duration(cost)} ({percent(cost, untraced)})"


def _outside(report: Report) -> str:
    """How much GPU time is in no step; "" where there are no steps."""
    stepped = [r for r in report.ranks if r.steps.windows and r.steps.source is not StepSource.WHOLE_CAPTURE]
    if not stepped:
        return ""
    share = percent(sum(r.outside_ns for r in stepped), sum(r.busy_ns for r in stepped))
    between = sum(w.kind is WindowKind.BETWEEN for r in stepped for w in r.steps.windows)
    in_between = f", some of it in {plural(between, 'window')} between steps" if between else ""
    return f"outside the steps: {share} of the GPU's busy time{in_between}"


def _kernel_table(critical: RankReport) -> Table | None:
    table = critical.kernels
    longest = sorted(table.rows, key=lambda r: (-r.exposed_ns, -r.total_ns, r.name))[:KERNELS]
    if not longest:
        return None
    steps = max(table.steps, 1)
    unit = unit_for(max(r.exposed_ns for r in longest) // steps)
    rows = tuple(
        (percent(r.exposed_ns, table.window_ns), duration(r.exposed_ns // steps, unit), per_step(r.count, steps), r.family, Name(r.name))
        for r in longest
    )
    more = len(table.rows) - len(rows)
    return Table(
        (
            Column("share", right=True),
            Column("exposed", right=True),
            Column("×", right=True),
            Column("family"),
            Column("kernels and copies, per step" if table.counts_steps else "kernels and copies", grows=True),
        ),
        rows,
        note=f"and {plural(more, 'more name')}: traceread kernels" if more else "",
    )


def host_blocks(report: Report) -> list[Block]:
    """What the host rows say where there is no GPU work."""
    blocks: list[Block] = []
    for r in report.ranks[:SHOWN]:
        host = r.host_summary
        if host is None:
            continue
        span = host.end_ns - host.start_ns
        unit = unit_for(span)
        of = f" of rank {r.rank}" if len(report.ranks) > 1 else ""
        counts = f"{plural(r.counts['calls'], 'API call')} and {plural(r.counts['ranges'], 'range')}"
        blocks.append(Paragraph(f"The host rows{of} span {duration(span)}: {counts}."))
        rows = tuple((duration(h.total_ns, unit), percent(h.total_ns, span), f"{h.count:,}", h.kind, Name(h.name)) for h in host.rows[:10])
        numbers = (Column("open for", right=True), Column("share", right=True), Column("×", right=True))
        blocks.append(Table((*numbers, Column("kind"), Column("host rows", grows=True)), rows))
    return blocks


def _closing(report: Report) -> list[Block]:
    """Warnings, and what was not recorded."""
    blocks: list[Block] = []
    warnings = warning_lines(report.all_notices, len(report.ranks))
    if warnings:
        blocks.append(Listing("warnings", tuple((line,) for line in warnings), tone=Tone.WARNING))
    not_looked = not_looked_at(report)
    if not_looked is not None:
        blocks.append(not_looked)
    absent = missing(report)
    if absent:
        everywhere = len(report.ranks)
        names = [
            m.capability.words if len(m.ranks) == everywhere else f"{m.capability.words} (on {plural(len(m.ranks), 'rank')})"
            for m in absent
        ]
        blocks.append(Paragraph(f"not recorded: {', '.join(names)}. What each would tell and how to record it: traceread info", Tone.FAINT))
    without_mfu = mfu_missing(report)
    if without_mfu:
        blocks.append(Paragraph(without_mfu, Tone.FAINT))
    return blocks
