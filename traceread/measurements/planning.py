"""Planning a training run: how long, on how many GPUs, at what price, and how often to write a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt

HOUR_S = 3600
DAY_S = 24 * HOUR_S


@dataclass(frozen=True)
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


def rate_at(mfu: float, flops_per_token: float, gpus: int, peak_flops: float) -> float:
    """Tokens per second of all GPUs at a utilisation."""
    return mfu * gpus * peak_flops / flops_per_token


def gpus_for(tokens: int, seconds: float, flops_per_token: float, peak_flops: float, mfu: float) -> int:
    """The fewest GPUs that train on so many tokens in time, if they keep up the utilisation."""
    return max(ceil(tokens * flops_per_token / (seconds * peak_flops * mfu)), 1)


@dataclass(frozen=True)
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
