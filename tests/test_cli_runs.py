import json
from pathlib import Path

import jsonschema
import pytest
from step_logs import HOUR, S, Writer

from traceread.cli import main
from traceread.runs.ledger import Part
from traceread.runs.spikes import find_drops, find_spikes
from traceread.steplog import Entry

SCHEMA = json.loads((Path(__file__).parents[1] / "docs" / "json-schema" / "runs.schema.json").read_text("utf-8"))
SEVEN_BILLION = ("--parameters", "7B", "--precision", "bf16")


def answered(capsys, *arguments):
    assert main(["runs", *map(str, arguments), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    return value


def shown(capsys, *arguments):
    assert main(["runs", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def train(log, rate, until, hour=HOUR):
    """Intervals of an hour at this many tokens per second of all GPUs, the last one shorter."""
    while log.tokens < until:
        tokens = min(rate * hour // S, until - log.tokens)
        log.interval(100, tokens, -(-tokens * S // rate // 100) * 100)
    return log


@pytest.fixture
def h100(tmp_path):
    """50 B tokens on 8 H100 at 9,000 tokens/s each, with two failures after which 6 h are done again."""
    log = Writer(tmp_path / "h100", run="h100", gpus=8)
    device = {"gpu": "NVIDIA H100 80GB HBM3", "device_bytes": 85_899_345_920, "multiprocessors": 132}
    rate, hour = 72_000, 72_000 * 3600
    train(log.start(**device), rate, 56 * hour)
    train(log.start(5_000, 50 * hour, number=1, **device), rate, 106 * hour)
    train(log.start(10_000, 100 * hour, number=2, **device), rate, 50 * 10**9).put("end", reason="done")
    return log.directory


@pytest.fixture
def a100(tmp_path):
    log = Writer(tmp_path / "a100", run="a100", gpus=8)
    device = {"gpu": "NVIDIA A100-SXM4-80GB", "device_bytes": 85_899_345_920, "multiprocessors": 108}
    train(log.start(**device), 8 * 3_100, 50 * 10**9).put("end", reason="done")
    return log.directory


# --- worked numbers --------------------------------------------------------------------------------------------------------------


def test_eight_h100(h100, capsys):
    [run] = answered(capsys, h100, *SEVEN_BILLION, "--price", "2.50")["runs"]
    assert round(100 * run["throughput"]["mfu"], 1) == 38.2
    assert run["throughput"]["convention"] == "6N"
    assert round(run["throughput"]["tokens_per_s_of_gpu"]) == 9000
    assert run["tokens"] == 50 * 10**9
    ledger = run["ledger"]
    assert round(ledger["productive_gpu_hours"]) == 1543
    assert round(100 * ledger["goodput"]) == 94
    assert ledger["gpu_ns"][Part.REPEATED] == 2 * 6 * 8 * HOUR
    assert (ledger["restarts"], ledger["lost_steps"]) == (2, 1200)
    assert round(ledger["productive_cost"], -1) == 3860
    assert ledger["cost"] == pytest.approx(ledger["allocated_gpu_hours"] * 2.5)
    assert [s["kept_to"] for s in run["segments"]] == [5_000, 10_000, None]


def test_eight_a100(a100, capsys):
    [run] = answered(capsys, a100, *SEVEN_BILLION, "--price", "1.20")["runs"]
    assert round(100 * run["throughput"]["mfu"], 1) == 41.7
    assert round(run["ledger"]["productive_cost"], -1) == 5380
    assert run["ledger"]["goodput"] == 1


def test_both_in_one_answer(h100, a100, capsys):
    text = shown(capsys, h100.parent, *SEVEN_BILLION, "--price", "2")
    assert "2 runs" in text
    for figure in ("38.2 %", "41.7 %", "94.1 %", "1,543.2"):
        assert figure in text
    both = answered(capsys, h100.parent, "--price", "2")
    assert both["total"]["cost"] == pytest.approx(2 * both["total"]["allocated_gpu_hours"])
    assert "parameters" in both["runs"][0]["throughput"]["missing"][0]
    assert both["runs"][0]["throughput"]["mfu"] is None


# --- segments --------------------------------------------------------------------------------------------------------------------


def test_what_was_done_twice_counts_once_and_is_not_mixed_in(tmp_path, capsys):
    log = Writer(tmp_path).start()
    for _ in range(6):
        log.interval(10, 100, 10 * S, loss=1.0)
    log.t += 30 * S
    log.start(40, 400, number=1)
    for _ in range(4):
        log.interval(10, 100, 10 * S, loss=9.0)
    [run] = answered(capsys, tmp_path, "--warmup", "0")["runs"]
    assert run["tokens"] == 800
    assert run["throughput"]["tokens"] == 800
    parts = run["ledger"]["gpu_ns"]
    assert (parts[Part.PRODUCTIVE], parts[Part.REPEATED], parts[Part.BETWEEN], parts[Part.OTHER]) == (80 * S, 20 * S, 30 * S, 0)
    assert run["ended"] is None


def test_another_recipe_is_a_child(tmp_path, capsys):
    log = Writer(tmp_path, run="r").start(recipe="a" * 16).interval(10, 100, S)
    log.start(10, 100, number=1, recipe="b" * 16).interval(10, 100, S).put("end", reason="stopped early")
    parent, child = answered(capsys, tmp_path, "--price", "1")["runs"]
    assert (parent["run"], parent["parent"], parent["tokens"]) == ("r", None, 100)
    assert (child["run"], child["parent"], child["tokens"], child["ended"]) == ("r (bbbbbbbb)", "r", 100, "stopped early")
    assert parent["ledger"]["restarts"] == 0


def test_evaluations_stand_at_the_tokens_of_their_checkpoint(tmp_path, capsys):
    log = Writer(tmp_path).start(described={"price_per_gpu_hour": 3600.0}).interval(10, 100, S).aside("checkpoint", S, checkpoint="c")
    log.interval(10, 100, S).aside("eval", 2 * S, checkpoint="c", metrics={"loss": 1.5})
    [run] = answered(capsys, tmp_path)["runs"]
    assert run["evaluations"] == [{"checkpoint": "c", "step": 10, "tokens": 100, "metrics": {"loss": 1.5}}]
    ledger = run["ledger"]
    assert [ledger["gpu_ns"][p] for p in (Part.PRODUCTIVE, Part.CHECKPOINT, Part.EVALUATION, Part.OTHER)] == [2 * S, S, 2 * S, 0]
    assert ledger["cost_per_evaluation"] == pytest.approx(5.0)
    assert "loss 1.5" in shown(capsys, tmp_path)


def test_warm_up_is_left_out_of_throughput(tmp_path, capsys):
    log = Writer(tmp_path).start().interval(10, 100, 100 * S)
    for _ in range(3):
        log.interval(10, 100, 10 * S)
    [run] = answered(capsys, tmp_path)["runs"]
    assert run["throughput"]["tokens_per_s_of_gpu"] == 10
    assert run["throughput"]["median_tokens_per_s"] == 10
    [run] = answered(capsys, tmp_path, "--warmup", "0")["runs"]
    assert run["throughput"]["tokens_per_s_of_gpu"] == pytest.approx(400 / 130)


def test_ranks_and_memory(tmp_path, capsys):
    log = Writer(tmp_path, gpus=2).start(device_bytes=1000)
    for _ in range(2):
        values = {"step_ns": S // 10, "step_ns_max": S // 8, "slowest_rank": 1, "data_wait_ns": S // 80}
        log.interval(10, 100, S, allocated_bytes=600, reserved_bytes=900, **values)
    [run] = answered(capsys, tmp_path, "--warmup", "0")["runs"]
    assert run["skew"] == pytest.approx(1.25)
    assert run["slowest_rank"] == {"rank": 1, "share": 1.0}
    assert run["data_wait_share"] == pytest.approx(0.1)
    assert run["memory"] == {"allocated_bytes": 600, "gap_bytes": 300, "device_bytes": 1000, "headroom": pytest.approx(0.4)}
    assert run["log"]["bytes"] == log.path.stat().st_size
    assert "rank 1" in shown(capsys, tmp_path)


def test_a_run_without_an_interval(tmp_path, capsys):
    Writer(tmp_path).start()
    [run] = answered(capsys, tmp_path, *SEVEN_BILLION)["runs"]
    assert run["tokens"] == 0
    assert run["throughput"]["tokens_per_s_of_gpu"] is None
    assert run["ledger"]["goodput"] is None
    assert "no end logged" in shown(capsys, tmp_path)


def test_nothing_there(tmp_path, capsys):
    assert main(["runs", str(tmp_path)]) == 1
    assert "docs/steplog.md" in capsys.readouterr().err


# --- spikes and drops ------------------------------------------------------------------------------------------------------------


def entries(values, what="loss"):
    return [Entry(t=0, kind="interval", step=n, tokens=n, batch_ids=[f"b{n}"], **{what: v}) for n, v in enumerate(values)]


def wave(count):
    return [2.0 + (0.01 if n % 2 else -0.01) for n in range(count)]


def test_a_spike_with_the_batches_around_it():
    [spike] = find_spikes(entries([*wave(300), 2.5, *wave(10)]), "loss", 6)
    assert (spike.step, spike.value) == (300, 2.5)
    assert spike.usual == pytest.approx(2, abs=0.01)
    assert spike.z == pytest.approx(50, rel=0.1)
    assert spike.batch_ids == tuple((n, (f"b{n}",)) for n in range(298, 303))


def test_spikes_are_not_learned_from():
    spikes = find_spikes(entries([*wave(300), *[2.5] * 40]), "loss", 6)
    assert len(spikes) == 40
    assert len({s.usual for s in spikes}) == 1


@pytest.mark.parametrize(("z", "count"), [(6, 1), (8, 0)])
def test_the_threshold_is_in_standard_deviations(z, count):
    assert len(find_spikes(entries([*wave(300), 2.0 + 0.07], "grad_norm"), "grad_norm", z)) == count


def test_the_first_two_hundred_are_not_judged():
    assert find_spikes(entries([*wave(199), 2.5]), "loss", 6) == []
    assert len(find_spikes(entries([*wave(200), 2.5]), "loss", 6)) == 1


def test_what_is_no_number_is_a_spike_at_once():
    [spike] = find_spikes(entries([2.0, "nan", 2.0]), "loss", 6)
    assert (spike.step, spike.z) == (1, None)


def test_falling_loss_is_none():
    assert find_spikes(entries([5 - n / 200 for n in range(600)]), "loss", 6) == []


def test_a_drop_of_fifteen_percent():
    rates = [100.0] * 10 + [84.0, 70.0, 84.0] + [86.0] * 3
    [drop] = find_drops(enumerate(rates))
    assert (drop.first_step, drop.last_step, drop.tokens_per_s, drop.usual) == (10, 12, 70.0, 100.0)


# --- telemetry -------------------------------------------------------------------------------------------------------------------

SMI = """timestamp, index, utilization.gpu [%], power.draw [W], clocks.sm [MHz]
""" + "".join(
    f"2026/01/01 00:00:0{t}.000, {gpu}, 100 %, {watt} W, {mhz} MHz\n"
    for t in range(3)
    for gpu, watt, mhz in ((0, 612.40, 1755), (1, 618.02, 1740), (2, 121.87, 345), (3, 609.91, 1770))
)
DCGM = """#Entity   GPUTL   POWER     SMCLK   SMACT
ID                W
GPU 0     100     612.400   1755    0.912
GPU 1     100     618.020   1740    0.905
GPU 2     100     121.870   345     0.031
GPU 3     100     N/A       1770    0.921
"""


@pytest.mark.parametrize(("text", "said"), [(SMI, "121.87 W at 345 MHz"), (DCGM, "active 0.031 of the time")])
def test_the_gpu_that_only_looks_busy(tmp_path, capsys, text, said):
    Writer(tmp_path).start().interval(1, 1, S).interval(1, 1, S)
    (tmp_path / "gpus.csv").write_text(text, "utf-8")
    found = answered(capsys, tmp_path, "--telemetry", tmp_path / "gpus.csv")["telemetry"]
    assert [g["index"] for g in found if g["stalled"]] == [2]
    assert said in found[2]["stalled"]
    assert found[0]["utilisation"] == 1
    text = shown(capsys, tmp_path, "--telemetry", tmp_path / "gpus.csv")
    assert "GPU 2 is 100 % utilised and stalled" in text


def test_a_gpu_alone_is_judged_by_its_limit(tmp_path, capsys):
    Writer(tmp_path).start().interval(1, 1, S)
    (tmp_path / "gpus.csv").write_text("index, utilization.gpu [%], power.draw [W], power.limit [W]\n0, 100 %, 121.87 W, 700.00 W\n")
    [gpu] = answered(capsys, tmp_path, "--telemetry", tmp_path / "gpus.csv")["telemetry"]
    assert "of 700 W" in gpu["stalled"]


def test_telemetry_that_is_none(tmp_path, capsys):
    log = Writer(tmp_path).start()
    assert main(["runs", str(tmp_path), "--telemetry", str(log.path)]) == 1
    assert "nvidia-smi --query-gpu" in capsys.readouterr().err


@pytest.mark.parametrize("format", ["markdown", "html"])
def test_other_formats(h100, capsys, format):
    assert main(["runs", str(h100), "-f", format]) == 0
    assert "h100" in capsys.readouterr().out


# --- the log that StepTimer writes -------------------------------------------------------------------------------------------------


def test_what_the_timer_writes_is_what_is_read(tmp_path, capsys):
    pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[capture]'")
    from traceread import capture

    for segment in range(2):
        with capture.StepTimer(tmp_path / "run", interval=5, step=10 * segment, tokens=1000 * segment, price_per_gpu_hour=2) as timer:
            for step, _ in enumerate(timer.data(range(15))):
                timer.step(tokens=100, loss=2.0, grad_norm=float("inf") if segment and step == 14 else 1.0, batch_ids=[step])
            with timer.checkpoint("c"), timer.evaluation("c") as result:
                result["loss"] = 1.0
    [run] = answered(capsys, tmp_path)["runs"]
    assert run["run"] == "run"
    assert (run["tokens"], run["ended"]) == (2500, "done")
    assert [s["lost_steps"] for s in run["segments"]] == [5, 0]
    assert run["ledger"]["price_per_gpu_hour"] == 2
    assert run["ledger"]["gpu_ns"][Part.REPEATED] > 0
    [spike] = run["spikes"]
    assert (spike["what"], spike["value"], spike["step"]) == ("grad_norm", "inf", 25)
    assert len(run["evaluations"]) == 2
