"""What the step logs beside a capture say of the whole job, and what a comparison makes of it."""

import shutil
from pathlib import Path

import pytest
from step_logs import HOUR, S, Writer

import traceread
from traceread.reporters.diff import render_diff
from traceread.run import Described, run_of
from traceread.runs.account import find_account

SAMPLE = Path(__file__).parents[1] / "sample_traces" / "llama7b"


def log(directory, lost=0, **described):
    """A job of 8 GPUs: 9 hours that count, `lost` done again, one hour of evaluating twice."""
    writer = Writer(directory, gpus=8).start(described=described).interval(90, 900, 9 * HOUR)
    writer.aside("eval", HOUR // 2, checkpoint="a").aside("eval", HOUR // 2, checkpoint="b")
    if lost:
        writer.interval(10 * lost, 100 * lost, lost * HOUR)
        writer.start(step=90, tokens=900, number=1)
        writer.interval(1, 1, S)
    return writer


def account(directory, **given):
    return find_account([directory], run_of(given, "test")).run


def test_goodput_and_the_price_of_an_evaluation_are_those_of_runs(tmp_path):
    log(tmp_path)
    found = account(tmp_path, price_per_gpu_hour=2.0)
    assert found.goodput == pytest.approx(0.9)
    assert found.cost_per_evaluation == pytest.approx(8 * 10 * 2.0 / 2)


def test_work_done_again_lowers_goodput(tmp_path):
    log(tmp_path, lost=5)
    assert account(tmp_path).goodput == pytest.approx(9 / 15, abs=1e-4)


def test_a_price_in_the_log_serves_where_none_is_given(tmp_path):
    log(tmp_path, price_per_gpu_hour=3.0)
    assert account(tmp_path).cost_per_evaluation == pytest.approx(120.0)
    assert account(tmp_path, price_per_gpu_hour=1.0).cost_per_evaluation == pytest.approx(40.0)


def test_what_is_not_logged_is_not_zero(tmp_path):
    assert find_account([tmp_path], Described()) == Described()
    Writer(tmp_path, gpus=8).start()
    assert account(tmp_path, price_per_gpu_hour=2.0).goodput is None, "a start alone takes no time"
    log(tmp_path)
    assert account(tmp_path).cost_per_evaluation is None, "there is no price"


def test_only_logs_right_beside_the_traces_are_of_this_job(tmp_path):
    log(tmp_path / "other")
    assert find_account([tmp_path, tmp_path / "rank0.json"], Described()) == Described()


def test_a_log_that_cannot_be_read_is_a_warning(tmp_path):
    (tmp_path / "steps.jsonl").write_text("no JSON\n", "utf-8")
    [notice] = find_account([tmp_path], Described()).notices
    assert (notice.slug, "is no step log" in notice.message) == ("damaged-log", True)


def test_a_diff_of_different_jobs_compares_them(tmp_path):
    sides = [tmp_path / "before", tmp_path / "after"]
    for directory, batch, lost in zip(sides, (256, 512), (5, 0), strict=True):
        shutil.copytree(SAMPLE / "after-nsys", directory)
        log(directory, lost, price_per_gpu_hour=2.0)
        report = traceread.analyze(directory, run={"global_batch_sequences": batch})
        assert report.described.sources["goodput"].startswith("steps.segment0.jsonl")
        report.save(directory / "report.json")
    diff = traceread.diff(*(directory / "report.json" for directory in sides))
    assert [used.goodput for used in (diff.efficiency.before, diff.efficiency.after)] == pytest.approx([0.6, 0.9], abs=1e-4)
    text = render_diff(diff, "text")
    assert "Not comparable" in text
    assert ["goodput", "of", "the", "whole", "job", "60.0", "%", "90.0", "%"] in [line.split() for line in text.splitlines()]
    assert ["price", "of", "an", "evaluation,", "whole", "job", "120.00", "80.00"] in [line.split() for line in text.splitlines()]
