"""What every rule can rely on: its turn, what it needs, and that its failure costs nobody else anything."""

import shutil
import sys
from importlib.machinery import PathFinder
from types import SimpleNamespace

import pytest
from rule_cases import RIGHT, busy, logs, loop
from scripting import MS, Script, without

from traceread import rules
from traceread.findings import Effort, Finding
from traceread.measurements.classes import StepClass
from traceread.model import Capability
from traceread.rules import GENERAL, LAST, SPECIFIC, Facts, Rule, load_rules, rule
from traceread.rules.checking import check_rank

NEEDS = {Capability.ACTIVITIES}


def made(id, check, *, turn=SPECIFIC, needs=NEEDS):
    return Rule(id, check, frozenset(needs), Effort.CODE, turn, "A rule.\n\nHow to confirm. Look.\n\nWhat to try. Change it.")


def waiting(s):
    return s.steps(4, lambda s, n: (busy(s, 10), s.item(), logs(s), busy(s, 10)))


def test_what_a_rule_finds_is_no_longer_there_for_the_next():
    def takes_half(facts):
        rows = facts.idle_rows(StepClass.HOST_SYNC)
        yield Finding("half", facts.idle_loss(rows[: len(rows) // 2]))

    def takes_the_rest(facts):
        yield Finding("rest", facts.idle_loss(facts.idle_rows(StepClass.HOST_SYNC)))

    facts = waiting(Script()).facts()
    whole = facts.per_step(facts.class_ns(StepClass.HOST_SYNC))
    found = check_rank(facts, [made("b", takes_the_rest, turn=LAST), made("a", takes_half, turn=SPECIFIC)]).findings
    assert [f.title for f in found] == ["half", "rest"]
    parts = [dict(f.loss_ns)[StepClass.HOST_SYNC] for f in found]
    assert all(parts)
    assert abs(sum(parts) - whole) <= 1


def test_a_rule_that_lacks_something_says_so():
    facts = waiting(Script()).facts(recorded=without(Capability.OPS, Capability.STACKS))
    skipped = {s.rule: s for s in check_rank(facts, load_rules()[0]).skipped}
    assert skipped["item-sync"].reason == "not recorded: framework ops"
    assert skipped["item-sync"].needs == ("ops",)
    assert "loader-restart" in skipped
    assert "launch-bound" not in skipped
    report = waiting(Script()).report(recorded=without(Capability.OPS))
    assert "item-sync" in [s.rule for s in report.skipped]
    [said] = [s for s in report.to_dict()["skipped"] if s["rule"] == "item-sync"]
    assert "To record it" in said["reason"]
    assert [f.rule for f in report.findings] == ["host-sync"]  # less is known of the same cause


@pytest.mark.parametrize("broken", ["raises", "yields nonsense", "is no generator"])
def test_a_rule_that_fails_becomes_a_notice(broken):
    def raises(facts):
        yield Finding("before", facts.idle_loss(facts.idle_rows(StepClass.HOST_SYNC)))
        raise ZeroDivisionError("a mistake")

    checks = {"raises": raises, "yields nonsense": lambda facts: iter(["text"]), "is no generator": lambda facts: None}
    facts = waiting(Script()).facts()
    result = check_rank(facts, [made("broken", checks[broken]), made("whole", lambda facts: iter([Finding("found")]), turn=GENERAL)])
    assert [n.slug for n in result.notices] == ["rule-failed"]
    assert "rule broken failed" in result.notices[0].message
    assert "found" in [f.title for f in result.findings]


def test_the_decorator_takes_the_manual_from_the_module():
    @rule("of-this-file", needs=NEEDS)
    def check(facts: Facts):
        yield from ()

    assert check.title == "What every rule can rely on: its turn, what it needs, and that its failure costs nobody else anything"
    assert check.turn == SPECIFIC


class Entry:
    """An entry point as importlib finds it."""

    def __init__(self, name, loaded):
        self.name, self.loaded, self.dist = name, loaded, None

    def load(self):
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


@pytest.fixture
def plug_in(monkeypatch):
    """Rules as if these entry points were installed."""

    def installed(*entries):
        monkeypatch.setattr(rules, "_plug_ins", lambda: entries)
        load_rules.cache_clear()
        return load_rules()

    yield installed
    load_rules.cache_clear()


def test_rules_of_plug_ins_are_found_and_run(plug_in):
    def check(facts):
        yield Finding("found by a plug-in", facts.idle_loss(facts.idle_rows(StepClass.HOST_SYNC)))

    found, notices = plug_in(Entry("mine", made("mine", check)))
    assert "mine" in [r.id for r in found]
    assert notices == ()
    findings = waiting(Script()).report().findings
    assert [f for f in findings if f.rule == "mine"] or findings[0].rule == "item-sync"


@pytest.mark.parametrize("loaded", [ImportError("no such module"), 42, SystemError("worse")])
def test_a_plug_in_that_cannot_be_loaded_becomes_a_notice(plug_in, loaded):
    found, notices = plug_in(Entry("broken", loaded))
    assert len(found) > 30
    assert [n.slug for n in notices] == ["rule-failed"]
    assert "broken" in notices[0].message
    assert [n for n in waiting(Script()).report().all_notices if n.slug == "rule-failed"] == list(notices)


def test_a_plug_in_cannot_replace_a_shipped_rule(plug_in):
    found, _ = plug_in(Entry("mine", made("item-sync", lambda facts: iter(()))))
    assert next(r for r in found if r.id == "item-sync").check.__module__ == "traceread.rules.item_sync"


def install(folder, entry_points, info="mine-1.0.dist-info"):
    """A package with a module of one rule, as an installer leaves it."""
    (folder / info).mkdir(parents=True)
    (folder / info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (folder / info / "entry_points.txt").write_text(entry_points)
    (folder / "mine_rules.py").write_text("from traceread.rules import rule\n\n@rule('of-mine')\ndef of_mine(facts):\n    yield from ()\n")


@pytest.mark.parametrize("info", ["mine-1.0.dist-info", "mine.egg-info", "EGG-INFO", "zip"])
def test_an_installed_plug_in_is_found(tmp_path, monkeypatch, info):
    place = tmp_path / ("mine.egg" if info == "EGG-INFO" else "place")
    install(place, "[traceread.rules]\nmine = mine_rules\n", "mine-1.0.dist-info" if info == "zip" else info)
    if info == "zip":
        place = shutil.make_archive(str(tmp_path / "mine"), "zip", place)
    monkeypatch.syspath_prepend(str(place))
    load_rules.cache_clear()
    try:
        assert "of-mine" in [r.id for r in load_rules()[0]]
    finally:
        load_rules.cache_clear()
        sys.modules.pop("mine_rules", None)


def test_a_finder_of_packages_is_asked(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "meta_path", [f for f in sys.meta_path if f is PathFinder or not hasattr(f, "find_distributions")])
    assert not rules._may_be_plug_ins()
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, SimpleNamespace(find_distributions=lambda context: ())])
    assert rules._may_be_plug_ins()


def test_without_a_plug_in_nothing_is_imported_to_find_one(tmp_path, monkeypatch):
    install(tmp_path, "[console_scripts]\nmine = mine_rules:main\n")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), str(tmp_path / "nothing")])
    monkeypatch.chdir(tmp_path)
    assert rules._plug_ins() == ()


def test_equal_inputs_give_equal_lists():
    def listed():
        return [f.to_dict() for f in RIGHT["allocator-churn"]().report().findings]

    assert listed() == listed()


def test_a_healthy_loop_has_an_empty_list():
    report = loop(lambda s, n: busy(s, 40), 5).report()
    assert report.findings == ()
    assert report.fix_list.quality.reason == ""


def test_nothing_recorded_nothing_found():
    report = Script().report()
    assert report.findings == ()
    assert report.to_dict()["replay"]["reason"] == "nothing to replay"


def test_facts_count_over_used_steps():
    facts = loop(lambda s, n: busy(s, 10), 5).facts()
    assert facts.step_count == 4
    assert facts.per_step(10 * MS) == 2_500_000
    assert facts.worth(facts.total_ns // 100 + 1)
    assert not facts.worth(facts.total_ns // 100 - 1)
