import json
from pathlib import Path

import jsonschema
import pytest

from traceread.cli import main
from traceread.simulate import Capture, scenarios, simulate, write_run

ROOT = Path(__file__).parents[1]
SCHEMA = json.loads((ROOT / "docs" / "json-schema" / "scaling.schema.json").read_text("utf-8"))
MODEL = {"parameters": 1.2e9, "sequence_length": 2048}


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    """One rank of a job and of the same with its planted fault, as runs of two sizes."""
    folder = tmp_path_factory.mktemp("runs")
    job = scenarios()["ddp-allreduce"]
    for name, without in (("small", frozenset(job.faults)), ("large", frozenset())):
        write_run(simulate(job, ranks=2, steps=3, without=without), folder / name, Capture(compress=False), truth=False)
    return folder


def described(captures, **tokens):
    for name, (gpus, batch) in tokens.items():
        values = {"world_size": gpus, "model": MODEL, "tokens_per_step": {"valid": batch}}
        (captures / name / "run.json").write_text(json.dumps(values))
    return [str(captures / name) for name in tokens]


def answered(capsys, paths):
    assert main(["scaling", *paths, "--json"]) == 0
    value = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(SCHEMA).validate(value)
    return value


def test_weak_scaling(captures, capsys):
    answer = answered(capsys, described(captures, large=(64, 64 * 4096), small=(8, 8 * 4096)))
    small, large = answer["runs"]
    assert (small["gpus"], large["gpus"], small["tokens_per_gpu"], large["tokens_per_gpu"]) == (8, 64, 4096, 4096)
    [step] = answer["steps"]
    assert (step["kind"], step["baseline"]) == ("weak", str(captures / "small"))
    assert step["efficiency"] == pytest.approx(small["step_ns"] / large["step_ns"])
    assert step["added_ns"] == large["step_ns"] - small["step_ns"]
    assert step["added_communication_ns"] == pytest.approx(step["added_ns"], rel=0.05)  # the fault is communication that nothing hides
    assert answer["not_compared"] == []


def test_strong_scaling_in_words(captures, capsys):
    assert main(["scaling", *described(captures, large=(16, 32_768), small=(8, 32_768))]) == 0
    text = capsys.readouterr().out
    assert "strong scaling: the same batch over all GPUs" in text
    assert "8 GPUs," in text
    assert "weak" not in text


def test_runs_of_other_shapes_are_named(captures, capsys):
    assert main(["scaling", *described(captures, large=(16, 1000), small=(8, 777))]) == 0
    text = capsys.readouterr().out
    assert "not compared" in text
    assert "same tokens in a step" in text


@pytest.mark.parametrize("missing", ["world_size", "tokens_per_step"])
def test_what_is_missing_is_said(captures, capsys, missing):
    paths = described(captures, large=(16, 1000), small=(8, 777))
    file = captures / "large" / "run.json"
    values = json.loads(file.read_text())
    del values[missing]
    file.write_text(json.dumps(values))
    code = main(["scaling", *paths])
    said = capsys.readouterr()
    if missing == "world_size":
        assert code == 0  # distributedInfo of the traces has it
    else:
        assert code == 1
        assert "tokens of a step" in said.err
        assert "run.json" in said.err


def test_formats(captures, capsys, tmp_path):
    paths = described(captures, large=(16, 32_768), small=(8, 32_768))
    for name in ("answer.md", "answer.html", "answer.json"):
        assert main(["scaling", *paths, "-o", str(tmp_path / name), "-q"]) == 0
        assert "strong" in (tmp_path / name).read_text()
