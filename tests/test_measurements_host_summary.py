from building import MS, Build

from traceread.measurements.host_summary import HostTime, sum_host
from traceread.model import RangeKind


def test_time_counts_once_where_ranges_of_a_name_overlap():
    b = (
        Build()
        .range(0, 10 * MS, "load")
        .range(5 * MS, 12 * MS, "load", thread=2)
        .op(1 * MS, 2 * MS, "aten::mm")
        .call(3 * MS, 4 * MS, "cudaMalloc")
    )
    b.range(0, 50 * MS, "train.py(1): main", RangeKind.PYTHON)
    summary = sum_host(b.trace())
    assert (summary.start_ns, summary.end_ns) == (0, 50 * MS)
    assert summary.rows == (
        HostTime("load", "annotation", 2, 12 * MS),
        HostTime("aten::mm", "op", 1, MS),
        HostTime("cudaMalloc", "call", 1, MS),
    )


def test_the_longest_names_are_kept():
    b = Build()
    for i in range(30):
        b.range(0, i + 1, f"range {i}")
    assert [row.total_ns for row in sum_host(b.trace()).rows] == list(range(30, 10, -1))


def test_nothing_on_the_host():
    assert sum_host(Build().kernel(0, 1).trace()) is None
