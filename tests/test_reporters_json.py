import json
from functools import cache
from pathlib import Path

import jsonschema
import pytest
import reporter_profiles as profiles

from traceread.measurements.classes import CLASSES, StepClass
from traceread.reporters import render
from traceread.reporters.json import capture_dict, kernels_dict, report_dict, to_json, windows_dict

SCHEMAS = Path(__file__).parents[1] / "docs" / "json-schema"
SCHEMA = SCHEMAS / "report.schema.json"
EVERYTHING = profiles.everything()


@cache
def validator(verb="report"):
    schema = json.loads((SCHEMAS / f"{verb}.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", EVERYTHING)
def test_follows_the_schema(name):
    value = json.loads(render(EVERYTHING[name](), "json"))
    assert [f"{list(e.absolute_path)}: {e.message}" for e in validator().iter_errors(value)] == []


@pytest.mark.parametrize("name", EVERYTHING)
def test_the_other_verbs_follow_theirs(name):
    report = EVERYTHING[name]()
    rank = report.ranks[0]
    answers = {"info": capture_dict(report), "steps": windows_dict(report), "kernels": kernels_dict(report, rank, "name", 3)}
    for verb, answer in answers.items():
        assert [f"{list(e.absolute_path)}: {e.message}" for e in validator(verb).iter_errors(json.loads(to_json(answer)))] == []


def test_what_the_schemas_share_is_the_same():
    schemas = {path.name: json.loads(path.read_text("utf-8")) for path in SCHEMAS.glob("*.schema.json")}
    assert {"report.schema.json", "info.schema.json", "steps.schema.json", "kernels.schema.json"} <= set(schemas)
    for name in ("info.schema.json", "steps.schema.json", "kernels.schema.json"):
        assert schemas[name]["properties"]["profile"] == schemas["report.schema.json"]["properties"]["profile"]


def test_the_schema_knows_the_classes():
    schema = json.loads(SCHEMA.read_text("utf-8"))
    assert tuple(schema["$defs"]["classes"]["properties"]) == CLASSES


@pytest.mark.parametrize("change", ["format", "partition", "headline"])
def test_the_schema_notices_what_is_missing(change):
    value = report_dict(profiles.one_rank())
    del value[change]
    assert not validator().is_valid(value)


@pytest.mark.parametrize("name", EVERYTHING)
def test_classes_sum_to_their_window_and_windows_tile(name):
    report = report_dict(EVERYTHING[name]())
    end_of = {}
    for row in report["partition"]:
        assert sum(row["classes"].values()) == row["end_ns"] - row["start_ns"]
        assert row["start_ns"] == end_of.get(row["rank"], row["start_ns"])
        end_of[row["rank"]] = row["end_ns"]
    summary = report["summary"]
    if summary is not None:
        assert sum(summary["class_ns"].values()) == summary["step_ns"]["mean"]


def test_times_count_from_the_base():
    report = report_dict(profiles.one_rank())
    assert report["profile"]["base_ns"] == str(profiles.BASE)
    first = report["partition"][0]
    assert first["step"] == "ProfilerStep#10"
    assert first["start_ns"] == 0
    assert [row["used"] for row in report["partition"]] == [False, True, True, True]
    assert report["steps"] == {
        "source": "recorded",
        "name": "ProfilerStep",
        "used": ["ProfilerStep#11", "ProfilerStep#12", "ProfilerStep#13"],
        "excluded": [{"step": "ProfilerStep#10", "rank": 3, "reason": "first step"}],
        "fallback": [],
        "outside_share": 0.0,
    }


def test_without_gpu_work_nothing_is_claimed():
    report = report_dict(profiles.host_only())
    assert report["partition"] == []
    assert report["summary"] is None
    assert [w["slug"] for w in report["profile"]["warnings"]] == ["no-gpu-work"]
    assert report["host_rows"][0] == {"rank": 0, "name": "ProfilerStep#7", "kind": "annotation", "count": 1, "total_ns": 90_000_000}
    assert "idle" in report["headline"][0]


def test_whole_capture_is_called_so():
    report = report_dict(profiles.whole_capture())
    assert report["steps"]["source"] == "whole capture"
    assert [row["step"] for row in report["partition"]] == ["whole capture"]


def test_reasons_sum_to_the_idle_classes_of_the_summary():
    report = report_dict(profiles.one_rank())
    steps = len(report["summary"]["steps"])
    for step_class in StepClass:
        if step_class > StepClass.EXPOSED_COPY:
            total = sum(r["total_ns"] for r in report["idle_reasons"] if r["class"] == step_class.key)
            assert total == steps * report["summary"]["class_ns"][step_class.key]
    assert {"class": "data_wait", "reason": "host blocked", "evidence": "recorded", "name": profiles.LOADER}.items() <= (
        report["idle_reasons"][0].items()
    )
    assert "cudaStreamSynchronize in aten::item" in {r["name"] for r in report["idle_reasons"]}


def test_gaps_are_complete_and_as_many_as_asked_for():
    report = report_dict(profiles.four_ranks(), gaps=7)
    assert len(report["idle_gaps"]) == 7
    longest = report["idle_gaps"][0]
    assert longest["rank"] == 2
    assert longest["end_ns"] - longest["start_ns"] == sum(c["duration_ns"] for c in longest["causes"]) == 7_220_000
    assert longest["call"] == "cudaMemcpyAsync"
    assert longest["causes"][0]["evidence"] == "recorded"
    assert report_dict(profiles.four_ranks(), gaps=0)["idle_gaps"] == []


def test_kernels_are_those_with_the_longest_exposed_time():
    report = report_dict(profiles.one_rank())
    exposed = [k["exposed_ns"] for k in report["kernels"]]
    assert exposed == sorted(exposed, reverse=True)
    assert report["kernels"][0]["name"] == profiles.GEMM
    assert {f["family"] for f in report["families"]} == {"gemm", "elementwise", "communication", "copy"}


def test_names_are_kept_as_recorded_and_the_text_is_utf8():
    text = render(profiles.hostile(), "json")
    names = [k["name"] for k in json.loads(text.encode("utf-8"))["kernels"]]
    assert names == ["=1+1", profiles.HOSTILE.replace("\udc80", "\ufffd")]
    assert "\x1b" not in text


def test_info_says_how_to_record_what_is_missing():
    value = json.loads(to_json(capture_dict(profiles.one_rank())))
    stacks = next(r for r in value["recorded"] if r["what"] == "stacks")
    assert stacks["ranks"] == []
    assert "with_stack=True" in stacks["how"]
    assert value["verdict"] == {"good_enough": "yes", "reasons": []}


def test_steps_give_the_reason_for_every_window():
    value = windows_dict(profiles.two_of_four_steps())
    assert [row["reason"] for row in value["partition"]] == ["not selected", "", "", "not selected"]


def test_kernels_by_family_and_limit():
    report = profiles.one_rank()
    value = kernels_dict(report, report.ranks[0], "family", 2)
    assert [k["family"] for k in value["kernels"]] == ["gemm", "communication"]
    assert value["steps_used"] == 3
    assert len(kernels_dict(report, report.ranks[0], "name", 0)["kernels"]) == 4
