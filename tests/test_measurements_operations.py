"""Communication by group and operation: sums, message sizes and bandwidths as nccl-tests defines them."""

from pathlib import Path

import pytest
from job import simulated

import traceread
from traceread.measurements.matching import Group
from traceread.measurements.operations import SMALL_BYTES, OperationTime
from traceread.model import Operation

REAL = Path(__file__).parents[2] / "shared" / "traces"
GROUP = Group("0", "default_pg", 4, (0, 1, 2, 3))


def operation(kind, *, size=4, moved=(0, 0), lasting=(0, 0)):
    return OperationTime(
        group=GROUP, operation=kind, ranks=size, size=size, count=1, sized=1, bytes=moved[0] + lasting[0],
        wait_ns=0, transfer_ns=0, not_split_ns=0, hidden_ns=0,
        moved_bytes=moved[0], moving_ns=moved[1], lasting_bytes=lasting[0], lasting_ns=lasting[1], small=0, small_ns=0, lower_bound=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "size", "factor"),
    [
        (Operation.ALL_REDUCE, 8, 2 * 7 / 8),
        (Operation.ALL_GATHER, 8, 7 / 8),
        (Operation.REDUCE_SCATTER, 4, 3 / 4),
        (Operation.ALL_TO_ALL, 2, 1 / 2),
        (Operation.BROADCAST, 8, 1),
        (Operation.REDUCE, 8, 1),
        (Operation.SEND, 2, 1),
        (Operation.ALL_REDUCE, 1, 0),
    ],
)
def test_bus_bandwidth_is_that_of_nccl_tests(kind, size, factor):
    found = operation(kind, size=size, moved=(8_000_000_000, 10**9))
    assert found.bandwidth == (8_000_000_000, False)
    assert found.bus_bandwidth == 8_000_000_000 * factor


def test_what_may_have_waited_is_a_lower_bound():
    assert operation(Operation.ALL_REDUCE, lasting=(10**9, 10**9)).bandwidth == (10**9, True)
    assert operation(Operation.ALL_REDUCE, moved=(10**9, 10**8), lasting=(10**9, 10**9)).bandwidth == (10**10, False)
    assert operation(Operation.ALL_REDUCE).bandwidth is None
    assert operation(Operation.ALL_REDUCE).bus_bandwidth is None


def test_a_share_of_a_link_needs_a_link():
    found = operation(Operation.ALL_REDUCE, moved=(45_000_000_000, 10**9))
    assert found.to_dict()["link_share"] is None
    assert found.to_dict(450e9)["link_share"] == pytest.approx(0.15)


def test_sums_of_a_simulated_job():
    report, truth = simulated("straggler-data", ranks=4, steps=4)
    table = report.rank_table
    (found,) = table.operations
    assert (found.operation, found.ranks, found.size, found.lower_bound) == (Operation.ALL_REDUCE, 4, 4, False)
    assert found.wait_ns == table.waiting_ns
    assert found.exposed_ns + found.hidden_ns > 0
    assert found.sized == found.count
    for line in table.lines:
        assert line.wait_ns + line.transfer_ns + line.not_split_ns <= line.window_ns
    assert sum(line.transfer_ns for line in table.lines) == found.transfer_ns
    rows = truth["collectives"]
    speed = found.bytes / found.count / (sum(row["transfer_ns"] for row in rows) / len(rows)) * 1e9
    assert found.bandwidth[0] == pytest.approx(speed, rel=0.02)


def test_small_messages_are_counted_apart():
    for found in simulated("moe-imbalance", steps=3)[0].rank_table.operations:
        assert found.small == (found.sized if found.bytes < SMALL_BYTES * found.sized else 0)
        assert (found.small_ns > 0) == (found.small > 0)


def real(name):
    path = REAL / "kineto" / name
    if not path.exists():
        pytest.skip("real traces are not here")
    return traceread.analyze(path).rank_table


def test_one_real_rank_gives_lower_bounds_of_bandwidth_and_no_waiting():
    table = real("ddp_nccl_metadata.json.gz")
    reduces = next(o for o in table.operations if o.operation is Operation.ALL_REDUCE)
    assert (reduces.group.size, reduces.ranks) == (2, 1)
    assert reduces.bandwidth[1]
    assert reduces.wait_ns == reduces.transfer_ns == 0
    assert reduces.exposed_ns == reduces.not_split_ns
