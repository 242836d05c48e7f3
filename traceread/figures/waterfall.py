"""From the measured step down to the least it could take: one bar for everything that lies between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traceread.figures.labels import exact
from traceread.figures.theme import COLORS, NEUTRAL, empty_figure, hidden, make_figure
from traceread.measurements.classes import StepClass
from traceread.measurements.efficiency import Efficiency
from traceread.measurements.reconciliation import Part
from traceread.units import duration, part, percent, unit_for

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_ORDER = (Part.COMMUNICATION, Part.IMBALANCE, Part.HOST, Part.CHECKPOINT, Part.UNCLASSIFIED, Part.AGAIN)
_MARKERS: dict[Part, dict[str, Any]] = {
    Part.COMMUNICATION: {"color": COLORS[StepClass.EXPOSED_COMMUNICATION]},
    Part.IMBALANCE: hidden(COLORS[StepClass.EXPOSED_COMMUNICATION]),
    Part.HOST: {"color": COLORS[StepClass.HOST_SYNC]},
    Part.CHECKPOINT: {"color": COLORS[StepClass.CHECKPOINT]},
    Part.UNCLASSIFIED: {"color": COLORS[StepClass.UNATTRIBUTED]},
    Part.AGAIN: hidden(COLORS[StepClass.COMPUTE]),
}


def plot_waterfall(efficiency: Efficiency, dark: bool = False) -> Figure:
    """The measured step, what each part of the wall time takes of it, and what is left: the model's FLOPs at the GPU's peak.

    Where model or peak is not known it ends with the time of computing.
    """
    found, u = efficiency.reconciliation, efficiency.utilisation
    if not found.whole_ns:
        return empty_figure("From the measured step to the least one", "There is no step to take apart.", dark)
    least = u.time_of(u.model_flops)
    model = found.ns[Part.MODEL]
    rows: list[tuple[str, int, int, dict[str, Any]]] = [("<b>measured step</b>", 0, found.whole_ns, {"color": NEUTRAL})]
    left = found.whole_ns
    for which in _ORDER:
        if found.ns[which]:
            left -= found.ns[which]
            rows.append((f"− {which.words}", left, found.ns[which], _MARKERS[which]))
    if least is not None and least < model:
        rows.append(("− below the peak", least, model - least, hidden(NEUTRAL)))
        rows.append(("<b>model's FLOPs at the peak</b>", 0, least, {"color": COLORS[StepClass.COMPUTE]}))
        title = f"From the measured step to the least one: {duration(found.whole_ns)} to {duration(least)}"
        title += f", MFU {part(u.mfu)}" if u.mfu is not None else ""
    else:
        rows.append(("<b>computing</b>", 0, model, {"color": COLORS[StepClass.COMPUTE]}))
        title = f"From the measured step to computing alone: {duration(found.whole_ns)} to {duration(model)}"
    return _bars(rows, found.whole_ns, title, dark)


def _bars(rows: list[tuple[str, int, int, dict[str, Any]]], whole: int, title: str, dark: bool) -> Figure:
    scale, unit = unit_for(whole)
    ticks = [name for name, *_ in rows]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [name],
            "base": [start / scale],
            "x": [length / scale],
            "marker": marker,
            "text": [f"{duration(length)}, {percent(length, whole)}"],
            "textposition": "outside",
            "cliponaxis": False,
            "hovertext": [f"{name}<br>{exact(length)}, {percent(length, whole)} of the step"],
            "hoverinfo": "text",
            "showlegend": False,
        }
        for name, start, length, marker in rows
    ]
    return make_figure(
        traces,
        title=title,
        height=100 + 36 * len(rows),
        dark=dark,
        barmode="overlay",
        xaxis={"ticksuffix": f" {unit}", "range": [0, 1.25 * whole / scale]},
        yaxis={"type": "category", "autorange": "reversed", "categoryorder": "array", "categoryarray": ticks, "showgrid": False},
    )
