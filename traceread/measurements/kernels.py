"""Where the GPU's busy time went, by name and family, over the used windows of one rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from traceread import intervals
from traceread.categories import FAMILIES
from traceread.intervals import Intervals
from traceread.measurements.partition import Busy
from traceread.measurements.steps import Steps, StepSource
from traceread.model import Category, IntColumn, Trace
from traceread.records import record
from traceread.units import plural

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure


@record
class KernelTime:
    """One activity name over the used windows of a rank.

    Attributes:
        name: as recorded.
        category: compute, communication or copy.
        family: family of the category, such as gemm.
        count: activities that start in a used window.
        total_ns: their time inside used windows, summed (overlapping ones count twice).
        exposed_ns: time in which it runs and nothing of a class before its own does (compute before communication before
            copies); names of one class that overlap each have the whole overlap.
        fused: the kernel computes and communicates.
        op: the op or annotation that launches it, "" where that is not known.
    """

    name: str
    category: str
    family: str
    count: int
    total_ns: int
    exposed_ns: int
    fused: bool = False
    op: str = ""

    @property
    def mean_ns(self) -> float:
        """Mean time of one activity in ns."""
        return self.total_ns / self.count if self.count else 0.0


@record
class KernelTable:
    """Activity names of one rank, longest total first.

    Attributes:
        rows: one per name.
        steps: number of used windows the sums are over.
        window_ns: length of the used windows together.
        counts_steps: whether windows are steps; else the only one is the whole capture.
    """

    rows: tuple[KernelTime, ...]
    steps: int
    window_ns: int
    counts_steps: bool = True

    def by_family(self) -> tuple[KernelTime, ...]:
        """One row per (category, family), longest total first; `name` is the family, exposed times are summed over names."""
        sums: dict[tuple[str, str], list[int]] = {}
        for row in self.rows:
            total = sums.setdefault((row.category, row.family), [0, 0, 0])
            total[0] += row.count
            total[1] += row.total_ns
            total[2] += row.exposed_ns
        rows = [KernelTime(family, category, family, total[0], total[1], total[2]) for (category, family), total in sums.items()]
        return tuple(sorted(rows, key=lambda r: (-r.total_ns, r.name)))

    def with_ops(self, ops: Mapping[str, str]) -> KernelTable:
        """The table with the op that launches each name."""
        return replace(self, rows=tuple(replace(row, op=ops.get(row.name, "")) for row in self.rows))

    def __repr__(self) -> str:
        window = plural(self.steps, "step") if self.counts_steps else "the whole capture"
        return f"<KernelTable {plural(len(self.rows), 'name')}, {window}>"

    def _repr_html_(self) -> str:
        from traceread.reporters.notebook import kernels_html

        return kernels_html(self)

    def plot(self, dark: bool = False) -> Figure:
        """The kernels and copies that the step waits for longest."""
        from traceread.figures.kernels import plot_kernels

        return plot_kernels(self, dark=dark)

    def to_frame(self) -> pd.DataFrame:
        """One row per name: name, category, family, count, total_ns, exposed_ns, mean_ns, share (of the used windows)."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "name": r.name,
                    "category": r.category,
                    "family": r.family,
                    "count": r.count,
                    "total_ns": r.total_ns,
                    "exposed_ns": r.exposed_ns,
                    "mean_ns": r.mean_ns,
                    "share": r.exposed_ns / self.window_ns if self.window_ns else 0.0,
                }
                for r in self.rows
            ],
            columns=["name", "category", "family", "count", "total_ns", "exposed_ns", "mean_ns", "share"],
        )


def sum_kernels(trace: Trace, steps: Steps, busy: Busy) -> KernelTable:
    """The time of every activity name in the used windows of one rank."""
    used = [w for w, keep in zip(steps.windows, steps.used, strict=True) if keep]
    windows = intervals.union([w.start_ns for w in used], [w.end_ns for w in used])
    window_ns = sum(w.duration_ns for w in used)
    counts_steps = steps.source is not StepSource.WHOLE_CAPTURE
    a = trace.activities
    inside = intervals.covered(windows, a.start_ns, a.end_ns)
    starts = intervals.holds(windows, a.start_ns)
    starts_inside = np.flatnonzero(starts | (inside > 0))
    if not len(starts_inside):
        return KernelTable((), len(used), window_ns, counts_steps)
    codes, name = intervals.distinct(a.name[starts_inside].astype(np.int64))
    total = np.zeros(len(codes), np.int64)
    np.add.at(total, name, inside[starts_inside])
    count = np.bincount(name[starts[starts_inside]], minlength=len(codes))
    first = np.zeros(len(codes), np.int64)
    first[name[::-1]] = starts_inside[::-1]
    hidden_under = {
        Category.COMPUTE: intervals.EMPTY,
        Category.COMMUNICATION: busy.compute,
        Category.COPY: busy.compute_or_communication,
    }
    exposed = np.zeros(len(codes), np.int64)
    category = a.category[first]
    for kind, hiding in hidden_under.items():
        mine = starts_inside[a.category[starts_inside] == kind]
        group = name[a.category[starts_inside] == kind]
        start, end, of = intervals.union_per_group(a.start_ns[mine], a.end_ns[mine], group)
        np.add.at(exposed, of, _visible(start, end, windows, hiding))
    rows = [
        KernelTime(
            name=trace.names[code],
            category=Category(int(category[i])).name.lower(),
            family=FAMILIES[int(a.family[first[i]])],
            count=int(count[i]),
            total_ns=int(total[i]),
            exposed_ns=int(exposed[i]),
            fused=bool(a.fused[first[i]]),
        )
        for i, code in enumerate(codes.tolist())
    ]
    return KernelTable(tuple(sorted(rows, key=lambda r: (-r.total_ns, r.name))), len(used), window_ns, counts_steps)


def _visible(start: IntColumn, end: IntColumn, windows: Intervals, hiding: Intervals) -> IntColumn:
    """For each interval its ns inside the windows and not under the hiding set."""
    shown = intervals.subtract(windows, hiding)
    return intervals.covered(shown, start, end)
