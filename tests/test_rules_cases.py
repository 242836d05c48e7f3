import pytest
from rule_cases import RIGHT, SILENT, busy, loop
from scripting import MS, US, CopyKind

from traceread.model import Device
from traceread.rules import load_rules
from traceread.rules.checking import check_rank

RULES = {rule.id: rule for rule in load_rules()[0] if not rule.compares_ranks}


def found(script, rule=None):
    facts = script.facts()
    result = check_rank(facts, list(RULES.values()))
    assert result.notices == ()
    return [f for f in result.findings if rule is None or f.rule == rule], facts


def listed(script, rule):
    """Findings of a rule in the fix list of a report."""
    report = script.report()
    assert [n.message for n in report.all_notices if n.slug == "rule-failed"] == []
    return [f for f in report.findings if f.rule == rule], report


@pytest.mark.parametrize("rule", ["allocator-churn", "code-loading", "loader-restart", "recompilation"])
def test_what_the_first_step_alone_does_not_tell_is_not_looked_at(rule):
    report = loop(lambda s, n: busy(s, 4), 1).report()
    assert {s.rule: s.reason for s in report.skipped}[rule] == "the first step alone does not tell"
    assert rule not in {s.rule for s in loop(lambda s, n: busy(s, 4), 3).report().skipped}


@pytest.mark.parametrize(("count", "rest"), [(5, " a step in the mean, in every step."), (2, " a step, in the one step.")])
def test_a_single_step_is_no_mean(count, rest):
    script = loop(lambda s, n: (busy(s, 4), s.launch(200 * US, f"kernel_{n}_gemm", call_ns=9 * MS), busy(s, 4)), count)
    [finding] = listed(script, "code-loading")[0]
    assert finding.why.endswith(rest)


def test_copies_to_the_host_are_checked_as_such():
    script = loop(lambda s, n: (busy(s, 4), s.copy(2 * MS, CopyKind.DEVICE_TO_HOST), busy(s, 4)))
    [finding] = listed(script, "exposed-copy")[0]
    assert (finding.title, "batch" in finding.confirm) == ("copies to the host run alone", False)


@pytest.mark.parametrize(("name", "said"), [("NVIDIA A100-SXM4-80GB", False), ("Another GPU", True)])
def test_a_finding_without_a_saving_says_why(name, said):
    [finding] = [f for f in RIGHT["fp32-matmul"]().report(device=Device(0, name)).findings if f.rule == "fp32-matmul"]
    assert (finding.saving_ns is None) == said
    assert finding.why.endswith("What it would save is not said: the peaks of this GPU are not known.") == said


def test_every_rule_has_a_case_and_a_look_alike():
    assert set(RIGHT) == set(RULES)
    assert set(SILENT) == set(RULES)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_right_where_it_should_be(rule):
    findings, report = listed(RIGHT[rule](), rule)
    assert len(findings) == 1
    finding = findings[0]
    assert report.findings[0] is finding
    assert finding.why.endswith(".")
    assert finding.confirm
    assert finding.fix
    assert finding.docs
    assert finding.evidence
    assert all(e.rank == 0 and e.end_ns > e.start_ns and e.names for e in finding.evidence)
    assert finding.to_dict(report.base_ns)["rule"] == rule


@pytest.mark.parametrize("rule", sorted(RULES))
def test_silent_where_it_only_looks_like_it(rule):
    assert listed(SILENT[rule](), rule)[0] == []


@pytest.mark.parametrize("rule", sorted(RULES))
def test_findings_claim_no_more_than_their_classes_hold(rule):
    findings, facts = found(RIGHT[rule]())
    claimed = {}
    for finding in findings:
        for step_class, ns in finding.loss_ns:
            claimed[step_class] = claimed.get(step_class, 0) + ns
    for step_class, ns in claimed.items():
        assert ns <= facts.per_step(facts.class_ns(step_class)) + len(findings)  # rounded per finding
