from fractions import Fraction

import pytest

from traceread.measurements.scaling import Scaling, ScalingRun, compare_sizes

MS = 10**6
MODEL = (6_740_000_000, 32, 4096, 4096, "bf16", None)


def run(gpus, tokens, step_ms, *, communication_ms=0, model=MODEL, title=None, mfu=None):
    step = round(step_ms * MS)
    return ScalingRun(title or f"{gpus} GPUs", gpus, tokens, step, step - communication_ms * MS, communication_ms * MS, model, mfu)


def test_strong_scaling_divides_the_batch():
    table = compare_sizes([run(32, 1024, 260), run(8, 1024, 800, communication_ms=20)])
    [step] = table.steps
    assert (step.kind, step.baseline.gpus, step.run.gpus) == (Scaling.STRONG, 8, 32)
    assert step.ideal_ns == 200 * MS
    assert step.efficiency == pytest.approx(200 / 260)
    assert step.added_ns == 60 * MS
    assert table.alone == ()


def test_weak_scaling_keeps_the_batch_of_a_gpu():
    one_node, many = run(8, 1024, 800, communication_ms=40), run(64, 8192, 900, communication_ms=130)
    [step] = compare_sizes([one_node, many]).steps
    assert step.kind is Scaling.WEAK
    assert step.efficiency == pytest.approx(800 / 900)
    assert (step.added_ns, step.added_communication_ns) == (100 * MS, 90 * MS)
    assert many.tokens_per_gpu == Fraction(128)


def test_the_baseline_is_the_smallest_valid_one():
    runs = [run(1, 100, 80), run(8, 1024, 800), run(16, 1024, 420), run(32, 1024, 230), run(32, 4096, 850)]
    found = {(s.kind, s.run.gpus, s.run.tokens): s.baseline.gpus for s in compare_sizes(runs).steps}
    assert found == {
        (Scaling.STRONG, 16, 1024): 8,
        (Scaling.STRONG, 32, 1024): 8,
        (Scaling.WEAK, 32, 4096): 8,
    }
    [(alone, reason)] = compare_sizes(runs).alone
    assert alone.gpus == 1
    assert "same tokens in a step" in reason


def test_megatron_on_96_and_4608_gpus():
    """The batch stays, MFU falls from 47 to 42 %: the efficiency of strong scaling is their quotient."""
    flops, peak = 1e18, 989e12
    steps = {gpus: flops / (gpus * peak * mfu) * 1e3 for gpus, mfu in ((96, 0.47), (4608, 0.42))}
    [step] = compare_sizes([run(gpus, 10**6, ms) for gpus, ms in steps.items()]).steps
    assert 100 * step.efficiency == pytest.approx(89.4, abs=0.05)


def test_other_models_are_not_compared():
    other = (*MODEL[:3], 2048, "bf16", None)
    table = compare_sizes([run(8, 1024, 800), run(16, 1024, 400, model=other)])
    assert table.steps == ()
    assert [reason for _, reason in table.alone] == ["no other run has the same model, sequence length and precision"] * 2


def test_equal_sizes_and_single_runs_are_not_compared():
    assert [reason for _, reason in compare_sizes([run(8, 1024, 800), run(8, 1024, 801, title="again")]).alone] == [
        "the other runs have as many GPUs"
    ] * 2
    assert [reason for _, reason in compare_sizes([run(8, 1024, 800)]).alone] == ["there is no other run"]


def test_a_perfect_run():
    [step] = compare_sizes([run(8, 1024, 800), run(16, 2048, 800)]).steps
    assert (step.efficiency, step.added_ns) == (1.0, 0)


def test_as_builtins():
    table = compare_sizes([run(8, 1024, 800, mfu=0.4), run(16, 2048, 1000), run(3, 7, 5)]).to_dict()
    assert [r["gpus"] for r in table["runs"]] == [3, 8, 16]
    assert table["steps"][0]["efficiency"] == 0.8
    assert table["not_compared"][0]["run"] == "3 GPUs"
