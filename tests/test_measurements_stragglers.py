"""The straggler: the planted rank with its cause in every kind of job, and nobody where nobody is late."""

import pytest
from job import MS, US, simulated, with_fault

from traceread.measurements.blame import Cause
from traceread.simulate.phases import Allocate, Checkpoint, Python, Recompile


@pytest.mark.parametrize(
    ("job", "rank", "cause", "evidence"),
    [
        ("straggler-data", 2, Cause.DATA_WAIT, "DataLoader"),
        ("straggler-compute", 2, Cause.COMPUTE, ""),
        ("E-straggler", 1, Cause.COMPUTE, ""),
        ("straggler-host", 2, Cause.LAUNCH_BOUND, "cudaLaunchKernel"),
        ("straggler-sync", 2, Cause.HOST_SYNC, "cudaStreamSynchronize"),
        ("straggler-gc", 2, Cause.LAUNCH_BOUND, "gc.collect"),
        (with_fault(Python(40 * MS)), 2, Cause.UNATTRIBUTED, None),  # silence: nothing is recorded about it
        (with_fault(Allocate(4, 1500 * US, free=True)), 2, Cause.ALLOCATION, "cudaMalloc"),
        (with_fault(Recompile(60 * MS), rank=0), 0, Cause.COMPILE, "dynamo"),
        (with_fault(Checkpoint(2, 1 << 20, 500 * US, 6 * MS), rank=3), 3, Cause.CHECKPOINT, "checkpoint"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_planted_rank_is_named_with_its_cause(job, rank, cause, evidence):
    found = simulated(job, ranks=4, steps=4)[0].rank_table.straggler
    assert (found.rank, found.cause) == (rank, cause)
    assert evidence is None or (evidence in found.evidence if evidence else found.evidence == "")
    assert sum(ns for _, ns in found.causes) == found.charged_ns
    assert found.charged_ns >= 0.9 * found.waiting_ns


@pytest.mark.parametrize("job", ["healthy", "two-hosts", "fsdp-tail", "moe-imbalance", "pipeline-1f1b"])
def test_nobody_is_named_where_nobody_is_late(job):
    assert simulated(job, steps=4)[0].rank_table.straggler is None


@pytest.mark.parametrize("without", ["data-loader", "slow-gpu"])
def test_nobody_is_named_once_the_fault_is_gone(without):
    job = {"data-loader": "straggler-data", "slow-gpu": "straggler-compute"}[without]
    assert simulated(job, ranks=4, steps=4, without=(without,))[0].rank_table.straggler is None


def test_a_slow_gpu_is_slow_in_all_of_its_kernels():
    found = simulated("straggler-compute", ranks=4, steps=4)[0].rank_table.straggler
    assert found.kernels.everywhere
    assert 1.10 < found.kernels.own_ns / found.kernels.typical_ns < 1.13  # 12 % in most of them
    assert found.launches is None


def test_a_slow_host_launches_slowly():
    found = simulated("straggler-host", ranks=4, steps=4)[0].rank_table.straggler
    assert found.launches.own_ns > 2 * found.launches.typical_ns
    assert found.kernels is None


@pytest.mark.parametrize(("ranks", "nodes"), [(8, 1), (16, 8)])
def test_larger_jobs_on_machines_with_other_clocks(ranks, nodes):
    found = simulated("straggler-data", ranks=ranks, nodes=nodes, steps=3)[0].rank_table.straggler
    assert (found.rank, found.cause) == (2, Cause.DATA_WAIT)


@pytest.mark.parametrize("how", [{"format": "nsys"}, {"collectives": False}, {"vendor": "amd"}, {"era": "us"}], ids=str)
def test_whatever_wrote_the_capture(how):
    found = simulated("straggler-data", ranks=4, steps=4, **how)[0].rank_table.straggler
    assert (found.rank, found.cause) == (2, Cause.DATA_WAIT)
