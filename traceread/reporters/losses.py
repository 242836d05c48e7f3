"""The classes of a step as lines, and what stands behind each of them."""

from __future__ import annotations

from collections.abc import Sequence

from traceread.measurements.classes import Reason, StepClass
from traceread.measurements.evidence import IdleReason, sum_reasons
from traceread.measurements.kernels import KernelTime
from traceread.names import and_more, kernel_title, row_title, shorten
from traceread.records import record
from traceread.report import RankReport, Summary
from traceread.units import duration, percent

_BUSY = {StepClass.EXPOSED_COMMUNICATION: "communication", StepClass.EXPOSED_COPY: "copy"}


@record
class ClassLine:
    """One line of the table of classes: title, key, mean ns per step, what it consists of."""

    title: str
    key: str
    ns: int
    detail: str


def class_lines(summary: Summary, critical: RankReport) -> tuple[ClassLine, ...]:
    """Compute, every class of at least 1 % of the step and unattributed in table order; the smaller ones together as other."""
    lines, small = [], []
    reasons = idle_reasons(critical, summary.steps)
    for step_class, ns in zip(StepClass, summary.class_ns, strict=True):
        own_line = step_class in (StepClass.COMPUTE, StepClass.UNATTRIBUTED) or 100 * ns >= summary.mean_ns
        if own_line and (ns or step_class is StepClass.COMPUTE):
            detail = _detail(step_class, critical, reasons)
            if step_class is StepClass.EXPOSED_COMMUNICATION:
                detail = " · ".join(part for part in (exposed_split(summary), detail) if part)
            lines.append(ClassLine(step_class.title, step_class.key, ns, detail))
        elif ns:
            small.append((ns, step_class))
    if small:
        small.sort(key=lambda pair: (-pair[0], pair[1]))
        detail = " · ".join(f"{c.title} {percent(ns, summary.mean_ns)}" for ns, c in small)
        lines.append(ClassLine("other", "other", sum(ns for ns, _ in small), detail))
    return tuple(lines)


def exposed_split(summary: Summary) -> str:
    """What exposed communication consists of: waiting for other ranks and transfer, or that this cannot be told."""
    wait, transfer, rest = summary.exposed_wait_ns, summary.exposed_transfer_ns, summary.exposed_not_split_ns
    loaded = len(summary.rank_mean_ns)
    if not wait and not transfer:
        alone = "one rank alone cannot tell" if loaded == 1 else "not matched between the ranks"
        return f"moving data or waiting for other ranks: {alone}" if rest else ""
    if loaded == 1 and not rest:
        return f"{duration(transfer)} transfer, no other rank to wait for"
    seen = f"in the {loaded} ranks loaded" if summary.waiting_is_lower_bound else f"between the {loaded} ranks"
    waiting = f"{'at least ' if summary.waiting_is_lower_bound else ''}{duration(wait)} waiting" if wait else f"no waiting seen {seen}"
    parts = [f"{duration(transfer)} transfer", waiting, f"{duration(rest)} not known" if rest else ""]
    return ", ".join(part for part in parts if part)


def main_cause(step_class: StepClass, critical: RankReport, reasons: Sequence[IdleReason]) -> str:
    """What at least half of a class consists of, "" if no single thing does."""
    if step_class in _BUSY:
        rows = exposed(critical, step_class)
        total = sum(r.exposed_ns for r in rows)
        return "" if not rows or 2 * rows[0].exposed_ns < total else f"{_mostly(rows[0].exposed_ns, total)}{kernel_name(rows[0].name)}"
    mine = [r for r in reasons if r.step_class is step_class]
    total = sum(r.total_ns for r in mine)
    if not mine or mine[0].reason is Reason.DISPATCH or 2 * mine[0].total_ns < total:
        return ""
    evidence = _evidence(mine[0])
    text = reason_text(mine[0].reason, mine[0].name)
    return f"{_mostly(mine[0].total_ns, total)}{text}{f', {evidence}' if evidence else ''}"


def _mostly(part: int, whole: int) -> str:
    return "" if part == whole else "mostly "


def _detail(step_class: StepClass, critical: RankReport, reasons: Sequence[IdleReason]) -> str:
    if step_class is StepClass.COMPUTE:
        families = [f for f in critical.kernels.by_family() if f.category == "compute"]
        return _shares([(f.family, f.total_ns) for f in families])
    if step_class in _BUSY:
        return _shares([(kernel_name(r.name, 34), r.exposed_ns) for r in exposed(critical, step_class)])
    return idle_detail([r for r in reasons if r.step_class is step_class])


def exposed(rank: RankReport, step_class: StepClass) -> list[KernelTime]:
    """The names behind exposed communication or copies of a rank's used steps, longest first."""
    rows = [r for r in rank.kernels.rows if r.category == _BUSY[step_class] and r.exposed_ns]
    return sorted(rows, key=lambda r: (-r.exposed_ns, r.name))


def _shares(parts: Sequence[tuple[str, int]], most: int = 3) -> str:
    """Parts with their share of all: "gemm 71.0 % · attention 16.0 % and 4 more"; one alone needs no share.

    Beside the first only those of at least 2 % are worth a word.
    """
    parts = [(name, ns) for name, ns in parts if ns]
    total = sum(ns for _, ns in parts)
    worth = sum(50 * ns >= total for _, ns in parts)
    texts = [name if len(parts) == 1 else f"{name} {percent(ns, total)}" for name, ns in parts]
    return and_more(texts, min(most, max(worth, 1)), " · ")


def idle_reasons(rank: RankReport, labels: Sequence[str]) -> tuple[IdleReason, ...]:
    """Why the rank was idle over its used windows with these labels."""
    return sum_reasons(rank.idle, rank.idle_names, rank.used_rows(set(labels)))


def idle_detail(reasons: Sequence[IdleReason], most: int = 2) -> str:
    """The longest reasons of one class with their shares: "recorded: cudaStreamSynchronize 93.0 % · inferred: … 7.0 %".

    Beside the longest only those of at least 2 % are worth a word.
    """
    total = sum(r.total_ns for r in reasons)
    parts, evidence = [], ""
    for position, r in enumerate(reasons):
        if position and (position == most or 50 * r.total_ns < total):
            break
        text = reason_text(r.reason, r.name) + ("" if len(reasons) == 1 else f" {percent(r.total_ns, total)}")
        kind = _evidence(r)
        parts.append(f"{kind}: {text}" if kind and kind != evidence else text)
        evidence = kind
    return " · ".join(parts)


def _evidence(reason: IdleReason) -> str:
    if reason.step_class is StepClass.UNATTRIBUTED:
        return ""
    return "recorded" if reason.recorded else "inferred"


def reason_text(reason: Reason, name: str) -> str:
    """A reason in words, with the row that says so."""
    name = shorten(row_title(name), 44)
    if reason is Reason.HOST_BLOCKED and name:
        return name
    return f"{reason.text} ({name})" if name else reason.text


def kernel_name(name: str, width: int = 48) -> str:
    """A kernel's name for use inside a sentence."""
    return shorten(kernel_title(name), width)
