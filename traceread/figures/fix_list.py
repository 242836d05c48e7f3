"""The fix list as a staircase: how the step shrinks from fix to fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traceread.figures.labels import exact, wrapped
from traceread.figures.theme import COLORS, NEUTRAL, empty_figure, make_figure
from traceread.findings import Finding
from traceread.rules.fix_list import REPLAYED, FixList
from traceread.units import duration, percent, plural, ratio, unit_for

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SHOWN = 12


def plot_fix_list(fixes: FixList, dark: bool = False) -> Figure:
    """The step now, and after each fix with all above it; where savings cannot be predicted, the size of each loss beside the step."""
    saving = [f for f in fixes.findings if f.saving_kind == REPLAYED and f.saving_ns]
    losing = [f for f in fixes.findings if f.saving_kind != REPLAYED and f.total_loss_ns]
    if saving:
        last = saving[-1].step_ns_after or 0
        title = f"Fix list: from {duration(fixes.step_ns)} to {duration(last)}, {ratio(fixes.step_ns, last, 2)} × faster"
        rows = [(f, f.saving_ns or 0, f.step_ns_after or 0) for f in saving]
    elif losing:
        title = f"Size of each loss, of {duration(fixes.step_ns)}; savings are not predicted"
        rows = [(f, f.total_loss_ns, fixes.step_ns - f.total_loss_ns) for f in losing]
    else:
        return empty_figure("Fix list", "No fix with a saving of at least 1 % of the step was found.", dark)
    left = len(rows) - _SHOWN
    if left > 0:
        title += f"; and {plural(left, 'smaller one')}"
    return _staircase(rows[:_SHOWN], fixes.step_ns, title, bool(saving), dark)


def _staircase(rows: list[tuple[Finding, int, int]], now: int, title: str, falls: bool, dark: bool) -> Figure:
    scale, unit = unit_for(now)
    ticks = ["<b>now</b>", *(f"{number}  {wrapped(f.title, 42)}" for number, (f, _, _) in enumerate(rows, 1))]
    kept = [now, *(after for _, _, after in rows)]
    gone = [0, *(saved for _, saved, _ in rows)]
    colors = [NEUTRAL, *(COLORS[f.step_class] if f.step_class is not None else NEUTRAL for f, _, _ in rows)]
    said = [duration(now), *(_beside(saved, after, now, falls) for _, saved, after in rows)]
    base: dict[str, Any] = {"type": "bar", "orientation": "h", "y": ticks, "showlegend": False, "hoverinfo": "text"}
    traces = [
        base | {"x": [ns / scale for ns in kept], "marker": {"color": NEUTRAL}, "hovertext": [exact(ns) for ns in kept]},
        base
        | {
            "x": [ns / scale for ns in gone],
            "marker": {"color": colors},
            "hovertext": ["", *(_hover(f, saved, now, falls) for f, saved, _ in rows)],
            "text": said,
            "textposition": "outside",
            "cliponaxis": False,
        },
    ]
    return make_figure(
        traces,
        title=title,
        height=100 + 50 * len(ticks),
        dark=dark,
        barmode="stack",
        bargap=0.35,
        xaxis={"ticksuffix": f" {unit}", "range": [0, 1.3 * now / scale]},
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False},
    )


def _beside(saved: int, after: int, now: int, falls: bool) -> str:
    return f"−{duration(saved)} → <b>{duration(after)}</b>" if falls else f"{duration(saved)}, {percent(saved, now)}"


def _hover(finding: Finding, saved: int, now: int, falls: bool) -> str:
    lines = [f"<b>{wrapped(finding.title, 60)}</b>"]
    lines.append(f"{'saves' if falls else 'loses'} {exact(saved)}, {percent(saved, now)}")
    if falls and finding.saving_alone_ns is not None:
        lines.append(f"by itself {exact(finding.saving_alone_ns)}")
    if finding.step_class is not None:
        lines.append(f"{finding.step_class.title}, {finding.confidence}")
    return "<br>".join(lines)
