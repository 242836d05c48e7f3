from dataclasses import replace

import pytest
import reporter_profiles as profiles

from traceread.errors import Notice
from traceread.model import Capability
from traceread.reporters import render_document
from traceread.reporters.capture import capture_document, judge
from traceread.reporters.recording import GUIDES, missing


def test_a_sound_capture_is_good_enough():
    assert judge(profiles.one_rank()).good == "yes"
    assert judge(profiles.one_rank()).reasons == ()


def test_without_gpu_work_it_is_not():
    verdict = judge(profiles.host_only())
    assert verdict.good == "no"
    assert len(verdict.reasons) == 1


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        ("whole_capture", "no range names steps"),
        ("first_step_only", "only the first step is complete"),
        ("empty_steps", "no step is complete"),
    ],
)
def test_reasons_for_care(profile, reason):
    verdict = judge(profiles.everything()[profile]())
    assert verdict.good == "with care"
    assert any(reason in why for why in verdict.reasons)


def test_a_single_used_step_tells_nothing_about_variation():
    report = profiles.report_of(profiles.build_rank(steps=2))
    assert judge(report).reasons == ("only one step can be used, so nothing is known about how much steps vary",)


@pytest.mark.parametrize("slug", ["launches-not-recorded", "graph-nodes-not-recorded", "truncated", "nsys-data-loss", "gpu-not-recorded"])
def test_warnings_that_touch_the_verdict(slug):
    trace = replace(profiles.build_rank(), notices=(Notice(slug, "seen", 0),))
    assert judge(profiles.report_of(trace)).good == "with care"


def test_warnings_that_do_not():
    trace = replace(profiles.build_rank(), notices=(Notice("steps-not-named", "seen", 0),))
    assert judge(profiles.report_of(trace)).good == "yes"


def test_every_capability_has_a_guide_for_at_least_one_tool():
    assert set(GUIDES) == set(Capability)
    for guide in GUIDES.values():
        for source in ("kineto", "nsys"):
            assert guide.how(source).startswith(("It comes ", "To record it: "))
        assert guide.possible("kineto") or guide.possible("nsys")


def test_what_the_tool_cannot_record_is_not_missing():
    report = profiles.report_of(profiles.build_rank(recorded=frozenset(Capability) - {Capability.OS_CALLS, Capability.STACKS}))
    assert [m.capability for m in missing(report)] == [Capability.STACKS]


def test_what_there_was_none_of_is_not_missing():
    without = frozenset(Capability) - {Capability.GRAPH_NODES, Capability.OVERHEAD}
    assert missing(profiles.report_of(profiles.build_rank(recorded=without))) == ()


def test_missing_on_some_ranks_says_on_how_many():
    traces = [profiles.build_rank(0), profiles.build_rank(1, recorded=frozenset(Capability) - {Capability.STACKS})]
    report = profiles.report_of(*traces)
    assert [(m.capability, m.ranks) for m in missing(report)] == [(Capability.STACKS, (1,))]
    text = render_document(capture_document(report), "text")
    assert "not on 1" in text
    from traceread.reporters import render

    assert "not recorded: Python stacks (on 1 rank)." in render(report, "text")


def test_many_ranks_are_bounded():
    text = render_document(capture_document(profiles.many_ranks()), "text")
    assert "and 48 more ranks" in text
