"""What steps went into: classes stacked, per rank or per step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from traceread.errors import SelectionError
from traceread.figures.labels import exact, label
from traceread.figures.theme import COLORS, empty_figure, few_ticks, make_figure, text_color, worth_a_legend
from traceread.measurements.classes import StepClass
from traceread.measurements.steps import StepSource
from traceread.records import record
from traceread.report import PartitionTable, RankReport, common_labels, median, shared_out
from traceread.units import duration, percent, plural, ratio, unit_for

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_ROWS = 24
"""More bars than these stand upright, without gaps or labels of their own."""
_MOST = 2000
"""More windows than these are drawn as means of several."""
_NOTHING = "No GPU work was recorded."


@record
class _Bar:
    """One stacked bar: where it stands, what it is called when hovered, ns per class, whether summaries use it."""

    tick: str
    title: str
    class_ns: tuple[int, ...]
    used: bool = True


def plot_ranks(partition: PartitionTable, dark: bool = False) -> Figure:
    """The mean step of every rank with its classes, over the steps that all of them use."""
    worked = [r for r in partition.ranks if r.steps.windows]
    if not worked:
        return empty_figure("Ranks", _NOTHING, dark)
    labels = set(common_labels(worked))
    bars, lengths = [], []
    for r in worked:
        rows = r.used_rows(labels) or r.used_rows()
        bars.append(_Bar(f"rank {r.rank}", f"rank {r.rank}", shared_out(r.partition.class_ns[rows].sum(axis=0).tolist(), len(rows))))
        lengths.append(sum(bars[-1].class_ns))
    whole = all(r.steps.source is StepSource.WHOLE_CAPTURE for r in worked)
    what = "Capture" if whole else "Mean step" if len(labels) > 1 else "Step"
    slowest, middle = max(lengths), median(lengths)
    if len(bars) == 1:
        return _stacked(bars, f"{what} of {bars[0].tick}: {duration(slowest)}", dark)
    apart = "all ranks alike" if 100 * slowest < 101 * middle else f"{ratio(slowest, middle)} × the median"
    return _stacked(bars, f"{what} of each rank: the slowest takes {duration(slowest)}, {apart}", dark)


def plot_steps(partition: PartitionTable, rank: int | None = None, dark: bool = False) -> Figure:
    """Every window of one rank (by default the one with the longest used steps) with its classes; what summaries leave out is pale.

    Raises:
        SelectionError: no such rank.
    """
    worked = [r for r in partition.ranks if r.steps.windows and (rank is None or r.rank == rank)]
    if not worked and rank is not None and rank not in {r.rank for r in partition.ranks}:
        raise SelectionError(f"no rank {rank} in this partition", f"ranks there are: {', '.join(str(r.rank) for r in partition.ranks)}")
    if not worked:
        return empty_figure("Steps", _NOTHING, dark)
    chosen = max(worked, key=lambda r: (_mean_used_ns(r), -r.rank))
    bars = _window_bars(chosen)
    group = -(-len(bars) // _MOST)
    if group > 1:
        bars = [_mean(bars[i : i + group]) for i in range(0, len(bars), group)]
    used = _used_ns(chosen)
    range_ = f", {duration(min(used))} to {duration(max(used))}" if len(used) > 1 else ""
    title = f"Steps of rank {chosen.rank}: {plural(len(used), 'used step')}{range_}"
    if chosen.steps.source is StepSource.WHOLE_CAPTURE:
        title = f"Capture of rank {chosen.rank}: {duration(sum(used))}"
    if not all(b.used for b in bars):
        title += "; pale: not used"
    return _stacked(bars, title if group == 1 else f"{title}; each bar is the mean of {group} windows", dark)


def _used_ns(rank: RankReport) -> list[int]:
    return [rank.steps.windows[i].duration_ns for i in rank.used_rows()]


def _mean_used_ns(rank: RankReport) -> float:
    used = _used_ns(rank)
    return sum(used) / len(used) if used else 0.0


def _window_bars(rank: RankReport) -> list[_Bar]:
    numbers = len({w.number for w in rank.steps.windows if w.number >= 0}) > 1
    return [
        _Bar(
            tick=f"{w.number}" if numbers and w.number >= 0 else label(w.label, 24),
            title=label(w.label, 60) + ("" if used else ", not used"),
            class_ns=tuple(rank.partition.class_ns[i].tolist()),
            used=used,
        )
        for i, (w, used) in enumerate(zip(rank.steps.windows, rank.steps.used, strict=True))
    ]


def _mean(bars: Sequence[_Bar]) -> _Bar:
    sums = [sum(column) for column in zip(*(b.class_ns for b in bars), strict=True)]
    title = bars[0].title if len(bars) == 1 else f"{bars[0].title} to {bars[-1].title}, mean"
    return _Bar(bars[0].tick, title, shared_out(sums, len(bars)), all(b.used for b in bars))


def _stacked(bars: Sequence[_Bar], title: str, dark: bool) -> Figure:
    upright = len(bars) > _ROWS
    scale, unit = unit_for(max(sum(b.class_ns) for b in bars))
    ticks = _distinct([b.tick for b in bars])
    traces = []
    for c in StepClass:
        if not any(b.class_ns[c] for b in bars):
            continue
        values = [b.class_ns[c] / scale for b in bars]
        marker: dict[str, Any] = {"color": COLORS[c], "opacity": [1 if b.used else 0.35 for b in bars]}
        traces.append(
            {
                "type": "bar",
                "name": c.title,
                "showlegend": any(worth_a_legend(b.class_ns[c], sum(b.class_ns)) for b in bars),
                "orientation": "v" if upright else "h",
                "x": ticks if upright else values,
                "y": values if upright else ticks,
                "marker": marker,
                "hovertext": [_hover(b, c) for b in bars],
                "hoverinfo": "text",
                "textposition": "none" if upright else "inside",
                "insidetextanchor": "middle",
                "textfont": {"color": text_color(COLORS[c])},
                "text": None if upright else [duration(b.class_ns[c]) if b.class_ns[c] else "" for b in bars],
            }
        )
    if not traces:
        return empty_figure(title, "No time passes in these windows.", dark)
    amount: dict[str, Any] = {"ticksuffix": f" {unit}", "rangemode": "tozero"}
    place: dict[str, Any] = {"type": "category", "showgrid": False}
    place |= few_ticks(ticks) if upright else {"autorange": "reversed"}
    axis = "yaxis" if upright else "xaxis"
    return make_figure(
        traces,
        title=title,
        height=420 if upright else 130 + 34 * len(bars),
        dark=dark,
        barmode="stack",
        bargap=0 if len(bars) > 60 else 0.25,
        xaxis=place if upright else amount,
        yaxis=amount if upright else place,
        uniformtext={"mode": "hide", "minsize": 10},
        updatemenus=[_units_menu(axis, unit)],
    )


def _units_menu(axis: str, unit: str) -> dict[str, Any]:
    """Two buttons: time, share of the step."""
    return {
        "type": "buttons",
        "direction": "right",
        "x": 1,
        "xanchor": "right",
        "y": 1.0,
        "yanchor": "bottom",
        "pad": {"b": 10},
        "showactive": False,  # the colour of the active one is the same in light and dark
        "buttons": [
            {"label": unit, "method": "relayout", "args": [{"barnorm": "", f"{axis}.ticksuffix": f" {unit}", f"{axis}.autorange": True}]},
            {"label": "%", "method": "relayout", "args": [{"barnorm": "percent", f"{axis}.ticksuffix": " %", f"{axis}.autorange": True}]},
        ],
    }


def _hover(bar: _Bar, c: StepClass) -> str:
    whole = sum(bar.class_ns)
    return f"<b>{c.title}</b> {percent(bar.class_ns[c], whole)}<br>{exact(bar.class_ns[c])}<br>{bar.title}: {exact(whole)}"


def _distinct(ticks: Sequence[str]) -> list[str]:
    """The ticks; of equal ones the later ones get spaces behind, which a category axis tells apart and nobody sees."""
    seen: dict[str, int] = {}
    result = []
    for tick in ticks:
        count = seen.get(tick, 0)
        seen[tick] = count + 1
        result.append(tick + "\N{ZERO WIDTH SPACE}" * count)
    return result
