"""Gates fail when a difference is shown and beyond the limit; where the steps cannot show it they say so."""

import xml.etree.ElementTree as ElementTree

import pytest
from comparing import side

from traceread.comparison import compare
from traceread.comparison.gates import GateResult, State, check_findings, check_gates, gate_of, has_failed, parse_gate, severity_of
from traceread.errors import ComparisonError
from traceread.findings import Finding, Skipped
from traceread.measurements.classes import StepClass
from traceread.reporters.github import workflow_commands
from traceread.reporters.junit import junit_xml

MS = 1_000_000
STEADY = [100 * MS, 101 * MS, 99 * MS, 100 * MS, 100 * MS, 101 * MS]
ROUGH = [100 * MS, 130 * MS, 80 * MS, 110 * MS, 90 * MS, 120 * MS]


def plus(steps, ns):
    return [s + ns for s in steps]


@pytest.mark.parametrize(
    ("text", "metric", "limit_ns"),
    [
        ("exposed_communication>+5ms", "exposed_communication", 5 * MS),
        ("step>2%", "step", 2 * MS),
        ("step > +0.5 %", "step", MS // 2),
        ("median>250us", "median", 250_000),
        ("Data-Wait>1.5s", "data_wait", 1_500 * MS),
        ("hidden_communication>10ns", "hidden_communication", 10),
    ],
)
def test_gates_as_they_are_written(text, metric, limit_ns):
    gate = parse_gate(text)
    assert (gate.metric, gate.limit_ns(100 * MS)) == (metric, limit_ns)


@pytest.mark.parametrize(
    "text", ["", "step", "step>", "step>fast", "step>-5ms", "step<5ms", "colour>5ms", "step>5", "step>5hours", "p95>1ms"]
)
def test_what_is_no_gate_is_refused(text):
    with pytest.raises(ComparisonError) as raised:
        parse_gate(text)
    assert raised.value.slug == "gate"
    assert raised.value.hint


def result(before, after, gate="step>2%", **more):
    [found] = check_gates(compare(side(before), side(after), **more), [parse_gate(gate)])
    return found


@pytest.mark.parametrize(
    ("before", "after", "gate", "state"),
    [
        (STEADY, plus(STEADY, 5 * MS), "step>2%", State.FAILED),
        (STEADY, plus(STEADY, 5 * MS), "step>10%", State.PASSED),
        (STEADY, plus(STEADY, -5 * MS), "step>2%", State.PASSED),
        (STEADY, STEADY, "step>3%", State.PASSED),
        (STEADY, plus(STEADY, MS), "step>0.5%", State.UNDECIDED),  # beyond the limit, but within the scatter
        (ROUGH, plus(ROUGH, 10 * MS), "step>2%", State.UNDECIDED),
        (ROUGH, ROUGH, "step>2%", State.UNDECIDED),  # 2 % could hide in this scatter
        (ROUGH, ROUGH, "step>80%", State.PASSED),
        ([100 * MS], [200 * MS], "step>2%", State.UNDECIDED),
        (STEADY, plus(STEADY, 5 * MS), "median>2%", State.FAILED),
        (STEADY, plus(STEADY, 5 * MS), "compute>4ms", State.FAILED),
        (STEADY, plus(STEADY, 5 * MS), "data_wait>1ms", State.PASSED),
    ],
)
def test_when_a_gate_fails(before, after, gate, state):
    assert result(before, after, gate).state is state


def test_a_class_that_was_not_there_may_not_grow_by_any_percentage():
    before, after = [{"compute": s} for s in STEADY], [{"compute": s, "data_wait": MS} for s in STEADY]
    assert result(before, after, "data_wait>50%").state is State.FAILED


def test_an_undecided_gate_says_how_many_steps_would_do():
    message = result(ROUGH, plus(ROUGH, 10 * MS), "step>10%").message
    assert "not decided" in message
    assert "steps a side would" in message


def test_a_failed_gate_says_what_was_seen():
    assert result(STEADY, plus(STEADY, 5 * MS)).message == "step > +2%: failed, +5.00 ms ± 1.34 ms (5.0 %)"


def test_sides_that_are_not_comparable_decide_nothing():
    found = result(STEADY, plus(STEADY, 5 * MS), declared={"precision": ("bf16", "fp8")})
    assert found.state is State.UNDECIDED
    assert "precision" in found.message


def test_a_stall_does_not_hide_a_slower_step_from_its_gate():
    stalled = [*plus(STEADY, 5 * MS)[:-1], 400 * MS]
    assert result(STEADY, stalled, "step>2%").state is State.FAILED
    assert result(STEADY, [*STEADY[:-1], 400 * MS], "step>2%").state is State.UNDECIDED


def test_strict_gates_must_be_decided():
    undecided, passed = (GateResult("a", state, "") for state in (State.UNDECIDED, State.PASSED))
    assert not has_failed([undecided, passed])
    assert has_failed([undecided, passed], strict=True)
    assert not has_failed([passed], strict=True)
    assert has_failed([GateResult("a", State.FAILED, "")])


# --- findings ----------------------------------------------------------------------------------------------------------------------

FINDINGS = (
    Finding("late batch", rule="data-loading", loss_ns=((StepClass.DATA_WAIT, 12 * MS),), saving_ns=12 * MS, saving_alone_ns=12 * MS),
    Finding("a sync", rule="item-sync", loss_ns=((StepClass.HOST_SYNC, 3 * MS),)),
    Finding("small", rule="gc-pause", loss_ns=((StepClass.LAUNCH_BOUND, MS),), saving_alone_ns=MS),
)
RULES = {"data-loading", "item-sync", "gc-pause", "recompilation"}


@pytest.mark.parametrize(
    ("finding", "severity"), list(zip(FINDINGS, ("high", "medium", "low"), strict=True)), ids=lambda x: getattr(x, "rule", x)
)
def test_severity_is_the_share_of_the_step(finding, severity):
    assert severity_of(finding, 100 * MS) == severity


@pytest.mark.parametrize(
    ("wanted", "findings", "state"),
    [
        ("high", FINDINGS, State.FAILED),
        ("high", FINDINGS[1:], State.PASSED),
        ("medium", FINDINGS[1:], State.FAILED),
        ("medium", FINDINGS[2:], State.PASSED),
        ("low", FINDINGS[2:], State.FAILED),
        ("low", (), State.PASSED),
        ("item-sync", FINDINGS, State.FAILED),
        ("item-sync", FINDINGS[2:], State.PASSED),
        ("recompilation", FINDINGS, State.UNDECIDED),
    ],
)
def test_gates_on_findings(wanted, findings, state):
    skipped = (Skipped("recompilation", "no ranges were recorded"),)
    [found] = check_findings(findings, skipped, 100 * MS, [wanted], RULES)
    assert found.state is state


def test_a_rule_that_does_not_exist_is_refused():
    with pytest.raises(ComparisonError, match="'colour' is neither a rule nor a severity"):
        check_findings(FINDINGS, (), 100 * MS, ["colour"], RULES)


# --- what continuous integration reads -----------------------------------------------------------------------------------------------

RESULTS = (
    GateResult("step > +2%", State.FAILED, "step > +2%: failed, <5 ms>\n::warning::x"),
    GateResult("a", State.PASSED, "a: passed"),
    GateResult("b", State.UNDECIDED, "b: not decided"),
)


@pytest.mark.parametrize(("strict", "failures", "skipped"), [(False, 1, 1), (True, 2, 0)])
def test_junit(strict, failures, skipped):
    root = ElementTree.fromstring(junit_xml(RESULTS, "before → after", strict).encode())
    assert (root.get("tests"), root.get("failures"), root.get("skipped")) == ("3", str(failures), str(skipped))
    cases = root.findall("./testsuite/testcase")
    assert [c.get("name") for c in cases] == ["step > +2%", "a", "b"]
    assert len(root.findall(".//failure")) == failures
    assert len(root.findall(".//skipped")) == skipped


def test_annotations_stay_on_their_line():
    lines = workflow_commands(RESULTS)
    assert lines == [
        "::error title=traceread step > +2%25::step > +2%25: failed, <5 ms> ::warning::x",
        "::notice title=traceread a::a: passed",
        "::warning title=traceread b::b: not decided",
    ]
    assert workflow_commands(RESULTS, strict=True)[2].startswith("::error ")


def test_a_gate_reads_as_it_was_meant():
    assert str(gate_of("step", "+2 %")) == "step > +2%"
