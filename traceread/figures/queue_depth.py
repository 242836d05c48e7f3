"""The launch queue over a step: how far the host ran ahead of the GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traceread.figures.theme import COLORS, NEUTRAL, empty_figure, make_figure
from traceread.measurements.classes import StepClass
from traceread.measurements.step_timeline import StepTimeline
from traceread.units import percent, unit_for

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def plot_queue_depth(timeline: StepTimeline, dark: bool = False) -> Figure:
    """Launched work that had not begun, over the time of the step: where it is zero, the GPU waits for the host."""
    depth = timeline.depth
    if not depth.known:
        return empty_figure("Launch queue", "No launches were recorded.", dark)
    scale, unit = unit_for(timeline.end_ns - timeline.start_ns)
    title = f"Launch queue: empty for {percent(depth.empty_ns, timeline.end_ns - timeline.start_ns)} of the time"
    if depth.known < depth.total:
        title += f"; launches of {percent(depth.known, depth.total)} of the work are recorded"
    return make_figure(
        queue_traces(timeline, scale),
        title=title,
        height=280,
        dark=dark,
        xaxis={"ticksuffix": f" {unit}", "range": [0, (timeline.end_ns - timeline.start_ns) / scale]},
        yaxis={"title": {"text": "launched, not begun"}, "rangemode": "tozero"},
    )


def queue_traces(timeline: StepTimeline, scale: int) -> list[dict[str, Any]]:
    """The queue as a band between its least and its most depth per column, and the columns in which it was empty throughout."""
    depth = timeline.depth
    at = (depth.edges_ns[:-1] - timeline.start_ns) / scale
    style = {"shape": "hv", "width": 1, "color": NEUTRAL}
    line: dict[str, Any] = {"type": "scatter", "mode": "lines", "x": at, "showlegend": False, "line": style}
    hover = "%{y} launched and not begun<extra></extra>"
    return [
        line | {"y": depth.least, "hoverinfo": "skip", "line": style | {"width": 0}},
        line | {"y": depth.most, "fill": "tonexty", "fillcolor": f"{NEUTRAL}55", "name": "launch queue", "hovertemplate": hover},
        {
            "type": "scatter",
            "mode": "markers",
            "name": "empty",
            "x": at[depth.most == 0],
            "y": [0] * int((depth.most == 0).sum()),
            "marker": {"color": COLORS[StepClass.DATA_WAIT], "size": 4, "symbol": "square"},
            "hoverinfo": "skip",
            "showlegend": False,
        },
    ]
