"""Ranks re-timed together: they come out as measured, and what one of them gains or loses reaches the others."""

from dataclasses import replace

import numpy as np
import pytest
from job import simulated

from traceread.measurements import replay_job
from traceread.measurements.classes import StepClass
from traceread.measurements.clocks import align_clocks
from traceread.measurements.matching import match
from traceread.measurements.replay import Removal
from traceread.measurements.replay_job import JobReplay, alone, job_graph
from traceread.measurements.waiting import find_waiting
from traceread.model import Operation
from traceread.simulate import Fault, Job, phases
from traceread.simulate.models import BATCH, SHALLOW, backward, forward, update
from traceread.simulate.program import MS, US, Stream

STEPS = 20
"""Enough for clocks to be compared."""


def replayed(report, critical=None):
    job = report._job_graph
    return JobReplay(job if critical is None else replace(job, critical=critical))


def of_class(report, rank, step_class, keep=0):
    return {rank: replace(report.rank(rank).inspection.classes[step_class], keep=keep)}


@pytest.mark.parametrize("name", ["healthy", "moe-imbalance", "pipeline-1f1b", "straggler-data", "straggler-compute"])
def test_unchanged_ranks_come_out_as_measured(name):
    report, _ = simulated(name, steps=4)
    replay = replayed(report)
    assert set(replay.job.graphs) == {r.rank for r in report.ranks}
    assert replay.error < 0.0005


@pytest.mark.parametrize("nodes", [2, 4])
def test_clocks_that_differ_change_nothing(nodes):
    report, _ = simulated("straggler-data", steps=4, ranks=4, nodes=nodes)
    replay = replayed(report)
    assert len(replay.job.graphs) == 4
    assert replay.error < 0.001


def rooted(operation, root):
    step = (*BATCH, forward(24), Fault("late", (phases.Python(4 * MS),), ranks=(1,)), phases.Item(), forward(4))
    step += (phases.Communicate(operation, 1_000_000, 500 * US, root=root, wait=True), forward(8), backward(24), update())
    return Job(f"{operation}-{root}", "", step, ranks=3, steps=STEPS, machine=SHALLOW)


@pytest.mark.parametrize("root", [0, 1])
@pytest.mark.parametrize("operation", ["broadcast", "reduce", "scatter", "gather"])
def test_operations_with_a_root_come_out_as_measured(operation, root):
    report, _ = simulated(rooted(operation, root))
    matches = match([told(r, root) for r in report.rank_table.matches.ranks])
    clocks = align_clocks(matches)
    job = make(report, report.summary.critical_rank, matches=matches, clocks=clocks, waiting=find_waiting(matches, clocks, 3))
    assert all(len(job.joins[rank]) > 2 * (STEPS + 1) for rank in range(3))  # more than the two all-reduces of each step
    assert JobReplay(job).error < 0.0005


def told(rank, root):
    """A rank's collectives with the root of those that have one."""
    c = rank.collectives
    return replace(rank, collectives=c.replace(root=np.where(c.operation == Operation.ALL_REDUCE, -1, root)))


def test_everybody_gains_when_the_rank_they_wait_for_gets_faster():
    report, _ = simulated("straggler-data", steps=4, ranks=4)
    assert report.summary.critical_rank == 2
    late = of_class(report, 2, StepClass.DATA_WAIT)
    saved = replayed(report).saving([late])
    assert saved == pytest.approx(25 * MS, rel=0.1)
    for other in (0, 1, 3):
        assert replayed(report, other).saving([late]) == pytest.approx(saved, rel=0.02)


def test_nobody_gains_when_a_rank_that_waits_gets_faster():
    report, _ = simulated("straggler-data", steps=4, ranks=4)
    assert replayed(report).saving([of_class(report, 0, StepClass.COMPUTE, keep=700)]) < 100 * US


def test_waiting_does_not_go_with_faster_links():
    """Rank 0 waits 25 ms of its exposed communication; only the transfer can go."""
    report, _ = simulated("straggler-data", steps=4, ranks=4)
    together = replayed(report, 0)
    every = {r: report.rank(r).inspection.classes[StepClass.EXPOSED_COMMUNICATION] for r in together.job.graphs}
    by_itself = JobReplay(alone(together.graph))
    assert by_itself.saving([{0: every[0]}]) > 20 * MS
    assert together.saving([every]) < 1 * MS


def crossing():
    """One rank launches two collectives of two streams in the other order than the others: each waits for what comes later."""
    one = phases.Communicate("allreduce", 1_000_000, 800 * US, event="one")
    two = phases.Communicate("allreduce", 2_000_000, 600 * US, event="two", stream=Stream.SECOND, group="pair")
    late = Fault("late", (phases.CpuOps(3 * MS, each=100 * US, gap=10 * US),), ranks=(1,))
    crossed = Fault("crossed", (two, late, forward(4), one), (one, late, forward(4), two), ranks=(1,))
    step = (*BATCH, forward(16), phases.Item(), crossed, phases.Await("one"), phases.Await("two"), forward(24), backward(24), update())
    return Job("crossing", "", step, ranks=2, steps=STEPS, machine=SHALLOW)


def test_ranks_that_wait_for_each_other_in_a_circle():
    report, _ = simulated(crossing())
    replay = replayed(report)
    assert len(replay.job.graphs) == 2
    assert replay.error < 0.001
    nothing = {rank: Removal() for rank in replay.job.graphs}
    assert replay.saving([nothing]) == 0


def test_alone_collectives_take_as_long_as_they_took():
    report, _ = simulated("straggler-data", steps=4, ranks=4)
    replay = JobReplay(alone(report.rank(0).inspection.graph))
    assert replay.step_ns == replay.measured_ns == replayed(report, 0).measured_ns


def make(report, critical, *, labels=None, matches=None, clocks=None, waiting=None):
    table = report.rank_table
    graphs = {r.rank: r.inspection.graph for r in report.ranks}
    own = {r.rank: [r.steps.windows[w].label for w in r.inspection.graph.spans.window] for r in report.ranks}
    return job_graph(graphs, own | (labels or {}), critical, matches or table.matches, clocks or table.clocks, waiting or table.waiting)


def test_only_ranks_with_the_same_steps_go_together():
    report, _ = simulated("straggler-data", steps=4, ranks=4)
    assert set(make(report, 2).graphs) == {0, 1, 2, 3}
    assert set(make(report, 2, labels={0: ["other"]}).graphs) == {2}  # a rank of every meeting is missing


def test_a_large_job_is_replayed_by_its_slowest_rank(monkeypatch):
    report, _ = simulated("straggler-data", steps=4, ranks=4)
    monkeypatch.setattr(replay_job, "LARGEST_JOB", 1000)
    assert set(make(report, 2).graphs) == {2}
