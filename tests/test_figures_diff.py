"""Pictures of comparisons and histories say what their tables say."""

from functools import cache
from pathlib import Path

import pytest
from comparing import side
from test_history import at, history

import traceread
from traceread.comparison import compare
from traceread.errors import SelectionError
from traceread.figures import plot_difference, plot_side_by_side, plot_trend
from traceread.figures.theme import COLORS
from traceread.measurements.classes import StepClass
from traceread.reporters.diff import render_diff

SAMPLES = Path(__file__).parents[1] / "sample_traces" / "llama7b"
MS = 1_000_000


@cache
def reports():
    return tuple(traceread.analyze(SAMPLES / name) for name in ("before-nsys", "after-kineto"))


def test_the_waterfall_leads_from_before_to_after():
    diff = traceread.diff(*reports())
    bars = [(t.y[0], t.base[0], t.x[0]) for t in plot_difference(diff).data]
    assert bars[0][0] == "<b>before</b>"
    assert bars[-1][0] == "<b>after</b>"
    at = bars[0][2]
    for name, base, length in bars[1:-1]:
        start, at = at, at + (length if name.startswith("+") else -length)
        assert base == pytest.approx(min(start, at))
    assert at == pytest.approx(bars[-1][2])
    assert [name for name, *_ in bars[1:4]] == ["− exposed communication", "− data wait", "− host sync"]


def test_what_may_be_noise_is_hatched():
    before = [{"compute": 90 * MS, "data_wait": w * MS} for w in (5, 30, 10, 25)]
    after = [{"compute": 80 * MS, "data_wait": w * MS} for w in (12, 30, 20, 26)]
    fills = {t.y[0]: t.marker.pattern.shape for t in plot_difference(compare(side(before), side(after))).data}
    assert fills["+ data wait"] == "/"
    assert fills["− compute"] is None


def test_small_classes_share_a_bar():
    diff = compare(side([{"compute": 100 * MS, "queued": 5}] * 2), side([{"compute": 90 * MS, "queued": 50, "compile": 7}] * 2))
    names = [t.y[0] for t in plot_difference(diff).data]
    assert names == ["<b>before</b>", "− compute", "+ other", "<b>after</b>"]


def test_steps_lie_under_one_another_on_one_scale():
    before, after = reports()
    figure = plot_side_by_side(before, after)
    label = next(w.label for w in before.ranks[0].steps.windows if w.label in figure.layout.title.text)
    windows = [next(w for w in r.rank(r.summary.critical_rank).steps.windows if w.label == label) for r in (before, after)]
    assert figure.layout.xaxis.range[1] == pytest.approx(max(w.duration_ns for w in windows) / 1e9)
    for side_, window, report in zip(("before", "after"), windows, (before, after), strict=True):
        compute = next(t for t in figure.data if t.y and t.y[0] == f"{side_} · compute")
        row = report.rank(report.summary.critical_rank)
        index = row.steps.windows.index(window)
        assert sum(compute.x) == pytest.approx(row.partition.class_ns[index][0] / 1e9, rel=0.01)  # gaps too short to see are closed
    waits = [t for t in figure.data if t.name == "data wait"]
    assert [t.y[0] for t in waits] == ["before · idle"]
    assert waits[0].marker.color == COLORS[StepClass.DATA_WAIT]


def test_a_step_can_be_chosen():
    assert "ProfilerStep#13" in plot_side_by_side(*reports(), step="ProfilerStep#13").layout.title.text
    with pytest.raises(SelectionError, match="before has no step 'ProfilerStep#99'"):
        plot_side_by_side(*reports(), step="ProfilerStep#99")


def test_few_bars_are_drawn_however_many_kernels_there_are():
    assert sum(len(t.x) for t in plot_side_by_side(*reports()).data) < 2 * 4 * 2000


def test_the_trend_shows_every_report_and_the_level_of_the_first(tmp_path):
    found = history(tmp_path, *(at(d, mfu=0.4) for d in range(4)), at(5, 110 * MS, mfu=0.36))
    steps, level, mfu = plot_trend(found).data
    assert list(steps.y)[-1] == pytest.approx(110)
    assert level.name == "first 2"
    assert set(level.y) == {100}
    assert list(mfu.y)[-1] == 0.36
    assert "look at" in plot_trend(found).layout.title.text


@pytest.mark.parametrize("dark", [False, True])
def test_dark_and_light(dark, tmp_path):
    diff = traceread.diff(*reports())
    for figure in (plot_difference(diff, dark), plot_side_by_side(*reports(), dark=dark), plot_trend(history(tmp_path, at(0)), dark)):
        assert figure.layout.template.layout.paper_bgcolor == ("#16181d" if dark else "#ffffff")


def test_hostile_names_stay_text(tmp_path):
    found = history(tmp_path, at(0), job="<script>alert(1)</script>")
    assert "<script>" not in plot_trend(found).layout.title.text
    page = render_diff(compare(side([5, 6], title="<script>alert(1)</script>"), side([5, 6])), "html")
    assert "<script>alert(1)" not in page
    assert "A saved report holds no timeline" in page
    assert "side-by-side-plot" not in page


def test_the_page_has_every_part_and_asks_for_nothing():
    page = render_diff(traceread.diff(*reports()), "html")
    for title in ("Where the step went", "What became of the findings", "Whether it is a fair comparison", "2.90 s instead of 3.60 s"):
        assert title in page
    assert 'id="side-by-side-plot"' in page
    assert "A saved report holds no timeline" not in page
    assert 'src="http' not in page
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
