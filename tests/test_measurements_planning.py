import pytest

from traceread.measurements.flops import flops_of_token
from traceread.measurements.planning import DAY_S, CheckpointPlan, Plan, TrainingPlan, gpus_for, rate_at

LLAMA = flops_of_token(6_740_000_000, 32, 4096, 4096).model


def test_a_trillion_tokens_on_256_gpus():
    plan = TrainingPlan(10**12, 256, rate_at(0.40, LLAMA, 256, 989e12), price_per_gpu_hour=2.0)
    assert round(plan.days, 2) == 5.36
    assert round(plan.gpu_hours) == 32919
    assert plan.price == pytest.approx(2 * plan.gpu_hours)


def test_a_measured_rate():
    plan = TrainingPlan(24 * 10**9, 8, 400e3)
    assert round(plan.seconds / 3600, 1) == 16.7
    assert round(plan.gpu_hours) == 133
    assert plan.price is None


def test_gpus_for_a_deadline_are_the_fewest_that_do():
    deadline = 5.5 * DAY_S
    gpus = gpus_for(10**12, deadline, rate_at(0.40, LLAMA, 1, 989e12))
    assert gpus == 250
    assert TrainingPlan(10**12, gpus, rate_at(0.40, LLAMA, gpus, 989e12)).seconds <= deadline
    assert TrainingPlan(10**12, gpus - 1, rate_at(0.40, LLAMA, gpus - 1, 989e12)).seconds > deadline
    assert gpus_for(1, deadline, rate_at(0.40, LLAMA, 1, 989e12)) == 1


def test_checkpoints_by_the_formula_of_young():
    plan = CheckpointPlan(60, 11_135)
    assert round(plan.interval_s) == 1156
    assert round(100 * plan.lost_share, 1) == 10.4
    assert plan.holds


def test_the_interval_loses_least():
    plan = CheckpointPlan(60, 11_135, restart_s=300)

    def lost(interval):
        return plan.checkpoint_s / interval + (interval / 2 + plan.restart_s) / plan.mtbf_s

    assert plan.lost_share == pytest.approx(lost(plan.interval_s))
    assert lost(plan.interval_s) < min(lost(plan.interval_s * 0.9), lost(plan.interval_s * 1.1))


def test_a_job_that_fails_faster_than_it_saves():
    plan = CheckpointPlan(600, 700)
    assert not plan.holds
    assert plan.lost_share == 1.0


def test_training_with_checkpoints_and_failures():
    training, checkpoints = TrainingPlan(24 * 10**9, 8, 400e3), CheckpointPlan(60, 11_135)
    plan = Plan(training=training, checkpoints=checkpoints)
    assert plan.wall_s == pytest.approx(60_000 / (1 - checkpoints.lost_share))
    assert Plan(training=training).wall_s is None
    assert Plan(training=training, checkpoints=CheckpointPlan(600, 700)).wall_s is None


def test_nothing_asked_is_nothing_said():
    assert set(Plan().to_dict().values()) == {None}
