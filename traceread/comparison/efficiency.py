"""What the hardware gives on both sides: tokens per second, MFU, cost. Some of it holds even where step times cannot be compared."""

from __future__ import annotations

from typing import Any

from traceread.comparison.side import Side
from traceread.records import record


@record
class Used:
    """How one side uses its hardware; None where that is not known.

    Attributes:
        tokens_per_s: valid tokens of the whole job.
        mfu: model FLOPs utilisation.
        convention: the formula behind it.
        hfu: with what is computed again.
        compute_share: of the step in which the critical rank computes.
        cost_per_token: price of a valid token, in the currency of the price per GPU hour.
        goodput: GPU time of steps that count over all GPU time of the whole job, from its step log or run.json.
        cost_per_evaluation: price of the whole job for each of its evaluation points, from the same.
    """

    tokens_per_s: float | None
    mfu: float | None
    convention: str | None
    hfu: float | None
    compute_share: float
    cost_per_token: float | None
    goodput: float | None = None
    cost_per_evaluation: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """These figures as JSON builtins."""
        return {
            "tokens_per_s": self.tokens_per_s,
            "mfu": self.mfu,
            "convention": self.convention,
            "hfu": self.hfu,
            "compute_share": self.compute_share,
            "cost_per_token": self.cost_per_token,
            "goodput": self.goodput,
            "cost_per_evaluation": self.cost_per_evaluation,
        }


@record
class EfficiencyChange:
    """How both sides use their hardware."""

    before: Used
    after: Used

    @property
    def same_convention(self) -> bool:
        """Whether both MFUs are known, by the same formula."""
        return None not in (self.before.mfu, self.after.mfu) and self.before.convention == self.after.convention

    @property
    def mfu_ratio(self) -> float | None:
        """MFU after over before; None where they cannot be compared."""
        if not self.same_convention or not self.before.mfu or self.after.mfu is None:
            return None
        return self.after.mfu / self.before.mfu


def compare_efficiency(before: Side, after: Side) -> EfficiencyChange:
    """How both sides use their hardware."""
    return EfficiencyChange(_used(before), _used(after))


def _used(side: Side) -> Used:
    known = side.saved.efficiency
    tokens = known.get("tokens_per_s")
    rate = _number(tokens.get("valid")) if isinstance(tokens, dict) else None
    price, gpus = _number(side.run.get("price_per_gpu_hour")), _number(known.get("gpus"))
    mean = side.mean_ns
    return Used(
        tokens_per_s=rate,
        mfu=_number(known.get("mfu")),
        convention=known.get("convention") if isinstance(known.get("convention"), str) else None,
        hfu=_number(known.get("hfu")),
        compute_share=side.class_ns["compute"] / mean if mean else 0.0,
        cost_per_token=price * gpus / 3600 / rate if price and gpus and rate else None,
        goodput=_number(side.run.get("goodput")),
        cost_per_evaluation=_number(side.run.get("cost_per_evaluation")),
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
