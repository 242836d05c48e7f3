"""Before and after: what each class adds to the step or takes from it, and a step of each side under one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from traceread import intervals
from traceread.comparison import ReportDiff
from traceread.comparison.classes import ClassChange
from traceread.comparison.noise import Verdict
from traceread.errors import SelectionError
from traceread.figures.floating_bars import FloatingBar, plot_floating_bars
from traceread.figures.labels import exact, label
from traceread.figures.theme import COLORS, NEUTRAL, empty_figure, hidden, make_figure
from traceread.intervals import Intervals
from traceread.measurements.classes import IDLE_CLASSES, StepClass
from traceread.measurements.steps import Window, WindowKind
from traceread.report import RankReport, Report
from traceread.units import duration, percent, unit_for

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_LEAST_SHARE = 500
"""Classes that change by less than this part of the step share one bar."""
_PIXELS = 2_000
"""Gaps that are shorter than this part of the step are not drawn."""
_ROWS = ("compute", "communication", "copies", "idle")


def plot_difference(diff: ReportDiff, dark: bool = False) -> Figure:
    """The mean step before, what each class takes from it or adds to it, and the step after; what may be noise is hatched."""
    before, after = diff.step.before_ns, diff.step.after_ns
    rows: list[tuple[str, int, int, dict[str, Any], str]] = [("<b>before</b>", 0, before, {"color": NEUTRAL}, exact(before))]
    at, rest = before, 0
    for c in diff.classes:
        if not c.difference_ns:
            continue
        if _LEAST_SHARE * abs(c.difference_ns) < max(before, after):
            rest += c.difference_ns
            continue
        rows.append((f"{_sign(c.difference_ns)} {c.step_class.title}", *_floating(at, c.difference_ns), _marker(c), _hover(c)))
        at += c.difference_ns
    if rest:
        rows.append((f"{_sign(rest)} other", *_floating(at, rest), {"color": NEUTRAL}, exact(abs(rest))))
    rows.append(("<b>after</b>", 0, after, {"color": NEUTRAL}, exact(after)))
    return plot_floating_bars([_bar(*row, before) for row in rows], max(before, after), _title(diff), dark)


def plot_side_by_side(before: Report, after: Report, step: str | None = None, dark: bool = False) -> Figure:
    """One step of each side on one scale of time: when it computes, communicates, copies, and why it is idle.

    Args:
        before: one side.
        after: the other.
        step: label of the step; by default one that both sides use, else the median step of each.
        dark: dark or light.

    Raises:
        SelectionError: no such step on the critical rank of a side.
    """
    sides = [(name, report, _critical(report)) for name, report in (("before", before), ("after", after))]
    if any(rank is None for *_, rank in sides):
        return empty_figure("Before and after", "A side holds no GPU work.", dark)
    ranks = [rank for *_, rank in sides if rank is not None]
    windows = _matching(ranks, step)
    scale, unit = unit_for(max(w.duration_ns for w in windows))
    traces: list[dict[str, Any]] = []
    ticks: list[str] = []
    for (name, *_), rank, window in zip(sides, ranks, windows, strict=True):
        rows = [f"{name} · {row}" for row in _ROWS]
        ticks += rows
        traces += _lanes(rank, window, rows, scale, first=not traces)
    lengths = " → ".join(f"{label(w.label, 30)}, {duration(w.duration_ns)}" for w in windows)
    return make_figure(
        traces,
        title=f"A step of each side: {lengths}",
        height=120 + 30 * len(ticks),
        dark=dark,
        barmode="overlay",
        bargap=0.15,
        xaxis={"ticksuffix": f" {unit}", "range": [0, max(w.duration_ns for w in windows) / scale]},
        yaxis={"type": "category", "autorange": "reversed", "categoryorder": "array", "categoryarray": ticks, "showgrid": False},
    )


def _sign(ns: int) -> str:
    return "+" if ns > 0 else "−"


def _floating(at: int, change: int) -> tuple[int, int]:
    """Where a bar begins, and its length."""
    return (at, change) if change > 0 else (at + change, -change)


def _marker(c: ClassChange) -> dict[str, Any]:
    color = COLORS[c.step_class]
    return {"color": color} if c.difference.verdict.is_difference or c.difference.verdict is Verdict.TOO_FEW else hidden(color)


def _hover(c: ClassChange) -> str:
    error = "" if c.difference.error_ns is None else f"<br>± {exact(c.difference.error_ns)}: {c.difference.verdict}"
    return f"{exact(c.before_ns)} → {exact(c.after_ns)}{error}"


def _title(diff: ReportDiff) -> str:
    verdict = str(diff.verdict)
    return f"{verdict[0].upper()}{verdict[1:]}: {duration(diff.step.before_ns)} → {duration(diff.step.after_ns)}"


def _bar(name: str, start: int, length: int, marker: dict[str, Any], hover: str, before: int) -> FloatingBar:
    sign = "" if name.startswith("<b>") else name[0]
    return FloatingBar(name, start, length, marker, f"{sign}{duration(length)}, {percent(length, before)}", hover)


# Steps under one another.


def _critical(report: Report) -> RankReport | None:
    summary = report.summary
    return None if summary is None else report.rank(summary.critical_rank)


def _matching(ranks: list[RankReport], step: str | None) -> list[Window]:
    """A window of each side: the step that was asked for, one that both use, or the median one of each."""
    used = [{w.label: w for w, keep in zip(r.steps.windows, r.steps.used, strict=True) if keep} for r in ranks]
    if step is not None:
        every = [{w.label: w for w in r.steps.windows if w.kind is not WindowKind.BETWEEN} for r in ranks]
        for windows, name in zip(every, ("before", "after"), strict=True):
            if step not in windows:
                raise SelectionError(f"{name} has no step {step!r}", f"steps there are: {', '.join(list(windows)[:20])}")
        return [windows[step] for windows in every]
    shared = [name for name in used[0] if name in used[1]]
    if shared:
        middle = _middle([used[0][name] for name in shared]).label
        return [windows[middle] for windows in used]
    return [_middle(list(windows.values())) for windows in used]


def _middle(windows: list[Window]) -> Window:
    return sorted(windows, key=lambda w: (w.duration_ns, w.start_ns))[(len(windows) - 1) // 2]


def _lanes(rank: RankReport, window: Window, rows: list[str], scale: int, first: bool) -> list[dict[str, Any]]:
    start, end = window.start_ns, window.end_ns
    least = max((end - start) // _PIXELS, 1)
    busy = (
        (StepClass.COMPUTE, rank.busy.compute),
        (StepClass.EXPOSED_COMMUNICATION, rank.busy.communication),
        (StepClass.EXPOSED_COPY, rank.busy.copy),
    )
    traces = [
        _lane(_coarse(intervals.clip(these, start, end), least), row, COLORS[c], row.partition(" · ")[2], start, scale)
        for row, (c, these) in zip(rows, busy, strict=False)
    ]
    idle = rank.idle
    mine = (idle.start_ns < end) & (idle.end_ns > start)
    for c in IDLE_CLASSES:
        which = mine & (idle.cause == c)
        if which.any():
            these = intervals.clip(intervals.union(idle.start_ns[which], idle.end_ns[which]), start, end)
            if 500 * these.total >= end - start:
                traces.append(_lane(_coarse(these, least), rows[3], COLORS[c], c.title, start, scale, legend=True))
    seen: set[str] = set()
    for trace in traces:
        if not first or trace["name"] in seen:
            trace["showlegend"] = trace.get("showlegend", False) and trace["name"] not in seen and first
        seen.add(trace["name"])
    return traces


def _coarse(these: Intervals, least: int) -> Intervals:
    """The intervals without gaps that are too short to be seen."""
    if not len(these.start):
        return these
    apart = np.concatenate(([True], these.start[1:] - these.end[:-1] >= least))
    first = np.flatnonzero(apart)
    return Intervals(these.start[first], these.end[np.append(first[1:], len(apart)) - 1])


def _lane(these: Intervals, row: str, color: str, name: str, start: int, scale: int, legend: bool = False) -> dict[str, Any]:
    lengths = these.end - these.start
    return {
        "type": "bar",
        "orientation": "h",
        "y": [row] * len(lengths),
        "base": ((these.start - start) / scale).tolist(),
        "x": (lengths / scale).tolist(),
        "marker": {"color": color, "line": {"width": 0}},
        "name": name,
        "legendgroup": name,
        "showlegend": legend,
        "hovertext": [
            f"{name}, {exact(ns)}<br>{exact(at)} into the step"
            for ns, at in zip(lengths.tolist(), (these.start - start).tolist(), strict=True)
        ],
        "hoverinfo": "text",
    }
