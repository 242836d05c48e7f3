"""Whether two sets of steps differ by more than the steps of each differ among themselves.

One value per step. Ranks are no further values: they wait for each other in every step, so eight ranks of five steps are five
observations, not forty. Steps are not independent either (clocks, caches and the data drift), so the autocorrelation of neighbours is
estimated, taken one and a half standard errors larger than that, and put into the error of the difference. What the quotient of the two
may be without a difference is simulated: a parametric bootstrap of first-order autoregressive steps, as many as were captured, at
autocorrelations of 0, 0.6 and 0.8, with a fixed seed. The interval covers the steps of these two captures. What changes from one start
of a job to the next (nodes, neighbours, temperature) is in no capture of one start.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from traceread.records import record
from traceread.report import median

FEWEST = 2
"""Steps a side below which nothing can be said about spread."""

MOST_NEEDED = 10_000
"""More steps than anybody would capture."""

_POWER_Z = 0.8416  # of a normal distribution, 80 % lie below
_NORMAL = 1.96  # and 97.5 % below this
_CALIBRATED = ((0.0, 0.95), (0.6, 0.95), (0.8, 0.93))  # autocorrelations, and the share of undisturbed pairs that the interval must hold
_STANDARD_ERRORS = 1.5  # by which the autocorrelation is taken larger than it is estimated
_STRONGEST = 0.95
_DRAWS = 10_000
_LARGEST_DRAWN = 64
_SEED = 20_240_229
_STALL_SHARE, _STALL_SPREADS = 10, 5  # a stall is longer than the median by a tenth, and by five times the spread of the steps
_MAD_TO_SIGMA = 1.4826

Floats = npt.NDArray[np.float64]


class Verdict(StrEnum):
    """What the steps show."""

    FASTER = "faster"
    SLOWER = "slower"
    NONE = "no difference that these steps can show"
    TOO_FEW = "too few steps to say"
    NOT_COMPARABLE = "not comparable"
    NO_STEPS = "no steps to compare"

    @property
    def is_difference(self) -> bool:
        """Whether it says that the sides differ."""
        return self in (Verdict.FASTER, Verdict.SLOWER)


@record
class Difference:
    """The difference of two means, or of two medians, with what the steps say about it.

    Attributes:
        before_ns, after_ns: the mean or median step of each side.
        before_steps, after_steps: how many steps.
        error_ns: half of the 95 % interval around the difference; None with too few steps.
        verdict: what they show.
        visible_ns: the smallest difference that as many steps show four times out of five; None with too few steps.
        scatter_ns: by how much a step scatters, with the drag of its neighbours on the mean; None with too few steps.
    """

    before_ns: int
    after_ns: int
    before_steps: int
    after_steps: int
    error_ns: int | None
    verdict: Verdict
    visible_ns: int | None
    scatter_ns: float | None

    @property
    def difference_ns(self) -> int:
        """After minus before."""
        return self.after_ns - self.before_ns

    @property
    def interval_ns(self) -> tuple[int, int] | None:
        """The 95 % interval of the difference."""
        return None if self.error_ns is None else (self.difference_ns - self.error_ns, self.difference_ns + self.error_ns)

    @property
    def steps_needed(self) -> int | None:
        """Steps a side that would show the difference seen; see `steps_to_show`."""
        return self.steps_to_show(self.difference_ns)

    def steps_to_show(self, difference_ns: int) -> int | None:
        """Steps a side that show a difference of this size four times out of five: 2 (z + z')² σ² over its square.

        The formula is that of many steps; where these steps do not show it, it is more than there are. None where the scatter is not
        known, the difference is nothing, or more than MOST_NEEDED were needed.
        """
        if self.scatter_ns is None or not difference_ns:
            return None
        steps = 2 * ((_NORMAL + _POWER_Z) * self.scatter_ns / difference_ns) ** 2
        hidden = self.visible_ns is not None and abs(difference_ns) < self.visible_ns
        fewest = min(self.before_steps, self.after_steps) if hidden else FEWEST
        return max(int(np.ceil(steps)), fewest + 1) if steps <= MOST_NEEDED else None

    def to_dict(self) -> dict[str, Any]:
        """The difference as JSON builtins."""
        interval = self.interval_ns
        return {
            "before_ns": self.before_ns,
            "after_ns": self.after_ns,
            "difference_ns": self.difference_ns,
            "interval_ns": None if interval is None else list(interval),
            "steps": [self.before_steps, self.after_steps],
            "verdict": str(self.verdict),
            "visible_ns": self.visible_ns,
            "steps_needed": self.steps_needed,
        }


def compare_means(before: Sequence[int], after: Sequence[int], means_ns: tuple[int, int] | None = None) -> Difference:
    """The difference of the mean steps.

    Args:
        before: a time in ns for every step.
        after: the same of the other side.
        means_ns: the means where they are known in whole ns that add up with others.
    """
    return _compare(before, after, means_ns or (_rounded_mean(before), _rounded_mean(after)), typical=False)


def compare_medians(before: Sequence[int], after: Sequence[int]) -> Difference:
    """The difference of the median steps, which rare stalls do not move."""
    return _compare(before, after, (median(before), median(after)) if len(before) and len(after) else (0, 0), typical=True)


def count_stalls(steps: Sequence[int]) -> int:
    """Steps that stand out: longer than the median by a tenth, and by five times the spread of the others."""
    if len(steps) <= FEWEST:
        return 0
    middle = median(steps)
    spread = _MAD_TO_SIGMA * median([abs(ns - middle) for ns in steps])
    return sum(_STALL_SHARE * (ns - middle) > middle and ns - middle > _STALL_SPREADS * spread for ns in steps)


def _compare(before: Sequence[int], after: Sequence[int], centres: tuple[int, int], typical: bool) -> Difference:
    sizes = len(before), len(after)
    if min(sizes) < FEWEST:
        return Difference(*centres, *sizes, None, Verdict.TOO_FEW, None, None)
    difference = centres[1] - centres[0]
    origin = centres[0]  # floats hold what is left to far below a nanosecond
    x, y = (np.array([[ns - origin for ns in side]], np.float64) for side in (before, after))
    found = _estimate(x, y, typical)
    error = float(found.error[0])
    factor = _critical(min(sizes), max(sizes), typical)
    half = round(factor * error)
    shown = difference and abs(difference) > factor * error
    verdict = Verdict.NONE if not shown else Verdict.SLOWER if difference > 0 else Verdict.FASTER
    phi = float(np.clip(found.autocorrelation[0], 0, _STRONGEST))
    return Difference(
        *centres,
        *sizes,
        error_ns=half,
        verdict=verdict,
        visible_ns=round((factor + _POWER_Z) * error),
        scatter_ns=float(np.sqrt(found.variance[0] * (1 + phi) / (1 - phi))),
    )


@record
class _Estimates:
    """What rows of steps say, one number a row.

    Attributes:
        difference: of the centres.
        error: standard error of it.
        variance: of one step, mean over the sides.
        autocorrelation: of neighbouring steps.
    """

    difference: Floats
    error: Floats
    variance: Floats
    autocorrelation: Floats


def _estimate(x: Floats, y: Floats, typical: bool) -> _Estimates:
    """Estimates for each row of steps of the two sides."""
    n, m = x.shape[1], y.shape[1]
    centre = (lambda steps: np.median(steps, axis=1)) if typical else (lambda steps: steps.mean(axis=1))
    difference = centre(y) - centre(x)
    if typical:
        x, y = _clipped(x), _clipped(y)
    rx, ry = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    squares_x, squares_y = (rx**2).sum(axis=1), (ry**2).sum(axis=1)
    raw = ((rx[:, 1:] * rx[:, :-1]).sum(axis=1) + (ry[:, 1:] * ry[:, :-1]).sum(axis=1)) / np.maximum(squares_x + squares_y, 1e-30)
    size = (n + m) / 2
    # taking the mean away lowers the estimate by about (1 + 3φ)/n (Kendall 1954); φ is taken as 2/3 here: with few steps, dividing by
    # 1 − 3/n instead makes steps that scatter look correlated, and a difference of ten times the scatter is missed
    phi = np.clip(raw + 3 / size, -0.5, _STRONGEST)
    upper = np.clip(phi + _STANDARD_ERRORS * np.sqrt((1 - phi**2) / (n + m - 2)), 0, _STRONGEST)
    inflation_x, inflation_y = _inflation(n, upper), _inflation(m, upper)
    variance_x = squares_x / np.maximum(n - inflation_x, 0.2)
    variance_y = squares_y / np.maximum(m - inflation_y, 0.2)
    squared_error = variance_x * inflation_x / n + variance_y * inflation_y / m
    if typical:
        squared_error = squared_error * (np.pi / 2)  # a median of normal values scatters so much more than their mean
    return _Estimates(difference, np.sqrt(squared_error), (squares_x + squares_y) / (n + m - 2), phi)


def _inflation(n: int, phi: Floats) -> Floats:
    """How much more the mean of n neighbours scatters than that of independent ones: 1 + 2 Σ (1 − k/n) φ^k."""
    total = 1 + 2 * phi / (1 - phi) - 2 * phi * (1 - phi**n) / (n * (1 - phi) ** 2)
    return np.asarray(np.maximum(total, 1.0), np.float64)


def _clipped(steps: Floats) -> Floats:
    """Rows of steps whose outliers were moved to three spreads from the median."""
    middle = np.median(steps, axis=1, keepdims=True)
    spread = 3 * _MAD_TO_SIGMA * np.median(np.abs(steps - middle), axis=1, keepdims=True)
    return np.clip(steps, middle - spread, middle + spread)


@cache
def _critical(fewer: int, more: int, typical: bool) -> float:
    """The quotient of difference and error that undisturbed pairs stay below, as many of them as `_CALIBRATED` says.

    More steps than `_LARGEST_DRAWN` are not simulated; for those it is at least that of a normal distribution.
    """
    rng = np.random.default_rng(_SEED)
    factors = [_NORMAL] if more > _LARGEST_DRAWN else []
    for phi, share in _CALIBRATED:
        x, y = (_autocorrelated(rng, min(steps, _LARGEST_DRAWN), phi) for steps in (fewer, more))
        found = _estimate(x, y, typical)
        factors.append(float(np.quantile(np.abs(found.difference) / np.maximum(found.error, 1e-30), share)))
    return max(factors)


def _autocorrelated(rng: np.random.Generator, steps: int, phi: float) -> Floats:
    """Rows of steps of variance 1 whose neighbours are correlated so much."""
    values = rng.standard_normal((_DRAWS, steps))
    fresh = np.sqrt(1 - phi**2)
    for i in range(1, steps):
        values[:, i] = phi * values[:, i - 1] + fresh * values[:, i]
    return values


def _rounded_mean(values: Sequence[int]) -> int:
    return (2 * sum(values) + len(values)) // (2 * len(values)) if len(values) else 0
