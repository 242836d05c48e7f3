"""Whole runs: throughput and MFU over tokens seen, loss with its spikes, and where the GPU hours went."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from traceread.figures.labels import label
from traceread.figures.theme import COLORS, NEUTRAL, empty_figure, make_figure
from traceread.measurements.classes import StepClass
from traceread.runs.curve import Point, thinned
from traceread.runs.ledger import Part
from traceread.runs.spikes import Spike
from traceread.runs.summary import Runs, RunSummary
from traceread.units import part, plural, quantity

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_MOST = 2_000
"""Points of a line."""

_LINES = (
    COLORS[StepClass.COMPUTE],
    COLORS[StepClass.ALLOCATION],
    COLORS[StepClass.DATA_WAIT],
    COLORS[StepClass.EXPOSED_COMMUNICATION],
    COLORS[StepClass.HOST_SYNC],
    COLORS[StepClass.EXPOSED_COPY],
    COLORS[StepClass.COMPILE],
    NEUTRAL,
)
_SPIKE = COLORS[StepClass.DATA_WAIT]
_PARTS = {
    Part.PRODUCTIVE: ("productive", COLORS[StepClass.COMPUTE]),
    Part.REPEATED: ("done again", COLORS[StepClass.DATA_WAIT]),
    Part.CHECKPOINT: ("checkpoint", COLORS[StepClass.CHECKPOINT]),
    Part.EVALUATION: ("evaluation", COLORS[StepClass.ALLOCATION]),
    Part.BETWEEN: ("between segments", COLORS[StepClass.HOST_SYNC]),
    Part.OTHER: ("not logged", COLORS[StepClass.UNATTRIBUTED]),
}


def plot_throughput(runs: Runs, dark: bool = False) -> Figure:
    """Tokens per second of a GPU over the tokens seen, a line per run, and MFU below where it is known."""
    title = "throughput over the tokens seen"
    lines, each = _lines(runs, "tokens_per_s", "y")
    if not lines:
        return empty_figure(title, "no log says how many tokens were trained in which time", dark)
    mfu, _ = _lines(runs, "mfu", "y2")
    return _over_tokens([*lines, *mfu], _titled(title, each), ("tokens/s of a GPU", "MFU" if mfu else ""), runs, dark)


def plot_loss(runs: Runs, dark: bool = False) -> Figure:
    """The loss over the tokens seen with its spikes, and the norm of the gradient below where it is logged."""
    title = "loss over the tokens seen"
    lines, each = _lines(runs, "loss", "y")
    norms, each_norm = _lines(runs, "grad_norm", "y2")
    if not lines and not norms:
        return empty_figure(title, "no log has a loss", dark)
    spikes = [*_spikes(runs, "loss", "y"), *_spikes(runs, "grad_norm", "y2")]
    titles = ("loss", "gradient norm" if norms else "")
    return _over_tokens([*lines, *norms, *spikes], _titled(title, max(each, each_norm)), titles, runs, dark)


def plot_goodput(runs: Runs, dark: bool = False) -> Figure:
    """The GPU hours of every run by what came of them; the first part over the whole bar is goodput."""
    known = [r for r in runs.runs if r.ledger.allocated_ns]
    title = "where the GPU hours went"
    if not known:
        return empty_figure(title, "no log lasts long enough to take any time", dark)
    names = [label(r.history.name, 30) for r in known]
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "y": names,
            "x": [r.ledger.gpu_ns[which] / 3.6e12 for r in known],
            "marker": {"color": color},
            "hovertext": [
                f"{name}: {r.ledger.gpu_ns[which] / 3.6e12:,.2f} GPU hours, {part(r.ledger.gpu_ns[which] / r.ledger.allocated_ns)}"
                for r in known
            ],
            "hoverinfo": "y+text",
            "name": name,
        }
        for which, (name, color) in _PARTS.items()
        if any(r.ledger.gpu_ns[which] for r in known)
    ]
    goodput = "; ".join(f"{name} {part(r.ledger.goodput or 0.0)}" for name, r in list(zip(names, known, strict=True))[:4])
    return make_figure(
        bars,
        title=f"{title}<br><sup>goodput: {goodput}{' …' if len(known) > 4 else ''}</sup>",
        height=min(170 + 26 * len(known), 1_400),
        dark=dark,
        barmode="stack",
        xaxis={"title": {"text": "GPU hours"}},
        yaxis={"autorange": "reversed", "type": "category"},
    )


def _over_tokens(traces: Sequence[dict[str, Any]], title: str, titles: tuple[str, str], runs: Runs, dark: bool) -> Figure:
    upper, lower = titles
    return make_figure(
        traces,
        title=title,
        height=480 if lower else 340,
        dark=dark,
        xaxis={"anchor": "y2" if lower else "y", "title": {"text": "tokens" if _has_tokens(runs) else "steps (no tokens are logged)"}},
        yaxis={"domain": [0.4, 1] if lower else [0, 1], "title": {"text": upper}},
        yaxis2={"domain": [0, 0.3], "title": {"text": lower}, "tickformat": ".1%" if lower == "MFU" else ""},
    )


def _lines(runs: Runs, what: str, axis: str) -> tuple[list[dict[str, Any]], int]:
    """A line per run that has any such value, and how many intervals the coarsest one puts into a point."""
    lines, coarsest = [], 1
    for at, run in enumerate(runs.runs):
        if all(getattr(p, what) is None for p in run.curve):
            continue
        points, each = thinned(run.curve, _MOST)
        coarsest = max(coarsest, each)
        lines.append(_line(run, points, what, axis, at))
    return lines, coarsest


def _line(run: RunSummary, points: Sequence[Point], what: str, axis: str, at: int) -> dict[str, Any]:
    values = [getattr(p, what) for p in points]
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(points) < 40 else "lines",
        "x": [p.tokens or p.step for p in points],
        "y": [v if v is not None and math.isfinite(v) else None for v in values],
        "yaxis": axis,
        "line": {"color": _LINES[at % len(_LINES)], "width": 1.5},
        "hovertext": [_hover(p, what, v) for p, v in zip(points, values, strict=True)],
        "hoverinfo": "text+name",
        "name": label(run.history.name, 30),
        "legendgroup": str(at),
        "showlegend": axis == "y",
    }


def _hover(p: Point, what: str, value: float | None) -> str:
    shown = "" if value is None else part(value) if what == "mfu" else f"{value:,.6g}"
    return f"{what.replace('_per_s', '/s').replace('_', ' ')} {shown}<br>step {p.step:,}, {quantity(p.tokens)} tokens"


def _spikes(runs: Runs, what: str, axis: str) -> Iterator[dict[str, Any]]:
    """The spikes of all runs; what is no number stands at what was usual."""
    found = [s for r in runs.runs for s in r.spikes if s.what == what][:_MOST]
    if not found:
        return
    yield {
        "type": "scatter",
        "mode": "markers",
        "x": [s.tokens or s.step for s in found],
        "y": [s.value if math.isfinite(s.value) else s.usual for s in found],
        "yaxis": axis,
        "marker": {"color": _SPIKE, "symbol": "x", "size": 8},
        "hovertext": [_spike(s) for s in found],
        "hoverinfo": "text",
        "name": f"{plural(len(found), 'spike')} of {what.replace('_', ' ')}",
    }


def _spike(s: Spike) -> str:
    above = "" if s.z is None else f", {s.z:.1f} standard deviations above {s.usual:.4g}"
    batches = "".join(f"<br>batches of step {step:,}: {label(', '.join(map(str, ids)), 80)}" for step, ids in s.batch_ids)
    return f"{s.value:.4g} at step {s.step:,}{above}{batches}"


def _has_tokens(runs: Runs) -> bool:
    return any(p.tokens for r in runs.runs for p in r.curve)


def _titled(title: str, each: int) -> str:
    return title if each == 1 else f"{title}<br><sup>each point is the mean of {each:,} intervals</sup>"
