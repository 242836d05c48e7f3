"""A job from report to report: step time and MFU, against its own first measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traceread.figures.labels import exact, label
from traceread.figures.theme import COLORS, NEUTRAL, make_figure
from traceread.history import Entry, History
from traceread.measurements.classes import StepClass
from traceread.units import duration, percent, unit_for

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_OTHER = "circle-open"
_MARK = "circle"


def plot_trend(history: History, dark: bool = False) -> Figure:
    """The median step of every report with its slowest above, the level of the first ones, and MFU below; hollow: another workload."""
    entries = history.entries
    scale, unit = unit_for(max(e.max_ns for e in entries))
    with_mfu = [e for e in entries if e.mfu is not None]
    traces = [_steps(history, scale)]
    if history.baseline:
        traces.append(_level(history, scale))
    if with_mfu:
        traces.append(_mfu(history, with_mfu))
    alerts = "; ".join(a.question for a in history.alerts)
    title = f"{label(history.job, 40)}: a step takes {duration(history.last.median_ns)}" + (
        f"<br><sup>look at: {alerts}</sup>" if alerts else ""
    )
    lower = [0, 0.3]
    return make_figure(
        traces,
        title=title,
        height=420 if with_mfu else 320,
        dark=dark,
        xaxis={"anchor": "y2" if with_mfu else "y"},
        yaxis={"domain": [0.38, 1] if with_mfu else [0, 1], "ticksuffix": f" {unit}"},
        yaxis2={"domain": lower, "tickformat": ".0%", "title": {"text": "MFU"}},
    )


def _steps(history: History, scale: int) -> dict[str, Any]:
    entries = history.entries
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [e.at for e in entries],
        "y": [e.median_ns / scale for e in entries],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [(e.max_ns - e.median_ns) / scale for e in entries],
            "arrayminus": [0] * len(entries),
            "thickness": 1,
        },
        "line": {"color": COLORS[StepClass.COMPUTE]},
        "marker": {"size": 8, "symbol": [_MARK if e.workload == history.last.workload else _OTHER for e in entries]},
        "hovertext": [_hover(e) for e in entries],
        "hoverinfo": "text",
        "name": "median step, up to the slowest",
    }


def _level(history: History, scale: int) -> dict[str, Any]:
    from statistics import median

    first = median(e.median_ns for e in history.baseline)
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [history.alike[0].at, history.last.at],
        "y": [first / scale] * 2,
        "line": {"color": NEUTRAL, "dash": "dash"},
        "hoverinfo": "skip",
        "name": f"first {len(history.baseline)}" if len(history.baseline) > 1 else "first",
    }


def _mfu(history: History, entries: list[Entry]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [e.at for e in entries],
        "y": [e.mfu for e in entries],
        "yaxis": "y2",
        "line": {"color": COLORS[StepClass.ALLOCATION]},
        "marker": {"size": 7, "symbol": [_MARK if e.workload == history.last.workload else _OTHER for e in entries]},
        "hovertext": [_hover(e) for e in entries],
        "hoverinfo": "text",
        "name": "MFU",
    }


def _hover(e: Entry) -> str:
    mfu = "" if e.mfu is None else f"<br>MFU {percent(round(e.mfu * 10**9), 10**9)}"
    commit = f"<br>{label(e.commit, 40)}" if e.commit else ""
    return f"{e.at}{commit}<br>median step {exact(e.median_ns)}<br>slowest {exact(e.max_ns)}{mfu}<br>{label(e.workload, 80)}"
