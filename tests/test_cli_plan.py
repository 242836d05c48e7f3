import json
import shlex
from pathlib import Path

import jsonschema
import pytest

from traceread.cli import main

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "sample_traces" / "llama7b" / "before-kineto"
SCHEMA = json.loads((ROOT / "docs" / "json-schema" / "plan.schema.json").read_text("utf-8"))
LLAMA = "--parameters 6.74e9 --layers 32 --attention-width 4096 --sequence-length 4096 --peak-flops 989T"


def answered(capsys, command):
    assert main(["plan", *shlex.split(command), "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    return value["plan"]


def shown(capsys, command):
    assert main(["plan", *shlex.split(command)]) == 0
    return capsys.readouterr().out


def test_a_trillion_tokens_at_a_utilisation(capsys):
    training = answered(capsys, f"--tokens 1T --gpus 256 --mfu 40% {LLAMA} --price 2")["training"]
    assert round(training["days"], 2) == 5.36
    assert round(training["gpu_hours"]) == 32919
    assert training["price"] == pytest.approx(2 * training["gpu_hours"])
    text = shown(capsys, f"--tokens 1T --gpus 256 --mfu 40% {LLAMA}")
    assert "5.36 days" in text
    assert "32,919" in text
    assert "price" not in text


def test_tokens_at_a_rate(capsys):
    text = shown(capsys, "--tokens 2.4e10 --gpus 8 --tokens-per-s 400k")
    assert "16.7 h" in text
    assert " 133" in text


def test_gpus_for_a_deadline(capsys):
    plan = answered(capsys, f"--tokens 1T --days 5.5 --mfu 40% {LLAMA}")
    assert plan["deadline"] == {"seconds": 475_200, "gpus": 250}
    assert plan["training"]["gpus"] == 250
    assert plan["training"]["seconds"] <= 475_200
    assert "250 GPUs keep a deadline of 5.50 days" in shown(capsys, f"--tokens 1T --days 5.5 --mfu 40% {LLAMA}")


def test_checkpoints(capsys):
    checkpoints = answered(capsys, "--checkpoint-time 60s --mtbf 11135s")["checkpoints"]
    assert round(checkpoints["interval_s"]) == 1156
    assert round(100 * checkpoints["lost_share"], 1) == 10.4
    text = shown(capsys, "--checkpoint-time 60s --mtbf 11135s")
    assert "every 1,156 s" in text
    assert "10.4 %" in text


def test_failures_of_one_gpu_are_those_of_the_job_times_gpus(capsys):
    checkpoints = answered(capsys, "--checkpoint-time 60s --gpu-mtbf 1000h --gpus 100 --restart-time 5min")["checkpoints"]
    assert (checkpoints["mtbf_s"], checkpoints["restart_s"]) == (36_000, 300)


def test_a_job_that_fails_too_often(capsys):
    assert "no interval is good" in shown(capsys, "--checkpoint-time 60s --mtbf 100s")


def test_the_rate_of_a_measured_run_now_and_after_its_fixes(capsys):
    plan = answered(capsys, f"{SAMPLE} --tokens 1T")
    assert plan["training"]["gpus"] == 32
    assert round(100 * plan["mfu"], 1) == 43.1
    assert plan["training"]["tokens_per_s"] == pytest.approx(1_048_576 / 3.6, rel=0.001)
    assert plan["after_fixes"]["tokens_per_s"] == pytest.approx(1_048_576 / 2.9, rel=0.001)
    assert "53.6 %" in shown(capsys, f"{SAMPLE} --tokens 1T")


def test_a_measured_run_on_more_gpus(capsys):
    few, many = (answered(capsys, f"{SAMPLE} --tokens 1T --gpus {gpus}")["training"] for gpus in (32, 64))
    assert many["seconds"] == pytest.approx(few["seconds"] / 2)


def test_the_peak_of_a_named_device(capsys):
    plan = answered(capsys, "--tokens 1T --gpus 8 --mfu 40% --parameters 7B --device 'NVIDIA H200'")
    assert plan["training"]["tokens_per_s"] == pytest.approx(0.4 * 8 * 989.4e12 / 42e9)


@pytest.mark.parametrize(
    ("command", "says", "hint"),
    [
        ("", "nothing to plan", "--tokens"),
        ("--tokens 1T", "no rate", "--tokens-per-s"),
        ("--tokens 1T --tokens-per-s 400k", "how many GPUs", "--gpus"),
        ("--tokens 1T --mfu 40%", "number of parameters", "--parameters"),
        ("--tokens 1T --mfu 40% --parameters 7B", "peak of the GPU", "--device"),
        ("--tokens 1T --mfu 40% --parameters 7B --device 'NVIDIA A10G' --gpus 8", "A10G", "--peak-flops"),
        (f"--tokens 1T --mfu 40% {LLAMA}", "number of GPUs", "--gpus"),
        ("--checkpoint-time 60s", "how often the job fails", "--mtbf"),
        (f"{ROOT / 'sample_traces' / 'item-sync'} --tokens 1T", "how many tokens", "--tokens-per-step"),
    ],
)
def test_what_is_missing_is_said(capsys, command, says, hint):
    assert main(["plan", *shlex.split(command)]) == 1
    message, hinted = capsys.readouterr().err.splitlines()
    assert says in message
    assert hint in hinted


@pytest.mark.parametrize("command", ["--tokens 0", "--mfu 140%", "--mtbf soon", "--gpus 2.5", "--price free"])
def test_wrong_usage(capsys, command):
    assert main(["plan", *shlex.split(command)]) == 2


def test_other_formats(capsys, tmp_path):
    assert shown(capsys, "--tokens 2.4e10 --gpus 8 --tokens-per-s 400k -f markdown").startswith("# plan · 24 G tokens")
    assert main(["plan", "--checkpoint-time", "60s", "--mtbf", "3h", "-o", str(tmp_path / "plan.html"), "-q"]) == 0
    assert "Young" in (tmp_path / "plan.html").read_text()
