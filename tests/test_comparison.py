"""What changed per step: exact sums, the same for any number of steps, and what is planted is found."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from comparing import RUN, kernel, report, side

import traceread
from traceread.comparison import compare
from traceread.comparison.noise import Verdict
from traceread.comparison.side import is_saved, read_saved, side_of
from traceread.errors import ComparisonError, InputError
from traceread.measurements.classes import CLASSES
from traceread.simulate import Capture, scenarios, simulate, write_run

MS = 1_000_000
SAMPLES = Path(__file__).parents[1] / "sample_traces" / "llama7b"
TRACES = Path(__file__).parents[2] / "shared" / "traces"


def changes(diff):
    return {c.step_class.key: c.difference_ns for c in diff.classes if c.difference_ns}


# --- arithmetic ----------------------------------------------------------------------------------------------------------------

BEFORE = [
    {"compute": 70 * MS + 1, "data_wait": 20 * MS},
    {"compute": 71 * MS, "data_wait": 21 * MS + 1},
    {"compute": 69 * MS, "host_sync": 5},
]
AFTER = [{"compute": 70 * MS, "data_wait": 3}, {"compute": 70 * MS + 7, "launch_bound": 2 * MS}]


def test_classes_sum_to_the_step_exactly():
    diff = compare(side(BEFORE), side(AFTER))
    assert sum(c.difference_ns for c in diff.classes) == diff.step.difference_ns
    assert sum(c.before_ns for c in diff.classes) == diff.step.before_ns
    assert sum(c.after_ns for c in diff.classes) == diff.step.after_ns
    assert [c.step_class.key for c in diff.classes] == list(CLASSES)


def test_a_side_and_itself_is_zero():
    diff = compare(side(BEFORE), side(BEFORE))
    assert changes(diff) == {}
    assert diff.step.difference_ns == diff.typical.difference_ns == 0
    assert diff.verdict is Verdict.NONE


def test_the_other_way_round_is_the_negative():
    there, back = compare(side(BEFORE), side(AFTER)), compare(side(AFTER), side(BEFORE))
    assert changes(there) == {name: -ns for name, ns in changes(back).items()}
    assert there.step.difference_ns == -back.step.difference_ns
    assert there.step.error_ns == back.step.error_ns
    assert (there.verdict, back.verdict) == (Verdict.FASTER, Verdict.SLOWER) or there.verdict is back.verdict


@pytest.mark.parametrize("times", [(1, 2), (2, 1), (5, 3)])
def test_the_number_of_captured_steps_changes_nothing(times):
    once = compare(side(BEFORE), side(AFTER))
    more = compare(side(BEFORE * times[0]), side(AFTER * times[1]))
    assert changes(more) == changes(once)
    assert (more.step.before_ns, more.step.after_ns) == (once.step.before_ns, once.step.after_ns)


def test_three_steps_against_five_equal_ones_are_no_regression():
    diff = compare(side([1_000 * MS] * 3), side([1_000 * MS] * 5))
    assert diff.step.difference_ns == 0
    assert diff.verdict is Verdict.NONE


def test_ranks_are_not_more_steps():
    one, eight = (compare(side(BEFORE * 2, ranks=n), side(AFTER * 2, ranks=n), ["world_size"]) for n in (1, 8))
    assert (eight.step.before_steps, eight.step.after_steps) == (6, 4)
    assert eight.step == one.step


def test_the_verdict_is_about_the_median_where_stalls_hide_it():
    before = side([100 * MS, 101 * MS, 99 * MS, 100 * MS, 102 * MS, 100 * MS, 99 * MS, 101 * MS])
    after = side([110 * MS, 111 * MS, 109 * MS, 110 * MS, 400 * MS, 110 * MS, 109 * MS, 111 * MS])
    diff = compare(before, after)
    assert diff.by_median
    assert diff.verdict is Verdict.SLOWER
    assert diff.stalls == (0, 1)
    assert diff.slowest_ns == (102 * MS, 400 * MS)
    assert diff.p95_ns is None


def test_p95_with_enough_steps():
    diff = compare(side(list(range(1, 21))), side(list(range(101, 141))))
    assert diff.p95_ns == (19, 138)


def test_skew_is_of_the_ranks():
    value = report([10, 10], ranks=3)
    slow = [w for w in value["partition"] if w["rank"] == 2]
    for i, w in enumerate(slow):
        w.update(start_ns=i * 13, end_ns=i * 13 + 13)
        w["classes"]["compute"] = 13
    from comparing import side_of_dict

    diff = compare(side_of_dict(value), side([10, 10], ranks=3))
    assert diff.skew == ((13, 10), (10, 10))


# --- captures without steps ------------------------------------------------------------------------------------------------------


def whole(length, count):
    return side(
        [length],
        steps={"source": "whole capture"},
        kernels=[kernel("gemm", count=count, total=count * 1000), kernel("nccl", category="communication")],
    )


def test_whole_captures_have_a_pace_and_no_verdict():
    diff = compare(whole(300 * MS, 34), whole(300 * MS, 30))
    assert diff.verdict is Verdict.NO_STEPS
    new, old = diff.pace
    assert new / old == pytest.approx(30 / 34, rel=1e-3)


def test_a_step_is_not_a_capture():
    with pytest.raises(ComparisonError, match="before counts steps, and after names none") as raised:
        compare(side([10, 10]), whole(300, 1))
    assert raised.value.slug == "different-windows"
    assert "--step-range infer" in raised.value.hint


# --- planted changes -------------------------------------------------------------------------------------------------------------


@cache
def steady():
    """The job of the samples without any jitter."""
    job = scenarios()["llama7b"]
    machine = replace(job.machine, host_jitter=0, gpu_jitter=0, collective_noise=0)
    return replace(job, machine=machine, ranks=2, written=(0, 1), nodes=job.nodes[:1])


def captured(directory, without=frozenset(), **capture):
    write_run(simulate(steady(), steps=3, without=frozenset(without)), directory, Capture(**capture), counterfactuals=False)
    return directory


def planted_idle(directory, side):
    """Idle time by cause of the side's rank over its used steps, from the truth."""
    steps = {w.step for w in side.windows}
    totals = dict.fromkeys(CLASSES, 0)
    for row in json.loads((directory / "truth.json").read_text())["idle"]:
        if row["rank"] == side.critical_rank and row["step"] in steps:
            totals[row["cause"]] += row["end_ns"] - row["start_ns"]
    return totals


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Before and after in both formats."""
    root = tmp_path_factory.mktemp("llama")
    return {
        (when, format_): captured(root / when / format_, without, format=format_)
        for when, without in (("before", ()), ("after", steady().faults))
        for format_ in ("kineto", "nsys")
    }


@pytest.mark.parametrize("formats", [("kineto", "kineto"), ("nsys", "nsys"), ("kineto", "nsys"), ("nsys", "kineto")], ids="-".join)
def test_planted_changes_are_found_to_the_ns(llama, formats):
    paths = llama["before", formats[0]], llama["after", formats[1]]
    diff = traceread.diff(*paths)
    before, after = planted_idle(paths[0], diff.before), planted_idle(paths[1], diff.after)
    assert before["data_wait"] > 300 * MS
    assert before["host_sync"] > 200 * MS
    for change in diff.classes[3:]:
        cause = change.step_class.key
        assert sum(diff.before.class_steps[cause]) == before[cause]
        assert sum(diff.after.class_steps[cause]) == after[cause]
        assert abs(change.difference_ns - (after[cause] - before[cause]) / 2) < 1, cause  # the mean of two steps, in whole ns
    found = changes(diff)
    assert found.get("compute", 0) == 0
    idle = sum(c.difference_ns for c in diff.classes[3:])
    assert found["exposed_communication"] == diff.step.difference_ns - idle - found["exposed_copy"]
    assert diff.verdict is Verdict.FASTER
    assert {f.rule: str(f.outcome) for f in diff.findings} == {
        "exposed-communication": "fixed",
        "data-loading": "fixed",
        "item-sync": "fixed",
    }
    for finding in diff.findings:
        assert finding.achieved_ns == pytest.approx(finding.predicted_ns, rel=0.01)


def test_formats_give_the_same_change(llama):
    found = [
        traceread.diff(llama["before", b], llama["after", a]) for b, a in (("kineto", "kineto"), ("nsys", "kineto"), ("kineto", "nsys"))
    ]
    assert changes(found[0]) == changes(found[1]) == changes(found[2])
    assert all(d.fairness.comparable for d in found)


def test_a_trace_and_itself(llama):
    diff = traceread.diff(llama["before", "kineto"], llama["before", "nsys"])
    assert changes(diff) == {}
    assert diff.verdict is Verdict.NONE


@pytest.mark.parametrize("after", ["after-kineto", "after-nsys"])
@pytest.mark.parametrize("before", ["before-kineto", "before-nsys"])
def test_samples_lose_what_was_planted(before, after):
    diff = traceread.diff(SAMPLES / before, SAMPLES / after)
    found = changes(diff)
    assert found["exposed_communication"] == pytest.approx(-400 * MS, abs=2 * MS)
    assert found["data_wait"] == pytest.approx(-180 * MS, abs=MS)
    assert found["host_sync"] == pytest.approx(-120 * MS, abs=MS)
    assert abs(found["compute"]) < MS / 10
    assert sum(found.values()) == diff.step.difference_ns
    assert diff.verdict is Verdict.FASTER
    used = diff.efficiency
    assert (used.before.mfu, used.after.mfu) == (pytest.approx(0.431, abs=0.003), pytest.approx(0.536, abs=0.003))


def test_equal_simulations_are_not_different():
    """Whole pipeline, other seeds: the jitter of the simulator passes for nothing."""
    job = scenarios()["healthy"]
    sides = []
    for seed in range(6):
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            write_run(simulate(job, ranks=1, steps=8, seed=seed), Path(folder), Capture(compress=False), counterfactuals=False, truth=False)
            sides.append(side_of(traceread.analyze(folder)))
    verdicts = [compare(a, b).verdict for i, a in enumerate(sides) for b in sides[i + 1 :]]
    assert sum(v.is_difference for v in verdicts) <= 2


# --- saved reports ---------------------------------------------------------------------------------------------------------------


def test_a_saved_report_says_the_same(tmp_path):
    before = traceread.analyze(SAMPLES / "before-nsys")
    saved = before.save(tmp_path / "baseline.json")
    now, then = traceread.diff(before, SAMPLES / "after-nsys"), traceread.diff(saved, SAMPLES / "after-nsys")
    assert {**now.to_dict(), "before": None} == {**then.to_dict(), "before": None}
    assert then.before.file == saved
    assert is_saved(saved)
    assert not is_saved(SAMPLES / "before-nsys" / "run.json")


def test_sorted_json_is_still_a_report(tmp_path):
    path = tmp_path / "sorted.json"
    path.write_text(json.dumps(report(BEFORE), sort_keys=True))
    assert is_saved(path)
    assert read_saved(path).mean_ns == side(BEFORE).mean_ns


def test_a_trace_is_no_report(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [], "note": {"traceread": 1}}))
    assert not is_saved(path)


def test_fields_of_newer_versions_are_skipped_and_missing_ones_are_not_known():
    value = report(BEFORE)
    value["profile"]["colour"] = "blue"
    value["new"] = [1]
    for name in ("kernels", "families", "ranges", "findings", "efficiency"):
        del value[name]
    from comparing import side_of_dict

    diff = compare(side_of_dict(value), side(AFTER))
    assert diff.kernels == ()
    assert [p.before_ns for p in diff.parts if p.name == "waiting"] == [None]
    assert diff.efficiency.before.mfu is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "format 2"),
        ({"partition": "none"}, "is not the JSON of a report"),
        ({"summary": {"critical_rank": "zero"}}, "is not the JSON of a report"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path, change, said):
    from comparing import merged

    path = tmp_path / "r.json"
    path.write_text(json.dumps(merged(report(BEFORE), change)))
    with pytest.raises(InputError, match=said) as raised:
        read_saved(path)
    assert raised.value.slug == "saved-report"


@pytest.mark.parametrize(("name", "ns"), [("compute", 1), ("daydreaming", 0)])
def test_a_report_whose_classes_do_not_add_up_is_refused(tmp_path, name, ns):
    value = report(BEFORE)
    value["partition"][0]["classes"][name] = ns
    path = tmp_path / "r.json"
    path.write_text(json.dumps(value))
    with pytest.raises(InputError, match="is not as traceread wrote it"):
        read_saved(path)


@pytest.mark.parametrize("text", ["", "{", '{"traceread": "0.1.0"}', "[1]", '{"traceread": ' + "[" * 100_000])
def test_damaged_reports_are_refused(tmp_path, text):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(InputError, match="is not the JSON of a report"):
        read_saved(path)


# --- what can be given -------------------------------------------------------------------------------------------------------------


def test_sides_may_be_paths_profiles_reports_and_sides():
    path = SAMPLES / "after-nsys"
    profile = traceread.load(path)
    analysed = traceread.analyze(profile)
    for other in (str(path), profile, analysed, side_of(analysed)):
        diff = traceread.diff(path, other)
        assert changes(diff) == {}
        assert diff.verdict is Verdict.NONE


def test_a_comparison_shows_itself():
    diff = compare(side(BEFORE, efficiency={"run": RUN}), side(AFTER, efficiency={"run": RUN}))
    assert repr(diff) == "<ReportDiff 83.7 ms → 71.0 ms, no difference that these steps can show>"
    frame = diff.to_frame()
    assert frame["difference_ns"].sum() == diff.step.difference_ns
    assert "mean step" in diff._repr_html_()
    json.dumps(diff.to_dict())


# --- real captures -----------------------------------------------------------------------------------------------------------------


def real(*names):
    paths = [TRACES / name for name in names]
    if not all(p.exists() for p in paths):
        pytest.skip("the real traces are not here")
    return paths


def test_four_loader_workers_instead_of_none():
    diff = traceread.diff(*real("kineto/torch19_workers0.json.gz", "kineto/torch19_workers4.json.gz"))
    by_class = {c.step_class.key: c for c in diff.classes}
    assert diff.verdict is Verdict.FASTER
    assert by_class["data_wait"].difference.verdict is Verdict.FASTER
    assert by_class["data_wait"].after_ns < by_class["data_wait"].before_ns / 20
    assert by_class["compute"].difference.verdict is Verdict.NONE
    assert abs(by_class["compute"].difference_ns) < by_class["compute"].before_ns / 100
    fixed = [f for f in diff.findings if str(f.outcome) == "fixed"]
    assert [f.rule for f in fixed] == ["data-loading"]
    assert fixed[0].achieved_ns == pytest.approx(fixed[0].predicted_ns, rel=0.1)


def test_two_captures_of_one_job_without_steps():
    paths = real("nsys/fsdp_2gpu_before.sqlite", "nsys/fsdp_2gpu_after.sqlite")
    diff = traceread.diff(*paths)
    assert diff.verdict is Verdict.NO_STEPS
    new, old = diff.pace
    assert 0.85 < new / old < 0.92  # 30 flash kernels in the time of 34
    shares = [
        {c.step_class.key: ns / total for c, ns in pairs}
        for pairs, total in (
            ([(c, c.before_ns) for c in diff.classes], diff.step.before_ns),
            ([(c, c.after_ns) for c in diff.classes], diff.step.after_ns),
        )
    ]
    assert shares[1]["compute"] < shares[0]["compute"] - 0.05
    assert shares[1]["launch_bound"] > shares[0]["launch_bound"] + 0.05
    assert {k.matched_by for k in diff.kernels} == {"name"}
