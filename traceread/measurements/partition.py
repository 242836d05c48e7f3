"""The partition: every nanosecond of a window in exactly one class (section 3 of the time model)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.intervals import Intervals
from traceread.measurements.classes import CLASSES, StepClass
from traceread.measurements.idle import Idle
from traceread.measurements.steps import Steps
from traceread.model import Category, IntColumn, Trace
from traceread.records import record

if TYPE_CHECKING:
    import pandas as pd


@record(eq=False)
class Busy:
    """When the device was busy, as unions over all its streams.

    Attributes:
        any: with anything.
        compute, communication, copy: with activities of one category; they may overlap.
    """

    any: Intervals
    compute: Intervals
    communication: Intervals
    copy: Intervals

    @property
    def compute_or_communication(self) -> Intervals:
        """When it computed or communicated; made anew each time, because reports keep these for every rank."""
        starts, ends = zip(self.compute, self.communication, strict=True)
        return intervals.union(np.concatenate(starts), np.concatenate(ends))


def find_busy(trace: Trace) -> Busy:
    """The unions of the device's activities, in all and per category."""
    a = trace.activities

    def of(category: Category) -> Intervals:
        mine = a.category == category
        return intervals.union(a.start_ns[mine], a.end_ns[mine])

    return Busy(
        any=intervals.union(a.start_ns, a.end_ns),
        compute=of(Category.COMPUTE),
        communication=of(Category.COMMUNICATION),
        copy=of(Category.COPY),
    )


@record(eq=False)
class Partition:
    """Class times of the windows of one rank; rows are parallel to `Steps.windows`.

    Attributes:
        class_ns: ns of each window (row) in each class (column, in the order of CLASSES); a row sums to its window.
        hidden_communication_ns: communication under compute, beside the partition.
        hidden_copy_ns: copies under compute or communication, beside the partition.
    """

    class_ns: npt.NDArray[np.int64]
    hidden_communication_ns: IntColumn
    hidden_copy_ns: IntColumn


def divide(steps: Steps, busy: Busy, idle: Idle) -> Partition:
    """The partition of every window.

    compute = W ∩ C, exposed communication = W ∩ N \\ C, exposed copies = W ∩ M \\ (C ∪ N), idle by cause.
    """
    start = np.array([w.start_ns for w in steps.windows], np.int64)
    end = np.array([w.end_ns for w in steps.windows], np.int64)
    compute = intervals.covered(busy.compute, start, end)
    together = busy.compute_or_communication
    no_copy = intervals.covered(together, start, end)
    class_ns = np.zeros((len(start), len(CLASSES)), np.int64)
    class_ns[:, StepClass.COMPUTE] = compute
    class_ns[:, StepClass.EXPOSED_COMMUNICATION] = no_copy - compute
    class_ns[:, StepClass.EXPOSED_COPY] = intervals.covered(busy.any, start, end) - no_copy
    np.add.at(class_ns, (idle.window, idle.cause), idle.end_ns - idle.start_ns)
    return Partition(
        class_ns=class_ns,
        hidden_communication_ns=intervals.covered(intervals.intersect(busy.communication, busy.compute), start, end),
        hidden_copy_ns=intervals.covered(intervals.intersect(busy.copy, together), start, end),
    )


def class_intervals(steps: Steps, busy: Busy, idle: Idle) -> dict[str, npt.NDArray[Any]]:
    """The windows as a sequence of intervals with one class each, in order: start_ns, end_ns, window, cls.

    They tile the windows; `cls` is the StepClass.
    """
    communication = intervals.subtract(busy.communication, busy.compute)
    copy = intervals.subtract(intervals.subtract(busy.copy, busy.compute), communication)
    cuts = intervals.unique(np.array([w.start_ns for w in steps.windows] + [w.end_ns for w in steps.windows], np.int64))
    starts, ends, classes = [idle.start_ns], [idle.end_ns], [idle.cause.astype(np.int64)]
    if len(cuts) > 1:
        for these, step_class in (
            (busy.compute, StepClass.COMPUTE),
            (communication, StepClass.EXPOSED_COMMUNICATION),
            (copy, StepClass.EXPOSED_COPY),
        ):
            for lo, hi in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
                part = intervals.clip(these, lo, hi)
                starts.append(part.start)
                ends.append(part.end)
                classes.append(np.full(len(part.start), step_class))
    start, end, cls = np.concatenate(starts), np.concatenate(ends), np.concatenate(classes)
    order = np.argsort(start, kind="stable")
    bounds = np.array([w.end_ns for w in steps.windows], np.int64)
    return {
        "start_ns": start[order],
        "end_ns": end[order],
        "window": np.searchsorted(bounds, start[order], side="right"),
        "class": cls[order],
    }


def intervals_frame(rank: int, steps: Steps, busy: Busy, idle: Idle) -> pd.DataFrame:
    """The intervals of one rank as a DataFrame: rank, step, start_ns, end_ns, duration_ns, class."""
    import pandas as pd

    rows = class_intervals(steps, busy, idle)
    labels = [w.label for w in steps.windows]
    return pd.DataFrame(
        {
            "rank": rank,
            "step": [labels[i] for i in rows["window"].tolist()],
            "start_ns": rows["start_ns"],
            "end_ns": rows["end_ns"],
            "duration_ns": rows["end_ns"] - rows["start_ns"],
            "class": pd.Categorical([CLASSES[c] for c in rows["class"].tolist()], categories=list(CLASSES)),
        }
    )
