"""`traceread diff` and the gates of `traceread report`: what is written, where, and the exit code."""

import json
import re
import shlex
import xml.etree.ElementTree as ElementTree
from functools import cache
from pathlib import Path

import jsonschema
import pytest
from comparing import RUN, kernel, report

from traceread.cli import COULD_NOT, DONE, GATE, USAGE, main

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "sample_traces" / "llama7b"
BEFORE, AFTER = str(SAMPLES / "before-nsys"), str(SAMPLES / "after-nsys")
MS = 1_000_000
STEADY = [100 * MS, 101 * MS, 99 * MS, 100 * MS, 100 * MS, 101 * MS]


@cache
def validator(verb):
    schema = json.loads((ROOT / "docs" / "json-schema" / f"{verb}.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def problems(value, verb="diff"):
    return [f"{list(e.absolute_path)}: {e.message}" for e in validator(verb).iter_errors(value)]


@pytest.fixture
def saved(tmp_path):
    """Saves a report made of numbers and returns its path."""

    def save(name, steps, /, **more):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(report(steps, title=name, **more)))
        return str(path)

    return save


def run(capsys, *arguments):
    code = main(["diff", *arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_two_captures(capsys):
    code, out, err = run(capsys, BEFORE, AFTER)
    assert (code, err) == (DONE, "")
    assert "Faster: a step takes 2.90 s instead of 3.60 s, 700 ms" in out
    assert "1.241 × the steps per" in out
    assert "Less exposed communication (-400 ms), data wait (-180 ms), host sync (-120 ms)." in out
    assert "fixed: .item() drains the queue (item-sync)" in out
    assert max(len(line) for line in out.splitlines()) <= 100


@pytest.mark.parametrize("format_", ["text", "markdown", "html", "csv"])
def test_every_format_says_the_same(capsys, format_):
    code, out, _ = run(capsys, BEFORE, AFTER, "-f", format_)
    assert code == DONE
    expected = {"csv": "data_wait,180032622,0,-180032622"}.get(format_, "2.90 s instead of 3.60 s")
    assert expected in out


def test_json_follows_its_schema(capsys):
    code, out, _ = run(capsys, BEFORE, AFTER, "--json", "--fail-if-slower", "2%")
    value = json.loads(out)
    assert code == DONE
    assert problems(value) == []
    assert sum(c["difference_ns"] for c in value["classes"]) == value["step"]["difference_ns"]
    assert value["throughput"]["speedup"] == pytest.approx(1.2415, rel=1e-3)
    assert value["gates"][0]["state"] == "passed"


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"efficiency": {"run": RUN, "mfu": 0.4, "convention": "6N"}},
        {"steps": {"source": "whole capture"}, "kernels": [kernel("gemm")], "families": [kernel("gemm")]},
        {"profile": {"world_size": 64}},
        {"ranges": [{"path": ["forward"], "count": 1, "host_ns": 1, "gpu_ns": 2}]},
        {"findings": [{"rule": "item-sync", "title": "t", "class": "host_sync", "loss_ns": {"host_sync": 5}, "saving_ns": 4}]},
    ],
    ids=["bare", "efficiency", "capture", "mismatch", "ranges", "findings"],
)
def test_odd_sides_follow_the_schema_too(capsys, saved, more):
    whole = {"steps": {"source": "whole capture"}} if "steps" in more else {}
    _, out, _ = run(capsys, saved("a", STEADY, **more), saved("b", [90 * MS], **whole), "--json")
    assert problems(json.loads(out)) == []


def test_the_schema_notices_what_is_missing():
    assert problems({"format": 1})


def test_either_side_may_be_a_saved_report(capsys, tmp_path):
    baseline = tmp_path / "baseline.json"
    assert main(["report", BEFORE, "-o", str(baseline), "-q"]) == DONE
    capsys.readouterr()
    code, out, _ = run(capsys, str(baseline), AFTER)
    assert code == DONE
    assert "(saved)" in out
    assert "Faster: a step takes 2.90 s instead of 3.60 s" in out


def test_a_saved_report_cannot_be_cut(capsys, saved):
    code, _, err = run(capsys, saved("a", STEADY), AFTER, "--steps", "12:14")
    assert code == DONE
    assert "a.json is a saved report: --steps cannot change it" in err


def test_steps_and_ranks_can_be_chosen(capsys):
    code, out, _ = run(capsys, str(SAMPLES / "before-kineto"), AFTER, "--steps", "12:14", "--ranks", "0-1")
    assert code == DONE
    assert "2 of 32 ranks" in out
    assert "2 steps (ProfilerStep#12, 13)" in out


def test_output_goes_to_a_file(capsys, tmp_path):
    code, out, err = run(capsys, BEFORE, AFTER, "-o", str(tmp_path / "d.md"))
    assert (code, out) == (DONE, "")
    assert err == f"traceread: wrote {tmp_path / 'd.md'}\n"
    assert (tmp_path / "d.md").read_text("utf-8").startswith("# ")


# --- gates -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--fail-if-slower", "2%"], GATE),
        (["--fail-if-slower", "10%"], DONE),
        (["--fail-if-slower", "2ms"], GATE),
        (["--fail-if", "compute>+4ms"], GATE),
        (["--fail-if", "compute>+40ms", "--fail-if", "data_wait>1ms"], DONE),
        (["--fail-if", "compute>+40ms", "--fail-if", "median>1%"], GATE),
    ],
)
def test_gates_set_the_exit_code(capsys, saved, arguments, code):
    before, after = saved("a", STEADY), saved("b", [s + 5 * MS for s in STEADY])
    found, out, err = run(capsys, before, after, *arguments)
    assert found == code
    assert "gates" in out
    assert ("failed" in err) is (code == GATE)


def test_too_few_steps_pass_and_say_so_unless_strict(capsys, saved):
    sides = saved("a", [100 * MS]), saved("b", [200 * MS])
    code, _, err = run(capsys, *sides, "--fail-if-slower", "2%")
    assert code == DONE
    assert "not decided" in err
    assert run(capsys, *sides, "--fail-if-slower", "2%", "--strict")[0] == GATE


def test_a_faster_side_passes(capsys):
    assert run(capsys, BEFORE, AFTER, "--fail-if-slower", "1%", "--strict")[0] == DONE
    assert run(capsys, AFTER, BEFORE, "--fail-if-slower", "1%")[0] == GATE


def test_junit_and_annotations(capsys, saved, tmp_path):
    before, after = saved("a", STEADY), saved("b", [s + 5 * MS for s in STEADY])
    xml = tmp_path / "gates.xml"
    code, _, err = run(capsys, before, after, "--fail-if-slower", "2%", "--fail-if", "data_wait>1ms", "--junit", str(xml), "--github")
    assert code == GATE
    assert ElementTree.parse(xml).getroot().get("failures") == "1"
    assert [line.split(" ")[0] for line in err.splitlines()] == ["::error", "::notice"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--fail-if", "colour>5ms"],
        ["--fail-if", "step"],
        ["--fail-if-slower", "fast"],
        ["--set", "global_batch"],
        ["--set", "=5"],
        ["--set", "global_batch=5:"],
    ],
)
def test_wrong_usage(capsys, arguments):
    code, _, err = run(capsys, BEFORE, AFTER, *arguments)
    assert code == USAGE
    assert "write" in err or "one of" in err


# --- fairness --------------------------------------------------------------------------------------------------------------------


def test_mismatches_are_allowed_by_name(capsys, saved):
    before, after = saved("a", STEADY, profile={"world_size": 8}), saved("b", [s - 9 * MS for s in STEADY], profile={"world_size": 2})
    code, out, _ = run(capsys, before, after)
    assert code == DONE
    assert "Not comparable: number of GPUs (8 → 2) differs." in out
    assert "Faster" in run(capsys, before, after, "--allow-mismatch", "world_size,gpu")[1]


def test_values_can_be_said(capsys, saved):
    before, after = saved("a", STEADY), saved("b", STEADY)
    assert "Not comparable: global batch" in run(capsys, before, after, "--set", "global_batch=256:512")[1]
    assert "No difference" in run(capsys, before, after, "--set", "global_batch=256")[1]


def test_unknown_keys_are_refused(capsys, saved):
    code, _, err = run(capsys, saved("a", STEADY), saved("b", STEADY), "--allow-mismatch", "colour")
    assert code == COULD_NOT
    assert "'colour' is no compare key [compare-key]" in err


def test_what_cannot_be_compared_is_refused(capsys, saved):
    code, _, err = run(capsys, saved("a", STEADY), saved("b", [], summary=None))
    assert code == COULD_NOT
    assert "[nothing-to-compare]" in err


# --- gates of a report -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--fail-on", "high"], GATE),
        (["--fail-on", "item-sync"], GATE),
        (["--fail-on", "gc-pause"], DONE),
        (["--fail-on", "gc-pause", "--fail-on", "low"], GATE),
    ],
)
def test_reports_have_gates_on_findings(capsys, arguments, code):
    assert main(["report", BEFORE, "-q", *arguments]) == code
    assert main(["report", AFTER, "-q", *arguments]) == DONE


def test_a_rule_that_does_not_exist_is_refused_before_anything_is_shown_or_kept(capsys, tmp_path):
    database = tmp_path / "runs.db"
    assert main(["report", AFTER, "--fail-on", "colour", "--db", str(database)]) == COULD_NOT
    assert not database.exists()
    said = capsys.readouterr()
    assert said.out == ""
    assert "'colour' is neither a rule nor a severity" in said.err


def test_findings_in_junit(tmp_path, capsys):
    xml = tmp_path / "gates.xml"
    assert main(["report", BEFORE, "--fail-on", "high", "--fail-on", "gc-pause", "--junit", str(xml)]) == GATE
    root = ElementTree.parse(xml).getroot()
    assert (root.get("tests"), root.get("failures")) == ("2", "1")


def test_the_example_workflow_uses_options_that_exist():
    workflow = (ROOT / "docs" / "examples" / "step-time.yml").read_text("utf-8")
    [command] = re.findall(r"^ +(traceread diff .*(?:\n +--.*)*)", workflow, re.MULTILINE)
    from traceread.cli import _parser

    args = _parser()[0].parse_args(shlex.split(command)[1:])
    assert [str(gate) for gate in args.gates] == ["step > +2%", "exposed_communication > +5ms"]
    assert args.github
    assert args.junit == Path("gates.xml")
