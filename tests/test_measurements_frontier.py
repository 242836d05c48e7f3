"""Who leads from collective to collective, without clocks."""

import pytest
from job import simulated


@pytest.mark.parametrize(("job", "rank"), [("straggler-data", 2), ("straggler-compute", 2), ("straggler-sync", 2)])
def test_the_frontier_agrees_with_the_straggler(job, rank):
    table = simulated(job, ranks=4, steps=4)[0].rank_table
    assert table.frontier.leader == table.straggler.rank == rank


def test_it_needs_no_clocks():
    table = simulated("straggler-data", ranks=4, nodes=4, steps=4)[0].rank_table
    assert table.frontier.leader == 2


def test_increments_of_a_step_add_up_to_the_longest_window():
    report = simulated("straggler-data", ranks=4, steps=4)[0]
    table = report.rank_table
    by_step = {}
    for stage in table.frontier.stages:
        by_step[stage.step] = by_step.get(stage.step, 0) + stage.increment_ns
        assert stage.increment_ns >= 0
    for step, total in by_step.items():
        assert total == max(length for r in range(4) for label, _, length, *_ in table.windows(r) if label == step)
    assert len(by_step) == len(report.summary.steps)


def test_one_rank_has_no_frontier():
    assert simulated("healthy", ranks=1, steps=3)[0].rank_table.frontier.stages == ()
