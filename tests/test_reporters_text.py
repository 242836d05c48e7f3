import re
from dataclasses import replace
from pathlib import Path

import pytest
import reporter_profiles as profiles

import traceread
from traceread.reporters import render, render_document
from traceread.reporters.answer import class_table, report_document
from traceread.reporters.capture import capture_document
from traceread.reporters.document import Bar, Column, Document, Listing, Name, Paragraph, Table, Tone
from traceread.reporters.kernels import kernels_document
from traceread.reporters.text import Screen, render_text
from traceread.reporters.waiting import ranks_document
from traceread.reporters.windows import windows_document
from traceread.run import Described, Run

SAMPLES = Path(__file__).parents[1] / "sample_traces"
EVERYTHING = profiles.everything()
FANCY = Screen(fancy=True)
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def documents(report):
    rank = report.ranks[0]
    return {
        "report": report_document(report),
        "info": capture_document(report),
        "steps": windows_document(report),
        "kernels": kernels_document(report, rank, "name", 25),
        "families": kernels_document(report, rank, "family", 25),
    }


@pytest.mark.parametrize("name", EVERYTHING)
def test_report_is_the_golden_one(name, gold):
    gold(f"report-{name.replace('_', '-')}.txt", render(EVERYTHING[name](), "text"))


@pytest.mark.parametrize("verb", ["info", "steps", "kernels", "families"])
def test_other_verbs_are_the_golden_ones(verb, gold):
    gold(f"{verb}-four-ranks.txt", render_text(documents(profiles.four_ranks())[verb]))


@pytest.mark.parametrize("width", [60, 100, 140])
@pytest.mark.parametrize("name", EVERYTHING)
def test_nothing_is_wider_than_the_screen(name, width):
    for document in documents(EVERYTHING[name]()).values():
        for line in render_text(document, Screen(width)).splitlines():
            assert len(line) <= width, line


@pytest.mark.parametrize("screen", [Screen(), FANCY, Screen(unicode=False)])
def test_recorded_names_cannot_steer_the_terminal(screen):
    for document in documents(profiles.hostile()).values():
        assert not CONTROL.search(ANSI.sub("", render_text(document, screen)))
        assert "owned" not in render_text(document, screen)


def test_markup_in_names_is_only_text():
    assert "[bold]" in render_text(report_document(profiles.hostile()), FANCY)


def test_colours_and_blocks_only_where_they_show():
    document = report_document(profiles.one_rank())
    plain, fancy = render_text(document), render_text(document, FANCY)
    assert "\x1b" not in plain
    assert "█" not in plain
    assert re.search(r"compute +#+ ", plain)
    assert "█" in fancy
    assert ANSI.search(fancy)


def test_fancy_and_plain_text_differ_in_nothing_but_the_bars():
    document = report_document(profiles.one_rank())
    bars = re.compile("[#█▏▎▍▌▋▊▉]+ *")
    assert bars.sub("", ANSI.sub("", render_text(document, FANCY))) == bars.sub("", render_text(document))


@pytest.mark.parametrize("name", ["one_rank", "hostile"])
def test_without_unicode_everything_is_ascii(name):
    text = render_text(report_document(EVERYTHING[name]()), Screen(unicode=False))
    assert text.isascii()
    assert "us into" in text or "ms into" in text or "at the start" in text


def first_line(report):
    return render(report, "text").splitlines()[0]


def test_first_line_names_what_was_read():
    text = " ".join(render(profiles.one_rank(), "text").splitlines()[:2])
    assert text.startswith(
        "run/ · rank 3 of 32 · NVIDIA H100 80GB HBM3 · PyTorch trace · 3 steps (ProfilerStep#11–13; #10 left out: first step)"
    )
    assert "4 of 32 ranks, 1 host" in first_line(profiles.four_ranks())
    assert "64 ranks, 1 host" in first_line(profiles.many_ranks())


def test_first_line_says_when_the_steps_are_not_what_one_expects():
    assert "only the first step is complete" in first_line(profiles.first_step_only())
    assert "whole capture" in first_line(profiles.whole_capture())
    assert "no step is complete" in first_line(profiles.empty_steps())
    assert "no GPU work" in first_line(profiles.host_only())


def test_headline_names_the_largest_loss_and_its_cause():
    text = render(profiles.one_rank(), "text")
    assert "A step takes 40.0 ms (median; slowest 40.0 ms); for 27.6 ms of it (68.9 %) the GPU computes." in text
    assert "The largest loss is 5.20 ms (13.0 %): the GPU waits for the next batch (mostly DataLoader __next__," in text


def test_uneven_steps_are_called_so():
    text = " ".join(render(profiles.uneven(), "text").split())
    assert "A step takes 40.0 ms (median; slowest 70.0 ms). Uneven steps: the mean of 50.0 ms is 25.0 % above the median." in text
    assert "Uneven" not in render(profiles.one_rank(), "text")


def test_the_critical_rank_is_the_one_described():
    text = render(profiles.four_ranks(), "text")
    assert "On rank 2, which waits least for the others" in text
    assert "slowest/median 1.050" in text


def test_many_ranks_do_not_scroll():
    text = render(profiles.many_ranks(), "text")
    assert "and 58 more, 40.000 ms to 40.570 ms" in text
    assert len(text.splitlines()) < 80


def test_warnings_stand_once_with_the_ranks_they_are_of():
    text = render(profiles.four_ranks(), "text")
    assert text.count("rows have impossible times") == 1
    assert "on 4 ranks (0–3), such as rank 0: 1 rows have impossible times [odd-times]" in text
    assert "said of the whole capture [rank-order]" in text


def test_no_warnings_no_heading():
    assert "warnings" not in render(profiles.one_rank(), "text")


def test_without_gpu_work_the_host_rows_speak():
    text = render(profiles.host_only(), "text")
    assert "No GPU work was recorded" in text
    assert "ProfilerStep#7" in text
    assert "100 % idle" not in text


def test_columns_line_up_and_long_names_lose_their_middle():
    table = Table(
        (Column("n", right=True), Column("share"), Column("name", grows=True)),
        (("1", Bar(1, 4, "compute"), Name("a" * 60 + "b" * 60)), ("10", Bar(0, 4, "compute"), Name("short"))),
        total=("11", "", "all"),
        note="and more",
    )
    text = render_text(Document(("heading",), (table,)), Screen(60))
    assert text.splitlines()[2:] == [
        "  n  share  name",
        f"  1  ###    {'a' * 30}…{'b' * 15}",
        " 10         short",
        " 11         all",
        " and more",
    ]


def test_a_number_and_its_unit_stay_on_one_line():
    text = render_text(Document(("h",), (Paragraph("x" * 55 + " 12.3 ms and on"),)), Screen(60))
    assert text.splitlines()[3] == "12.3 ms and on"


def test_listing_marks_its_entries():
    listing = Listing("title", (("first", "why: because"), ("second",)), numbered=True, tone=Tone.PLAIN)
    assert render_text(Document(("h",), (listing,))).splitlines()[2:] == ["title", " 1 first", "   why    because", " 2 second"]


@pytest.mark.parametrize(
    ("untraced", "said"),
    [
        (-7, "without the profiler a step takes"),
        (0, "no less than recorded"),
        (None, ""),
    ],
)
def test_what_recording_costs_is_said_where_a_step_was_timed_without(untraced, said):
    report = profiles.one_rank()
    mean = report.summary.mean_ns
    known = None if untraced is None else mean + untraced * mean // 100
    described = replace(report, described=Described(Run(untraced_step_ns=known)))
    note = class_table(described, report.summary, report.rank(report.summary.critical_rank)).note
    assert said in note
    assert ("recording costs" in note) == (untraced == -7)
    if untraced == -7:
        assert "(7.5 %)" in note, "seven in a hundred of the recorded step are 7.5 % of the other"


def test_nothing_is_said_of_steps_where_captures_are_compared_as_a_whole():
    report = traceread.analyze(str(SAMPLES / "straggler-compute"), step_range="none")
    text = " ".join(render_document(ranks_document(report), "text").split())
    assert "spend 8.3 % of their time waiting" in text
    assert "they wait 11.0 % of their time for it" in text
    assert "step" not in text.replace("ProfilerStep", "").replace("names no steps", "")
    [finding] = [f for f in report.findings if f.rule == "slow-gpu"]
    assert "step" not in finding.why
