"""Rules that compare ranks: right where they should be (see test_rules_scenarios), silent where it only looks like it."""

import re
from dataclasses import replace

import pytest
from job import simulated, with_fault

from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import Operation
from traceread.rules import Rule, load_rules
from traceread.rules.fix_list import make_fix_list
from traceread.rules.job import JobFacts, check_job
from traceread.simulate import Fault, phases, scenarios
from traceread.simulate.models import BATCH, backward, forward, update
from traceread.simulate.program import MS, US

COMPARING = {rule.id: rule for rule in load_rules()[0] if rule.compares_ranks}


def rules_found(report):
    return [f.rule for f in report.findings]


def test_these_rules_compare_ranks():
    assert set(COMPARING) == {"slow-gpu", "slow-host", "uneven-all-to-all"}


@pytest.mark.parametrize("name", ["healthy", "pipeline-1f1b", "straggler-data", "straggler-gc", "straggler-sync"])
def test_silent_where_ranks_are_alike_or_late_for_another_reason(name):
    report, _ = simulated(name, steps=4)
    assert not set(COMPARING) & set(rules_found(report))


def test_experts_of_unequal_load():
    report, _ = simulated("moe-imbalance")
    [finding] = [f for f in report.findings if f.rule in COMPARING]
    assert finding.rule == "uneven-all-to-all"
    assert finding.ranks == (0, 1, 2, 3)
    assert finding.saving_ns is None
    assert any("SendRecv" in name for name in finding.evidence[0].names)
    waited = re.search(r"waits ([\d.]+) ms a step", finding.why)[1]
    assert float(waited) == pytest.approx(mean_wait(report) / 1e6, rel=0.1)


def mean_wait(report):
    """Waiting of a rank in all-to-alls of a used step, in the mean."""
    table = report.rank_table
    mine = (table.matches.column("operation") == Operation.ALL_TO_ALL) & (table.matches.column("window") >= 0)
    steps = len(report.rank(0).steps.windows) * len(report.ranks)
    return table.waiting.wait_ns[mine].sum() / steps


def test_experts_of_equal_load():
    job = scenarios()["moe-imbalance"]
    step = tuple(replace(p, skew=0) if isinstance(p, phases.Experts) else p for p in job.step)
    report, _ = simulated(replace(job, name="moe-even", step=step))
    assert "uneven-all-to-all" not in rules_found(report)


def test_a_rank_that_is_late_at_every_all_to_all_is_no_uneven_load():
    job = scenarios()["moe-imbalance"]
    step = tuple(replace(p, skew=0) if isinstance(p, phases.Experts) else p for p in job.step)
    step = (Fault("late", (phases.Fetch(45 * MS),), ranks=(1,)), *step)
    report, _ = simulated(replace(job, name="moe-late", step=step))
    assert rules_found(report)[0] == "data-loading"
    assert "uneven-all-to-all" not in rules_found(report)


def test_more_work_is_not_a_slow_gpu():
    report, _ = simulated(with_fault(phases.Compute(24, 200 * US)))
    assert "slow-gpu" not in rules_found(report)


def test_one_kind_of_kernel_that_is_slower_is_not_a_slow_gpu():
    job = scenarios()["straggler-compute"]
    step = (*BATCH, Fault("slow", (forward(each=260 * US),), (forward(),), ranks=(2,)), backward(), update(40, 400 * US))
    report, _ = simulated(replace(job, name="forward-only", step=step))
    assert "slow-gpu" not in rules_found(report)


def test_a_slow_host_on_all_ranks_is_no_straggler():
    job = scenarios()["launch-bound"]
    report, _ = simulated(replace(job, name="launch-bound-2", ranks=2))
    assert rules_found(report) == ["launch-bound"]


def test_the_straggler_is_named_and_the_others_gain():
    report, _ = simulated("straggler-compute", steps=4)
    [finding] = report.findings
    assert finding.ranks == (2,)
    assert "rank 2" in finding.title
    assert finding.step_class is StepClass.COMPUTE
    assert finding.saving_ns == pytest.approx(finding.total_loss_ns, rel=0.02)


def test_what_a_slow_host_takes_is_not_counted_twice():
    report, _ = simulated("straggler-host", steps=4)
    summary = report.summary
    found = [f for r in report.ranks if r.rank == summary.critical_rank for f in r.inspection.found.findings]
    assert "launch-bound" in {f.rule for f in found}
    claimed = sum(ns for f in report.findings for c, ns in f.loss_ns if c is StepClass.LAUNCH_BOUND)
    assert claimed <= summary.class_ns[StepClass.LAUNCH_BOUND] + len(report.findings)


def job_of(report):
    critical = report.rank(report.summary.critical_rank)
    return JobFacts(critical.rank, critical.inspection, [r.facts for r in report.ranks], report.rank_table)


def made(check, **more):
    return Rule("planted", check, frozenset(), Effort.CODE, 0, "Something.\n", compares_ranks=True, **more)


def test_a_rule_that_fails_is_a_notice():
    def check(job):
        yield Finding(title="first")
        raise ValueError("no")

    report, _ = simulated("straggler-compute", steps=4)
    findings, skipped, [notice] = check_job(job_of(report), [made(check)])
    assert [f.title for f in findings] == ["first"]
    assert findings[0].ranks == (2,)
    assert skipped == []
    assert notice.slug == "rule-failed"
    assert "rule planted failed: ValueError: no" in notice.message


def test_one_rank_of_several_cannot_be_compared():
    report, _ = simulated("straggler-compute", steps=4)
    job = job_of(report)
    findings, skipped, notices = check_job(replace(job, ranks=[job.own]), COMPARING.values())
    assert findings == notices == []
    assert [(s.rule, s.reason) for s in skipped] == [(rule, "one of 4 ranks is loaded") for rule in COMPARING]


def test_a_job_of_one_rank_has_nothing_to_compare():
    report, _ = simulated("item-sync")
    assert report._compared == ([], [], [])


def test_a_finding_of_the_job_leaves_the_others_what_is_left():
    report, _ = simulated("straggler-host", steps=4)
    inspections = {r.rank: r.inspection for r in report.ranks}
    class_ns = report.summary.class_ns
    half = class_ns[StepClass.LAUNCH_BOUND] // 2
    planted = Finding(title="half of it", rule="planted", loss_ns=((StepClass.LAUNCH_BOUND, half),))
    listed = make_fix_list(inspections, 2, report.summary.mean_ns, 3, class_ns=class_ns, compared=[planted]).findings
    [left] = [f for f in listed if f.rule == "launch-bound"]
    assert left.total_loss_ns == pytest.approx(half, rel=0.1)
    assert left.total_loss_ns + half <= class_ns[StepClass.LAUNCH_BOUND]
