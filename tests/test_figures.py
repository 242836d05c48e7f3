"""Every figure of every profile: a Figure, in light and dark, with exact numbers behind the bars and names as plain text."""

import json
from dataclasses import replace
from importlib.util import find_spec

import plotly.graph_objects as go
import pytest
import reporter_profiles as profiles
from building import MS

from traceread import figures
from traceread.errors import OutputError, SelectionError
from traceread.figures.timeline import evidence_marks
from traceread.findings import Evidence, Finding
from traceread.measurements.classes import StepClass
from traceread.rules.fix_list import FixList
from traceread.run import Described, ModelShape, Run, Tokens

EVERYTHING = profiles.everything()


def every_figure(report, dark=False):
    yield "ranks", figures.plot_ranks(report.partition, dark)
    yield "steps", figures.plot_steps(report.partition, dark=dark)
    yield "fix list", figures.plot_fix_list(report.fix_list, dark)
    yield "communication", figures.plot_communication(report, dark)
    yield "waiting", figures.plot_waiting(report.rank_table, dark)
    yield "arrivals", figures.plot_arrivals(report.rank_table, dark)
    if report.efficiency is not None:
        yield "waterfall", figures.plot_waterfall(report.efficiency, dark)
    for r in report.ranks[:2]:
        yield f"families {r.rank}", figures.plot_families(r.kernels, dark)
        yield f"kernels {r.rank}", figures.plot_kernels(r.kernels, dark=dark)
        if r.timeline is not None:
            yield f"timeline {r.rank}", figures.plot_timeline(r.timeline, report.findings, dark)
            yield f"queue {r.rank}", figures.plot_queue_depth(r.timeline, dark)


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key != "template":
                yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def texts(figure):
    return list(strings(json.loads(figure.to_json())))


def traces(figure):
    return {t.name: t for t in figure.data}


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", EVERYTHING)
def test_every_figure_of_every_profile(name, dark):
    for what, figure in every_figure(EVERYTHING[name](), dark):
        assert isinstance(figure, go.Figure), what
        assert figure.layout.title.text, what
        assert 100 <= figure.layout.height <= 1500, what
        assert len(figure.to_json()) < 400_000, what


def test_names_are_no_markup():
    for what, figure in every_figure(profiles.hostile()):
        for text in texts(figure):
            for tag in ("<script", "<a ", "<img"):
                assert tag not in text.lower(), (what, text)
            assert "\x1b" not in text
    [hover] = [t for t in texts(figures.plot_kernels(profiles.hostile().ranks[0].kernels)) if t.startswith("<b>") and "alert(1)" in t][:1]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in hover


def test_bars_of_ranks_are_the_mean_classes():
    report = profiles.four_ranks()
    found = traces(figures.plot_ranks(report.partition))
    assert list(found["compute"].y) == ["rank 0", "rank 1", "rank 2", "rank 3"]
    mean = {name: dict(zip(t.y, t.x, strict=True)) for name, t in found.items()}
    of_rank_2 = sum(values["rank 2"] for values in mean.values())
    assert of_rank_2 == pytest.approx(dict(report.summary.rank_mean_ns)[2] / MS, abs=1e-6)
    critical = report.summary.critical_rank
    assert mean["data wait"][f"rank {critical}"] == pytest.approx(report.summary.class_ns[StepClass.DATA_WAIT] / MS)
    assert f"{report.summary.class_ns[StepClass.DATA_WAIT]:,} ns" in found["data wait"].hovertext[critical]


def test_many_ranks_stand_upright_and_none_is_left_out():
    found = traces(figures.plot_ranks(profiles.many_ranks().partition))
    assert len(found["compute"].x) == 64
    assert found["compute"].orientation == "v"


def test_steps_show_every_window_and_which_are_not_used():
    report = profiles.one_rank()
    figure = figures.plot_steps(report.partition)
    compute = traces(figure)["compute"]
    assert list(compute.y) == ["10", "11", "12", "13"]
    assert list(compute.marker.opacity) == [0.35, 1, 1, 1]
    assert "pale: not used" in figure.layout.title.text
    total = sum(t.x[2] for t in figure.data)
    assert total == pytest.approx(report.ranks[0].steps.windows[2].duration_ns / MS)


def test_windows_of_one_name_have_bars_of_their_own():
    report = profiles.one_rank()
    rank = report.ranks[0]
    same = tuple(replace(w, label="between steps", number=-1) for w in rank.steps.windows)
    changed = replace(report, ranks=(replace(rank, steps=replace(rank.steps, windows=same)),))
    assert len(set(traces(figures.plot_steps(changed.partition))["compute"].y)) == 4


def test_thousands_of_windows_are_drawn_as_means(monkeypatch):
    monkeypatch.setattr("traceread.figures.partition._MOST", 2)
    figure = figures.plot_steps(profiles.one_rank().partition)
    assert "each bar is the mean of 2 windows" in figure.layout.title.text
    assert len(figure.data[0].x) == 2


def test_steps_of_a_rank_that_is_not_there():
    with pytest.raises(SelectionError):
        figures.plot_steps(profiles.one_rank().partition, rank=99)


def finding(title, saving, after, step_class=StepClass.DATA_WAIT, kind="replayed", **more):
    return Finding(
        title, loss_ns=((step_class, saving),), saving_ns=saving, saving_alone_ns=saving, saving_kind=kind, step_ns_after=after, **more
    )


def test_the_staircase_falls():
    fixes = FixList(
        (finding("late <batch>", 5 * MS, 35 * MS), finding("b", 2 * MS, 33 * MS), finding("no more", 0, 33 * MS)), step_ns=40 * MS
    )
    figure = figures.plot_fix_list(fixes)
    kept, gone = figure.data
    assert list(kept.x) == [40, 35, 33]
    assert list(gone.x) == [0, 5, 2]
    assert gone.text[1] == "−5.00 ms → <b>35.0 ms</b>"
    assert kept.y[1] == "1  late &lt;batch&gt;"
    assert figure.layout.title.text == "Fix list: from 40.0 ms to 33.0 ms, 1.21 × faster"


def test_without_predictions_losses_stand_beside_the_step():
    loss = replace(finding("big", 5 * MS, None, kind="size of the loss"), saving_ns=None)
    figure = figures.plot_fix_list(FixList((loss,), step_ns=40 * MS))
    assert list(figure.data[1].x) == [0, 5]
    assert "not predicted" in figure.layout.title.text


def test_a_long_fix_list_says_what_it_leaves_out():
    fixes = FixList(tuple(finding(f"fix {i}", MS, (39 - i) * MS) for i in range(15)), step_ns=40 * MS)
    figure = figures.plot_fix_list(fixes)
    assert len(figure.data[0].x) == 13
    assert figure.layout.title.text.endswith("; and 3 smaller ones")


def test_communication_is_hidden_or_exposed():
    report = profiles.one_rank()
    hidden, exposed = figures.plot_communication(report).data
    rank = report.ranks[0]
    used = rank.used_rows()
    assert hidden.x[0] == pytest.approx(rank.partition.hidden_communication_ns[used].mean() / MS)
    assert exposed.x[0] == pytest.approx(rank.partition.class_ns[used, StepClass.EXPOSED_COMMUNICATION].mean() / MS)


def test_kernels_split_into_exposed_and_hidden():
    kernels = profiles.one_rank().ranks[0].kernels
    found = traces(figures.plot_families(kernels))
    total = sum(sum(t.x) for t in found.values())
    assert total == pytest.approx(sum(r.total_ns for r in kernels.rows) / kernels.steps / MS)
    assert found["communication, hidden"].marker.pattern.shape == "/"
    assert "and 1 more name" in figures.plot_kernels(kernels, count=len(kernels.rows) - 1).layout.title.text


def test_the_timeline_marks_evidence_of_its_rank_and_step():
    report = profiles.four_ranks()
    timeline = report.rank(2).timeline
    inside = Evidence(2, timeline.step, timeline.start_ns + MS, timeline.start_ns + 3 * MS, names=("cudaFree <b>",), source="train.py:3 f")
    places = (inside, replace(inside, rank=1), replace(inside, start_ns=0, end_ns=5))
    marks = evidence_marks(timeline, [finding("other", 1, 1), finding("mine", MS, 39 * MS, evidence=places)])
    assert [(number, place) for number, _, place in marks] == [(2, inside)]
    figure = figures.plot_timeline(timeline, [finding("mine", MS, 39 * MS, evidence=places)])
    mark = traces(figure)["evidence"]
    assert list(mark.x) == [2.0]
    assert "cudaFree &lt;b&gt;<br>train.py:3 f" in mark.hovertext[0]


def test_the_timeline_draws_every_bar_once():
    timeline = profiles.one_rank().ranks[0].timeline
    figure = figures.plot_timeline(timeline)
    bars = [t for t in figure.data if t.type == "bar"]
    assert sum(len(t.x) for t in bars) == len(timeline.bars)
    compute = traces(figure)["compute"]
    length = (timeline.bars.end_ns - timeline.bars.start_ns)[timeline.bars.cls == StepClass.COMPUTE]
    assert list(compute.x) == pytest.approx(list(length / MS))
    assert "every recorded row has its own bar" in figure.layout.title.text
    assert 0 < len(figure.layout.shapes) <= 40


def test_results_plot_themselves():
    report = profiles.one_rank()
    rank = report.ranks[0]
    plots = (report.partition.plot(), report.plot(), report.fix_list.plot(), rank.kernels.plot(), rank.timeline.plot())
    assert all(isinstance(p, go.Figure) for p in plots)
    assert report.partition.plot(dark=True).layout.template.layout.paper_bgcolor == "#16181d"


def test_pictures_are_written_where_kaleido_is(tmp_path):
    figure = figures.plot_ranks(profiles.one_rank().partition)
    with pytest.raises(OutputError, match="names no kind of picture"):
        figures.save_image(figure, tmp_path / "a.docx")
    if find_spec("kaleido") is None:
        with pytest.raises(OutputError, match="kaleido, which is not installed") as caught:
            figures.save_image(figure, tmp_path / "a.png")
        assert "pip install kaleido" in caught.value.hint
    else:
        assert figures.save_image(figure, tmp_path / "a.svg").read_text("utf-8").lstrip().startswith("<svg")


def test_thin_bars_are_not_hatched_and_not_all_named():
    figure = figures.plot_communication(profiles.many_ranks())
    hidden = traces(figure)["hidden under compute"]
    assert (hidden.marker.opacity, hidden.marker.pattern.shape) == (0.35, None)
    assert figure.layout.xaxis.title.text == "rank"
    assert list(figure.layout.xaxis.ticktext)[:2] == ["0", "3"]
    assert list(figure.layout.xaxis.tickvals)[:2] == ["rank 0", "rank 3"]


def test_the_waterfall_ends_with_the_model_at_the_peak():
    run = Run(model=ModelShape(parameters=10**9), tokens_per_step=Tokens(valid=1000), peak_flops=10**15, world_size=1)
    efficiency = replace(
        profiles.one_rank(),
        described=Described(run, dict.fromkeys(("model.parameters", "tokens_per_step.valid", "peak_flops", "world_size"), "test")),
    ).efficiency
    figure = figures.plot_waterfall(efficiency)
    bars = {t.y[0]: (t.base[0], t.x[0]) for t in figure.data}
    whole = efficiency.reconciliation.whole_ns / MS
    assert bars.pop("<b>measured step</b>") == (0, whole)
    assert bars.pop("<b>model's FLOPs at the peak</b>") == (0, pytest.approx(6.0))
    assert sum(length for _, length in bars.values()) == pytest.approx(whole - 6.0)
    assert min(base for base, _ in bars.values()) == pytest.approx(6.0)
    assert "MFU" in figure.layout.title.text


def test_the_waterfall_ends_with_computing_where_the_model_is_not_known():
    figure = figures.plot_waterfall(profiles.one_rank().efficiency)
    last = figure.data[-1]
    assert last.y[0] == "<b>computing</b>"
    assert last.x[0] == pytest.approx(profiles.one_rank().summary.class_ns[StepClass.COMPUTE] / MS)
