"""What stands in the sections of the report page: sentences, tables, figures, the fix list with links into the timeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING

from traceread.figures.communication import plot_communication
from traceread.figures.fix_list import plot_fix_list
from traceread.figures.kernels import plot_families, plot_kernels
from traceread.figures.partition import plot_ranks, plot_steps
from traceread.figures.timeline import plot_timeline
from traceread.figures.waterfall import plot_waterfall
from traceread.findings import Evidence, Finding
from traceread.measurements.classes import StepClass
from traceread.measurements.step_timeline import StepTimeline
from traceread.measurements.steps import StepSource
from traceread.names import kernel_title, number_list, shorten
from traceread.records import record
from traceread.report import RankReport, Report, Summary
from traceread.reporters.answer import class_table, host_blocks
from traceread.reporters.capture import capture_document
from traceread.reporters.document import Block, Paragraph, Table, Tone
from traceread.reporters.efficiency import efficiency_blocks, mfu_missing
from traceread.reporters.fixes import not_looked_at, quality_text, saving_text
from traceread.reporters.gaps import gap_listing
from traceread.reporters.kernels import kernel_table
from traceread.reporters.waiting import operation_table, rank_blocks, wait_listing
from traceread.reporters.windows import windows_table
from traceread.units import duration, percent, plural, ratio, unit_for

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

TIMELINES = 8
"""Of more ranks than these only some have a timeline on the page."""
KERNELS = 400
"""Rows of the table of kernels."""
WINDOWS = 1000
"""Rows of the table of steps."""
_GAPS = 20
_ROOM = 0.15


@record
class Plot:
    """A place for a figure; with `choices` for one of several."""

    id: str
    title: str
    height: int
    figures: dict[str, str]
    choices: tuple[str, ...] = ()
    chosen: str = ""
    note: str = ""


@record
class Grid:
    """A table that can be sorted, and filtered where it is searchable."""

    id: str
    title: str
    table: Table
    searchable: bool = False


@record
class Place:
    """An evidence: where it is, what is there, and what part of a timeline on the page shows it (None: it is on none)."""

    where: str
    what: str
    rank: int
    span: tuple[float, float] | None


@record
class Fix:
    """A finding as the page shows it."""

    title: str
    saving: str
    why: str
    advice: tuple[tuple[str, str], ...]
    docs: tuple[str, ...]
    places: tuple[Place, ...]
    rule: str
    confidence: str


@record
class Fixes:
    """The fix list."""

    entries: tuple[Fix, ...]


@record
class Words:
    """The place of the definitions."""


Part = Block | Plot | Grid | Fixes | Words


@record
class Section:
    """A part of the page that can be jumped to; `short` is what the link says."""

    id: str
    short: str
    title: str
    parts: tuple[Part, ...]


def key_numbers(report: Report) -> tuple[tuple[str, str], ...]:
    """The numbers that one remembers: step, compute, MFU, what the fixes make of the step."""
    summary = report.summary
    if summary is None:
        return ()
    whole = report.rank(summary.critical_rank).steps.source is StepSource.WHOLE_CAPTURE
    numbers = [
        ("capture" if whole else "step", duration(summary.median_ns)),
        ("GPU computes", percent(summary.class_ns[StepClass.COMPUTE], summary.mean_ns)),
    ]
    last = [f.step_ns_after for f in report.findings if f.step_ns_after is not None]
    if last and 0 < last[-1] < summary.mean_ns:
        numbers.append(("with all fixes", f"{duration(last[-1])}, {ratio(summary.mean_ns, last[-1], 2)} × faster"))
    if len(report.ranks) > 1:
        numbers.append(("slowest/median rank", ratio(*summary.skew)))
    return tuple(numbers)


def make_sections(report: Report) -> tuple[Section, ...]:
    """The sections that have something to show, in order."""
    summary = report.summary
    if summary is None:
        sections = [Section("host", "Host", "What the host did", tuple(host_blocks(report)))]
    else:
        sections = list(_with_work(report, summary))
    missing = mfu_missing(report)
    beside = [not_looked_at(report), Paragraph(missing, Tone.FAINT) if missing else None]
    recorded = (*capture_document(report).blocks, *(b for b in beside if b is not None))
    sections.append(Section("recorded", "Recorded", "What was recorded, and what was not", recorded))
    sections.append(Section("methods", "Methods", "How everything is computed", (Words(),)))
    return tuple(s for s in sections if s.parts)


def _with_work(report: Report, summary: Summary) -> Iterator[Section]:
    critical = report.rank(summary.critical_rank)
    shown = {r.rank: r.timeline for r in _ranks_with_timeline(report, summary) if r.timeline is not None}
    several = len(report.ranks) > 1
    overview = plot_ranks(report.partition) if several else plot_steps(report.partition)
    yield Section("fixes", "Fix first", "What to change first", tuple(_fixes(report, shown)))
    where = "Where the step goes" if report.counts_steps else "Where the time goes"
    yield Section("step", "Classes", where, (class_table(report, summary, critical), *plots(("classes", overview))))
    yield Section("timeline-section", "Timeline", "Timeline", tuple(_timelines(report, summary, shown)))
    if several:
        yield Section("ranks", "Ranks", "Ranks", tuple(_ranks(report)))
    yield Section("communication", "Communication", "Communication", tuple(_communication(report)))
    yield Section("efficiency", "Efficiency", "Efficiency", tuple(_efficiency(report)))
    yield Section("kernels", "Kernels", "Kernels and copies", tuple(_kernels(report, critical)))
    gaps = gap_listing(report, _GAPS)
    yield Section("gaps", "Idle gaps", "Longest idle gaps", () if gaps is None else (gaps,))
    yield Section("steps", "Steps", "Steps", tuple(_steps(report, summary, list(shown))))


def plots(*figures: tuple[str, Figure]) -> Iterator[Part]:
    """Places for those of the figures that show something, and the reasons of those that do not."""
    for id_, figure in figures:
        if not figure.data:
            yield Paragraph(figure.layout.annotations[0].text, Tone.FAINT)
            continue
        yield Plot(id_, _plain(figure), int(figure.layout.height), {"": _figure_json(figure)})


def _plain(figure: Figure) -> str:
    """The title of a figure without markup."""
    title = str(figure.layout.title.text)
    for tag in ("<br>", "<b>", "</b>", "<sup>", "</sup>"):
        title = title.replace(tag, " " if tag == "<br>" else "")
    return unescape(title)


def _figure_json(figure: Figure) -> str:
    """The figure as JSON without its template, which the page has once."""
    figure.layout.template = None
    return str(figure.to_json())


# The fix list and the timelines it points into.


def _ranks_with_timeline(report: Report, summary: Summary) -> list[RankReport]:
    """The critical rank, the one that is late, the slowest, the fastest and the median one, then others; in order of rank."""
    with_one = [r for r in report.ranks if r.timeline is not None]
    if len(with_one) <= TIMELINES:
        return with_one
    by_length = [rank for _, rank in sorted((-mean, rank) for rank, mean in summary.rank_mean_ns)]
    straggler = report.rank_table.straggler
    first = [summary.critical_rank, *([straggler.rank] if straggler else []), by_length[0], by_length[-1], by_length[len(by_length) // 2]]
    chosen = list(dict.fromkeys([*first, *by_length]))[:TIMELINES]
    return [r for r in with_one if r.rank in chosen]


def _timelines(report: Report, summary: Summary, shown: dict[int, StepTimeline]) -> Iterator[Part]:
    if not shown:
        return
    figures = {f"{rank}": plot_timeline(timeline, report.findings) for rank, timeline in shown.items()}
    left = [r.rank for r in report.ranks if r.rank not in shown]
    note = f"ranks {number_list(left)} have none here: --ranks chooses" if left else "drag to zoom, double-click for all of it"
    chosen = f"{summary.critical_rank}" if summary.critical_rank in shown else next(iter(figures))
    over = "one step" if report.counts_steps else "the capture"
    title = f"streams and host threads over {over} of rank {chosen}; the evidence of the fix list is listed above in words"
    height = max(int(f.layout.height) for f in figures.values())
    yield Plot("timeline", title, height, {rank: _figure_json(f) for rank, f in figures.items()}, tuple(figures), chosen, note)


def _fixes(report: Report, shown: dict[int, StepTimeline]) -> Iterator[Part]:
    if not report.findings:
        yield Paragraph("No rule found a cause of at least 1 % of the step.")
        return
    yield from plots(("fix-list", plot_fix_list(report.fix_list)))
    yield Fixes(tuple(_fix(report, f, shown) for f in report.findings))
    quality = quality_text(report.fix_list.quality)
    if quality:
        yield Paragraph(quality[0].upper() + quality[1:] + ".", Tone.FAINT)


def _fix(report: Report, finding: Finding, shown: dict[int, StepTimeline]) -> Fix:
    saving = saving_text(finding)
    where = "" if len(report.ranks) == 1 else f"; found on {'all ranks' if len(finding.ranks) == len(report.ranks) else _on(finding)}"
    return Fix(
        title=finding.title,
        saving=f"{saving[0].upper()}{saving[1:]}{where}." if saving else "",
        why=finding.why,
        advice=tuple((word, text) for word, text in (("confirm", finding.confirm), ("change", finding.fix)) if text),
        docs=tuple(link for link in finding.docs if link.startswith("https://")),
        places=tuple(sorted((_place(report, e, shown) for e in finding.evidence), key=lambda place: place.span is None)),
        rule=finding.rule,
        confidence=finding.confidence,
    )


def _on(finding: Finding) -> str:
    return f"{'rank' if len(finding.ranks) == 1 else 'ranks'} {number_list(finding.ranks)}"


def _place(report: Report, evidence: Evidence, shown: dict[int, StepTimeline]) -> Place:
    rank = f", rank {evidence.rank}" if len(report.ranks) > 1 else ""
    names = " · ".join(shorten(kernel_title(name), 70) for name in evidence.names)
    source = f" at {evidence.source}" if evidence.source else ""
    return Place(
        where=f"{duration(evidence.end_ns - evidence.start_ns)} in {shorten(evidence.step, 40)}{rank}",
        what=f"{names}{source}{f', on {evidence.thread}' if evidence.thread else ''}",
        rank=evidence.rank,
        span=_span(evidence, shown.get(evidence.rank)),
    )


def _span(evidence: Evidence, timeline: StepTimeline | None) -> tuple[float, float] | None:
    """What part of a timeline to show for an evidence, in the figure's unit; None where it does not lie in it."""
    if timeline is None or evidence.end_ns <= timeline.start_ns or evidence.start_ns >= timeline.end_ns:
        return None
    length = timeline.end_ns - timeline.start_ns
    scale, _ = unit_for(length)
    start, end = evidence.start_ns - timeline.start_ns, evidence.end_ns - timeline.start_ns
    room = max(2 * (end - start), int(_ROOM * length) // 10)
    return max(start - room, 0) / scale, min(end + room, length) / scale


# The other sections.


def _ranks(report: Report) -> Iterator[Part]:
    from traceread.figures.ranks import plot_arrivals, plot_waiting

    table = report.rank_table
    yield from rank_blocks(table)
    yield from plots(("waiting", plot_waiting(table)), ("arrivals", plot_arrivals(table)))


def _communication(report: Report) -> Iterator[Part]:
    yield from plots(("hidden", plot_communication(report)))
    table = operation_table(report, report.described.run.link_bytes_per_s)
    if table is not None:
        yield Grid("collectives", "collective operations, by group", table)
    waits = wait_listing(report.rank_table)
    if waits is not None:
        yield waits


def _efficiency(report: Report) -> Iterator[Part]:
    efficiency = report.efficiency
    if efficiency is None or efficiency.utilisation.mfu is None:
        return
    yield from plots(("waterfall", plot_waterfall(efficiency)))
    yield from efficiency_blocks(report)


def _kernels(report: Report, critical: RankReport) -> Iterator[Part]:
    if not critical.kernels.rows:
        return
    yield from plots(("families", plot_families(critical.kernels)), ("top-kernels", plot_kernels(critical.kernels)))
    of = ", per step" if critical.kernels.counts_steps else ""
    of += f", rank {critical.rank}" if len(report.ranks) > 1 else ""
    yield Grid("kernel-table", f"kernels and copies{of}", kernel_table(critical.kernels, "name", KERNELS), searchable=True)


def _steps(report: Report, summary: Summary, shown: list[int]) -> Iterator[Part]:
    several = len(report.ranks) > 1
    if several:
        yield from plots(("step-classes", plot_steps(report.partition, summary.critical_rank)))
    worked = [r for r in report.ranks if r.steps.windows]
    few = worked if sum(len(r.steps.windows) for r in worked) <= WINDOWS else [r for r in worked if r.rank in shown]
    table = windows_table(few, several)
    rows, left = table.rows[:WINDOWS], sum(len(r.steps.windows) for r in worked) - min(len(table.rows), WINDOWS)
    note = f"and {plural(left, 'more window')}: traceread steps" if left else ""
    yield Grid("windows", "every window, used or not" if not left else "windows", replace(table, rows=rows, note=note), searchable=True)
