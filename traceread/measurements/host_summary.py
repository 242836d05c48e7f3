"""What the host rows of a trace say by themselves, for captures in which no GPU work was recorded."""

from __future__ import annotations

import numpy as np

from traceread import intervals
from traceread.model import CodeColumn, IntColumn, RangeKind, Trace
from traceread.records import record

_KEPT = 20


@record
class HostTime:
    """One name on the host.

    Attributes:
        name: as recorded.
        kind: "annotation", "op" or "call".
        count: how often.
        total_ns: time during which at least one of them was open.
    """

    name: str
    kind: str
    count: int
    total_ns: int


@record
class HostSummary:
    """The host side of a trace.

    Attributes:
        start_ns, end_ns: from the first to the last row.
        rows: the names that were open longest, longest first.
    """

    start_ns: int
    end_ns: int
    rows: tuple[HostTime, ...]


def sum_host(trace: Trace) -> HostSummary | None:
    """What the host did, by name; None where there is no host row either."""
    tables = [t for t in (trace.calls, trace.ranges) if len(t)]
    if not tables:
        return None
    r, c = trace.ranges, trace.calls
    found = [HostTime(*row) for row in _longest(trace, "call", c.name, c.start_ns, c.end_ns)]
    for kind in (RangeKind.ANNOTATION, RangeKind.OP):
        mine = r.kind == kind
        found += [HostTime(*row) for row in _longest(trace, kind.name.lower(), r.name[mine], r.start_ns[mine], r.end_ns[mine])]
    return HostSummary(
        start_ns=min(int(t.start_ns.min()) for t in tables),
        end_ns=max(int(t.end_ns.max()) for t in tables),
        rows=tuple(sorted(found, key=lambda row: (-row.total_ns, row.name))[:_KEPT]),
    )


def _longest(trace: Trace, kind: str, name: CodeColumn, start: IntColumn, end: IntColumn) -> list[tuple[str, str, int, int]]:
    codes, of, count = np.unique(name, return_inverse=True, return_counts=True)
    summed = np.zeros(len(codes), np.int64)
    np.add.at(summed, of, end - start)
    rows = []
    for i in np.argsort(-summed, kind="stable")[:_KEPT].tolist():  # a sum is never less than its union
        mine = of == i
        rows.append((trace.names[codes[i]], kind, int(count[i]), intervals.union(start[mine], end[mine]).total))
    return rows
