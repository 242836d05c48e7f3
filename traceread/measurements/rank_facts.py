"""What the comparison of ranks needs of each of them."""

from __future__ import annotations

import numpy as np

from traceread.measurements.collectives import RankCollectives
from traceread.measurements.evidence import Gap, IdleNames
from traceread.measurements.idle import Idle
from traceread.measurements.kernels import KernelTable
from traceread.measurements.partition import Busy, Partition
from traceread.measurements.steps import Steps, Window
from traceread.model import IntColumn
from traceread.records import record


@record(eq=False)
class RankFacts:
    """One rank, as its own analysis left it.

    Attributes:
        rank: its number.
        world_size: number of ranks of the job as recorded.
        steps, partition, busy, idle, idle_names, kernels: its analysis.
        collectives: its communication kernels.
        gaps: its longest idle gaps with what explains them.
        launch_pace_ns: median time from launch to launch on its host, -1 if unknown.
    """

    rank: int
    world_size: int | None
    steps: Steps
    partition: Partition
    busy: Busy
    idle: Idle
    idle_names: IdleNames
    kernels: KernelTable
    collectives: RankCollectives
    gaps: tuple[Gap, ...]
    launch_pace_ns: int

    @property
    def used(self) -> IntColumn:
        """Positions of the used windows."""
        return np.flatnonzero(np.array(self.steps.used, bool))

    @property
    def used_windows(self) -> list[Window]:
        """The used windows."""
        return [w for w, used in zip(self.steps.windows, self.steps.used, strict=True) if used]

    @property
    def window_ns(self) -> int:
        """Length of the used windows together."""
        return sum(w.duration_ns for w in self.used_windows)

    def in_used_windows(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """For each collective whether it belongs to a used window."""
        used = np.append(np.array(self.steps.used, bool), False)
        result: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = used[self.collectives.collectives.window]
        return result
