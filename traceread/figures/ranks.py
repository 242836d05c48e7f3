"""Ranks and steps as pictures: where ranks wait for each other, and how far apart they arrive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceread.figures.labels import exact, label
from traceread.figures.theme import COLORS, NEUTRAL, empty_figure, make_figure
from traceread.measurements.classes import StepClass
from traceread.measurements.ranks import RankTable
from traceread.measurements.waiting import Split
from traceread.model import IntColumn
from traceread.units import percent, plural, unit_for

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_MOST_STEPS = 200
_MOST_OPERATIONS = 1000
RANK_COLORS = ("#7e4bc9", "#4a6fd6", "#2f8fb0", "#2aa38a", "#5fb35a", "#a3b53a", "#d7a93b", "#e07f4f")
"""For a few ranks side by side; a ramp, so that nobody takes them for classes."""
_FULL_COLOR = 5
"""Percent of a step: waiting must not look worse than it is where all of it is small."""


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
            f"<b>rank {line.rank}</b>, {label(name)}<br>waits {exact(cell[0])}, {percent(*cell)}" if cell else ""
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
                "colorscale": [[0, f"{COLORS[StepClass.EXPOSED_COMMUNICATION]}00"], [1, COLORS[StepClass.EXPOSED_COMMUNICATION]]],
                "zmin": 0,
                "zmax": max(_FULL_COLOR, *(100 * cell[0] / cell[1] for row in cells for cell in row if cell and cell[1])),
                "colorbar": {"ticksuffix": " %"},
            }
        ],
        title=title,
        height=min(160 + 22 * len(table.lines), 640),
        dark=dark,
        xaxis={"type": "category", "showgrid": False},
        yaxis={"type": "category", "showgrid": False, "autorange": "reversed"},
    )


def plot_arrivals(table: RankTable, dark: bool = False) -> Figure:
    """How late each rank arrives at the compared operations, behind the first to arrive.

    In a healthy job the points lie on the floor; those of a straggler stand above all others. The ranks that cost the others most
    have a colour; of the rest the latest is grey. Of more operations than a screen can show each point stands for several in a row.
    """
    m, w = table.matches, table.waiting
    rows = np.flatnonzero((w.split == Split.SPLIT) & (m.meeting >= 0))
    if not len(rows):
        return empty_figure("Arrival at collectives", "No collective of several loaded ranks was matched.", dark)
    meeting, rank = m.meeting[rows], m.rank_of[rows]
    longest = np.zeros(int(meeting.max()) + 1, np.int64)
    np.maximum.at(longest, meeting, w.wait_ns[rows])
    late = longest[meeting] - w.wait_ns[rows]
    scale, unit = unit_for(max(int(late.max()), 1))
    several = -(-len(longest) // _MOST_OPERATIONS)
    by_cost = sorted(range(len(table.lines)), key=lambda r: (-table.lines[r].charged_ns, r))
    named, rest = sorted(by_cost[: len(RANK_COLORS)]), by_cost[len(RANK_COLORS) :]
    lines = [(f"the latest of {plural(len(rest), 'other rank')}", rest, NEUTRAL)] if rest else []
    spread = max(len(named) - 1, 1)
    colors = [RANK_COLORS[i * (len(RANK_COLORS) - 1) // spread] for i in range(len(named))]
    lines += [(f"rank {table.lines[r].rank}", [r], color) for r, color in zip(named, colors, strict=True)]
    title = "Arrival at collectives, behind the first rank"
    return make_figure(
        [_arrivals(name, color, *_latest(meeting, late, np.isin(rank, which), several), scale) for name, which, color in lines],
        title=title if several == 1 else f"{title}; each point is the latest of {several} in a row",
        height=380,
        dark=dark,
        xaxis={"title": {"text": "collective, in order"}},
        yaxis={"ticksuffix": f" {unit}", "rangemode": "tozero"},
    )


def _latest(meeting: IntColumn, late: IntColumn, mine: npt.NDArray[np.bool_], several: int) -> tuple[IntColumn, IntColumn]:
    """The operations, of `several` in a row the first, and the latest arrival of these rows at them."""
    at, of = np.unique(meeting[mine] // several, return_inverse=True)
    latest = np.zeros(len(at), np.int64)
    np.maximum.at(latest, of, late[mine])
    return at * several, latest


def _arrivals(name: str, color: str, at: IntColumn, late: IntColumn, scale: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": at,
        "y": late / scale,
        "marker": {"size": 5, "color": color},
        "hovertext": [f"<b>{name}</b> arrives {exact(ns)} after the first" for ns in late.tolist()],
        "hoverinfo": "text",
    }
