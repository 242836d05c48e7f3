"""Every hand-built timeline through the whole pipeline, in both formats: exact times per class, and what they rest on."""

from pathlib import Path

import pytest
from timelines import SECTIONS, SOURCES, TIMELINES, page, write

import traceread
from traceread.measurements.classes import CLASSES, StepClass

DOCS = Path(__file__).parents[1] / "docs" / "idle-causes.md"


def case(timeline, source):
    why = timeline.unwritable(source)
    return pytest.param(timeline, source, id=f"{timeline.name}-{source}", marks=[pytest.mark.skip(reason=why)] if why else [])


def analysed(timeline, source, folder):
    profile = traceread.load(write(timeline, source, folder))
    assert len(profile) == 1
    assert profile.source == source
    return traceread.analyze(profile).ranks[0]


def class_times(rank):
    """Label and non-zero class times of every window."""
    rows = zip(rank.steps.windows, rank.partition.class_ns.tolist(), strict=True)
    return [(window.label, {name: ns for name, ns in zip(CLASSES, row, strict=True) if ns}) for window, row in rows]


def pieces(rank):
    """Every idle piece, with times from the start of the first window."""
    idle, zero = rank.idle, rank.steps.windows[0].start_ns
    columns = (idle.start_ns - zero, idle.end_ns - zero, idle.window, idle.cause, idle.reason, idle.recorded)
    return list(zip(*(c.tolist() for c in columns), strict=True))


@pytest.mark.parametrize(("timeline", "source"), [case(t, s) for t in TIMELINES for s in SOURCES])
def test_times_and_evidence(timeline, source, tmp_path):
    rank = analysed(timeline, source, tmp_path)
    assert class_times(rank) == list(timeline.windows)
    assert (sum(rank.partition.hidden_communication_ns.tolist()), sum(rank.partition.hidden_copy_ns.tolist())) == timeline.hidden
    for name, recorded in timeline.recorded.items():
        of_class = rank.idle.recorded[rank.idle.cause == StepClass[name.upper()]]
        assert of_class.tolist() == [recorded] * len(of_class), name
    for name, row in timeline.named.items():
        found = {n for gap in rank.gaps for cause in gap.causes if cause.step_class.key == name for n in cause.names}
        assert row in found, (name, found)


@pytest.mark.parametrize("timeline", [t for t in TIMELINES if not any(map(t.unwritable, SOURCES))], ids=lambda t: t.name)
def test_both_formats_give_the_same_pieces(timeline, tmp_path):
    one, other = (analysed(timeline, source, tmp_path) for source in SOURCES)
    assert pieces(one) == pieces(other)
    assert class_times(one) == class_times(other)


def test_the_table_covers_every_class_and_both_formats():
    assert len({t.name for t in TIMELINES}) == len(TIMELINES) >= 60
    assert {t.section for t in TIMELINES} == set(SECTIONS)
    assert {name for t in TIMELINES for _, times in t.windows for name in times} == set(CLASSES)
    for timeline in TIMELINES:
        assert sum(not timeline.unwritable(source) for source in SOURCES) >= 1, timeline.name


@pytest.mark.parametrize("timeline", [t for t in TIMELINES if t.windows[0][0] == "whole capture"], ids=lambda t: t.name)
def test_expected_times_add_up_to_the_rows(timeline):
    work = [row for row in timeline.rows if row.what in ("kernel", "copy", "memset", "graph", "graph_nodes")]
    assert sum(timeline.windows[0][1].values()) == max(r.end for r in work) - min(r.start for r in work)


def test_the_page_for_users_is_the_table(request):
    if request.config.getoption("--accept-gold", default=False):
        DOCS.write_text(page(), "utf-8")
    assert DOCS.read_text("utf-8") == page(), "docs/idle-causes.md is not the table; if the table is right: pytest --accept-gold"
