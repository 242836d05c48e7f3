"""The first lines of a report: what was looked at, and what holds the run back in a sentence or two."""

from __future__ import annotations

from collections.abc import Iterator

from traceread.measurements.classes import StepClass
from traceread.measurements.steps import StepSource
from traceread.names import and_more, path_title, shorten, step_list
from traceread.report import LEAST_WAITING, RankReport, Report, Summary, largest_loss
from traceread.reporters.efficiency import mfu_sentence
from traceread.reporters.fixes import fixes_sentence
from traceread.reporters.losses import exposed_split, idle_reasons, main_cause
from traceread.reporters.stragglers import straggler_sentence
from traceread.units import duration, percent, plural

SOURCES = {"kineto": "PyTorch trace", "nsys": "Nsight Systems"}

_LOSS = {
    StepClass.EXPOSED_COMMUNICATION: "communication, or waiting for other ranks in it, that no computing hides",
    StepClass.EXPOSED_COPY: "copies that neither computing nor communication hides",
    StepClass.DATA_WAIT: "the GPU waits for the next batch",
    StepClass.HOST_SYNC: "the GPU runs dry because the host waits for it",
    StepClass.LAUNCH_BOUND: "the host launches work more slowly than the GPU finishes it",
    StepClass.ALLOCATION: "the GPU waits while the host allocates memory",
    StepClass.COMPILE: "the GPU waits while the host compiles or loads code",
    StepClass.CHECKPOINT: "the GPU waits for a checkpoint",
    StepClass.PROFILER: "the profiler's own work, which a run without it does not have",
    StepClass.QUEUED: "pauses between work that was already queued",
    StepClass.UNATTRIBUTED: "the GPU is idle and the trace does not show why",
}
_NOT_A_CAUSE = (StepClass.COMPUTE, StepClass.PROFILER, StepClass.QUEUED, StepClass.UNATTRIBUTED)


def heading(report: Report) -> tuple[str, ...]:
    """What was looked at: title, ranks, device, source, steps; the steps come first where they are not what one expects."""
    parts = [ranks_phrase(report), device_phrase(report), SOURCES.get(report.source, report.source)]
    title = path_title(report.title, 44)
    summary = report.summary
    if summary is None:
        return (title, "no GPU work recorded", *parts)
    steps, expected = steps_phrase(report, summary)
    return (title, *parts, steps) if expected else (title, steps, *parts)


def ranks_phrase(report: Report) -> str:
    """How many ranks of the job were loaded, and from how many hosts: "4 of 32 ranks, 1 host"."""
    size, loaded = report.world_size, len(report.ranks)
    hosts = {r.host for r in report.ranks}
    if loaded == 1:
        return f"rank {report.ranks[0].rank} of {size}" if size and size > 1 else "1 rank"
    phrase = f"{loaded} of {plural(size, 'rank')}" if size and size > loaded else plural(loaded, "rank")
    return phrase if None in hosts else f"{phrase}, {plural(len(hosts), 'host')}"


def device_phrase(report: Report) -> str:
    """The GPUs' names: "NVIDIA H100", "4 × NVIDIA H100 + 4 × NVIDIA A100"."""
    names = [r.device.name or "GPU not named" for r in report.ranks]
    kinds = list(dict.fromkeys(names))
    return shorten(kinds[0], 40) if len(kinds) == 1 else and_more([f"{names.count(k)} × {shorten(k, 40)}" for k in kinds], 3, " + ")


def steps_phrase(report: Report, summary: Summary) -> tuple[str, bool]:
    """Which steps the numbers are of and why others are not; false where that is not what one expects."""
    rank = report.rank(summary.critical_rank)
    if rank.steps.source is StepSource.WHOLE_CAPTURE:
        return "whole capture (it names no steps)", False
    recorded = rank.steps.source is StepSource.RECORDED
    count = plural(len(summary.steps), "step" if recorded else f"{rank.steps.source.value} step")
    used = step_list(summary.steps)
    if rank.steps.fallback:
        return f"{count} ({rank.steps.fallback}: {used})", False
    left_out = _left_out(rank)
    return f"{count} ({used}{'; ' + left_out if left_out else ''})", recorded


def _left_out(rank: RankReport) -> str:
    """The steps of a rank that are not used, by reason: "#11 left out: first step"; "" if none, or by the user's choice."""
    by_reason: dict[str, list[str]] = {}
    for position, reason in rank.steps.excluded:
        by_reason.setdefault(reason, []).append(rank.steps.windows[position].label)
    by_reason.pop("not selected", None)
    phrases = []
    for reason, labels in by_reason.items():
        steps = step_list(labels)
        number = steps.removeprefix(rank.steps.name)
        phrases.append(f"{number if number.startswith('#') else steps} left out: {reason}")
    return and_more(phrases, 2, "; ")


def headline(report: Report) -> tuple[str, ...]:
    """What holds the run back: first how long a step takes and how much of it the GPU computes, then what is lost."""
    summary = report.summary
    if summary is None:
        return ("No GPU work was recorded: this says nothing about whether the GPU was idle.",)
    critical = report.rank(summary.critical_rank)
    mfu = mfu_sentence(report)
    said = [*_step_sentences(report, summary, critical), *([mfu] if mfu else [])]
    late = report.rank_table.straggler
    fixed = fixes_sentence(report)
    rest = [fixed] if fixed else []
    about_it = () if late is None else (straggler_sentence(late, report.counts_steps),)
    return (" ".join(said), *_loss_sentences(report, summary, critical), *about_it, *rest)


def _step_sentences(report: Report, summary: Summary, critical: RankReport) -> Iterator[str]:
    whole = critical.steps.source is StepSource.WHOLE_CAPTURE
    one = len(summary.step_ns) == 1
    subject = "the capture" if whole else "the step" if one else "a step"
    if len(report.ranks) > 1:
        longest = "capture is" if whole else "step is" if one else "steps are"
        why = "which waits least for the others" if summary.critical_by == LEAST_WAITING else f"whose {longest} longest"
        subject = f"on rank {critical.rank}, {why}, {subject}"
    compute = summary.class_ns[StepClass.COMPUTE]
    computes = f"{duration(compute)} of it ({percent(compute, summary.mean_ns)})" if compute else "none of it"
    computes += " the GPU computes"
    takes = f"{subject[0].upper()}{subject[1:]} {'spans' if whole else 'takes'}"
    if one:
        yield f"{takes} {duration(summary.mean_ns)}; for {computes}."
        return
    takes = f"{takes} {duration(summary.median_ns)} (median; slowest {duration(summary.max_ns)})"
    if not summary.uneven_ns:
        yield f"{takes}; for {computes}."
        return
    side = "above" if summary.uneven_ns > 0 else "below"
    yield f"{takes}."
    by = percent(abs(summary.uneven_ns), summary.median_ns)
    yield f"Uneven steps: the mean of {duration(summary.mean_ns)} is {by} {side} the median."
    yield f"In the mean, for {computes}."


def _loss_sentences(report: Report, summary: Summary, critical: RankReport) -> Iterator[str]:
    largest = largest_loss(summary)
    if largest is None:
        return
    reasons = idle_reasons(critical, summary.steps)
    if 100 * summary.class_ns[largest] < summary.mean_ns:
        yield f"No loss of rank {critical.rank} itself is as large as 1 %." if len(report.ranks) > 1 else "No loss is as large as 1 %."
    else:
        yield f"The largest loss is {_loss(largest, summary, main_cause(largest, critical, reasons))}."
    if largest in _NOT_A_CAUSE:
        known = [c for c in StepClass if c not in _NOT_A_CAUSE and 100 * summary.class_ns[c] >= summary.mean_ns]
        if known:
            best = max(known, key=lambda c: (summary.class_ns[c], -c))
            yield f"The largest one to act on is {_loss(best, summary, main_cause(best, critical, reasons))}."
    families = [f for f in critical.kernels.by_family() if f.category == "compute"]
    if 10 * summary.class_ns[StepClass.COMPUTE] >= 9 * summary.mean_ns and families:
        share = percent(families[0].total_ns, sum(f.total_ns for f in families))
        if families[0].family == "graph":
            yield f"The kernels that could be faster are not known: {share} of their time is in CUDA graphs that were recorded whole."
        else:
            yield f"More is to be gained in the kernels themselves: {families[0].family} is {share} of their time."


def _loss(step_class: StepClass, summary: Summary, cause: str) -> str:
    ns = summary.class_ns[step_class]
    what = _LOSS[step_class]
    if step_class is StepClass.EXPOSED_COMMUNICATION and summary.exposed_wait_ns + summary.exposed_transfer_ns > 0:
        what = f"communication that no computing hides, {exposed_split(summary)}"
    return f"{duration(ns)} ({percent(ns, summary.mean_ns)}): {what}{f' ({cause})' if cause else ''}"
