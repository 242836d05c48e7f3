"""Values that jump, and rates that drop, against what was usual until then."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from traceread.records import record
from traceread.steplog import Entry

ALPHA = 0.01
"""Weight of a value in the running mean and variance."""
WARMUP = 200
"""Values before any is judged."""
LOSS_Z, GRAD_NORM_Z = 6.0, 8.0
"""Standard deviations above the running mean from which a value is a spike."""
DROP = 0.15
"""Share of tokens per second that is missing in a drop."""

_RECENT = 50
_AROUND = 2


@record
class Spike:
    """A value far above what was usual.

    Attributes:
        what: "loss" or "grad_norm".
        step: at which its interval ended.
        tokens: seen by then.
        value: it; not a number where training broke.
        usual: running mean before it.
        z: standard deviations above it; None for what is no number.
        batch_ids: batches of this interval and of those around it, with the step at which each ended.
    """

    what: str
    step: int
    tokens: int
    value: float
    usual: float
    z: float | None
    batch_ids: tuple[tuple[int, tuple[Any, ...]], ...]

    def to_dict(self) -> dict[str, Any]:
        """The spike as JSON builtins."""
        return {
            "what": self.what,
            "step": self.step,
            "tokens": self.tokens,
            "value": self.value if math.isfinite(self.value) else str(self.value),
            "usual": self.usual,
            "z": self.z,
            "batch_ids": [{"step": step, "ids": list(ids)} for step, ids in self.batch_ids],
        }


@record
class Drop:
    """Intervals in a row with far fewer tokens per second than was usual before.

    Attributes:
        first_step, last_step: steps at which the first and the last of them ended.
        tokens_per_s, usual: the least rate in it, and the median before it.
    """

    first_step: int
    last_step: int
    tokens_per_s: float
    usual: float

    def to_dict(self) -> dict[str, Any]:
        """The drop as JSON builtins."""
        return {"first_step": self.first_step, "last_step": self.last_step, "tokens_per_s": self.tokens_per_s, "usual": self.usual}


def find_spikes(entries: Sequence[Entry], what: str, z: float, warmup: int = WARMUP) -> list[Spike]:
    """Spikes of "loss" or "grad_norm" over intervals in order; what is no number is one whenever it comes.

    Mean and variance run exponentially with ALPHA (as plain ones over the first 1/ALPHA values) and do not learn from spikes.
    """
    mean = variance = 0.0
    seen = 0
    found: list[Spike] = []
    for at, entry in enumerate(entries):
        recorded = getattr(entry, what)
        if recorded is None:
            continue
        value = _number(recorded)
        away = value - mean
        deviation = math.sqrt(variance)
        if not math.isfinite(value):
            found.append(Spike(what, entry.step, entry.tokens, value, mean, None, _around(entries, at)))
            continue
        if seen >= warmup and away > z * deviation and away > 1e-9 * abs(mean):
            score = away / deviation if deviation else None
            found.append(Spike(what, entry.step, entry.tokens, value, mean, score, _around(entries, at)))
            continue
        seen += 1
        weight = max(ALPHA, 1 / seen)
        mean += weight * away
        variance = (1 - weight) * (variance + weight * away * away)
    return found


def find_drops(rates: Iterable[tuple[int, float]], share: float = DROP) -> list[Drop]:
    """Drops in (step, tokens per second) by order of steps: below 1 − share of the median of the last _RECENT usual ones."""
    usual: deque[float] = deque(maxlen=_RECENT)
    found: list[Drop] = []
    dropping = False
    for step, rate in rates:
        level = median(usual) if len(usual) >= 3 else None
        if level is not None and rate < (1 - share) * level:
            if dropping:
                last = found.pop()
                found.append(Drop(last.first_step, step, min(last.tokens_per_s, rate), last.usual))
            else:
                found.append(Drop(step, step, rate, level))
            dropping = True
        else:
            usual.append(rate)
            dropping = False
    return found


def _around(entries: Sequence[Entry], at: int) -> tuple[tuple[int, tuple[Any, ...]], ...]:
    near = entries[max(at - _AROUND, 0) : at + _AROUND + 1]
    return tuple((e.step, tuple(e.batch_ids)) for e in near if e.batch_ids)


def _number(value: float | str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan
