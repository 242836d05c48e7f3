"""A comparison as a document, JSON and CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import traceread
from traceread.comparison import FORMAT, ReportDiff
from traceread.comparison.efficiency import Used
from traceread.comparison.fairness import NOT_KNOWN
from traceread.comparison.gates import GateResult, State
from traceread.comparison.kernels import BY_NAME, KernelChange
from traceread.comparison.noise import Difference, Verdict
from traceread.comparison.outcomes import Outcome
from traceread.comparison.side import Side
from traceread.measurements.classes import StepClass
from traceread.names import and_more, clean, path_title, step_list
from traceread.reporters import format_of, render_document
from traceread.reporters.csv import csv_text
from traceread.reporters.document import Bar, Block, Cell, Column, Document, Listing, Name, Paragraph, Table, Tone
from traceread.reporters.files import write_text
from traceread.reporters.notebook import safe_html
from traceread.units import duration, percent, plural, ratio, unit_for

if TYPE_CHECKING:
    from collections.abc import Sequence

KERNELS, FAMILIES, RANGES = 8, 6, 6
"""Rows shown."""

_PARTS = {
    "waiting": "waiting for other ranks",
    "transfer": "transfer",
    "not_split": "waiting or transfer",
    "hidden_communication": "hidden communication",
    "hidden_copy": "hidden copies",
}
_INTERVAL = (
    "± is half of a 95 % interval from the scatter of the steps in these two captures; how much one start of the job differs from the next "
    "is in neither of them."
)


# The document.


def diff_document(diff: ReportDiff, gates: Sequence[GateResult] = ()) -> Document:
    """Everything `traceread diff` shows."""
    blocks = blocks_of(diff, gates)
    first = [*blocks.pop("mixed"), *_verdict(diff), *blocks.pop("mismatches"), *blocks.pop("largest")]
    return Document(diff_heading(diff), (*first, *(block for part in blocks.values() for block in part)))


def blocks_of(diff: ReportDiff, gates: Sequence[GateResult] = ()) -> dict[str, tuple[Block, ...]]:
    """What is shown below the verdict, by name and in order; a part that has nothing to show is empty."""
    found: dict[str, Block | None] = {
        "mixed": _mixed(diff),
        "mismatches": _mismatches(diff),
        "largest": _largest(diff),
        "gates": _gates(gates),
        "classes": _classes(diff),
        "parts": _parts(diff),
        "steps": _steps(diff),
        "findings": _findings(diff),
        "efficiency": _efficiency(diff),
        "families": _kernel_table(diff, diff.families, FAMILIES, "families"),
        "kernels": _kernel_table(diff, diff.kernels, KERNELS, "kernels and copies"),
        "ranges": _ranges(diff),
        "noted": _noted(diff),
        "interval": Paragraph(_INTERVAL, Tone.FAINT) if diff.step.error_ns is not None else None,
    }
    return {name: () if block is None else (block,) for name, block in found.items()}


def diff_heading(diff: ReportDiff) -> tuple[str, ...]:
    """What is compared: the sides, ranks, GPUs and steps, once where both are alike."""
    before, after = diff.before, diff.after
    titles = [path_title(side.title or "report", 45) + (" (saved)" if side.file else "") for side in (before, after)]
    parts = [f"{titles[0]} → {titles[1]}"]
    for values in (
        [_ranks(side) for side in (before, after)],
        [clean(side.saved.profile.ranks[0].device or "GPU not named") for side in (before, after)],
        [_counted(side) for side in (before, after)],
    ):
        parts.append(values[0] if values[0] == values[1] else f"{values[0]} → {values[1]}")
    return tuple(parts)


def _ranks(side: Side) -> str:
    loaded, size = len(side.saved.profile.ranks), side.saved.profile.world_size
    return plural(loaded, "rank") if size in (None, loaded) else f"{loaded} of {plural(size, 'rank')}"


def _counted(side: Side) -> str:
    if not side.counts_steps:
        return "whole capture"
    return f"{plural(len(side.step_ns), 'step')} ({step_list([w.step for w in side.windows])})"


def _verdict(diff: ReportDiff) -> list[Block]:
    """The answer, then what it rests on."""
    return [Paragraph(text, Tone.PLAIN if i == 1 else Tone.STRONG) for i, text in enumerate(verdict_words(diff)) if text]


def verdict_words(diff: ReportDiff) -> tuple[str, str, str]:
    """The answer, what it rests on, and whether the batch changed; "" where there is nothing to say."""
    said = {
        Verdict.FASTER: _differs,
        Verdict.SLOWER: _differs,
        Verdict.NONE: _same,
        Verdict.TOO_FEW: _too_few,
        Verdict.NOT_COMPARABLE: _not_comparable,
        Verdict.NO_STEPS: _no_steps,
    }[diff.verdict](diff)
    rests = ""
    if diff.verdict.is_difference and diff.by_median:
        rests = f"This is said of the median step. Stalled steps hide it in the mean: {_stalls(diff)}; {_change(diff.step)}."
    elif any(diff.stalls):
        rests = f"Steps stalled: {_stalls(diff)}. The median step, which they do not move: {_change(diff.typical)}."
    return said, rests, _batch_changed(diff)


def _differs(diff: ReportDiff) -> str:
    d = diff.typical if diff.by_median else diff.step
    step = "the median step" if diff.by_median else "a step"
    faster = d.difference_ns < 0
    word = "less" if faster else "more"
    change = f"{duration(abs(d.difference_ns))} ± {duration(d.error_ns or 0)} {word} ({percent(abs(d.difference_ns), d.before_ns)})"
    speed = f": {ratio(d.before_ns, d.after_ns)} × the steps per second" if d.after_ns else ""
    return f"{'Faster' if faster else 'Slower'}: {step} takes {duration(d.after_ns)} instead of {duration(d.before_ns)}, {change}{speed}."


def _same(diff: ReportDiff) -> str:
    d = diff.step
    text = f"No difference that these steps can show: {_change(d)}."
    if d.visible_ns:
        text += f" They would show {duration(d.visible_ns)} ({percent(d.visible_ns, d.before_ns)})"
        steps = d.steps_needed
        text += f"; to show what is seen, about {plural(steps, 'step')} a side." if steps else "."
    return text


def _too_few(diff: ReportDiff) -> str:
    d = diff.step
    counts = " and ".join(str(n) for n in (d.before_steps, d.after_steps))
    return f"Too few steps to say ({counts}): {_change(d)}. Capture at least 5 steps a side, better 10."


def _not_comparable(diff: ReportDiff) -> str:
    differing = and_more([f"{c.title} ({clean(c.before)} → {clean(c.after)})" for c in diff.fairness.mismatches], 6, ", ")
    keys = ",".join(c.key for c in diff.fairness.mismatches)
    went = f"{duration(diff.step.before_ns)} to {duration(diff.step.after_ns)}"
    return (
        f"Not comparable: {differing} {'differs' if len(diff.fairness.mismatches) == 1 else 'differ'}. "
        f"A step went from {went}, which says nothing about which is better; throughput is withheld. "
        f"Where the difference is what you changed: --allow-mismatch {keys}."
    )


def _no_steps(diff: ReportDiff) -> str:
    spans = f"{duration(diff.step.before_ns)} and {duration(diff.step.after_ns)}"
    text = f"No steps are named: these are whole captures of {spans}, and how long a capture is says nothing. Read the shares."
    if diff.pace is not None:
        new, old = diff.pace
        text += f" In the same time {percent(new, old)} of the work was done, counted in launches of the kernels that both have."
    return text + " --step-range infer may find steps."


def _change(d: Difference) -> str:
    error = f" ± {duration(d.error_ns)}" if d.error_ns is not None else ""
    share = f" ({percent(d.difference_ns, d.before_ns)})" if d.before_ns else ""
    return f"{duration(d.before_ns)} → {duration(d.after_ns)}, {signed(d.difference_ns)}{error}{share}"


def _stalls(diff: ReportDiff) -> str:
    parts = []
    for n, steps, name in zip(diff.stalls, (diff.before.step_ns, diff.after.step_ns), ("before", "after"), strict=True):
        if n:
            parts.append(f"{n} of {plural(len(steps), 'step')} {name}, up to {duration(max(steps))}")
    return " and ".join(parts)


def _batch_changed(diff: ReportDiff) -> str:
    """MFU moved while the step did not: then the work of a step did."""
    moved = diff.efficiency.mfu_ratio
    if moved is None or abs(moved - 1) < 0.02 or 100 * abs(diff.step.difference_ns) > diff.step.before_ns:
        return ""
    before, after = diff.efficiency.before.mfu or 0.0, diff.efficiency.after.mfu or 0.0
    word = "fell" if moved < 1 else "rose"
    return f"MFU {word} from {_share(before)} to {_share(after)} while the step time held: the batch or sequence changed."


def _mixed(diff: ReportDiff) -> Block | None:
    return (
        Listing("sides that are not one thing", tuple((s,) for s in diff.fairness.mixed), tone=Tone.WARNING)
        if diff.fairness.mixed
        else None
    )


def _mismatches(diff: ReportDiff) -> Block | None:
    rows = tuple(
        (c.title, c.before, c.after, "allowed" if c.allowed else "") for c in diff.fairness.checks if c.state in ("different", "allowed")
    )
    if not rows:
        return None
    return Table((Column("not the same"), Column("before"), Column("after"), Column()), rows)


def _largest(diff: ReportDiff) -> Block | None:
    """Which classes gave and took most, where it is more than the steps scatter."""
    shown = [c for c in diff.classes if c.difference.verdict.is_difference and 200 * abs(c.difference_ns) >= diff.step.before_ns]
    less = sorted((c for c in shown if c.difference_ns < 0), key=lambda c: c.difference_ns)
    more = sorted((c for c in shown if c.difference_ns > 0), key=lambda c: -c.difference_ns)
    parts = []
    for classes, word in ((less, "less"), (more, "more")):
        if classes:
            parts.append(f"{word} " + and_more([f"{c.step_class.title} ({signed(c.difference_ns)})" for c in classes], 4, ", "))
    text = "; ".join(parts)
    return Paragraph(text[:1].upper() + text[1:] + ".") if text else None


def _gates(gates: Sequence[GateResult]) -> Block | None:
    if not gates:
        return None
    worst = any(g.state is not State.PASSED for g in gates)
    return Listing("gates", tuple((g.message,) for g in gates), tone=Tone.WARNING if worst else Tone.PLAIN)


def _classes(diff: ReportDiff) -> Table:
    """The step before, what each class adds to it, and the step after: an exact sum."""
    unit = unit_for(max(diff.step.before_ns, diff.step.after_ns))
    largest = max(abs(c.difference_ns) for c in diff.classes) or 1
    rows: list[tuple[Cell, ...]] = []
    folded = [0, 0]
    whole = min(n for n in (diff.step.before_ns, diff.step.after_ns) if n) if diff.step.before_ns or diff.step.after_ns else 1
    for c in diff.classes:
        sides = (c.before_ns, c.after_ns)
        small = 100 * max(sides) < whole and 200 * abs(c.difference_ns) < whole and c.step_class is not StepClass.UNATTRIBUTED
        if not any(sides):
            continue
        if small:
            folded = [a + b for a, b in zip(folded, sides, strict=True)]
            continue
        bar = Bar(abs(c.difference_ns), largest, c.step_class.key)
        rows.append((c.step_class.title, *_cells(diff, sides, unit), _error(c.difference, unit), _shown(c.difference), bar))
    if any(folded):
        rows.append(("other", *_cells(diff, (folded[0], folded[1]), unit), "", "", Bar(abs(folded[1] - folded[0]), largest, "other")))
    what = "mean step" if diff.counts_steps else "the capture"
    if any(len(side.saved.profile.ranks) > 1 for side in (diff.before, diff.after)):
        critical = [side.critical_rank for side in (diff.before, diff.after)]
        what += f" of rank {critical[0]}" if critical[0] == critical[1] else f" of ranks {critical[0]} and {critical[1]}"
    numbers = tuple(Column(title, right=True) for title in ("before", "after", "change", "±"))
    total = ("sum", *_cells(diff, (diff.step.before_ns, diff.step.after_ns), unit), _error(diff.step, unit), _shown(diff.step), "")
    return Table((Column(what), *numbers, Column(), Column()), tuple(rows), total=total)


def _cells(diff: ReportDiff, sides: tuple[int, int], unit: tuple[int, str]) -> tuple[str, str, str]:
    """Before, after and change: times, or shares where only those can be compared."""
    if diff.counts_steps:
        return _three(*sides, unit)
    before, after = (percent(ns, whole) for ns, whole in zip(sides, (diff.step.before_ns, diff.step.after_ns), strict=True))
    points = 100 * (sides[1] / diff.step.after_ns - sides[0] / diff.step.before_ns)
    return before, after, "0" if before == after else f"{points:+.1f} points" if abs(points) >= 0.05 else "< 0.1 points"


def _three(before: int, after: int, unit: tuple[int, str]) -> tuple[str, str, str]:
    return duration(before, unit), duration(after, unit), signed(after - before, unit)


def _error(d: Difference, unit: tuple[int, str]) -> str:
    return "" if d.error_ns is None else duration(d.error_ns, unit)


def _shown(d: Difference) -> str:
    return {Verdict.FASTER: "less", Verdict.SLOWER: "more", Verdict.NONE: "noise" if d.difference_ns else ""}.get(d.verdict, "")


def _parts(diff: ReportDiff) -> Block | None:
    """Communication: what of it is exposed, and what is hidden."""
    parts = [p for p in diff.parts if p.before_ns or p.after_ns]
    if not parts:
        return None
    unit = unit_for(max(p.before_ns or 0 for p in parts) or max(p.after_ns or 0 for p in parts))
    rows = tuple(
        (
            _PARTS[p.name],
            *(_known(ns, unit) for ns in (p.before_ns, p.after_ns)),
            "" if p.difference_ns is None else signed(p.difference_ns, unit),
        )
        for p in parts
    )
    bounds = [n for n, s in (("before", diff.before), ("after", diff.after)) if s.saved.summary and s.saved.summary.waiting_is_lower_bound]
    note = f"waiting is a lower bound {' and '.join(bounds)}: not all ranks are loaded" if bounds else ""
    columns = (Column("communication and copies"), *(Column(t, right=True) for t in ("before", "after", "change")))
    return Table(columns, rows, note=note)


def _known(ns: int | None, unit: tuple[int, str]) -> str:
    return "not known" if ns is None else duration(ns, unit)


def _steps(diff: ReportDiff) -> Block | None:
    """How the steps are spread: the typical one, the tail, the ranks."""
    if not diff.counts_steps:
        return None
    unit = unit_for(max(diff.step.before_ns, diff.step.after_ns))
    d = diff.typical
    rows: list[tuple[Cell, ...]] = [("median", *_three(d.before_ns, d.after_ns, unit), _error(d, unit), _shown(d))]
    if diff.p95_ns is not None:
        rows.append(("95 % are no longer than", *_three(*diff.p95_ns, unit), "", ""))
    rows.append(("slowest", *_three(*diff.slowest_ns, unit), "", _stalls(diff)))
    if any(len(side.rank_steps) > 1 for side in (diff.before, diff.after)):
        rows.append(("slowest/median rank", *(ratio(*skew) for skew in diff.skew), "", "", ""))
    numbers = tuple(Column(title, right=True) for title in ("before", "after", "change", "±"))
    return Table((Column("steps"), *numbers, Column(grows=True)), tuple(rows))


def _findings(diff: ReportDiff) -> Block | None:
    if not diff.findings:
        return None
    entries = []
    per = "per step" if diff.counts_steps else "per capture"
    for f in diff.findings:
        lines = [f"{f.outcome}: {f.title} ({f.rule})"]
        if f.outcome is Outcome.FIXED and f.predicted_ns is not None:
            given = (
                "" if f.achieved_ns is None or f.step_class is None else f"; {_class_title(f.step_class)} fell by {duration(f.achieved_ns)}"
            )
            saving = f"{duration(f.predicted_ns)} predicted" if f.predicted_ns else "none predicted after the other fixes"
            lines.append(f"saving: {saving}{given}")
        elif f.outcome is Outcome.REMAINING and f.before_ns is not None and f.after_ns is not None:
            lines.append(f"size: {duration(f.before_ns)} → {duration(f.after_ns)} {per}")
        elif f.after_ns:
            lines.append(f"size: {duration(f.after_ns)} {per}")
        entries.append(tuple(lines))
    fixed = [f.predicted_ns for f in diff.findings if f.outcome is Outcome.FIXED and f.predicted_ns]
    note = (
        f"the fixed ones were to save {duration(sum(fixed))} together; the step changed by {signed(diff.step.difference_ns)}"
        if fixed
        else ""
    )
    return Listing("findings", tuple(entries), note=note)


def _class_title(key: str) -> str:
    return next((c.title for c in StepClass if c.key == key), key)


def _efficiency(diff: ReportDiff) -> Block | None:
    """What the hardware gives. Where step times cannot be compared: what can, and what of that nobody recorded."""
    before, after, fair = diff.efficiency.before, diff.efficiency.after, diff.fairness.comparable
    found = (
        ("tokens per second", *(_rate(used.tokens_per_s, fair) for used in (before, after))),
        (_mfu_title(diff), *(_mfu(diff, used) for used in (before, after))),
        ("HFU", _share(before.hfu), _share(after.hfu)),
        (_GOODPUT, _share(before.goodput), _share(after.goodput)),
        (_EVALUATION, _price(before.cost_per_evaluation), _price(after.cost_per_evaluation)),
        ("price of 10⁹ tokens", _price(before.cost_per_token, 10**9), _price(after.cost_per_token, 10**9)),
    )
    asked = () if fair else (_mfu_title(diff), _GOODPUT, _EVALUATION)
    rows = [(title, old or NOT_KNOWN, new or NOT_KNOWN) for title, old, new in found if old or new or title in asked]
    if not rows and fair and diff.counts_steps:
        return None
    rows.append(("share of the time that computes", _share(before.compute_share), _share(after.compute_share)))
    note = "" if fair else "these hold across sizes and machines, step times do not; the whole job: from its step log or run.json"
    return Table((Column("use of the hardware"), Column("before", right=True), Column("after", right=True)), tuple(rows), note=note)


_GOODPUT, _EVALUATION = "goodput of the whole job", "price of an evaluation, whole job"


def _mfu_title(diff: ReportDiff) -> str:
    return f"MFU ({diff.efficiency.before.convention})" if diff.efficiency.same_convention else "MFU"


def _mfu(diff: ReportDiff, used: Used) -> str:
    """MFU, with its formula where the two sides have different ones."""
    formula = "" if diff.efficiency.same_convention or not used.convention else f" ({used.convention})"
    return "" if used.mfu is None else _share(used.mfu) + formula


def _share(share: float | None) -> str:
    return "" if share is None else percent(round(share * 10**9), 10**9)


def _price(price: float | None, times: int = 1) -> str:
    return "" if price is None else f"{price * times:,.2f}"


def _rate(rate: float | None, fair: bool) -> str:
    return "" if rate is None else f"{rate:,.0f}" if fair else "withheld"


def _kernel_table(diff: ReportDiff, changes: Sequence[KernelChange], most: int, title: str) -> Block | None:
    large = [k for k in changes if _matters(diff, k.difference_ns)]
    shown = large[:most]
    if not shown:
        return None
    columns, rows = kernel_rows(diff, shown, title)
    note = f"and {len(large) - len(shown):,} more: --json has them" if len(large) > len(shown) else ""
    return Table(columns, rows, note=note)


def kernel_rows(diff: ReportDiff, shown: Sequence[KernelChange], title: str) -> tuple[tuple[Column, ...], tuple[tuple[Cell, ...], ...]]:
    """Columns and rows of kernels, or of families of them."""
    unit = unit_for(max(abs(k.difference_ns) for k in shown))
    rows = tuple(
        (
            signed(k.difference_ns, unit),
            *(f"{side.launches:,.4g}" if side else "–" for side in (k.before, k.after)),
            *(duration(side.launch_ns) if side else "–" for side in (k.before, k.after)),
            k.family if title != "families" else k.category,
            Name(k.name) if k.matched_by in ("", BY_NAME) else f"{clean(k.name)} (by {k.matched_by})",
        )
        for k in shown
    )
    numbers = tuple(Column(t, right=True) for t in ("change", "× before", "after", "each before", "after"))
    per = "per step" if diff.counts_steps else "per capture"
    return (*numbers, Column(), Column(f"{title}, {per}", grows=True)), rows


def _matters(diff: ReportDiff, ns: int) -> bool:
    """Whether a change is at least a thousandth of the step."""
    return 1000 * abs(ns) >= max(diff.step.before_ns, 1)


def _ranges(diff: ReportDiff) -> Block | None:
    shown = [r for r in diff.ranges if _matters(diff, r.gpu_difference_ns) or _matters(diff, r.host_difference_ns)][:RANGES]
    if not shown:
        return None
    unit = unit_for(max(max(abs(r.gpu_difference_ns), abs(r.host_difference_ns)) for r in shown))
    rows = tuple(
        (
            signed(r.gpu_difference_ns, unit),
            signed(r.host_difference_ns, unit),
            _status(r.before is None, r.after is None),
            Name(" › ".join(r.path)),
        )
        for r in shown
    )
    columns = (Column("GPU change", right=True), Column("host change", right=True), Column(), Column("ranges", grows=True))
    return Table(columns, rows)


def _status(added: bool, removed: bool) -> str:
    return "new" if added else "gone" if removed else ""


def _noted(diff: ReportDiff) -> Block | None:
    noted = [f"{c.title} {clean(c.before)} → {clean(c.after)}" for c in diff.fairness.checks if c.state == "noted"]
    unknown = [c.title for c in diff.fairness.checks if not c.known]
    parts = [f"also different: {', '.join(noted)}"] if noted else []
    if unknown:
        parts.append(
            f"not compared, because a side does not say: {', '.join(unknown)} (run.json beside the traces, or --set KEY=BEFORE:AFTER)"
        )
    return Paragraph("; ".join(parts) + ".", Tone.FAINT) if parts else None


def signed(ns: int, unit: tuple[int, str] | None = None) -> str:
    """A change of time with its sign, "0" if there is none."""
    if not ns:
        return "0"
    text = duration(abs(ns), unit)
    return f"{'+' if ns > 0 else '-'}{text}" if text[0].isdigit() else text


# Other formats.


def diff_dict(diff: ReportDiff, gates: Sequence[GateResult] = ()) -> dict[str, Any]:
    """The comparison, format 1."""
    before, after = diff.efficiency.before, diff.efficiency.after
    comparable = diff.fairness.comparable and diff.counts_steps
    rates = (before.tokens_per_s, after.tokens_per_s)
    return {
        "format": FORMAT,
        "traceread": traceread.__version__,
        "before": _side(diff.before),
        "after": _side(diff.after),
        "verdict": str(diff.verdict),
        "by_median": diff.by_median,
        "fairness": diff.fairness.to_dict(),
        "step": diff.step.to_dict(),
        "median": diff.typical.to_dict(),
        "tail": {
            "slowest_ns": list(diff.slowest_ns),
            "p95_ns": None if diff.p95_ns is None else list(diff.p95_ns),
            "stalls": list(diff.stalls),
            "skew": [slowest / middle if middle else 1.0 for slowest, middle in diff.skew],
        },
        "classes": [c.to_dict() for c in diff.classes],
        "parts": [p.to_dict() for p in diff.parts],
        "families": [k.to_dict() for k in diff.families],
        "kernels": [k.to_dict() for k in diff.kernels],
        "ranges": [r.to_dict() for r in diff.ranges],
        "findings": [f.to_dict() for f in diff.findings],
        "efficiency": {"before": before.to_dict(), "after": after.to_dict()},
        "throughput": {
            "withheld": not comparable,
            "speedup": diff.step.before_ns / diff.step.after_ns if comparable and diff.step.after_ns else None,
            "tokens_per_s": list(rates) if comparable and None not in rates else None,
        },
        "pace": None if diff.counts_steps or diff.pace is None else diff.pace[0] / diff.pace[1],
        "gates": [g.to_dict() for g in gates],
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "title": side.title,
        "saved": None if side.file is None else str(side.file),
        "source": side.saved.profile.source,
        "written_by": side.saved.traceread,
        "world_size": side.saved.profile.world_size,
        "ranks": [r.rank for r in side.saved.profile.ranks],
        "critical_rank": side.critical_rank,
        "steps": [w.step for w in side.windows],
        "step_ns": list(side.step_ns),
        "step_source": side.saved.steps.source,
    }


def diff_csv(diff: ReportDiff) -> str:
    """One row per class, then the step: class, before_ns, after_ns, difference_ns, error_ns, verdict."""
    rows = [(c.step_class.key, c.difference) for c in diff.classes] + [("step", diff.step), ("median step", diff.typical)]
    head = ("class", "before_ns", "after_ns", "difference_ns", "error_ns", "verdict")
    return csv_text(
        head,
        ((name, d.before_ns, d.after_ns, d.difference_ns, "" if d.error_ns is None else d.error_ns, str(d.verdict)) for name, d in rows),
    )


def render_diff(diff: ReportDiff, format: str, gates: Sequence[GateResult] = ()) -> str:
    """The comparison as text in one of the formats of reports.

    Raises:
        OutputError: no such format.
    """
    if format == "json":
        from traceread.reporters.json import to_json

        return to_json(diff_dict(diff, gates))
    if format == "csv":
        return diff_csv(diff)
    if format == "html":
        from traceread.reporters.diff_page import render_diff_page

        return render_diff_page(diff, gates)
    return render_document(diff_document(diff, gates), format)


def save_diff(diff: ReportDiff, path: Path) -> Path:
    """Writes the comparison in the format the extension names and returns the path.

    Raises:
        OutputError: the extension names no format, or the file cannot be written; what was there before is kept.
    """
    return write_text(path, render_diff(diff, format_of(path)))


def diff_html(diff: ReportDiff) -> str:
    """The comparison for a notebook cell."""
    return safe_html(diff, lambda: diff_document(diff))
