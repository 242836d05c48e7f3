from dataclasses import replace

import reporter_profiles as profiles

from traceread.findings import Evidence, Finding, Skipped
from traceread.measurements.classes import StepClass
from traceread.reporters.fixes import fix_listing, fixes_sentence, not_looked_at, quality_text, saving_text
from traceread.rules.fix_list import FixList, ReplayQuality

MS = 1_000_000


def with_fixes(*findings, **more):
    report = replace(profiles.one_rank())
    report.__dict__["fix_list"] = FixList(findings, step_ns=40 * MS, **more)
    return report


def replayed(title="late", saving=5 * MS, after=35 * MS, **more):
    return Finding(
        title, saving_ns=saving, saving_alone_ns=7 * MS, step_ns_after=after, saving_kind="replayed", rule="data-loading", why="w", **more
    )


def test_the_first_three_say_what_to_do_and_the_rest_what_they_are():
    listing = fix_listing(with_fixes(*[replayed(f"fix {i}", confirm="Look. Then look again.", fix="Do it. Well.") for i in range(10)]))
    assert listing.numbered
    assert [len(e) for e in listing.entries] == [4, 4, 4, 1, 1, 1, 1, 1]
    assert listing.entries[0] == (
        "fix 0: saves 5.00 ms, the step then takes 35.0 ms [data-loading]",
        "why: w",
        "check: Look.",
        "change: Do it. Well.",
    )
    assert listing.note.startswith("and 2 more findings")


def test_the_lines_of_code_where_it_costs_the_most_are_named_longest_first():
    places = tuple(
        Evidence(0, f"s{i}", 0, length, source=source) for i, (length, source) in enumerate([(5, "a:1 f"), (9, "b:2 g"), (7, "")])
    )
    assert fix_listing(with_fixes(replayed(evidence=places))).entries[0][2] == "where: longest in b:2 g, a:1 f"
    more = (*places, Evidence(0, "s4", 0, 1, source="b:2 g"), Evidence(0, "s5", 0, 1, source="c:3 h"))
    assert fix_listing(with_fixes(replayed(evidence=more))).entries[0][2] == "where: longest in b:2 g, a:1 f and 1 more"
    assert not [line for line in fix_listing(with_fixes(replayed(evidence=places[2:]))).entries[0] if line.startswith("where")]


def test_nothing_found_is_no_list():
    assert fix_listing(with_fixes()) is None


def test_savings_in_words():
    assert saving_text(replayed(mfu_after=0.4853)) == "saves 5.00 ms, the step then takes 35.0 ms, MFU 48.5 %"
    assert saving_text(replayed(saving=0)) == "saves nothing more after the fixes above, 7.00 ms by itself"
    loss = Finding("x", saving_kind="size of the loss", loss_ns=((StepClass.DATA_WAIT, 3 * MS),))
    assert saving_text(loss) == "costs 3.00 ms a step"
    assert saving_text(Finding("x")) == ""
    capture = (Evidence(0, "whole capture", 0, 10),)
    assert saving_text(replayed(evidence=capture)) == "saves 5.00 ms, the capture then takes 35.0 ms"


def test_quality_in_words():
    assert quality_text(ReplayQuality(0.0, 5, 5)) == "savings are predicted by replaying 5 steps; the unchanged steps are met exactly"
    assert quality_text(ReplayQuality(0.0042, 1, 5)) == "savings are predicted by replaying 1 step; the unchanged step is met to 0.4 %"
    assert quality_text(ReplayQuality(0.2, 5, 5, "it is off")) == "savings are not predicted: it is off"
    assert quality_text(ReplayQuality(None, 0, 0)) == ""
    whole = ReplayQuality(0.0042, 1, 1, counts_steps=False)
    assert quality_text(whole) == "savings are predicted by replaying the capture; unchanged it is met to 0.4 %"


def test_rules_that_could_not_look_are_named():
    assert not_looked_at(with_fixes()) is None
    stacks = "not recorded: stacks"
    said = not_looked_at(with_fixes(skipped=(Skipped("a", stacks), Skipped("b", "no launches"), Skipped("c", stacks))))
    assert said.text == "not looked at: a, c (not recorded: stacks); b (no launches)"


def test_what_the_first_fixes_give_in_a_sentence():
    assert fixes_sentence(with_fixes()) == ""
    assert fixes_sentence(with_fixes(Finding("x", saving_kind="size of the loss"))) == ""
    one = with_fixes(replayed("a"), replayed("b", saving=0))
    assert fixes_sentence(one) == 'The first fix on the list ("a") would bring a step to 35.0 ms (12.5 % less).'
    four = with_fixes(*(replayed("abcd"[i], after=(35 - 5 * i) * MS) for i in range(4)))
    assert fixes_sentence(four) == (
        'The first fix on the list ("a") would bring a step to 35.0 ms (12.5 % less), the first three to 25.0 ms (37.5 % less).'
    )
