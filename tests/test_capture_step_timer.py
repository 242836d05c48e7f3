"""The step log as training writes it."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from traceread import capture
from traceread.capture.step_log import StepLog

ROOT = Path(__file__).parents[1]


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


# --- the queue (needs no torch) --------------------------------------------------------------------------------------------------


def test_lines_arrive_in_order(tmp_path):
    log = StepLog(tmp_path / "new" / "steps.jsonl")
    for n in range(100):
        log.put({"n": n, "not known": None})
    log.close()
    assert lines(log.path) == [{"n": n} for n in range(100)]
    assert log.dropped == 0


def test_a_disk_that_hangs_holds_nobody_up_and_lost_lines_are_counted():
    hangs, entered = threading.Event(), threading.Event()
    written = []

    def write(data):
        entered.set()
        hangs.wait(10)
        written.append(data)

    log = StepLog(Path("nowhere"), capacity=4, write=write)
    log.put({"n": 0})
    assert entered.wait(10)
    for n in range(1, 10):
        log.put({"n": n})
    assert log.dropped == 5
    hangs.set()
    log.close()
    assert written == [b'{"n":%d}\n' % n for n in range(5)]


def test_a_full_disk_loses_lines_and_recovers(caplog):
    written = []
    full = iter([False, True, True, False, False])

    def write(data):
        if next(full):
            raise OSError(28, "No space left on device")
        written.append(data)

    log = StepLog(Path("nowhere"), write=write)
    for n in range(5):
        log.put({"n": n})
    log.close()
    # whatever half a line the full disk kept is ended first
    assert b"".join(written) == b'{"n":0}\n\n{"n":3}\n{"n":4}\n'
    assert log.dropped == 2
    assert caplog.text.count("No space left") == 1


# --- the timer -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[capture]'")


def test_one_line_per_interval(torch, tmp_path):
    with capture.StepTimer(tmp_path / "a", interval=3, recipe={"lr": 1}, model={"parameters": 5}) as timer:
        for n, _ in zip(range(7), timer.data(range(100)), strict=False):
            timer.step(tokens=10 * (n + 1), loss=torch.tensor(float(n)), grad_norm=n / 2, batch_ids=[n])
    start, first, second, end = lines(tmp_path / "a" / "steps.segment0.jsonl")
    assert [e["kind"] for e in (start, first, second, end)] == ["start", "interval", "interval", "end"]
    assert (start["run"], start["world_size"], start["described"]) == ("a", 1, {"model": {"parameters": 5}})
    assert len(start["recipe"]) == 16
    assert (first["step"], first["steps"], first["tokens"], first["batch_ids"]) == (3, 3, 60, [0, 1, 2])
    assert (second["step"], second["tokens"]) == (6, 210)
    assert first["loss"] == pytest.approx((0 * 10 + 1 * 20 + 2 * 30) / 60)  # weighted by tokens
    assert second["grad_norm"] == 2.5
    assert isinstance(first["step_ns"], int)
    assert first["step_ns_max"] == first["step_ns"] > 0
    assert 0 <= first["data_wait_ns"] < first["step_ns"]
    assert first["tokens_per_s"] == pytest.approx(60e9 / (3 * first["step_ns"]), rel=1e-3)
    assert "allocated_bytes" not in first  # no GPU: not recorded is not zero
    assert end["reason"] == "done"
    assert end["step"] == 7


def test_checkpoints_and_evaluations_stand_apart_from_steps(torch, tmp_path):
    import time

    with capture.StepTimer(tmp_path, interval=1, run="r") as timer:
        with timer.checkpoint("c1"):
            time.sleep(0.2)
        with timer.evaluation("c1") as metrics:
            metrics["loss"] = 2
            time.sleep(0.1)
        timer.step(tokens=1, loss=float("nan"))
    _, saved, evaluated, interval, _ = lines(tmp_path / "steps.segment0.jsonl")
    assert (saved["kind"], saved["checkpoint"]) == ("checkpoint", "c1")
    assert saved["duration_ns"] >= 190_000_000
    assert (evaluated["kind"], evaluated["checkpoint"], evaluated["metrics"]) == ("eval", "c1", {"loss": 2.0})
    assert interval["step_ns"] < 100_000_000
    assert interval["loss"] == "nan"


def test_a_resumed_run_writes_the_next_segment(torch, tmp_path):
    capture.StepTimer(tmp_path, interval=1).close()
    with capture.StepTimer(tmp_path, interval=1, step=40, tokens=400) as timer:
        timer.step(tokens=10)
    restart, interval, _ = lines(tmp_path / "steps.segment1.jsonl")
    assert (restart["kind"], restart["segment"], restart["step"], restart["tokens"]) == ("restart", 1, 40, 400)
    assert (interval["step"], interval["tokens"]) == (41, 410)


def test_an_exception_ends_the_log_with_its_reason(torch, tmp_path):
    with pytest.raises(KeyError), capture.StepTimer(tmp_path, interval=1):
        raise KeyError
    assert lines(tmp_path / "steps.segment0.jsonl")[-1]["reason"] == "failed"


def test_training_goes_on_when_nothing_can_be_written(torch, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    with capture.StepTimer(tmp_path / "file" / "run", interval=1) as timer:
        for _ in range(5):
            timer.step(tokens=1)
    assert timer.dropped == 7
    assert "training goes on" in caplog.text


RANKS = """
import sys, time
import torch.distributed as dist
from traceread import capture
dist.init_process_group("gloo")
rank = dist.get_rank()
with capture.StepTimer(sys.argv[1], interval=2) as timer:
    for step in range(4):
        time.sleep(0.02 * (1 + 2 * rank))
        timer.step(tokens=5 + 10 * rank, loss=1.0 + rank)
dist.destroy_process_group()
"""


def test_two_ranks_in_one_log(torch, tmp_path):
    (tmp_path / "train.py").write_text(RANKS, "utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(tmp_path / "train.py")]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, str(tmp_path / "run")], env=env, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-2000:]
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["steps.segment0.jsonl"]
    start, first, second, _ = lines(tmp_path / "run" / "steps.segment0.jsonl")
    assert start["world_size"] == 2
    assert (first["tokens"], second["tokens"]) == (40, 80)
    assert first["loss"] == pytest.approx((1 * 10 + 2 * 30) / 40)
    assert first["slowest_rank"] == 1
    assert first["step_ns_max"] > 55_000_000
    assert first["step_ns"] < first["step_ns_max"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
def test_a_killed_run_leaves_its_lines(torch, tmp_path):
    code = (
        "import os, signal, sys, time\nfrom traceread import capture\ntimer = capture.StepTimer(sys.argv[1], interval=1)\n"
        "for n in range(200):\n    timer.step(tokens=1)\ntime.sleep(1)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=env, capture_output=True, timeout=60)
    assert done.returncode == -signal.SIGKILL
    entries = lines(tmp_path / "steps.segment0.jsonl")
    assert [e["kind"] for e in entries] == ["start"] + ["interval"] * 200
