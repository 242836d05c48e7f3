import ast
import itertools
import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import traceread.simulate as package
from traceread.errors import TracereadError
from traceread.simulate import Capture, Fault, Job, Machine, Node, scenarios, simulate, step_time, without, write_run
from traceread.simulate.job import Phase, Site
from traceread.simulate.kernels import GEMM, MIXES
from traceread.simulate.models import SHALLOW, STEP, forward
from traceread.simulate.phases import (
    Await,
    Backward,
    Communicate,
    Compute,
    CopyIn,
    Fetch,
    GraphReplay,
    Item,
    LoadCode,
    Python,
    RecordEvent,
    Synchronize,
)
from traceread.simulate.program import MS, US, Code, HostCost, Stream
from traceread.simulate.recording import record
from traceread.simulate.truth import BETWEEN, idle_of, transfers_of, windows_of

STEADY = Machine(host_jitter=0, gpu_jitter=0, collective_noise=0)
SCENARIOS = scenarios()


def one_step(*step: Phase, **changes: object) -> Job:
    changes = {"ranks": 1, "steps": 1, "warmup": 0, "machine": STEADY} | changes
    return Job("test", "", step, **changes)


def ran(job: Job, rank: int = 0):
    """The device of a rank after the job has run, as (name, stream, start, end) in order of launch, and the host."""
    run = simulate(job)
    host = run.hosts[rank]
    device = host.device
    names = [run.library.activities[c].name for c in device.code]
    return list(zip(names, device.stream, device.start, device.end, strict=True)), host, run


def calls(run, host, name: str) -> list[tuple[int, int]]:
    code = run.library.calls.index(name)
    return [(s, e) for s, e, n in zip(host.call_start, host.call_end, host.call_name, strict=True) if n == code]


# Independence


def test_it_imports_nothing_of_the_analysis():
    allowed = {"traceread.errors"}
    for path in Path(package.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            for name in names:
                assert not name.startswith("traceread") or name in allowed or name.startswith("traceread.simulate"), f"{path.name}: {name}"


# The machine


def test_a_kernel_starts_a_launch_latency_after_its_call_on_an_idle_device():
    activities, host, run = ran(one_step(Compute(1, 100 * US)))
    (start, _), *_ = calls(run, host, MIXES["forward"][0].call)
    assert activities[0][2] == start + STEADY.launch_latency
    assert activities[0][3] - activities[0][2] == 100 * US


def test_queued_kernels_follow_each_other_with_the_dispatch_gap():
    activities, _, _ = ran(one_step(Compute(10, 500 * US)))
    gaps = [b[2] - a[3] for a, b in itertools.pairwise(activities)]
    assert all(STEADY.dispatch <= gap <= STEADY.dispatch + 255 for gap in gaps)


def test_a_full_queue_holds_the_launch_call_until_one_launch_is_finished():
    depth = 4
    activities, host, _ = ran(one_step(Compute(12, 500 * US), machine=replace(STEADY, queue_depth=depth)))
    for i in range(depth, 12):
        freed = activities[i - depth][3]
        assert host.call_end[i] == freed + STEADY.host.call
    for i in range(12):  # never more than `depth` launched and unfinished once a call has returned
        unfinished = sum(end > host.call_end[i] for _, _, _, end in activities[: i + 1])
        assert unfinished <= depth


def test_finished_work_of_another_stream_takes_no_place_in_the_queue():
    step = (Compute(1, 10 * US, stream=Stream.SECOND), Compute(8, 500 * US))
    _, host, _ = ran(one_step(*step, machine=replace(STEADY, queue_depth=4)))
    held = [e - s > STEADY.host.call for s, e in zip(host.call_start[:9], host.call_end[:9], strict=True)]
    assert held == [False] * 5 + [True] * 4


def test_streams_overlap_and_events_order_them():
    free, _, _ = ran(one_step(Compute(1, 900 * US), Compute(1, 900 * US, stream=Stream.COMM)))
    assert free[1][2] < free[0][3]
    ordered, _, _ = ran(
        one_step(Compute(1, 900 * US), RecordEvent("done"), _WaitOn(Stream.COMM, "done"), Compute(1, 900 * US, stream=Stream.COMM))
    )
    assert ordered[1][2] >= ordered[0][3]


class _WaitOn(Phase):
    def __init__(self, stream: Stream, event: str) -> None:
        object.__setattr__(self, "where", (stream, event))

    def emit(self, code: Code, site: Site) -> None:
        code.wait_named(*self.where)


def test_a_stream_synchronisation_returns_after_what_it_waits_for():
    activities, host, run = ran(one_step(Compute(3, 500 * US), Synchronize(Stream.COMPUTE)))
    ((start, end),) = calls(run, host, "cudaStreamSynchronize")
    assert start < activities[-1][2]
    assert end == activities[-1][3] + STEADY.sync_return


def test_an_event_synchronisation_does_not_wait_for_what_came_after_the_event():
    activities, host, run = ran(one_step(Compute(1, 500 * US), RecordEvent("first"), Compute(5, 500 * US), Synchronize(event="first")))
    ((_, end),) = calls(run, host, "cudaEventSynchronize")
    assert activities[0][3] < end < activities[-1][3]


def test_a_pageable_copy_blocks_its_call_and_a_pinned_one_does_not():
    for pinned in (True, False):
        activities, host, _ = ran(one_step(CopyIn(1_000_000, 300 * US, pinned=pinned)))
        assert (host.call_end[0] > activities[0][3]) is not pinned
        assert activities[0][0] == f"Memcpy HtoD ({'Pinned' if pinned else 'Pageable'} -> Device)"


def test_all_nodes_of_a_graph_share_one_call():
    activities, host, run = ran(one_step(GraphReplay(50, 20 * US)))
    assert len(activities) == 50
    assert set(host.device.call) == {host.call_name.index(run.library.calls.index("cudaGraphLaunch"))}
    assert all(a[3] <= b[2] for a, b in itertools.pairwise(activities))


def test_code_is_loaded_by_the_first_launch_of_a_name_only():
    _, host, _ = ran(one_step(LoadCode(2, 5 * MS, fresh=False), LoadCode(2, 5 * MS, fresh=False)))
    assert [e - s >= 5 * MS for s, e in zip(host.call_start, host.call_end, strict=True)][:4] == [True, True, False, False]


def test_the_main_thread_waits_for_the_autograd_thread():
    _, host, _ = ran(one_step(Compute(2, 10 * US), Backward((Compute(4, 10 * US, "backward"),)), Compute(1, 10 * US)))
    threads = list(host.call_thread)[:7]
    assert threads == [0, 0, 1, 1, 1, 1, 0]
    assert host.call_start[6] >= host.call_end[5]


def test_loader_workers_work_ahead_and_hold_up_a_faster_consumer():
    fast = replace(STEADY, queue_depth=2)
    slow_worker = one_step(Fetch(40 * MS, workers=2), Compute(10, 1 * MS), steps=7, warmup=2, machine=fast, workers=2)
    run = simulate(slow_worker)
    lengths = [b[1] - a[1] for a, b in zip(run.hosts[0].steps[2:], run.hosts[0].steps[3:], strict=False)]
    assert np.mean(lengths) == pytest.approx(20 * MS, rel=0.02)  # two workers, 40 ms each
    idle_worker = replace(slow_worker, step=(Fetch(15 * MS, workers=2), Compute(10, 1 * MS)))
    run = simulate(idle_worker)
    lengths = [b[1] - a[1] for a, b in zip(run.hosts[0].steps[2:], run.hosts[0].steps[3:], strict=False)]
    assert np.mean(lengths) == pytest.approx(10 * MS, rel=0.05)


# Collectives


def late_job(operation: str, root: int = -1) -> Job:
    late = Fault("late", (Python(700 * US),), ranks=(1,))
    return one_step(late, Communicate(operation, 1_000_000, 200 * US, after=False, root=root), ranks=3)


def starts_and_ends(job: Job) -> tuple[list[int], list[int]]:
    run = simulate(job)
    return [h.device.start[0] for h in run.hosts], [h.device.end[0] for h in run.hosts]


def test_a_collective_transfers_once_the_last_rank_is_there_and_ends_together():
    starts, ends = starts_and_ends(late_job("allreduce"))
    assert max(starts) == starts[1] == starts[0] + 700 * US
    assert set(ends) == {starts[1] + 200 * US}


def test_a_broadcast_waits_for_its_root_alone():
    starts, ends = starts_and_ends(late_job("broadcast", root=0))
    assert ends[0] == starts[0] + 200 * US
    assert ends[2] == max(starts[2], starts[0]) + 200 * US < starts[1]
    starts, ends = starts_and_ends(late_job("broadcast", root=1))
    assert ends[0] == ends[2] == starts[1] + 200 * US


def test_the_root_of_a_reduction_alone_waits_for_everybody():
    starts, ends = starts_and_ends(late_job("reduce", root=0))
    assert ends[0] == starts[1] + 200 * US
    assert ends[2] == starts[2] + 200 * US < starts[1]


def test_truth_splits_waiting_from_transfer():
    run = simulate(late_job("allreduce"))
    parts = [transfers_of(run, h, record(run, h, Capture()), frozenset(range(3)))[0] for h in run.hosts]
    assert [p.wait for p in parts] == [700 * US, 0, 700 * US]
    assert [p.transfer for p in parts] == [200 * US] * 3
    seen = transfers_of(run, run.hosts[0], record(run, run.hosts[0], Capture()), frozenset({0, 2}))[0]
    assert seen.seen_wait == 0 < seen.wait


def test_kernels_behind_a_collective_wait_for_ranks_that_are_late():
    job = one_step(
        Fault("late", (Python(5 * MS),), ranks=(1,)),
        Communicate("allreduce", 1000, 50 * US, after=False),
        Await(),
        Compute(2000, 5 * US),
        ranks=2,
    )
    activities, _, _ = ran(job)
    assert activities[1][2] > 5 * MS
    assert all(a[3] <= b[2] for a, b in itertools.pairwise(activities))


def test_ranks_that_disagree_on_collectives_are_reported():
    job = one_step(
        Fault("extra", (Communicate("allreduce", 8, US, wait=True), Synchronize(Stream.COMPUTE)), ranks=(0,)), Compute(1, US), ranks=2
    )
    with pytest.raises(TracereadError, match="does not run to its end"):
        simulate(job)


# Determinism and clocks


def test_the_same_seed_gives_the_same_files(tmp_path):
    for capture in (Capture("kineto"), Capture("nsys")):
        contents = []
        for i, seed in enumerate((5, 5, 6)):
            directory = tmp_path / f"{capture.format}{i}"
            paths = write_run(simulate(SCENARIOS["item-sync"], steps=2, seed=seed), directory, capture, counterfactuals=False)
            contents.append([p.read_bytes() for p in [*paths, directory / "truth.json"]])
        assert contents[0] == contents[1]
        assert all(a != b for a, b in zip(contents[0], contents[2], strict=True))


def test_removing_a_fault_leaves_the_jitter_of_everything_else():
    job = replace(SCENARIOS["item-sync"], steps=2)
    lengths = []
    for removed in (frozenset(), frozenset({"item"})):
        run = simulate(job, without=removed)
        d = run.hosts[0].device
        gemms = [e - s for s, e, c in zip(d.start, d.end, d.code, strict=True) if run.library.activities[c].name == GEMM.name]
        lengths.append(gemms)
    assert lengths[0] == lengths[1]
    assert len(set(lengths[0])) > 10


def test_a_fault_that_the_job_does_not_have_is_refused():
    with pytest.raises(TracereadError, match="no fault called lightning; it has item"):
        simulate(SCENARIOS["item-sync"], without=frozenset({"lightning"}))


def test_whole_microseconds_when_a_tick_is_one():
    run = simulate(SCENARIOS["healthy"], steps=2, tick=1000)
    rows = record(run, run.hosts[0], Capture())
    assert not (rows.start % 1000).any()
    assert not (rows.call_end % 1000).any()


def test_rows_stand_on_the_clock_of_their_machine():
    nodes = (Node("a"), Node("b", offset_ns=5 * MS, drift_ppb=100_000))
    run = simulate(one_step(*STEP, ranks=2, nodes=nodes))
    here, there = (record(run, h, Capture()) for h in run.hosts)
    true = [np.array(h.device.start) for h in run.hosts]
    assert (there.start - here.start[0] == true[1] - true[0][0] + 5 * MS + true[1] * 100_000 // 10**9).all()


# Truth


def everything_true(job: Job, capture: Capture, **changes: int):
    run = simulate(job, **changes)
    for host in run.hosts:
        rows = record(run, host, capture)
        windows = windows_of(run, rows, capture)
        yield run, host, rows, windows, idle_of(run, host, rows, capture, windows)


@pytest.mark.parametrize("name", SCENARIOS)
def test_windows_tile_and_idle_intervals_are_what_is_not_busy(name):
    job = SCENARIOS[name]
    for capture in (Capture("kineto", stacks=True), Capture("nsys", graphs="graph")):
        for _, _, rows, windows, idle in everything_true(job, capture, ranks=min(job.ranks, 4), steps=2 if job.cut is None else 4):
            assert all(a.end == b.start for a, b in itertools.pairwise(windows))
            first, last = windows[0].start, windows[-1].end
            start, end = np.clip(rows.start, first, last), np.clip(rows.end, first, last)
            reach = np.maximum.accumulate(np.append(first, end))
            gaps = np.maximum(np.append(start, last) - reach, 0)
            assert sum(i.end - i.start for i in idle) == gaps.sum()
            assert all(a.end <= b.start for a, b in itertools.pairwise(idle))


CAUSES = {
    "launch-bound": "launch_bound",
    "A-launch-bound": "launch_bound",
    "data-stall": "data_wait",
    "data-stall-unannotated": "data_wait",
    "C-input-stall": "data_wait",
    "item-sync": "host_sync",
    "D-host-sync": "host_sync",
    "tiny-syncs": "launch_bound",
    "allocator-churn": "allocation",
    "recompile": "compile",
    "first-launch": "compile",
    "checkpoint": "checkpoint",
    "garbage-collection": "launch_bound",
    "cuda-graph-partial": "unattributed",
    "profiler-overhead": "profiler",
}


@pytest.mark.parametrize("name", CAUSES)
def test_a_planted_cause_is_the_true_cause(name):
    total: dict[str, int] = defaultdict(int)
    length = 0
    for _, _, _, windows, idle in everything_true(SCENARIOS[name], Capture(), steps=4):
        length += sum(w.end - w.start for w in windows[1:])
        for interval in idle:
            if interval.step != windows[0].step:
                total[interval.cause] += interval.end - interval.start
    cause = max(total, key=lambda c: total[c])
    assert cause == CAUSES[name]
    assert total[cause] > 0.1 * length
    assert sum(total.values()) - total[cause] < 0.05 * length


GAINS_MS = {
    "A-launch-bound": {"host": (8, 12)},
    "B-exposed-communication": {"allreduce": (8.8, 9.2)},
    "C-input-stall": {"data-loader": (22, 24)},
    "D-host-sync": {"item": (5.9, 6.2)},
    "E-straggler": {"slow-gpu": (4.2, 4.5)},
    "fsdp-tail": {"reduce-scatter": (299, 301)},
    "sync-while-busy": {"sync": (-0.1, 0.1)},
    "tiny-syncs": {"sync": (0, 0.6)},
    "checkpoint-async": {"checkpoint": (-0.1, 0.1)},
    "straggler-data": {"data-loader": (25, 27)},
}


@pytest.mark.parametrize("name", GAINS_MS)
def test_removing_a_fault_gains_what_it_cost(name):
    job = SCENARIOS[name]
    assert set(job.faults) == set(GAINS_MS[name])
    run = simulate(job, steps=4)
    before = step_time(run).median
    for fault, (low, high) in GAINS_MS[name].items():
        gained = (before - step_time(simulate(run.job, without=frozenset({fault}))).median) / MS
        assert low <= gained <= high


def test_each_fault_of_llama7b_stands_alone():
    times = {faults: round(t.median / 1e9, 2) for faults, t in without(simulate(SCENARIOS["llama7b"], ranks=4))}
    assert times == {
        (): 3.60,
        ("data-loader",): 3.42,
        ("item",): 3.48,
        ("reduce-scatter",): 3.20,
        ("reduce-scatter", "data-loader"): 3.02,
        ("reduce-scatter", "data-loader", "item"): 2.90,
    }


def test_llama7b_is_the_step_of_its_description():
    run = simulate(SCENARIOS["llama7b"], ranks=4)
    host, capture = run.hosts[0], Capture()
    rows = record(run, host, capture)
    windows = windows_of(run, rows, capture)
    assert [w.step for w in windows] == [f"ProfilerStep#{n}" for n in range(11, 17)]
    nccl = np.array([a.collective >= 0 for a in run.library.activities])[rows.code]
    for window in windows[1:]:
        idle = defaultdict(int)
        for i in idle_of(run, host, rows, capture, windows):
            if i.step == window.step:
                idle[i.cause] += i.end - i.start
        assert idle["data_wait"] == pytest.approx(180 * MS, rel=0.005)
        assert idle["host_sync"] == pytest.approx(120 * MS, rel=0.005)
        mine = ~nccl & (rows.start >= window.start) & (rows.end <= window.end)
        computing = (rows.end - rows.start)[mine].sum()
        assert computing == pytest.approx(2900 * MS, rel=0.001)
        exposed = window.end - window.start - computing - sum(idle.values())
        assert exposed == pytest.approx(400 * MS, rel=0.005)
    waits = [t.wait for t in transfers_of(run, host, rows, frozenset(range(4))) if t.operation == "_reduce_scatter_base"]
    assert max(waits) < MS
    sent = sum(2 * c.group.ranks[-1] * max(c.elements_in, c.elements_out) // 4 for c in _collectives_of_a_step(run, rows, windows[1]))
    assert sent == pytest.approx(3 * 2 * 6.74e9 * 3 / 4, rel=0.001)  # four ranks here: each sends 3/4 of the tensor


def _collectives_of_a_step(run, rows, window):
    inside = (rows.start >= window.start) & (rows.end <= window.end)
    for code in rows.code[inside].tolist():
        number = run.library.activities[code].collective
        if number >= 0:
            yield run.library.collectives[number]


def test_time_between_steps_has_windows_of_its_own():
    for _, _, _, windows, _ in everything_true(SCENARIOS["eval-between-steps"], Capture(), steps=3):
        assert [w.step for w in windows] == ["step 3", BETWEEN, "step 4", BETWEEN, "step 5"]
        assert all(w.end - w.start > MS for w in windows)


def test_a_cut_capture_drops_what_lies_outside_in_part():
    run = simulate(SCENARIOS["capture-cut"])
    host = run.hosts[0]
    rows = record(run, host, Capture())
    assert rows.start.min() >= rows.window[0]
    assert rows.end.max() <= rows.window[1]
    assert (rows.call == -1).any()  # launched before the capture
    assert len(rows.start) < len(host.device.start)
    assert rows.range_open.sum() == 1  # the last step


def test_stacks_turn_silence_into_execution_and_nothing_else():
    slow = one_step(
        Fetch(60 * US), CopyIn(1000, 5 * US), forward(8), Synchronize(Stream.COMPUTE), Python(20 * MS, frames=40), forward(8), steps=2
    )
    found = []
    for stacks in (False, True):
        *_, idle = next(everything_true(slow, Capture(stacks=stacks)))
        total = defaultdict(int)
        for i in idle:
            total[i.cause] += i.end - i.start
        found.append(total)
    without_stacks, with_stacks = found
    assert without_stacks["unattributed"] > 35 * MS
    assert with_stacks["unattributed"] == 0
    assert sum(without_stacks.values()) == sum(with_stacks.values())
    assert without_stacks["data_wait"] == with_stacks["data_wait"]


def test_truth_json_has_the_documented_form(tmp_path):
    write_run(simulate(SCENARIOS["straggler-data"], steps=2), tmp_path, Capture())
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert truth["format"] == 1
    assert truth["job"] == "straggler-data"
    assert {frozenset(row) for row in truth["idle"]} == {frozenset({"rank", "step", "start_ns", "end_ns", "cause"})}
    assert {"id", "rank", "wait_ns", "transfer_ns"} <= set(truth["collectives"][0])
    assert truth["clocks"][0] == {"rank": 0, "offset_ns": 0, "drift_ppm": 0.0}
    assert [row["faults"] for row in truth["without"]] == [[], ["data-loader"]]
    assert truth["without"][0]["step_ns"] > truth["without"][1]["step_ns"] + 20 * MS
    by_operation = defaultdict(list)
    for part in truth["collectives"]:
        by_operation[part["id"]].append(part)
    for parts in by_operation.values():
        assert len(parts) == 4
        assert all(p["wait_ns"] + p["transfer_ns"] == p["end_ns"] - p["start_ns"] for p in parts)
        assert min(p["wait_ns"] for p in parts) == 0


def test_every_scenario_says_what_it_is_about():
    for name, job in SCENARIOS.items():
        assert job.name == name
        assert job.about.endswith(".")
    assert {"llama7b", "healthy", "pipeline-1f1b", "moe-imbalance", "two-hosts"} <= set(SCENARIOS)


def test_ranks_and_steps_can_be_changed():
    run = simulate(SCENARIOS["healthy"], ranks=3, steps=7)
    assert len(run.hosts) == 3
    assert len(windows_of(run, record(run, run.hosts[2], Capture()), Capture())) == 7


def test_the_pipeline_idles_in_its_bubble():
    job = replace(SCENARIOS["pipeline-1f1b"], machine=STEADY)
    stages, microbatches = 4, 8
    run = simulate(job, ranks=stages, steps=2)
    window = windows_of(run, record(run, run.hosts[0], Capture()), Capture())[-1]
    work = microbatches * 12 * MS
    assert (window.end - window.start) / work == pytest.approx((microbatches + stages - 1) / microbatches, rel=0.03)


def test_run_ahead_hides_a_short_fetch():
    job = one_step(Fetch(3 * MS), Compute(40, 500 * US), steps=4, warmup=1, machine=replace(SHALLOW, queue_depth=20))
    for *_, idle in everything_true(job, Capture()):
        assert {i.cause for i in idle if i.step != "ProfilerStep#3"} == {"queued"}


def test_item_is_a_copy_and_a_synchronisation():
    activities, host, run = ran(one_step(Compute(2, 50 * US), Item()))
    assert activities[-1][0] == "Memcpy DtoH (Device -> Pinned)"
    assert len(calls(run, host, "cudaStreamSynchronize")) == 1


def test_host_cost_is_spent_around_the_call():
    cost = HostCost(before=10 * US, call=3 * US, after=4 * US, between=2 * US)
    _, host, run = ran(one_step(Compute(2, US, host=cost)))
    op = [i for i, n in enumerate(host.range_name) if run.library.ranges[n].kind == "op"]
    assert host.call_start[0] - host.range_start[op[0]] == 10 * US
    assert host.range_end[op[0]] - host.call_end[0] == 4 * US
    assert host.range_start[op[1]] - host.range_end[op[0]] == 2 * US
