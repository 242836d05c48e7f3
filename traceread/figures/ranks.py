"""Ranks and steps as pictures: where ranks wait for each other, and how far apart they arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from traceread.figures.labels import exact, label
from traceread.figures.theme import BACKGROUND, COLORS, empty_figure, make_figure
from traceread.measurements.classes import StepClass
from traceread.measurements.ranks import RankTable
from traceread.measurements.waiting import Split
from traceread.units import percent, plural, unit_for

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_MOST_STEPS = 200
_MOST_RANKS = 24  # shown with a name each


def plot_waiting(table: RankTable, dark: bool = False) -> Figure:
    """Ranks (rows) and their used steps (columns): the share of the step that the rank waits for others.

    A rank that the others wait for is the row without colour. Steps that are not split stay empty.
    """
    title = "Waiting for other ranks"
    by_rank = [
        {name: (wait, length) for name, used, length, wait, transfer, rest in table.windows(r) if used and (wait or transfer or not rest)}
        for r in range(len(table.lines))
    ]
    names = list(dict.fromkeys(name for steps in by_rank for name in steps))[:_MOST_STEPS]
    if not table.split_count or not names:
        return empty_figure(title, "Waiting cannot be told from transfer: it takes at least two ranks of one group.", dark)
    cells = [[steps.get(name) for name in names] for steps in by_rank]
    hover = [
        [
            f"<b>rank {line.rank}</b>, {label(name)}<br>waits {exact(cell[0])}, {percent(*cell)} of the step" if cell else ""
            for name, cell in zip(names, row, strict=True)
        ]
        for line, row in zip(table.lines, cells, strict=True)
    ]
    if table.straggler is not None:
        title += f": rank {table.straggler.rank} is late"
    return make_figure(
        [
            {
                "type": "heatmap",
                "z": [[100 * cell[0] / cell[1] if cell and cell[1] else None for cell in row] for row in cells],
                "x": [label(name, 24) for name in names],
                "y": [f"rank {line.rank}" for line in table.lines],
                "hovertext": hover,
                "hoverinfo": "text",
                "colorscale": [[0, BACKGROUND[dark]], [1, COLORS[StepClass.EXPOSED_COMMUNICATION]]],
                "zmin": 0,
                "colorbar": {"ticksuffix": " %"},
            }
        ],
        title=title,
        height=min(160 + 22 * len(table.lines), 1200),
        dark=dark,
        xaxis={"type": "category", "showgrid": False},
        yaxis={"type": "category", "showgrid": False, "autorange": "reversed"},
    )


def plot_arrivals(table: RankTable, dark: bool = False) -> Figure:
    """Every compared operation with the lateness of each rank behind the first to arrive.

    In a healthy job the points lie on the floor; those of a straggler stand above all others. Of many ranks only those that cost
    the others most are named, the rest is grey.
    """
    m, w = table.matches, table.waiting
    rows = np.flatnonzero((w.split == Split.SPLIT) & (m.meeting >= 0))
    if not len(rows):
        return empty_figure("Arrival at collectives", "No collective of several loaded ranks was matched.", dark)
    longest = np.zeros(int(m.meeting.max()) + 1, np.int64)
    np.maximum.at(longest, m.meeting[rows], w.wait_ns[rows])
    late = longest[m.meeting[rows]] - w.wait_ns[rows]
    rank = m.rank_of[rows]
    scale, unit = unit_for(max(int(late.max()), 1))
    by_cost = sorted(range(len(table.lines)), key=lambda r: (-table.lines[r].charged_ns, r))
    shown, rest = sorted(by_cost[:_MOST_RANKS]), sorted(by_cost[_MOST_RANKS:])
    traces = []
    for name, which in [(f"rank {table.lines[r].rank}", [r]) for r in shown] + ([(plural(len(rest), "other rank"), rest)] if rest else []):
        mine = np.isin(rank, which)
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": m.meeting[rows][mine].tolist(),
                "y": (late[mine] / scale).tolist(),
                "marker": {"size": 5, "opacity": 0.3 if len(which) > 1 else 1},
                "hovertext": [f"<b>{name}</b> arrives {exact(ns)} after the first" for ns in late[mine].tolist()],
                "hoverinfo": "text",
            }
        )
    return make_figure(
        traces,
        title="Arrival at collectives, behind the first rank",
        height=380,
        dark=dark,
        xaxis={"title": {"text": "collective, in order"}},
        yaxis={"ticksuffix": f" {unit}", "rangemode": "tozero"},
    )
