"""What is not the same on both sides is named, and then nobody is called faster."""

import pytest
from comparing import RUN, merged, report, side, side_of_dict
from test_comparison import MS, real

import traceread
from traceread.comparison import compare
from traceread.comparison.fairness import check_fairness
from traceread.comparison.noise import Verdict
from traceread.errors import ComparisonError
from traceread.reporters.diff import blocks_of, render_diff

STEPS = [100 * MS, 101 * MS, 99 * MS, 100 * MS]
FASTER = [90 * MS, 91 * MS, 89 * MS, 90 * MS]


def described(**changes):
    """Efficiency of a report whose run.json differs in these fields."""
    return {"run": merged({**RUN}, changes), "tokens_per_s": {"valid": 1_000_000.0}, "mfu": 0.4, "convention": "6N", "gpus": 2}


def device(name):
    return {"ranks": [{"rank": 0, "device": name}]}


def state(diff, key):
    return next(c.state for c in diff.fairness.checks if c.key == key)


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("gpu", {"profile": device("NVIDIA A100-SXM4-80GB")}),
        ("world_size", {"profile": {"world_size": 16}}),
        ("global_batch", {"efficiency": described(global_batch_sequences=128)}),
        ("tokens", {"efficiency": described(tokens_per_step={"valid": 1})}),
        ("sequence_length", {"efficiency": described(model={"sequence_length": 4096})}),
        ("parameters", {"efficiency": described(model={"parameters": 2 * 10**9})}),
        ("precision", {"efficiency": described(model={"precision": "fp8"})}),
        ("stacks", {"efficiency": described(profiler={"with_stack": True})}),
        ("shapes", {"efficiency": described(profiler={"record_shapes": True})}),
        ("torch", {"efficiency": described(stack={"torch": "2.9"})}),
        ("cuda", {"profile": {"ranks": [{"rank": 0, "device": "NVIDIA H100 80GB HBM3", "versions": {"CUDA runtime": "12.9"}}]}}),
        ("nccl", {"profile": {"ranks": [{"rank": 0, "device": "NVIDIA H100 80GB HBM3", "versions": {"NCCL": "2.27"}}]}}),
        ("driver", {"profile": {"ranks": [{"rank": 0, "device": "NVIDIA H100 80GB HBM3", "versions": {"CUDA driver": "13.0"}}]}}),
        ("clocks", {"efficiency": described(stack={"clocks": 1410})}),
    ],
)
def test_a_mismatch_is_named_and_takes_the_verdict_and_throughput(key, change):
    stack = {"torch": "2.8", "clocks": 1980}
    profiler = {"with_stack": False, "record_shapes": False}
    versions = {"CUDA runtime": "12.6", "NCCL": "2.22", "CUDA driver": "12.8"}
    base = {
        "efficiency": described(stack=stack, profiler=profiler),
        "profile": {"ranks": [{"rank": 0, "device": "NVIDIA H100 80GB HBM3", "versions": versions}]},
    }
    before, after = side(STEPS, **base), side(FASTER, **merged({**base}, change))
    diff = compare(before, after)
    assert state(diff, key) == "different"
    assert diff.verdict is Verdict.NOT_COMPARABLE
    assert diff.to_dict()["throughput"] == {"withheld": True, "speedup": None, "tokens_per_s": None}
    text = render_diff(diff, "text")
    assert "Not comparable" in text
    assert f"--allow-mismatch {key}" in text
    assert "1,000,000 " not in text.split("use of the hardware")[1]
    assert "withheld" in text
    assert "MFU" in text
    allowed = compare(before, after, [key])
    assert state(allowed, key) == "allowed"
    assert allowed.verdict is Verdict.FASTER
    assert "allowed" in render_diff(allowed, "text")


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("format", {"profile": {"source": "nsys"}}),
        ("step_source", {"steps": {"source": "inferred"}}),
        ("parallel", {"efficiency": described(parallel={"dp": 1, "tp": 2})}),
        ("recomputation", {"efficiency": described(model={"recomputation": "full"})}),
    ],
)
def test_what_one_tunes_is_noted_only(key, change):
    base = {"efficiency": described(parallel={"dp": 2}, model={"recomputation": "none"})}
    diff = compare(side(STEPS, **base), side(FASTER, **merged({**base}, change)))
    assert state(diff, key) == "noted"
    assert diff.verdict is Verdict.FASTER
    assert "also different" in render_diff(diff, "text")


def test_what_is_not_recorded_is_no_mismatch_and_is_said():
    diff = compare(side(STEPS, efficiency=described()), side(FASTER))
    assert state(diff, "global_batch") == "not recorded"
    assert diff.verdict is Verdict.FASTER
    assert "global batch (sequences)" in render_diff(diff, "text").split("not compared, because a side does not say")[1]


def test_the_caller_says_what_is_not_recorded():
    same = compare(side(STEPS), side(FASTER), declared={"global_batch": ("256", "256")})
    other = compare(side(STEPS), side(FASTER), declared={"global_batch": ("256", "512")})
    assert state(same, "global_batch") == "same"
    assert state(other, "global_batch") == "different"
    assert other.verdict is Verdict.NOT_COMPARABLE


@pytest.mark.parametrize("arguments", [{"allow_mismatch": ["colour"]}, {"declared": {"colour": ("a", "b")}}])
def test_an_unknown_key_is_refused_with_those_there_are(arguments):
    with pytest.raises(ComparisonError, match="'colour' is no compare key") as raised:
        compare(side(STEPS), side(FASTER), **arguments)
    assert "global_batch" in raised.value.hint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("NVIDIA GeForce RTX 3070 Ti", "GeForce RTX 3070 Ti"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("NVIDIA RTX PRO 6000 Blackwell ", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
    ],
)
def test_one_gpu_under_two_names(one, other):
    checks = {c.key: c.state for c in check_fairness(side(STEPS, profile=device(one)), side(STEPS, profile=device(other))).checks}
    assert checks["gpu"] == "same"


def test_a_short_name_is_not_the_longer_one():
    checks = {
        c.key: c.state for c in check_fairness(side(STEPS, profile=device("A100")), side(STEPS, profile=device("A100-SXM4-80GB"))).checks
    }
    assert checks["gpu"] == "different"


def test_several_stacks_inside_a_side_are_named_first():
    ranks = [{"rank": r, "device": "NVIDIA H100 80GB HBM3", "versions": {"NCCL": "2.22" if r else "2.27"}} for r in range(6)]
    mixed = side(STEPS, profile={"ranks": ranks})
    diff = compare(mixed, side(FASTER, profile={"ranks": ranks}))
    [before, after] = diff.fairness.mixed
    assert before == "before mixes 2 software stacks: NCCL 2.27 on rank 0; NCCL 2.22 on ranks 1, 2, 3, 4 and 1 more"
    assert after.startswith("after mixes")
    text = render_diff(diff, "text")
    assert text.index("mixes 2 software stacks") < text.index("Faster")


def test_several_descriptions_and_several_gpus_inside_a_side():
    warning = {"slug": "different-runs", "message": "the descriptions of the run differ in stack.torch; what run.rank0.json says is used"}
    ranks = [{"rank": r, "device": f"GPU {r}"} for r in range(2)]
    found = check_fairness(side(STEPS, profile={"ranks": ranks, "warnings": [warning]}), side(STEPS)).mixed
    assert [m.split(":")[0] for m in found] == ["before mixes software stacks", "before mixes GPU models"]


def test_mfu_that_moves_while_the_step_holds_is_another_batch():
    one, half = {**described(), "mfu": 0.40}, {**described(), "mfu": 0.20}
    text = render_diff(compare(side(STEPS, efficiency=one), side(STEPS, efficiency=half)), "text")
    assert "MFU fell from 40.0 % to 20.0 % while the step time held: the batch or sequence changed." in text
    assert "while the step time held" not in render_diff(
        compare(side(STEPS, efficiency=one), side(FASTER, efficiency={**one, "mfu": 0.44})), "text"
    )


def test_what_holds_across_machines_is_compared_instead():
    base = {**described(price_per_gpu_hour=2.0)}
    other = {**described(price_per_gpu_hour=1.0, global_batch_sequences=32), "tokens_per_s": {"valid": 500_000.0}, "mfu": 0.2}
    diff = compare(side(STEPS, efficiency=base), side(STEPS, efficiency=other))
    used = diff.efficiency
    assert used.before.cost_per_token * 1e9 == pytest.approx(2 * 2 / 3600 / 1e6 * 1e9)
    assert used.after.cost_per_token == pytest.approx(used.before.cost_per_token)
    text = render_diff(diff, "text")
    assert "price of 10⁹ tokens" in text
    assert "these hold across sizes and machines" in text


def test_goodput_and_the_price_of_an_evaluation_are_compared_where_they_are_recorded():
    job = {"goodput": 0.94, "cost_per_evaluation": 120.5}
    before, after = side(STEPS, efficiency=described(**job)), side(STEPS, efficiency=described(global_batch_sequences=32, goodput=0.5))
    rows = used_rows(compare(before, after))
    assert rows["goodput of the whole job"] == "94.0 % 50.0 %"
    assert rows["price of an evaluation, whole job"] == "120.50 not recorded"
    assert "goodput of the whole job" in used_rows(compare(before, before))


def test_what_would_be_compared_and_is_not_recorded_is_said_and_not_zero():
    bare = {"run": {"global_batch_sequences": 1}}
    diff = compare(side(STEPS, efficiency=bare), side(STEPS, efficiency={"run": {"global_batch_sequences": 2}}))
    rows = used_rows(diff)
    for title in ("MFU", "goodput of the whole job", "price of an evaluation, whole job"):
        assert rows[title] == "not recorded not recorded"
    known = diff.to_dict()["efficiency"]["before"]
    assert (known["mfu"], known["goodput"], known["cost_per_evaluation"]) == (None, None, None)
    assert "use of the hardware" not in render_diff(compare(side(STEPS), side(STEPS)), "text")


def test_an_mfu_by_another_formula_says_so():
    other = {**described(global_batch_sequences=32), "convention": "6N + 12LHQT"}
    rows = used_rows(compare(side(STEPS, efficiency=described()), side(STEPS, efficiency=other)))
    assert rows["MFU"] == "40.0 % (6N) 40.0 % (6N + 12LHQT)"


def used_rows(diff):
    """What the table says of each figure: both sides in one text."""
    table = next(block for block in blocks_of(diff)["efficiency"])
    return {str(row[0]): " ".join(map(str, row[1:])) for row in table.rows}


# --- refusals ----------------------------------------------------------------------------------------------------------------------


def test_a_side_without_gpu_work_is_refused():
    empty = side([], summary=None)
    with pytest.raises(ComparisonError, match=r"after \(run/\) holds no GPU work") as raised:
        compare(side(STEPS), empty)
    assert raised.value.slug == "nothing-to-compare"


def test_an_empty_side_is_refused():
    with pytest.raises(ComparisonError, match=r"before \(run/\) is empty"):
        compare(side([], summary=None, profile={"ranks": []}), side(STEPS))


def test_a_truncated_side_is_refused_unless_allowed():
    cut = side(STEPS, profile={"warnings": [{"slug": "truncated", "message": "a.json ends early", "rank": 0}]})
    with pytest.raises(ComparisonError, match=r"before \(run/\) is truncated: a.json ends early") as raised:
        compare(cut, side(FASTER))
    assert raised.value.slug == "truncated-side"
    assert compare(cut, side(FASTER), ["truncated"]).verdict is Verdict.FASTER


def test_a_side_without_a_complete_step_is_refused_unless_allowed():
    told = report(STEPS)
    told["partition"][-1]["partial"] = True
    lacking = side_of_dict(told)
    for sides in ((lacking, side(FASTER)), (side(STEPS), lacking)):
        with pytest.raises(ComparisonError, match=r"\(run/\) has no complete step") as raised:
            compare(*sides)
        assert raised.value.slug == "incomplete-side"
    assert compare(lacking, side(FASTER), ["incomplete"]).verdict is Verdict.FASTER


# --- real captures -----------------------------------------------------------------------------------------------------------------


def test_eight_a100_and_two_v100_are_not_compared():
    diff = traceread.diff(*real("kineto/dlrm_graph_pair/ungraphed_rank3of8.json.gz", "kineto/dlrm_graph_pair/graphed_rank1of2.json.gz"))
    assert {c.key for c in diff.fairness.mismatches} == {"gpu", "world_size"}
    assert diff.verdict is Verdict.NOT_COMPARABLE
    text = render_diff(diff, "text")
    assert "Not comparable: GPU model (NVIDIA A100-PG509-200 → Tesla V100-SXM2-16GB), number of GPUs (8 → 2)" in " ".join(text.split())
    assert "throughput is withheld" in " ".join(text.split())
    assert diff.to_dict()["throughput"]["speedup"] is None
    assert next(c.after_ns for c in diff.classes if c.step_class.key == "launch_bound") < MS / 10  # what can be said: the graph's launches
