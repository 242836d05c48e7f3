"""A run over the tokens it has seen: one point per interval that counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from traceread.records import record
from traceread.runs.history import RunHistory
from traceread.runs.ledger import Throughput, counted_intervals

_S = 10**9


@record
class Point:
    """An interval, or the mean of several neighbours.

    Attributes:
        t: when it ended, ns since 1970.
        step, tokens: done by then.
        tokens_per_s: of one GPU; None in a segment's warm-up, and where tokens are not logged.
        mfu: in it; None where that or the MFU of the run is not known.
        data_wait_ns: of a step.
        loss, grad_norm: nan and infinity as they are; None where not logged.
    """

    t: int
    step: int
    tokens: int
    tokens_per_s: float | None
    mfu: float | None
    data_wait_ns: int | None
    loss: float | None
    grad_norm: float | None

    def to_dict(self) -> dict[str, Any]:
        """The point by column."""
        return dict(vars(self))


def draw_curve(run: RunHistory, throughput: Throughput, warmup: int = 1) -> tuple[Point, ...]:
    """The intervals that count, in order of their steps."""
    mean, mfu = throughput.tokens_per_s_of_gpu, throughput.utilisation.mfu
    rates = {id(e): tokens * _S / (e.wall_ns * gpus) for e, tokens, gpus in counted_intervals(run, warmup) if e.wall_ns and tokens}
    points = []
    for e in run.kept:
        rate = rates.get(id(e))
        used = mfu * rate / mean if mfu is not None and rate and mean else None  # of one model and one peak it is proportional to the rate
        points.append(Point(e.t, e.step, e.tokens, rate, used, e.data_wait_ns, _value(e.loss), _value(e.grad_norm)))
    return tuple(points)


def thinned(points: Sequence[Point], most: int) -> tuple[Sequence[Point], int]:
    """At most so many points, each the mean of this many neighbours; what is no number is left to the spikes."""
    each = -(-len(points) // most) or 1
    if each == 1:
        return points, 1
    return [_mean(points[at : at + each]) for at in range(0, len(points), each)], each


def _mean(near: Sequence[Point]) -> Point:
    last = near[-1]
    values = {name: _mean_of([getattr(p, name) for p in near]) for name in ("tokens_per_s", "mfu", "loss", "grad_norm")}
    wait = _mean_of([p.data_wait_ns for p in near])
    return Point(last.t, last.step, last.tokens, data_wait_ns=None if wait is None else round(wait), **values)


def _mean_of(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None and math.isfinite(v)]
    return fmean(known) if known else None


def _value(recorded: float | str | None) -> float | None:
    if recorded is None:
        return None
    try:
        return float(recorded)
    except ValueError:
        return math.nan
