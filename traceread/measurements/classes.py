"""The exclusive classes of a window's time and the reasons behind idle ones (sections 3 and 5 of the time model)."""

from __future__ import annotations

from enum import IntEnum


class StepClass(IntEnum):
    """What a nanosecond of a window is called; the value is the position in every table."""

    COMPUTE = 0
    EXPOSED_COMMUNICATION = 1
    EXPOSED_COPY = 2
    DATA_WAIT = 3
    HOST_SYNC = 4
    LAUNCH_BOUND = 5
    ALLOCATION = 6
    COMPILE = 7
    CHECKPOINT = 8
    PROFILER = 9
    QUEUED = 10
    UNATTRIBUTED = 11

    @property
    def key(self) -> str:
        """The name in JSON and tables, such as "data_wait"."""
        return self.name.lower()

    @property
    def title(self) -> str:
        """The name in sentences, such as "data wait"."""
        return "launch-bound" if self is StepClass.LAUNCH_BOUND else self.key.replace("_", " ")


CLASSES: tuple[str, ...] = tuple(c.key for c in StepClass)
"""Names of the classes in table order."""

IDLE_CLASSES: tuple[StepClass, ...] = tuple(c for c in StepClass if c > StepClass.EXPOSED_COPY)
"""The classes of a GPU that does nothing."""

HOST_CLASSES: frozenset[StepClass] = frozenset(
    (
        StepClass.DATA_WAIT,
        StepClass.HOST_SYNC,
        StepClass.LAUNCH_BOUND,
        StepClass.ALLOCATION,
        StepClass.COMPILE,
        StepClass.CHECKPOINT,
    )
)
"""Idle causes on the host; they need launch records."""


class Reason(IntEnum):
    """Why an idle interval got its class."""

    PROFILER_ROWS = 0
    NO_LAUNCH_RECORD = 1
    DISPATCH = 2
    DEPENDENCY = 3
    GRAPH_NODES_NOT_RECORDED = 4
    QUEUED_CAUSE_NOT_RECORDED = 5
    CODE_LOADING = 6
    LAUNCH_LATENCY = 7
    SLOW_CALL = 8
    BLOCKING_COPY = 9
    HOST_BLOCKED = 10
    HOST_SILENT = 11
    SILENT_BEFORE_INPUT_COPY = 12
    RESTART_AFTER_WAIT = 13
    HOST_EXECUTION = 14
    LAUNCHES_NOT_RECORDED = 15
    BETWEEN_CAPTURES = 16
    KERNELS_NOT_RECORDED = 17
    CLOCKS_DISAGREE = 18

    @property
    def text(self) -> str:
        """The reason in words."""
        return _TEXT[self]

    @property
    def recorded(self) -> bool:
        """False where the class is inferred from what is missing rather than read off a recorded row."""
        return self not in _INFERRED


_TEXT = {
    Reason.PROFILER_ROWS: "the profiler's own work",
    Reason.NO_LAUNCH_RECORD: "no launch record",
    Reason.DISPATCH: "already queued, dispatch",
    Reason.DEPENDENCY: "already queued, waits for another stream",
    Reason.GRAPH_NODES_NOT_RECORDED: "graph nodes not recorded",
    Reason.QUEUED_CAUSE_NOT_RECORDED: "already queued, cause not recorded",
    Reason.CODE_LOADING: "code loading",
    Reason.LAUNCH_LATENCY: "launch latency",
    Reason.SLOW_CALL: "slow call",
    Reason.BLOCKING_COPY: "synchronous or pageable copy",
    Reason.HOST_BLOCKED: "host blocked",
    Reason.HOST_SILENT: "host silent",
    Reason.SILENT_BEFORE_INPUT_COPY: "host silent before the step's first copy to the device",
    Reason.RESTART_AFTER_WAIT: "restart after the wait",
    Reason.HOST_EXECUTION: "host code between launches",
    Reason.LAUNCHES_NOT_RECORDED: "launches not recorded",
    Reason.BETWEEN_CAPTURES: "between two captures, nothing was recorded",
    Reason.KERNELS_NOT_RECORDED: "kernels not recorded",
    Reason.CLOCKS_DISAGREE: "clocks of host and GPU disagree",
}

_INFERRED = frozenset((Reason.SILENT_BEFORE_INPUT_COPY, Reason.RESTART_AFTER_WAIT, Reason.HOST_EXECUTION))
