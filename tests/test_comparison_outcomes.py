"""Findings of two sides: fixed, new, remaining, and what their fixes gave."""

from comparing import side

import traceread
from traceread.comparison.outcomes import Outcome, compare_findings
from traceread.reporters.diff import render_diff


def finding(rule, title="t", step_class="data_wait", loss=20, saving=18):
    return {"rule": rule, "title": title, "class": step_class, "loss_ns": {step_class: loss}, "saving_ns": saving}


def sides(before, after, steps=({"compute": 100, "data_wait": 20}, {"compute": 100, "data_wait": 3})):
    return side([steps[0]], findings=before), side([steps[1]], findings=after)


def test_a_fixed_finding_with_what_was_promised_and_what_came():
    [found] = compare_findings(*sides([finding("data-loading")], []))
    assert (found.outcome, found.predicted_ns, found.achieved_ns) == (Outcome.FIXED, 18, 17)
    assert (found.before_ns, found.after_ns) == (20, None)


def test_new_and_remaining():
    found = compare_findings(*sides([finding("a"), finding("b")], [finding("b", loss=9), finding("c", loss=4)]))
    assert [(f.outcome, f.rule, f.before_ns, f.after_ns) for f in found] == [
        (Outcome.FIXED, "a", 20, None),
        (Outcome.REMAINING, "b", 20, 9),
        (Outcome.NEW, "c", None, 4),
    ]
    assert found[2].predicted_ns is None
    assert found[2].achieved_ns is None


def test_titles_tell_findings_of_a_rule_apart():
    found = compare_findings(*sides([finding("a", "x"), finding("a", "y")], [finding("a", "y", loss=1)]))
    assert [(f.outcome, f.title) for f in found] == [(Outcome.FIXED, "x"), (Outcome.REMAINING, "y")]


def test_a_title_may_change():
    [found] = compare_findings(*sides([finding("a", "in forward")], [finding("a", "in backward")]))
    assert (found.outcome, found.title) == (Outcome.REMAINING, "in forward")


def test_equal_findings_pair_only_once():
    found = compare_findings(*sides([finding("a"), finding("a")], [finding("a")]))
    assert sorted(str(f.outcome) for f in found) == ["fixed", "fixed", "new"]


def test_a_fix_that_saved_nothing_more_was_not_to_save_0_ns():
    saving = {"a": 18, "b": 0}
    before = [finding(rule, saving=ns) for rule, ns in saving.items()]
    said = render_diff(traceread.diff(*sides(before, [])), "text")
    assert "saving 18 ns predicted; data wait fell by 17 ns" in said
    assert "saving none predicted after the other fixes; data wait" in said
