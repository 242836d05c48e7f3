"""From the measured step down to the least it could take: one bar for everything that lies between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traceread.figures.floating_bars import FloatingBar, plot_floating_bars
from traceread.figures.labels import exact
from traceread.figures.theme import COLORS, NEUTRAL, empty_figure, hidden
from traceread.measurements.classes import StepClass
from traceread.measurements.efficiency import Efficiency
from traceread.measurements.reconciliation import Part
from traceread.units import duration, part, percent

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
    return plot_floating_bars([_bar(*row, found.whole_ns) for row in rows], found.whole_ns, title, dark)


def _bar(name: str, start: int, length: int, marker: dict[str, Any], whole: int) -> FloatingBar:
    share = percent(length, whole)
    return FloatingBar(name, start, length, marker, f"{duration(length)}, {share}", f"{exact(length)}, {share}")
