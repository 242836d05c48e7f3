"""The fix list against what simulated jobs take without their planted faults, and on real captures."""

import functools
import json
import random
from pathlib import Path

import pytest

import traceread
from traceread.simulate import Capture, Fault, Job, Machine, phases, scenarios, simulate, step_time, write_run
from traceread.simulate.models import SHALLOW, ZERO_GRAD, backward, forward, update
from traceread.simulate.program import MS, US

TRACES = Path(__file__).parents[2] / "shared" / "traces"
SCENARIOS = scenarios()
REAL = json.loads(Path(__file__).with_name("gold").joinpath("real_fix_lists.json").read_text("utf-8"))

FAULTS = {
    "A-launch-bound": [("launch-bound", "host")],
    "B-exposed-communication": [("exposed-communication", "allreduce")],
    "C-input-stall": [("data-loading", "data-loader")],
    "D-host-sync": [("item-sync", "item")],
    "E-straggler": [("slow-gpu", "slow-gpu")],
    "allocator-churn": [("allocator-churn", "allocator")],
    "checkpoint": [("checkpoint-stall", "checkpoint")],
    "data-stall": [("data-loading", "data-loader")],
    "data-stall-unannotated": [("data-loading", "data-loader")],
    "ddp-allreduce": [("exposed-communication", "allreduce")],
    "first-launch": [("code-loading", "loading")],
    "first-launch-recorded": [("code-loading", "loading")],
    "fsdp-tail": [("exposed-communication", "reduce-scatter")],
    "garbage-collection": [("gc-pause", "gc")],
    "item-sync": [("item-sync", "item")],
    "launch-bound": [("launch-bound", "host")],
    "llama7b": [("exposed-communication", "reduce-scatter"), ("data-loading", "data-loader"), ("item-sync", "item")],
    "pageable-copies": [("pageable-copy", "pageable")],
    "profiler-overhead": [("profiler-overhead", "flush")],
    "recompile": [("recompilation", "recompile")],
    "straggler-compute": [("slow-gpu", "slow-gpu")],
    "straggler-data": [("data-loading", "data-loader")],
    "straggler-gc": [("gc-pause", "gc")],
    "straggler-host": [("slow-host", "host")],
    "straggler-sync": [("item-sync", "item")],
}
"""For each scenario the findings in order, and the fault that each is about."""

MORE = {"pageable-copies": ["exposed-copy"]}
"""True findings about what was not planted."""

NOT_PLANTED = {
    "cuda-graph": ["exposed-communication"],
    "cuda-graph-partial": ["exposed-communication", "graph-nodes-not-recorded"],
    "memory-bound": ["unfused-elementwise"],
    "moe-imbalance": ["exposed-communication", "uneven-all-to-all"],
    "pipeline-1f1b": ["pipeline-bubble"],
    "tiny-syncs": ["launch-bound"],
    "two-hosts": ["exposed-communication"],
}
"""Scenarios without a fault that a rule is about, and what is found in them."""

NOTHING = ["checkpoint-async", "eval-between-steps", "gradient-accumulation", "healthy", "sync-while-busy"]
"""Scenarios in which there is nothing to gain."""


def report_of(run, directory, capture=None):
    write_run(run, directory, capture or Capture(compress=False), counterfactuals=False, truth=False)
    report = traceread.analyze(directory)
    assert report.fix_list.quality.error < 0.02
    assert [n for n in report.all_notices if n.slug == "rule-failed"] == []
    return report


def check(report, job, expected):
    """The findings are those of the planted faults, and each of them says what the step takes without the faults so far."""
    assert [f.rule for f in report.findings][: len(expected)] == [rule for rule, _ in expected]
    now, gone, before = report.fix_list.step_ns, set(), report.fix_list.step_ns
    for finding, (_, fault) in zip(report.findings, expected, strict=False):
        gone.add(fault)
        true = step_time(simulate(job, without=frozenset(gone))).mean
        assert finding.step_ns_after == pytest.approx(true, abs=max((before - true) // 10, now // 100)), finding.title
        assert before - finding.step_ns_after == finding.saving_ns
        before = finding.step_ns_after


def test_every_scenario_is_looked_at():
    assert {*FAULTS, *NOT_PLANTED, *NOTHING, "capture-cut"} == set(SCENARIOS)


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_listed_with_what_they_save(name, tmp_path):
    job = SCENARIOS[name]
    report = report_of(simulate(job), tmp_path)
    check(report, job, FAULTS[name])
    assert [f.rule for f in report.findings][len(FAULTS[name]) :] == MORE.get(name, [])


@pytest.mark.parametrize("name", ["data-stall", "item-sync", "llama7b", "straggler-compute", "straggler-host"])
def test_the_list_of_an_nsys_export_is_the_same(name, tmp_path):
    job = SCENARIOS[name]
    check(report_of(simulate(job), tmp_path, Capture("nsys")), job, FAULTS[name])


@pytest.mark.parametrize("name", NOT_PLANTED)
def test_what_was_not_planted_is_found_where_it_is(name, tmp_path):
    assert [f.rule for f in report_of(simulate(SCENARIOS[name]), tmp_path).findings] == NOT_PLANTED[name]


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_is_found_where_nothing_is_to_gain(name, tmp_path):
    assert report_of(simulate(SCENARIOS[name]), tmp_path).findings == ()


def test_stragglers_are_found_on_their_rank(tmp_path):
    [finding] = report_of(simulate(SCENARIOS["straggler-compute"]), tmp_path).findings
    assert finding.ranks == (2,)
    assert all(e.rank == 2 and e.names for e in finding.evidence)


def test_many_short_gaps_after_a_wait_are_one_place(tmp_path):
    item = report_of(simulate(SCENARIOS["llama7b"]), tmp_path).findings[2]
    steps = {e.step for e in item.evidence}
    assert len(steps) == len(item.evidence) > 1
    assert [e.end_ns - e.start_ns for e in item.evidence] == pytest.approx([120 * MS] * len(steps), rel=0.01)


# Several faults at once

RULE_OF = {
    "allocator": "allocator-churn",
    "checkpoint": "checkpoint-stall",
    "collector": "gc-pause",
    "compiler": "recompilation",
    "loader": "data-loading",
    "tail": "exposed-communication",
}


def some_faults(numbers):
    """A job with two or three faults of random sizes at random places of the step."""
    between = numbers.randint
    ranks = numbers.choice((1, 2))
    kinds = numbers.sample(sorted(RULE_OF), numbers.choice((2, 3)))
    bodies = {
        "allocator": (phases.Allocate(between(2, 5), between(1 * MS, 2 * MS), free=numbers.random() < 0.5),),
        "checkpoint": (phases.Checkpoint(between(1, 4), 1 << 20, between(100 * US, 1 * MS), between(5 * MS, 20 * MS)),),
        "collector": (phases.GarbageCollection(between(8 * MS, 40 * MS)),),
        "compiler": (phases.Recompile(between(10 * MS, 40 * MS)),),
    }
    places = {kind: numbers.choice(("start", "middle", "end")) for kind in bodies}

    def at(place):
        return [Fault(kind, bodies[kind]) for kind in bodies if kind in kinds and places[kind] == place]

    fetch = phases.Fetch(60 * US)
    if "loader" in kinds:
        fetch = Fault("loader", (phases.Fetch(between(15 * MS, 60 * MS)),), (fetch,))
    back = Fault("tail", (backward(tail=between(2 * MS, 9 * MS)),), (backward(tail=20 * US),)) if "tail" in kinds else backward()
    copy = phases.CopyIn(1_048_576, 40 * US)
    step = (ZERO_GRAD, *at("start"), fetch, copy, forward(24), *at("middle"), forward(24), back, update(), *at("end"))
    machine = numbers.choice((Machine(queue_depth=20), SHALLOW, Machine()))
    return Job("several", "", step, ranks=ranks, steps=4, machine=machine), kinds


@pytest.mark.parametrize("seed", range(10))
def test_with_everything_on_the_list_done_the_step_takes_what_it_takes_without_the_faults(seed, tmp_path):
    numbers = random.Random(seed)
    job, kinds = some_faults(numbers)
    report = report_of(simulate(job), tmp_path, Capture(numbers.choice(("kineto", "nsys"))))
    true = step_time(simulate(job, without=frozenset(kinds))).mean
    assert min(f.step_ns_after for f in report.findings) == pytest.approx(true, rel=0.02)
    assert {f.rule for f in report.findings} <= {RULE_OF[k] for k in kinds}
    for finding in report.findings:
        [kind] = [k for k in kinds if RULE_OF[k] == finding.rule]
        alone = report.fix_list.step_ns - step_time(simulate(job, without=frozenset({kind}))).mean
        assert finding.saving_alone_ns == pytest.approx(alone, abs=report.fix_list.step_ns // 100)


# Real captures


@functools.cache
def real(name):
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"the real trace {name} is not beside this repository")
    return traceread.analyze(traceread.load(path))


@pytest.mark.parametrize("name", REAL)
def test_lists_of_real_captures(name):
    """tests/gold/real_fix_lists.json says for each why it is right; times are those of this implementation."""
    expected, report = REAL[name], real(name)
    assert report.fix_list.step_ns == pytest.approx(expected["step_ns"], rel=0.01)
    assert [f.rule for f in report.findings] == [rule for rule, *_ in expected["findings"]]
    close = report.fix_list.step_ns // 100
    for finding, (_, *times) in zip(report.findings, expected["findings"], strict=True):
        for found, ns in zip((finding.total_loss_ns, finding.saving_ns, finding.saving_alone_ns), times, strict=True):
            assert found == (ns if ns is None else pytest.approx(ns, abs=close)), finding.title


def test_equal_captures_give_equal_lists():
    name = "kineto/dlrm_graph_pair/ungraphed_rank3of8.json.gz"
    first = real(name)
    again = traceread.analyze(traceread.load(TRACES / name))
    assert [f.to_dict(first.base_ns) for f in first.findings] == [f.to_dict(again.base_ns) for f in again.findings]


def test_a_loader_in_the_training_process_is_what_more_workers_help():
    before, after = real("kineto/torch19_workers0.json.gz"), real("kineto/torch19_workers4.json.gz")
    first = before.findings[0]
    assert first.rule == "data-loading"
    assert "num_workers" in first.fix
    assert after.findings[0].rule != "data-loading"
    assert first.step_ns_after == pytest.approx(after.fix_list.step_ns, rel=0.15)  # four workers do not make every wait go


def test_advice_on_all_to_alls_is_about_what_they_exchange(tmp_path):
    experts = report_of(simulate(SCENARIOS["moe-imbalance"]), tmp_path)
    [finding] = [f for f in experts.findings if f.rule == "exposed-communication"]
    assert "DeepEP" in finding.fix
    assert "TorchRec" not in finding.fix
    [finding] = [f for f in real("nsys/fsdp_2gpu_before.sqlite").findings if f.rule == "exposed-communication"]
    assert "ring attention" in finding.fix
    [finding] = [f for f in real("kineto/dlrm_graph_pair/graphed_rank1of2.json.gz").findings if f.rule == "exposed-communication"]
    assert "TorchRec" in finding.fix
    assert "DeepEP" not in finding.fix


def test_graph_nodes_that_were_not_recorded_make_savings_unknown():
    report = real("kineto/compile_graph_a100.json.gz")
    assert report.fix_list.quality.reason
    assert all(f.saving_ns is None for f in report.findings)
    assert "graph-nodes-not-recorded" in {f.rule for f in report.findings}


@pytest.mark.parametrize("name", ["kineto/dlrm_8rank", "nsys/fsdp_2gpu_before.sqlite"])
def test_ranks_that_are_replayed_together_come_out_as_measured(name):
    report = real(name)
    assert len(report._job_graph.graphs) == len(report.ranks)
    assert report.fix_list.quality.error < 0.001
