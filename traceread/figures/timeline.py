"""One step over time: streams and host threads as lanes, classes as colours, idle gaps shaded by cause, evidence marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from traceread.figures.labels import exact, kernel_label, label, wrapped
from traceread.figures.queue_depth import queue_traces
from traceread.figures.theme import COLORS, NEUTRAL, empty_figure, make_figure, worth_a_legend
from traceread.findings import Evidence, Finding
from traceread.measurements.classes import StepClass
from traceread.measurements.step_timeline import PLAIN, Bars, LaneKind, StepTimeline
from traceread.report import Report
from traceread.units import duration, plural, unit_for

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SHADED = 40
_LANE_PX = 26
_QUEUE_PX = 90
_SUFFIX = {LaneKind.RANGES: " · ranges", LaneKind.OPS: " · ops", LaneKind.CALLS: " · calls"}


def plot_timeline(timeline: StepTimeline, findings: Sequence[Finding] = (), dark: bool = False) -> Figure:
    """The step of one rank; the numbers above it are those of the findings whose evidence lies in it."""
    scale, unit = unit_for(timeline.end_ns - timeline.start_ns)
    length = (timeline.end_ns - timeline.start_ns) / scale
    lanes = len(timeline.lanes)
    marks = evidence_marks(timeline, findings)
    height = 150 + _LANE_PX * (lanes + 1) + _QUEUE_PX
    below = _QUEUE_PX / (height - 130)
    queue = [trace | {"yaxis": "y2"} for trace in queue_traces(timeline, scale)]
    traces = [*_bar_traces(timeline, scale), *_mark_traces(timeline, marks, scale), *queue]
    ticks = [_lane_label(lane.kind, lane.title) for lane in timeline.lanes]
    return make_figure(
        traces,
        title=f"{_what(timeline)}<br><sup>{_note(timeline)}</sup>",
        height=height,
        dark=dark,
        barmode="overlay",
        bargap=0,
        margin={"l": 8, "r": 16, "t": 64, "b": 40},
        shapes=_shades(timeline, scale),
        xaxis={"ticksuffix": f" {unit}", "range": [0, length], "anchor": "y2"},
        yaxis={
            "domain": [below + 0.03, 1],
            "range": [lanes - 0.4, -1.2 if marks else -0.6],
            "tickmode": "array",
            "tickvals": list(range(lanes)),
            "ticktext": ticks,
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
        },
        yaxis2={"domain": [0, below], "title": {"text": "launch<br>queue"}, "rangemode": "tozero", "fixedrange": True, "nticks": 4},
    )


def plot_report(report: Report, dark: bool = False) -> Figure:
    """The timeline of the critical rank with the evidence of the fix list; an empty figure without GPU work."""
    summary = report.summary
    timeline = None if summary is None else report.rank(summary.critical_rank).timeline
    if timeline is None:
        return empty_figure("Timeline", "No GPU work was recorded.", dark)
    return plot_timeline(timeline, report.findings, dark)


def evidence_marks(timeline: StepTimeline, findings: Sequence[Finding]) -> list[tuple[int, Finding, Evidence]]:
    """Number, finding and evidence of every place in the fix list that lies in this step of this rank."""
    return [
        (number, finding, place)
        for number, finding in enumerate(findings, 1)
        for place in finding.evidence
        if place.rank == timeline.rank and place.end_ns > timeline.start_ns and place.start_ns < timeline.end_ns
    ]


def _lane_label(kind: LaneKind, title: str) -> str:
    return f"<b>{title}</b>" if kind is LaneKind.CLASSES else f"{label(title, 26)}{_SUFFIX.get(kind, '')}"


def _what(timeline: StepTimeline) -> str:
    return f"{label(timeline.step, 40)} of rank {timeline.rank}, {duration(timeline.end_ns - timeline.start_ns)}"


def _note(timeline: StepTimeline) -> str:
    """What was merged or left out."""
    parts = []
    rows, bars = int(timeline.bars.rows.sum()), len(timeline.bars)
    if rows > bars:
        parts.append(f"{rows:,} rows as {bars:,} bars; paler bars stand for several rows shorter than {duration(max(timeline.merged_ns))}")
    left = [plural(n, noun) for n, noun in ((timeline.streams_left, "stream"), (timeline.threads_left, "launching thread")) if n]
    if left:
        parts.append(f"not drawn: {' and '.join(left)} with {timeline.rows_left:,} rows")
    return "; ".join(parts) or "every recorded row has its own bar"


def _bar_traces(timeline: StepTimeline, scale: int) -> list[dict[str, Any]]:
    """A trace per class, so that the legend can hide one."""
    traces = []
    for cls in (*StepClass, PLAIN):
        bars = timeline.bars.take(timeline.bars.cls == cls)
        if not len(bars):
            continue
        name, color = ("host, not blocked", NEUTRAL) if cls == PLAIN else (StepClass(cls).title, COLORS[StepClass(cls)])
        length = bars.end_ns - bars.start_ns
        partly = (bars.rows > 1) & (bars.lane > 0)
        seen = cls == PLAIN or worth_a_legend(int(length.sum()), timeline.end_ns - timeline.start_ns)
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "showlegend": seen,
                "base": (bars.start_ns - timeline.start_ns) / scale,
                "x": length / scale,
                "y": bars.lane,
                "width": np.where(bars.lane == 0, 0.9, 0.7),
                "marker": {"color": color, "opacity": np.where(partly, 0.35 + 0.5 * bars.busy_ns / np.maximum(length, 1), 1.0)},
                "hovertext": _hover_texts(timeline, bars, name),
                "hoverinfo": "text",
            }
        )
    return traces


def _hover_texts(timeline: StepTimeline, bars: Bars, name: str) -> list[str]:
    titles = [_row_label(n) for n in timeline.names]
    columns = (bars.start_ns - timeline.start_ns, bars.end_ns - bars.start_ns, bars.name, bars.rows, bars.busy_ns, bars.lane)
    texts = []
    for start, length, code, rows, busy, lane in zip(*(c.tolist() for c in columns), strict=True):
        first = f"<b>{name}</b>" if lane == 0 else ""
        lines = [part for part in (first, titles[code]) if part] or [name]
        if rows > 1:
            lines[-1] = f"{lines[-1]} and {plural(rows - 1, 'other')}"
        lines.append(f"{exact(length)} at {start:,} ns" + (f", busy for {exact(busy)}" if busy < length else ""))
        texts.append("<br>".join(lines))
    return texts


def _row_label(name: str) -> str:
    return kernel_label(name, 72)


def _mark_traces(timeline: StepTimeline, marks: list[tuple[int, Finding, Evidence]], scale: int) -> list[dict[str, Any]]:
    if not marks:
        return []
    begin = timeline.start_ns
    middle = [(max(e.start_ns - begin, 0) + min(e.end_ns, timeline.end_ns) - begin) / 2 / scale for _, _, e in marks]
    return [
        {
            "type": "scatter",
            "mode": "markers+text",
            "name": "evidence",
            "x": middle,
            "y": [-0.75] * len(marks),
            "text": [str(number) for number, _, _ in marks],
            "textposition": "middle right",
            "marker": {"symbol": "triangle-down", "size": 11, "color": [_mark_color(f) for _, f, _ in marks]},
            "hovertext": [_mark_hover(number, f, e) for number, f, e in marks],
            "hoverinfo": "text",
            "showlegend": False,
        }
    ]


def _mark_color(finding: Finding) -> str:
    return NEUTRAL if finding.step_class is None else COLORS[finding.step_class]


def _mark_hover(number: int, finding: Finding, place: Evidence) -> str:
    lines = [f"<b>{number} {wrapped(finding.title, 60)}</b>", exact(place.end_ns - place.start_ns), *(label(n, 72) for n in place.names)]
    return "<br>".join([*lines, label(place.source, 72)] if place.source else lines)


def _shades(timeline: StepTimeline, scale: int) -> list[dict[str, Any]]:
    """The longest idle stretches, through all lanes in the colour of their cause."""
    bars = timeline.bars.take((timeline.bars.lane == 0) & (timeline.bars.cls > StepClass.EXPOSED_COPY))
    if not len(bars):
        return []
    begins = np.concatenate(([True], (bars.start_ns[1:] != bars.end_ns[:-1]) | (bars.cls[1:] != bars.cls[:-1])))
    first = np.flatnonzero(begins)
    start, end, cls = bars.start_ns[first], bars.end_ns[np.append(first[1:], len(bars)) - 1], bars.cls[first]
    longest = np.sort(np.argsort(start - end, kind="stable")[:_SHADED])
    return [
        {
            "type": "rect",
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "x0": (begin - timeline.start_ns) / scale,
            "x1": (stop - timeline.start_ns) / scale,
            "fillcolor": COLORS[StepClass(cause)],
            "opacity": 0.22,
            "line": {"width": 0},
            "layer": "below",
        }
        for begin, stop, cause in zip(*(c[longest].tolist() for c in (start, end, cls)), strict=True)
    ]
