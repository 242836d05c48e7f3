from building import MS, Build, analyse

from traceread.measurements.kernels import sum_kernels
from traceread.model import Category


def table(b, **more):
    trace = b.trace()
    _, steps, busy, _, _ = analyse(trace, **more)
    return {r.name: r for r in sum_kernels(trace, steps, busy).rows}, sum_kernels(trace, steps, busy)


def test_totals_sum_and_exposed_times_are_what_nothing_earlier_covers():
    b = Build().activity(0, 100, name="gemm").activity(50, 150, name="gemm", stream=8)
    b.activity(120, 300, name="allreduce", category=Category.COMMUNICATION, stream=9)
    b.activity(280, 400, name="copy", category=Category.COPY, stream=10)
    rows, whole = table(b)
    assert (rows["gemm"].count, rows["gemm"].total_ns, rows["gemm"].exposed_ns) == (2, 200, 150)
    assert (rows["allreduce"].total_ns, rows["allreduce"].exposed_ns) == (180, 150)
    assert (rows["copy"].total_ns, rows["copy"].exposed_ns) == (120, 100)
    assert whole.window_ns == 400
    assert rows["gemm"].mean_ns == 100


def test_only_used_steps_count_and_activities_are_cut_at_their_edges():
    b = Build()
    for i in range(3):
        b.range(i * MS, (i + 1) * MS, f"ProfilerStep#{i}").kernel(i * MS + 100, (i + 1) * MS, launch=(i * MS + 10, i * MS + 20))
    b.activity(MS // 2, 5 * MS // 2, name="long copy", category=Category.COPY, stream=9)
    rows, whole = table(b)
    assert (whole.steps, whole.window_ns) == (2, 2 * MS)
    assert rows["gemm"].count == 2
    assert (rows["long copy"].count, rows["long copy"].total_ns) == (0, 3 * MS // 2)
    assert rows["long copy"].exposed_ns == 200  # the two launch gaps; the rest is under gemm


def test_families_sum_their_names():
    b = Build().activity(0, 10, name="a").activity(10, 30, name="b").activity(30, 31, name="n", category=Category.COMMUNICATION)
    families = table(b)[1].by_family()
    assert [(f.category, f.count, f.total_ns) for f in families] == [("compute", 2, 30), ("communication", 1, 1)]


def test_no_activities_no_rows():
    assert table(Build())[1].rows == ()
    assert list(table(Build())[1].to_frame().columns)[:3] == ["name", "category", "family"]
