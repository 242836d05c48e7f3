"""Bars under one another, each where the one above it ends: what lies between a first time and a last one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from traceread.figures.theme import make_figure
from traceread.units import unit_for

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class FloatingBar(NamedTuple):
    """One bar.

    Attributes:
        name: what stands beside it.
        start_ns, length_ns: where it lies.
        marker: how plotly draws it.
        text: what stands at its end.
        hover: what is shown below its name when it is pointed at.
    """

    name: str
    start_ns: int
    length_ns: int
    marker: dict[str, Any]
    text: str
    hover: str


def plot_floating_bars(bars: list[FloatingBar], whole_ns: int, title: str, dark: bool) -> Figure:
    """The bars from top to bottom on an axis that has room for the whole time."""
    scale, unit = unit_for(whole_ns)
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [bar.name],
            "base": [bar.start_ns / scale],
            "x": [bar.length_ns / scale],
            "marker": bar.marker,
            "text": [bar.text],
            "textposition": "outside",
            "cliponaxis": False,
            "hovertext": [f"{bar.name}<br>{bar.hover}"],
            "hoverinfo": "text",
            "showlegend": False,
        }
        for bar in bars
    ]
    ticks = [bar.name for bar in bars]
    return make_figure(
        traces,
        title=title,
        height=100 + 36 * len(bars),
        dark=dark,
        barmode="overlay",
        xaxis={"ticksuffix": f" {unit}", "range": [0, 1.25 * whole_ns / scale]},
        yaxis={"type": "category", "autorange": "reversed", "categoryorder": "array", "categoryarray": ticks, "showgrid": False},
    )
