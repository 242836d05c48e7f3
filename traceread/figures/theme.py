"""How figures look: one colour per class wherever it is shown, one template for light and one for dark.

The colours of any two classes are told apart with normal sight and without red, green or blue cones, and each stands out from
white and from the dark background (a test computes both).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from traceread.measurements.classes import StepClass

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COLORS: dict[StepClass, str] = {
    StepClass.COMPUTE: "#33a45c",
    StepClass.EXPOSED_COMMUNICATION: "#a86baf",
    StepClass.EXPOSED_COPY: "#55d6ff",
    StepClass.DATA_WAIT: "#bd4b0b",
    StepClass.HOST_SYNC: "#e39500",
    StepClass.LAUNCH_BOUND: "#fccf75",
    StepClass.ALLOCATION: "#0063c7",
    StepClass.COMPILE: "#762d10",
    StepClass.CHECKPOINT: "#672c6d",
    StepClass.PROFILER: "#959595",
    StepClass.QUEUED: "#d8d8d8",
    StepClass.UNATTRIBUTED: "#575757",
}
CATEGORY_COLORS = {
    "compute": COLORS[StepClass.COMPUTE],
    "communication": COLORS[StepClass.EXPOSED_COMMUNICATION],
    "copy": COLORS[StepClass.EXPOSED_COPY],
}
NEUTRAL = "#8792a3"
"""What is neither good nor bad: host rows that block nothing, what is left of a step."""

BACKGROUND = {False: "#ffffff", True: "#16181d"}
"""By `dark`."""
_TEXT = {False: "#1f2328", True: "#e6e8eb"}
_FAINT = {False: "#e3e6ea", True: "#30343c"}
_FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"


def text_color(background: str) -> str:
    """Black or white, whichever is read better on a colour."""
    r, g, b = (int(background[i : i + 2], 16) for i in (1, 3, 5))
    return "#000000" if 299 * r + 587 * g + 114 * b > 128_000 else "#ffffff"


def hidden(color: str) -> dict[str, Any]:
    """Marker of what costs nothing: the colour as hatching only."""
    pattern = {"shape": "/", "fillmode": "replace", "fgcolor": color, "size": 5}
    return {"color": color, "pattern": pattern, "line": {"width": 1, "color": color}}


def faded(color: str) -> dict[str, Any]:
    """Marker of what costs nothing where bars are too thin for hatching."""
    return {"color": color, "opacity": 0.35}


def few_ticks(ticks: Sequence[str]) -> dict[str, Any]:
    """Axis settings that name so many of the bars as there is room for; "rank" goes into the title."""
    named = list(ticks[:: -(-len(ticks) // 24)])
    of_ranks = all(tick.startswith("rank ") for tick in named)
    text = [tick.removeprefix("rank ") for tick in named] if of_ranks else named
    return {"tickmode": "array", "tickvals": named, "ticktext": text, "title": {"text": "rank" if of_ranks else ""}}


def worth_a_legend(part: int, whole: int) -> bool:
    """Whether a class is large enough to be seen; smaller ones are drawn but not named in the legend."""
    return 500 * part >= whole > 0


def template(dark: bool) -> dict[str, Any]:
    """A plotly template."""
    text, faint, background = _TEXT[dark], _FAINT[dark], BACKGROUND[dark]
    axis = {
        "gridcolor": faint,
        "linecolor": faint,
        "zerolinecolor": faint,
        "automargin": True,
        "ticks": "outside",
        "ticklen": 5,
        "tickcolor": "rgba(0,0,0,0)",  # room between labels and bars
        "title": {"standoff": 8},
    }
    title = {"x": 0, "xref": "container", "xanchor": "left", "y": 1, "yref": "container", "yanchor": "top", "font": {"size": 15}}
    hover = {"align": "left", "bgcolor": background, "bordercolor": NEUTRAL, "font": {"family": _FONT, "size": 12, "color": text}}
    return {
        "layout": {
            "font": {"family": _FONT, "size": 12, "color": text},
            "title": title,
            "paper_bgcolor": background,
            "plot_bgcolor": background,
            "colorway": list(COLORS.values()),
            "xaxis": axis,
            "yaxis": axis,
            "legend": {"orientation": "h", "x": 0, "y": 0, "yref": "container", "yanchor": "bottom", "traceorder": "normal"},
            "hoverlabel": hover,
            "margin": {"l": 8, "r": 16, "t": 48, "b": 40},
            "bargap": 0.25,
            "annotationdefaults": {"font": {"color": text}, "arrowcolor": text},
            "updatemenudefaults": {"bgcolor": background, "bordercolor": faint, "font": {"color": text}},
        }
    }


def make_figure(traces: Sequence[dict[str, Any]], *, title: str, height: int, dark: bool, **layout: Any) -> Figure:
    """A figure of traces given as dicts, in the look of all figures; `title` is escaped already."""
    import plotly.graph_objects as go

    return go.Figure(
        data=list(traces),
        layout={
            "template": template(dark),
            "title": {"text": title, "pad": {"t": 12 + 12 * title.count("<br>"), "l": 8}},
            "height": height,
            **layout,
        },
    )


def empty_figure(title: str, reason: str, dark: bool) -> Figure:
    """A figure that says why there is nothing to draw."""
    note = {"text": reason, "showarrow": False, "x": 0, "y": 0.5, "xref": "paper", "yref": "paper", "xanchor": "left", "font": {"size": 13}}
    axis = {"visible": False}
    return make_figure([], title=title, height=140, dark=dark, annotations=[note], xaxis=axis, yaxis=axis)
