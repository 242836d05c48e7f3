"""What is in a capture, what is not and how to record it, and whether it is good enough to decide on."""

from __future__ import annotations

from traceread.measurements.steps import StepSource
from traceread.names import and_more, missing_list, number_list, path_title, shorten, step_list
from traceread.records import record
from traceread.report import RankReport, Report
from traceread.reporters.document import Block, Column, Document, Listing, Paragraph, Table, Tone
from traceread.reporters.headline import SOURCES, device_phrase, ranks_phrase
from traceread.reporters.recording import GUIDES
from traceread.reporters.warnings import warning_lines
from traceread.units import plural, size

_RANKS_SHOWN = 16

_SAID = {
    "yes": "Good enough to decide on",
    "with care": "Good enough to decide on with care",
    "no": "Not good enough to decide on",
}
_NO = ("no-gpu-work", "gpu-not-recorded")
_DOUBTFUL = {
    "launches-not-recorded": "too few launches are recorded to say why the GPU was idle",
    "launches-without-kernels": "kernels are missing, so the idle time is an upper bound",
    "graph-nodes-not-recorded": "kernels inside CUDA graphs are missing, so the idle time is an upper bound",
    "graphs-not-recorded": "CUDA graphs are missing, so the idle time is an upper bound",
    "impossible-duration": "some recorded durations are impossible",
    "possible-communication": "kernels that may communicate count as compute",
    "communication-not-recorded": "collectives were called of which the GPU's part is missing",
    "stream-overlap": "some recorded durations are too long",
    "truncated": "the file is cut, so rows are missing",
    "nsys-data-loss": "nsys warns that records may be missing",
    "different-steps": "the ranks cannot be compared step by step",
}


@record
class Verdict:
    """Whether a capture is good enough to decide on.

    Attributes:
        good: "yes", "with care" or "no".
        reasons: why not simply yes.
    """

    good: str
    reasons: tuple[str, ...]


def judge(report: Report) -> Verdict:
    """The verdict on a capture, from its steps and warnings."""
    slugs = {n.slug for n in report.all_notices}
    if not any(r.steps.windows for r in report.ranks):
        return Verdict("no", ("it holds no GPU work, so it cannot say what the GPU's time went into",))
    reasons = [why for slug, why in _DOUBTFUL.items() if slug in slugs]
    if slugs & set(_NO):
        reasons.append("on some ranks no GPU work is recorded")
    worked = [r for r in report.ranks if r.steps.windows]
    if any(r.steps.source is StepSource.WHOLE_CAPTURE for r in worked):
        reasons.append("no range names steps, so start-up and warm-up count like the rest")
    elif any(r.steps.source is not StepSource.RECORDED for r in worked):
        reasons.append("the steps are inferred, not recorded")
    fallbacks = sorted({r.steps.fallback for r in worked if r.steps.fallback})
    reasons += [f"{fallback}: record a few steps more" for fallback in fallbacks]
    if not fallbacks and any(len(r.used_rows()) == 1 and r.steps.source is not StepSource.WHOLE_CAPTURE for r in worked):
        reasons.append("only one step can be used, so nothing is known about how much steps vary")
    return Verdict("with care" if reasons else "yes", tuple(reasons))


def capture_document(report: Report, read_with: str = "") -> Document:
    """Everything `traceread info` shows; `read_with` says what read the traces here, where that is worth a line."""
    verdict = judge(report)
    said = _SAID[verdict.good] + (f": {'; '.join(verdict.reasons)}." if verdict.reasons else ".")
    blocks: list[Block] = [Paragraph(said, Tone.STRONG), _ranks(report), _about(report, read_with), _recorded(report)]
    warnings = warning_lines(report.all_notices, len(report.ranks))
    if warnings:
        blocks.append(Listing("warnings", tuple((line,) for line in warnings), tone=Tone.WARNING))
    title = path_title(report.title, 44)
    heading = (title, ranks_phrase(report), device_phrase(report), SOURCES.get(report.source, report.source))
    return Document(heading, tuple(blocks))


def _ranks(report: Report) -> Table:
    shown = report.ranks[:_RANKS_SHOWN]
    columns = (
        Column("rank", right=True),
        Column("known from"),
        Column("GPU rows", right=True),
        Column("calls", right=True),
        Column("ranges", right=True),
        Column("steps and file", grows=True),
    )
    rows = tuple(
        (
            f"{r.rank}",
            r.rank_source,
            f"{r.counts['activities']:,}",
            f"{r.counts['calls']:,}",
            f"{r.counts['ranges']:,}",
            f"{_steps(r)} · {and_more([f.name for f in r.files], 2, ', ')}",
        )
        for r in shown
    )
    more = len(report.ranks) - len(shown)
    return Table(columns, rows, note=f"and {plural(more, 'more rank')}" if more else "")


def _steps(rank: RankReport) -> str:
    if not rank.steps.windows:
        return "no GPU work"
    if rank.steps.source is StepSource.WHOLE_CAPTURE:
        return "no steps"
    labels = [rank.steps.windows[i].label for i in rank.used_rows()]
    found = len(rank.used_rows()) + len(rank.steps.excluded)
    kind = "" if rank.steps.source is StepSource.RECORDED else f", {rank.steps.source.value}"
    return f"{len(labels)} of {plural(found, 'step')} used ({step_list(labels)}{kind})"


def _about(report: Report, read_with: str) -> Listing:
    lines = []
    devices = {(r.device.name, r.device.memory_bytes, r.device.multiprocessors) for r in report.ranks}
    for name, memory, multiprocessors in sorted(devices, key=str):
        parts = [name or "GPU not named"]
        parts += [size(memory)] if memory else []
        parts += [f"{multiprocessors} multiprocessors"] if multiprocessors else []
        lines.append(f"device: {', '.join(parts)}")
    hosts = sorted({r.host for r in report.ranks if r.host})
    lines.append(f"hosts: {and_more(hosts, 4, ', ')}" if hosts else "hosts: not recorded")
    size_known = report.world_size if report.world_size is not None else "not recorded"
    missing = missing_list([r.rank for r in report.ranks], report.world_size or 0)
    lines.append(f"ranks in the job: {size_known}" + (f"; not here: {missing}" if missing else ""))
    versions = dict.fromkeys(f"{name} {value}" for r in report.ranks for name, value in r.versions.items())
    if versions:
        lines.append(f"versions: {and_more([shorten(v, 60) for v in versions], 12, ', ')}")
    if report.skipped_files:
        lines.append(f"beside it: {plural(len(report.skipped_files), 'file')} not part of the capture (-v lists them)")
    if read_with:
        lines.append(f"read with: {read_with}")
    return Listing("about", tuple((line,) for line in lines))


def _recorded(report: Report) -> Table:
    rows = []
    for capability, guide in GUIDES.items():
        without = [r.rank for r in report.ranks if capability not in r.recorded]
        if not without:
            state = "yes"
        elif len(without) == len(report.ranks):
            state = "no"
        else:
            state = f"not on {number_list(without, 3)}"
        how = f"{guide.tells}. {guide.how(report.source)}" if without else guide.tells
        rows.append((capability.words, state, how))
    return Table((Column("recorded"), Column(), Column("what it tells", grows=True)), tuple(rows))
