"""Which steps are recorded: steps before, warm-up, recorded ones, and again after so many."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

_TIMED = 5


class Action(StrEnum):
    """What the profiler does during a step."""

    NOTHING = "nothing"
    WARM_UP = "warm up"
    RECORD = "record"
    RECORD_LAST = "record, then write"


@dataclass(frozen=True)
class Schedule:
    """A plan over steps numbered from 0.

    Attributes:
        wait: steps before the first warm-up.
        warmup: steps in which the profiler runs and keeps nothing.
        steps: recorded ones.
        every: from the first recorded step of one window to that of the next; None: one window.
    """

    wait: int = 10
    warmup: int = 3
    steps: int = 5
    every: int | None = None

    def __post_init__(self) -> None:
        if self.wait < 0 or self.warmup < 0 or self.steps < 1:
            raise ValueError("wait and warmup are 0 or more steps, steps is 1 or more")
        if self.every is not None and self.every < self.warmup + self.steps:
            raise ValueError(f"every={self.every} is shorter than a window of {self.warmup} + {self.steps} steps")

    @property
    def first(self) -> int:
        """The first recorded step."""
        return self.wait + self.warmup

    @property
    def untraced(self) -> tuple[int, int]:
        """The steps [first, end) before the first warm-up that are timed; the run's first step never is one. Empty if there are none."""
        return max(self.wait - _TIMED, min(1, self.wait)), self.wait

    def action(self, step: int) -> Action:
        """What happens during a step."""
        at = step - self.wait
        if self.every is not None and at >= 0:
            at %= self.every
        if at < 0 or at >= self.warmup + self.steps:
            return Action.NOTHING
        if at < self.warmup:
            return Action.WARM_UP
        return Action.RECORD_LAST if at == self.warmup + self.steps - 1 else Action.RECORD

    def window_of(self, step: int) -> int:
        """The first recorded step of the window that holds a recorded step."""
        return self.first if self.every is None else step - (step - self.first) % self.every
