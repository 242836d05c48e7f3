"""Planning a training run: how long, on how many GPUs, at what price, and how often to write a checkpoint."""

from __future__ import annotations

from math import ceil, sqrt
from typing import Any

from traceread.records import record

HOUR_S = 3600
DAY_S = 24 * HOUR_S


@record
class TrainingPlan:
    """A run over a budget of tokens.

    Attributes:
        tokens: the budget.
        gpus: number of GPUs.
        tokens_per_s: of all GPUs.
        price_per_gpu_hour: in any currency, None if not known.
    """

    tokens: int
    gpus: int
    tokens_per_s: float
    price_per_gpu_hour: float | None = None

    @property
    def seconds(self) -> float:
        """Time of training."""
        return self.tokens / self.tokens_per_s

    @property
    def days(self) -> float:
        """Time of training in days."""
        return self.seconds / DAY_S

    @property
    def gpu_hours(self) -> float:
        """Time of training times GPUs, in hours."""
        return self.seconds * self.gpus / HOUR_S

    @property
    def price(self) -> float | None:
        """What the GPU hours cost."""
        return None if self.price_per_gpu_hour is None else self.gpu_hours * self.price_per_gpu_hour

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON builtins."""
        return {
            "tokens": self.tokens,
            "gpus": self.gpus,
            "tokens_per_s": self.tokens_per_s,
            "seconds": self.seconds,
            "days": self.days,
            "gpu_hours": self.gpu_hours,
            "price": self.price,
        }


def rate_at(mfu: float, flops_per_token: float, gpus: int, peak_flops: float) -> float:
    """Tokens per second of all GPUs at a utilisation."""
    return mfu * gpus * peak_flops / flops_per_token


def gpus_for(tokens: int, seconds: float, tokens_per_s_of_gpu: float) -> int:
    """The fewest GPUs that train on so many tokens in time, if each keeps up its rate."""
    return max(ceil(tokens / (seconds * tokens_per_s_of_gpu)), 1)


@record
class CheckpointPlan:
    """How often to write a checkpoint, by Young's first-order formula.

    Attributes:
        checkpoint_s: time that training stands still for a checkpoint, δ.
        mtbf_s: mean time between failures of the whole job, M.
        restart_s: from a failure until training goes on.
    """

    checkpoint_s: float
    mtbf_s: float
    restart_s: float = 0.0

    @property
    def interval_s(self) -> float:
        """Training between two checkpoints: √(2δM)."""
        return sqrt(2 * self.checkpoint_s * self.mtbf_s)

    @property
    def lost_share(self) -> float:
        """Share of the time that is lost: δ/τ for checkpoints, τ/2M for work done again, and restarts; at most all of it."""
        lost = self.checkpoint_s / self.interval_s + (self.interval_s / 2 + self.restart_s) / self.mtbf_s
        return min(lost, 1.0)

    @property
    def holds(self) -> bool:
        """Whether the formula does: checkpoints must be short beside the time between failures."""
        return self.interval_s < self.mtbf_s / 2

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON builtins."""
        return {
            "checkpoint_s": self.checkpoint_s,
            "mtbf_s": self.mtbf_s,
            "restart_s": self.restart_s,
            "interval_s": self.interval_s,
            "lost_share": self.lost_share,
            "holds": self.holds,
        }


@record
class Plan:
    """The answer of `traceread plan`; what was not asked for is None.

    Attributes:
        rate_source: where the rate comes from, in words.
        mfu: utilisation at that rate, None if not known.
        training: the budget of tokens at that rate.
        fixed: the same with everything in the fix list of the measured run.
        deadline_s, deadline_gpus: a deadline, and the GPUs that keep it.
        checkpoints: how often to write one.
    """

    rate_source: str = ""
    mfu: float | None = None
    training: TrainingPlan | None = None
    fixed: TrainingPlan | None = None
    deadline_s: float | None = None
    deadline_gpus: int | None = None
    checkpoints: CheckpointPlan | None = None

    @property
    def wall_s(self) -> float | None:
        """Training with checkpoints, failures and restarts; None without both, or where nothing would be left to train."""
        if self.training is None or self.checkpoints is None or self.checkpoints.lost_share >= 1:
            return None
        return self.training.seconds / (1 - self.checkpoints.lost_share)

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON builtins."""
        return {
            "rate_source": self.rate_source or None,
            "mfu": self.mfu,
            "training": None if self.training is None else self.training.to_dict(),
            "after_fixes": None if self.fixed is None else self.fixed.to_dict(),
            "deadline": None if self.deadline_gpus is None else {"seconds": self.deadline_s, "gpus": self.deadline_gpus},
            "checkpoints": None if self.checkpoints is None else self.checkpoints.to_dict(),
            "wall_s": self.wall_s,
        }
