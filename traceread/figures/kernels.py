"""Where the GPU's busy time went: kernel families, and the names with most of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from traceread.figures.labels import exact, kernel_label, label
from traceread.figures.theme import CATEGORY_COLORS, NEUTRAL, empty_figure, hidden, make_figure
from traceread.measurements.kernels import KernelTable, KernelTime
from traceread.units import duration, percent, plural, unit_for

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_FAMILIES = 20
_NOTHING = "No GPU work was recorded in the used steps."


def plot_families(kernels: KernelTable, dark: bool = False) -> Figure:
    """Time per step of each kernel family, longest first."""
    rows = kernels.by_family()
    if not rows:
        return empty_figure("Kernel families", _NOTHING, dark)
    top = rows[0]
    share = percent(top.total_ns, sum(r.total_ns for r in rows))
    title = f"Kernel families{_per(kernels)}: {label(top.family)} is {share} of all kernel time"
    return _bars(kernels, rows[:_FAMILIES], [label(r.family, 24) for r in rows[:_FAMILIES]], title, dark)


def plot_kernels(kernels: KernelTable, count: int = 15, dark: bool = False) -> Figure:
    """Time per step of the kernels and copies that the step waits for longest."""
    rows = sorted(kernels.rows, key=lambda r: (-r.exposed_ns, -r.total_ns, r.name))
    if not rows:
        return empty_figure("Kernels and copies", _NOTHING, dark)
    shown = rows[:count]
    title = f"Kernels and copies{_per(kernels)}: the {len(shown)} with most exposed time"
    if len(rows) > len(shown):
        title += f"; and {plural(len(rows) - len(shown), 'more name')}"
    return _bars(kernels, shown, [f"{kernel_label(r.name, 44)}  <b>{n}</b>" for n, r in enumerate(shown, 1)], title, dark)


def _per(kernels: KernelTable) -> str:
    return ", per step" if kernels.counts_steps else ""


def _bars(kernels: KernelTable, rows: Sequence[KernelTime], ticks: list[str], title: str, dark: bool) -> Figure:
    steps = max(kernels.steps, 1)
    scale, unit = unit_for(max(r.total_ns for r in rows) // steps)
    traces: list[dict[str, Any]] = []
    for category in dict.fromkeys(r.category for r in rows):
        color = CATEGORY_COLORS.get(category, NEUTRAL)
        mine = [(tick, r) for tick, r in zip(ticks, rows, strict=True) if r.category == category]
        for name, marker, hides in ((category, {"color": color}, False), (f"{category}, hidden", hidden(color), True)):
            values = [(r.total_ns - r.exposed_ns if hides else r.exposed_ns) / steps / scale for _, r in mine]
            if not any(values):
                continue
            traces.append(
                {
                    "type": "bar",
                    "name": name,
                    "orientation": "h",
                    "y": [tick for tick, _ in mine],
                    "x": values,
                    "marker": marker,
                    "hovertext": [_hover(r, kernels, steps) for _, r in mine],
                    "hoverinfo": "text",
                }
            )
    return make_figure(
        traces,
        title=title,
        height=130 + 24 * len(rows),
        dark=dark,
        barmode="stack",
        xaxis={"ticksuffix": f" {unit}", "rangemode": "tozero"},
        yaxis={"type": "category", "autorange": "reversed", "categoryorder": "array", "categoryarray": ticks, "showgrid": False},
    )


def _hover(r: KernelTime, kernels: KernelTable, steps: int) -> str:
    one, all_of_them = ("step", plural(steps, "step")) if kernels.counts_steps else ("capture", "the capture")
    lines = [
        f"<b>{kernel_label(r.name, 100)}</b>",
        f"exposed {exact(r.exposed_ns // steps)}, {percent(r.exposed_ns, kernels.window_ns)} of the {one}",
        f"total {exact(r.total_ns // steps)}",
    ]
    if r.count:
        lines.append(f"{r.count:,} in {all_of_them}, mean {duration(r.total_ns // r.count)}")
    return "<br>".join(lines)
