"""The whole pipeline against simulated captures whose truth is known."""

import importlib.util
import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest

import traceread
from traceread.categories.host import HostNames
from traceread.measurements.clocks import align_clocks
from traceread.measurements.collectives import find_collectives
from traceread.measurements.launches import find_launches
from traceread.measurements.matching import Matches, match
from traceread.measurements.steps import StepOptions, find_steps
from traceread.measurements.waiting import Split, find_waiting
from traceread.model import RangeKind
from traceread.simulate import Capture, Job, Machine, phases, scenarios, simulate, write_run
from traceread.simulate.job import Phase
from traceread.simulate.models import NO_HOST, SLOW_HOST
from traceread.simulate.program import MS, US, Stream


def _benchmark():
    spec = importlib.util.spec_from_file_location("accuracy", Path(__file__).parents[1] / "benchmarks" / "accuracy.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


accuracy = _benchmark()
SCENARIOS = scenarios()


def few(name: str) -> dict[str, int]:
    job = SCENARIOS[name]
    return {"ranks": min(job.ranks, 4), "steps": 4 if job.cut else 3}


@pytest.mark.parametrize("format_", ["kineto", "nsys"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_idle_cause_is_within_one_percent_of_the_step(name, format_, tmp_path):
    result = accuracy.measure(SCENARIOS[name], Capture(format_, compress=False), tmp_path, **few(name))
    assert result.adds_up
    assert result.windows_agree
    error, cause = result.error
    assert error <= accuracy.TOLERANCE, f"{cause}\n{accuracy.detail(result)}"


VARIANTS = {
    "spring 2024": Capture(era="ns-epoch", compress=False),
    "microseconds": Capture(era="us", compress=False),
    "2021": Capture(era="2021", compress=False),
    "AMD": Capture(vendor="amd", compress=False),
    "stacks, shapes and stream waits": Capture(stacks=True, shapes=True, sync_events=True),
    "no metadata of collectives": Capture(collectives=False, compress=False),
    "nsys 2021": Capture("nsys", schema="old"),
    "nsys 2023": Capture("nsys", schema="middle", files="job"),
    "one file for the job": Capture("nsys", files="job"),
    "graphs as one": Capture("nsys", graphs="graph"),
    "odd exports": Capture("nsys", oddities=frozenset({"bad-text", "user-columns", "data-loss"})),
}


@pytest.mark.parametrize("name", ["item-sync", "pageable-copies", "cuda-graph", "first-launch"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_no_era_vendor_or_schema_changes_the_answer(variant, name, tmp_path):
    result = accuracy.measure(SCENARIOS[name], VARIANTS[variant], tmp_path, steps=3)
    assert result.passes, accuracy.detail(result)


def random_phase(numbers: random.Random, depth: int = 0) -> Phase:
    """Any phase of the vocabulary, with any sizes."""

    def between(low: int, high: int) -> int:
        return numbers.choice((low, high, numbers.randint(low, high)))

    def few_more(top: int = 3) -> int:
        return numbers.randint(1, top)

    host = numbers.choice((None, SLOW_HOST, NO_HOST))
    some = numbers.random() < 0.5
    leaves = (
        lambda: phases.Compute(few_more(40), between(3 * US, 300 * US), host=host),
        lambda: phases.Fetch(between(20 * US, 8 * MS), annotated=some, frames=few_more()),
        lambda: phases.CopyIn(1_000_000, between(5 * US, 2 * MS), pinned=some, copies=few_more()),
        lambda: phases.Item(),
        lambda: phases.Synchronize(numbers.choice((None, Stream.COMPUTE, Stream.COMM))),
        lambda: phases.Python(between(10 * US, 5 * MS), frames=few_more(10)),
        lambda: phases.CpuOps(between(500 * US, 6 * MS), each=between(20 * US, 900 * US), gap=between(10 * US, 1500 * US)),
        lambda: phases.Allocate(few_more(), between(50 * US, 2 * MS), free=some),
        lambda: phases.Recompile(between(MS, 12 * MS)),
        lambda: phases.LoadCode(few_more(), between(1100 * US, 9 * MS), recorded=some),
        lambda: phases.Checkpoint(few_more(), 1 << 20, between(100 * US, 3 * MS), between(MS, 10 * MS), asynchronous=some),
        lambda: phases.GarbageCollection(between(500 * US, 20 * MS)),
        lambda: phases.ProfilerFlush(between(100 * US, 10 * MS)),
        lambda: phases.Communicate("allreduce", 1_000_000, between(10 * US, 3 * MS), wait=some, dtype="Float"),
        lambda: phases.GraphReplay(few_more(80), between(5 * US, 100 * US)),
    )
    choice = numbers.randrange(len(leaves) + 4)
    if choice < len(leaves) or depth == 2:
        return leaves[choice % len(leaves)]()
    inside = [random_phase(numbers, depth + 1) for _ in range(few_more(4))]
    if choice % 2:
        return phases.Annotate(numbers.choice(("forward", "loss", "log metrics")), tuple(inside))
    # what blocks the autograd thread counts where that thread launches, so it ends with a launch
    launching = [p for p in inside if isinstance(p, (phases.Compute, phases.Communicate, phases.Item, phases.Python))]
    return phases.Backward((*launching, phases.Compute(4, 50 * US, "backward")))


@pytest.mark.parametrize("seed", range(12))
def test_jobs_of_any_phases_in_any_order(seed, tmp_path):
    numbers = random.Random(seed)
    step = (*(random_phase(numbers) for _ in range(numbers.randint(3, 14))), phases.Compute(numbers.randint(2, 40), 100 * US))
    job = Job(f"random-{seed}", "", step, steps=3, machine=Machine(queue_depth=numbers.choice((4, 20, 100, 1024))))
    kineto = Capture(compress=False, stacks=numbers.random() < 0.5, sync_events=numbers.random() < 0.5)
    for capture in (kineto, Capture("nsys", graphs=numbers.choice(("node", "graph")))):
        result = accuracy.measure(job, capture, tmp_path / capture.format)
        assert result.passes, f"{step}\n{accuracy.detail(result)}"


def classes(directory: Path) -> list[tuple]:
    rows = traceread.analyze(traceread.load(directory)).partition.to_dict()
    return [(r["rank"], r["step"], r["end_ns"] - r["start_ns"], tuple(r["classes"].items())) for r in rows]


@pytest.mark.parametrize("name", ["item-sync", "straggler-data", "checkpoint-async", "capture-cut", "eval-between-steps"])
def test_both_formats_and_all_schemas_give_the_same_partition(name, tmp_path):
    run = simulate(SCENARIOS[name], **few(name))
    captures = [Capture("kineto"), *(Capture("nsys", schema=schema) for schema in ("old", "middle", "new"))]
    found = []
    for i, capture in enumerate(captures):
        write_run(run, tmp_path / str(i), capture, counterfactuals=False, truth=False)
        found.append(classes(tmp_path / str(i)))
    assert found[0]
    assert all(one == found[0] for one in found[1:])


@pytest.mark.parametrize("name", ["healthy", "pageable-copies", "cuda-graph", "fsdp-tail"])
def test_one_timeline_gives_equal_tables_through_both_formats(name, tmp_path):
    run = simulate(SCENARIOS[name], **few(name))
    profiles = []
    for capture in (Capture("kineto"), Capture("nsys")):
        write_run(run, tmp_path / capture.format, capture, counterfactuals=False, truth=False)
        profiles.append(traceread.load(tmp_path / capture.format))
    for kineto, nsys in zip(*profiles, strict=True):
        assert kineto.rank == nsys.rank
        for column in (
            "start_ns",
            "end_ns",
            "kind",
            "device",
            "stream",
            "correlation",
            "bytes",
            "copy_kind",
            "pageable",
            "category",
            "family",
        ):
            ours, theirs = getattr(kineto.activities, column), getattr(nsys.activities, column)
            both = (ours >= 0) & (theirs >= 0) if column == "bytes" else slice(None)
            assert np.array_equal(ours[both], theirs[both]), column
        assert names_of(kineto, kineto.activities.name) == names_of(nsys, nsys.activities.name)
        for column in ("start_ns", "end_ns", "correlation"):
            assert np.array_equal(getattr(kineto.calls, column), getattr(nsys.calls, column)), column
        assert names_of(kineto, kineto.calls.name) == names_of(nsys, nsys.calls.name)
        assert tids_of(kineto, kineto.calls.thread) == tids_of(nsys, nsys.calls.thread)
        for kind in (RangeKind.OP, RangeKind.ANNOTATION):
            assert ranges_of(kineto, kind) == ranges_of(nsys, kind)


def names_of(trace, codes):
    return [trace.names[c] for c in codes]


def tids_of(trace, codes):
    return [trace.threads[c].tid for c in codes]


def ranges_of(trace, kind):
    """Ranges of a kind; NCCL's own NVTX ranges stand in one format alone."""
    r = trace.ranges
    rows = zip(r.start_ns.tolist(), r.end_ns.tolist(), names_of(trace, r.name), tids_of(trace, r.thread), r.kind.tolist(), strict=True)
    own = [row for row in rows if row[4] == kind]
    return sorted(row for row in own if not row[2].startswith("nccl") or row[2].startswith("nccl:"))


def test_stacks_change_nothing_but_which_silence_is_unattributed(tmp_path):
    for name in ("item-sync", "data-stall", "checkpoint"):
        found = []
        for stacks in (False, True):
            directory = tmp_path / f"{name}{stacks}"
            write_run(simulate(SCENARIOS[name], steps=3), directory, Capture(stacks=stacks), counterfactuals=False, truth=False)
            found.append(classes(directory))
        assert found[0] == found[1]


# Across ranks


def matched(profile) -> Matches:
    """The collectives of all ranks of a profile, matched."""
    ranks = []
    for trace in profile:
        launches = find_launches(trace)
        ranks.append(find_collectives(trace, launches, find_steps(trace, launches, StepOptions(), HostNames())))
    return match(ranks)


ACROSS = {
    "straggler-data": {"kineto", "nsys"},
    "E-straggler": {"kineto", "nsys"},
    "fsdp-tail": {"kineto", "nsys"},
    "two-hosts": {"kineto", "nsys"},
    "moe-imbalance": {"kineto"},  # exports do not say what an all-to-all that was launched before the capture is
    "pipeline-1f1b": {"kineto"},  # exports do not say who sends to whom
}


@pytest.mark.parametrize(("name", "format_"), [(name, f) for name, formats in ACROSS.items() for f in sorted(formats)])
def test_waiting_in_collectives_is_the_true_waiting(name, format_, tmp_path):
    write_run(simulate(SCENARIOS[name], **few(name)), tmp_path, Capture(format_, compress=False), counterfactuals=False)
    truth = {(c["rank"], c["start_ns"]): c for c in json.loads((tmp_path / "truth.json").read_text())["collectives"]}
    matches = matched(traceread.load(tmp_path))
    clocks = align_clocks(matches)
    waiting = find_waiting(matches, clocks)
    rank = np.array([r.rank for r in matches.ranks])[matches.rank_of].tolist()
    starts = matches.column("start_ns").tolist()
    split = [
        (truth[key], found)
        for key, found, how in zip(zip(rank, starts, strict=True), waiting.wait_ns.tolist(), waiting.split, strict=True)
        if how == Split.SPLIT
    ]
    assert len(split) >= 0.9 * len(truth)
    assert sum(t["seen_wait_ns"] for t, _ in split) > 0
    for t, found in split:
        assert abs(t["seen_wait_ns"] - found) <= clocks.residual_ns, t


@pytest.mark.parametrize("format_", ["kineto", "nsys"])
def test_clocks_of_two_machines_are_found_within_their_residual(format_, tmp_path):
    write_run(simulate(SCENARIOS["two-hosts"], steps=6), tmp_path, Capture(format_), counterfactuals=False)
    true = {c["rank"]: c["offset_ns"] for c in json.loads((tmp_path / "truth.json").read_text())["clocks"]}
    clocks = align_clocks(matched(traceread.load(tmp_path)))
    assert clocks.comparable
    for rank, offset in enumerate(clocks.offsets):
        drifted = 2_000  # 4 ppm over less than half a second
        assert abs(offset.offset_ns - true[rank]) <= offset.residual_ns + drifted
