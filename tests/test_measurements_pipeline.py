"""Pipeline bubbles against their ideal, and all-to-alls in which ranks get different amounts."""

from types import SimpleNamespace

import numpy as np
import pytest
from job import MS, US, rank, simulated

from traceread.measurements.matching import match
from traceread.measurements.pipeline import expert_load
from traceread.model import Operation


@pytest.fixture(scope="module")
def pipeline():
    (found,) = simulated("pipeline-1f1b", steps=3)[0].rank_table.pipelines
    return found


def test_a_pipeline_is_known_by_its_sends(pipeline):
    assert (pipeline.stages, pipeline.ranks) == (4, (0, 1, 2, 3))
    assert pipeline.sends == 8 * pipeline.steps
    over, under = pipeline.ideal
    assert over * 11 == under * 3  # (4-1)/(8+4-1)


def test_its_bubble_is_near_the_ideal(pipeline):
    (part, whole), (over, under) = pipeline.bubble, pipeline.ideal
    assert abs(part / whole - over / under) < 0.01


def test_stages_that_compute_alike_are_balanced(pipeline):
    most, middle = pipeline.imbalance
    assert most < 1.01 * middle


def test_bubbles_are_nobodys_fault():
    table = simulated("pipeline-1f1b", steps=3)[0].rank_table
    assert {(late, cause.key) for late, cause, ns in table.lost if ns * 100 > table.waiting_ns} == {(None, "bubble")}
    assert sum(table.pipelines[0].bubble_ns) == table.lost[0][2]


def load_of(ranks):
    facts = [SimpleNamespace(rank=r.rank, in_used_windows=lambda r=r: np.ones(len(r.collectives), bool)) for r in ranks]
    return expert_load(facts, match(ranks))


def all_to_alls(got, **columns):
    """One rank per row of `got`: elements it gets in each all-to-all."""
    spans = [(i * MS, i * MS + 100 * US) for i in range(len(got[0]))]
    return [
        rank(r, spans, world=len(got), operation=Operation.ALL_TO_ALL, elements_out=np.array(row), **columns) for r, row in enumerate(got)
    ]


def test_ranks_that_get_more_are_found():
    (load,) = load_of(all_to_alls([[10, 30, 10], [10, 10, 10], [40, 50, 10]]))
    assert (load.count, load.rank, load.times) == (3, 2, 2)
    assert load.imbalance == (100 * 3, 180)  # 40, 50 and 10 of 60, 90 and 30
    assert load.to_dict()["max_over_mean"] == pytest.approx(5 / 3)


def test_one_rank_knows_its_own_split_sizes():
    (load,) = load_of([all_to_alls([[60, 60]] * 3, largest_out=np.array([40, 20]))[0]])
    assert (load.rank, load.count) == (None, 2)
    assert load.imbalance == (60 * 3, 120)


@pytest.mark.parametrize("largest", [-1, 20])
def test_even_splits_are_no_imbalance(largest):
    assert load_of(all_to_alls([[60, 60]] * 3, largest_out=largest)) == ()


def test_even_all_to_alls_and_all_reduces_are_no_experts():
    table = simulated("healthy", steps=3)[0].rank_table
    assert (table.experts, table.pipelines) == ((), ())
