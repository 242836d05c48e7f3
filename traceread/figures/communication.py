"""Communication that compute hides, beside the communication that the step waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traceread.figures.labels import exact
from traceread.figures.theme import COLORS, empty_figure, faded, few_ticks, hidden, make_figure
from traceread.measurements.classes import StepClass
from traceread.report import Report
from traceread.units import duration, percent, unit_for

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_ROWS = 24


def plot_communication(report: Report, dark: bool = False) -> Figure:
    """Hidden and exposed communication of the mean used step of every rank."""
    summary = report.summary
    rows = []
    for r in report.ranks if summary is not None else ():
        used = r.used_rows(set(summary.steps) if summary else None) or r.used_rows()
        if used:
            exposed = int(r.partition.class_ns[used, StepClass.EXPOSED_COMMUNICATION].sum()) // len(used)
            rows.append((f"rank {r.rank}", int(r.partition.hidden_communication_ns[used].sum()) // len(used), exposed))
    if not any(under or open_ for _, under, open_ in rows):
        where = " in the used steps" if report.counts_steps else ""
        return empty_figure("Communication", f"No communication was recorded{where}.", dark)
    worst = max(rows, key=lambda row: row[2])
    per = " per step" if report.counts_steps else ""
    title = f"Communication{per}: {percent(worst[2], worst[1] + worst[2])} is exposed on {worst[0]} ({duration(worst[2])})"
    return _bars(rows, title, dark)


def _bars(rows: list[tuple[str, int, int]], title: str, dark: bool) -> Figure:
    upright = len(rows) > _ROWS
    scale, unit = unit_for(max(under + exposed for _, under, exposed in rows))
    color = COLORS[StepClass.EXPOSED_COMMUNICATION]
    ticks = [name for name, _, _ in rows]
    traces = []
    thin = len(rows) > 60
    parts = (
        ("hidden under compute", faded(color) if thin else hidden(color), [row[1] for row in rows]),
        ("exposed", {"color": color}, [row[2] for row in rows]),
    )
    for name, marker, times in parts:
        values = [ns / scale for ns in times]
        traces.append(
            {
                "type": "bar",
                "name": name,
                "orientation": "v" if upright else "h",
                "x": ticks if upright else values,
                "y": values if upright else ticks,
                "marker": marker,
                "hovertext": [
                    f"<b>{name}</b> on {row[0]}<br>{exact(ns)}, {percent(ns, row[1] + row[2])}" for row, ns in zip(rows, times, strict=True)
                ],
                "hoverinfo": "text",
            }
        )
    amount: dict[str, Any] = {"ticksuffix": f" {unit}", "rangemode": "tozero"}
    place: dict[str, Any] = {"type": "category", "showgrid": False} | (few_ticks(ticks) if upright else {"autorange": "reversed"})
    return make_figure(
        traces,
        title=title,
        height=380 if upright else 130 + 34 * len(rows),
        dark=dark,
        barmode="stack",
        bargap=0 if thin else 0.25,
        xaxis=place if upright else amount,
        yaxis=amount if upright else place,
    )
