"""Figures of whole runs: what is on them is what the logs say, over tokens."""

import pytest
from step_logs import S, Writer

from traceread import figures
from traceread.cli import main
from traceread.runs.curve import thinned
from traceread.runs.ledger import Part
from traceread.runs.summary import read_runs

H100 = {"gpu": "NVIDIA H100 80GB HBM3", "described": {"model": {"parameters": 7 * 10**9, "precision": "bf16"}}}


def whole_run(directory, name="seven", **start):
    """Three intervals of 10 s, an evaluation, and a resume that does the last interval again."""
    log = Writer(directory / name, run=name, gpus=8).start(**start)
    for loss in (3.0, 2.5, 2.0):
        log.interval(10, 720_000, 10 * S, loss=loss, grad_norm=1.0)
    log.aside("eval", 5 * S, metrics={"loss": 2.0})
    log.start(step=20, tokens=1_440_000, number=1, **start)
    return log.interval(10, 720_000, 20 * S, loss="nan", batch_ids=["<b>7</b>"]).interval(10, 720_000, 10 * S, loss=1.5)


def lines(figure, axis):
    return [t for t in figure.data if t.yaxis == axis and t.mode != "markers"]


@pytest.fixture
def runs(tmp_path):
    whole_run(tmp_path, **H100)
    return read_runs([tmp_path])


def test_throughput_and_mfu_stand_over_the_tokens_seen(runs):
    figure = figures.plot_throughput(runs)
    [rate], [mfu] = lines(figure, "y"), lines(figure, "y2")
    assert list(rate.x) == [720_000, 1_440_000, 2_160_000, 2_880_000]
    assert list(rate.y) == [None, 9_000, None, 9_000], "each segment's first interval is warm-up"
    assert mfu.y[1] == pytest.approx(0.382, abs=5e-4), "7B on H100 at 9,000 tokens/s of a GPU"
    assert figure.layout.xaxis.title.text == "tokens"
    assert figure.to_json() == runs.plot().to_json()


def test_without_a_model_there_is_no_mfu(tmp_path):
    whole_run(tmp_path)
    figure = figures.plot_throughput(read_runs([tmp_path]))
    assert (len(lines(figure, "y")), lines(figure, "y2")) == (1, [])


def test_the_loss_shows_what_counts_and_its_spikes(runs):
    figure = figures.plot_loss(runs)
    [loss], [norm] = lines(figure, "y"), lines(figure, "y2")
    assert list(loss.y) == [3.0, 2.5, None, 1.5], "what was done again is not shown twice, and nan leaves a hole"
    assert list(norm.y) == [1.0, 1.0, None, None]
    [spikes] = [t for t in figure.data if t.mode == "markers"]
    assert list(spikes.x) == [2_160_000]
    assert "<b>" not in spikes.hovertext[0]


def test_goodput_shows_every_part_of_the_gpu_hours(runs):
    figure = figures.plot_goodput(runs)
    hours = {t.name: t.x[0] for t in figure.data}
    ledger = runs.runs[0].ledger
    assert sum(hours.values()) == pytest.approx(ledger.allocated_gpu_hours)
    assert hours["done again"] == pytest.approx(ledger.gpu_ns[Part.REPEATED] / 3.6e12)
    assert "checkpoint" not in hours, "a part without time is no entry of the legend"
    assert "goodput: seven 76.9 %" in figure.layout.title.text


def test_several_runs_have_lines_of_their_own(tmp_path):
    for name in ("a", "b"):
        whole_run(tmp_path, name, **H100)
    figure = figures.plot_throughput(read_runs([tmp_path]))
    assert [t.name for t in lines(figure, "y")] == ["a", "b"]
    assert len({t.line.color for t in lines(figure, "y")}) == 2
    assert [t.showlegend for t in lines(figure, "y2")] == [False, False]


def test_logs_that_say_nothing_give_reasons(tmp_path):
    Writer(tmp_path).start()
    runs = read_runs([tmp_path])
    for plot in (figures.plot_throughput, figures.plot_loss, figures.plot_goodput):
        figure = plot(runs)
        assert not figure.data
        assert figure.layout.annotations[0].text


def test_long_runs_are_drawn_as_means(tmp_path):
    log = Writer(tmp_path).start()
    for i in range(10):
        log.interval(1, 100, S, loss=float(i) if i != 3 else "inf")
    curve = read_runs([tmp_path]).runs[0].curve
    points, each = thinned(curve, 4)
    assert (each, [p.loss for p in points]) == (3, [1.0, 4.5, 7.0, 9.0])
    assert [p.tokens for p in points] == [300, 600, 900, 1_000]


@pytest.mark.parametrize("dark", [False, True])
def test_names_are_no_markup(tmp_path, dark):
    whole_run(tmp_path, "<script>", **H100)
    runs = read_runs([tmp_path])
    for plot in (figures.plot_throughput, figures.plot_loss, figures.plot_goodput):
        assert "<script" not in plot(runs, dark).to_json()


def test_the_page_holds_all_three(tmp_path):
    whole_run(tmp_path, **H100)
    page = tmp_path / "runs.html"
    assert main(["runs", str(tmp_path), "-o", str(page), "-q"]) == 0
    text = page.read_text("utf-8")
    for part in ("throughput-plot", "goodput-plot", "loss-plot", "Where the GPU hours went"):
        assert part in text


def test_a_cell_shows_the_tables_and_a_frame_has_the_points(runs):
    assert "76.9" in runs._repr_html_()
    frame = runs.to_frame()
    assert list(frame["tokens_per_s"].dropna()) == [9_000, 9_000]
    assert repr(runs) == "<Runs seven>"
