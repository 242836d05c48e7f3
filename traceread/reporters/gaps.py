"""The longest idle gaps with their causes and evidence."""

from __future__ import annotations

import re

from traceread.measurements.classes import Reason, StepClass
from traceread.measurements.evidence import Cause, Gap
from traceread.measurements.steps import WindowKind
from traceread.names import and_more, row_title, shorten
from traceread.report import Report
from traceread.reporters.document import Listing
from traceread.reporters.losses import kernel_name
from traceread.units import duration, percent, unit_for

GAPS = 5
"""Idle gaps shown unless asked otherwise."""

_DIGITS = re.compile(r"\d+")


def longest_gaps(report: Report, count: int) -> list[Gap]:
    """The longest idle gaps of all ranks, longest first."""
    return sorted((g for r in report.ranks for g in r.gaps), key=lambda g: (-g.duration_ns, g.rank, g.start_ns))[:count]


def gap_listing(report: Report, count: int) -> Listing | None:
    """An entry per gap: length, classes, where; why; until what; in what. One that is like an earlier one says so instead."""
    gaps = longest_gaps(report, count)
    if not gaps:
        return None
    unit = unit_for(gaps[0].duration_ns)
    seen: dict[tuple[object, ...], int] = {}
    entries = []
    for number, gap in enumerate(gaps, 1):
        like = seen.setdefault(_kind(gap), number)
        first = _first_line(report, gap, unit)
        entries.append((f"{first}; like {like}",) if like < number else (first, *_evidence_lines(gap)))
    return Listing("longest idle gaps", tuple(entries), numbered=True)


def _kind(gap: Gap) -> tuple[object, ...]:
    """What makes two gaps alike: main cause, what ended them, and where in the program."""
    main = gap.causes[0]
    inside = tuple(_DIGITS.sub("#", name) for name in _inside(gap))
    return (main.step_class, main.reason, main.names[:1], gap.next_activity, gap.launch_call, inside, gap.source)


def _first_line(report: Report, gap: Gap, unit: tuple[int, str]) -> str:
    window = next(w for w in report.rank(gap.rank).steps.windows if w.start_ns <= gap.start_ns < w.end_ns)
    step = "the capture" if window.kind is WindowKind.WHOLE else shorten(gap.step, 40)
    offset = gap.start_ns - window.start_ns
    where = f"{duration(offset)} into {step}" if offset else f"at the start of {step}"
    rank = f", rank {gap.rank}" if len(report.ranks) > 1 else ""
    return f"{duration(gap.duration_ns, unit)}  {_classes(gap)}, {where}{rank}"


def _classes(gap: Gap) -> str:
    """The classes of the gap's parts: "data wait 95.0 %, launch-bound 5.0 %"."""
    times: dict[StepClass, int] = {}
    for cause in gap.causes:
        times[cause.step_class] = times.get(cause.step_class, 0) + cause.duration_ns
    ordered = sorted(times, key=lambda c: (-times[c], c))
    if len(ordered) == 1:
        return ordered[0].title
    shown = [c for c in ordered if 100 * times[c] >= gap.duration_ns][:3]
    return ", ".join(f"{c.title} {percent(times[c], gap.duration_ns)}" for c in shown)


def _evidence_lines(gap: Gap) -> list[str]:
    several = len({c.step_class for c in gap.causes}) > 1
    shown = [c for i, c in enumerate(gap.causes) if i == 0 or 100 * c.duration_ns >= gap.duration_ns]
    lines = ["why: " + and_more([_cause(c, several, len(shown) > 1) for c in shown], 3, " · ")]
    if gap.next_activity:
        launch = f", by {shorten(row_title(gap.launch_call), 32)}" if gap.launch_call else ""
        thread = f" on {shorten(gap.thread, 32)}" if gap.launch_call and gap.thread else ""
        lines.append(f"until: {kernel_name(gap.next_activity, 40)}{launch}{thread}")
    inside = " › ".join(shorten(row_title(name), 40) for name in _inside(gap)[-2:])
    places = [part for part in (inside, shorten(gap.source, 80)) if part]
    return [*lines, f"in: {' · '.join(places)}"] if places else lines


def _inside(gap: Gap) -> tuple[str, ...]:
    return tuple(name for name in gap.ranges if name != gap.step)


def _cause(cause: Cause, several_classes: bool, several: bool) -> str:
    title = f"{cause.step_class.title}, " if several_classes else ""
    evidence = "" if cause.step_class is StepClass.UNATTRIBUTED else "recorded: " if cause.recorded else "inferred: "
    names = and_more([shorten(row_title(n), 44) for n in cause.names], 2, ", ")
    reason = "" if cause.reason is Reason.HOST_BLOCKED and names else cause.reason.text
    text = f"{reason} ({names})" if reason and names else reason or names
    return f"{title}{evidence}{text}{f' {duration(cause.duration_ns)}' if several else ''}"
