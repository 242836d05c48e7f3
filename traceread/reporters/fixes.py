"""The fix list: what to change first, what it saves, how to make sure."""

from __future__ import annotations

import re

from traceread.findings import Finding
from traceread.measurements.steps import WHOLE
from traceread.names import and_more, kernel_title, shorten
from traceread.report import Report
from traceread.reporters.document import Block, Listing, Paragraph, Tone
from traceread.rules.fix_list import REPLAYED, SIZE_OF_LOSS, FixList, ReplayQuality
from traceread.units import duration, part, percent, plural

SHOWN, IN_FULL = 8, 3
"""Findings shown, and how many of them with what to do; of the others the count."""

_NUMBERS = {2: "two", 3: "three"}
_SENTENCE = re.compile(r"(?<=[.:;]) (?=[A-Z])")


def fixes_sentence(report: Report) -> str:
    """What the first fixes give, in a sentence; "" where no saving is predicted."""
    saving = [f for f in report.findings if f.saving_ns and f.step_ns_after is not None][:IN_FULL]
    if not saving:
        return ""
    first, now = saving[0], report.fix_list.step_ns
    one = "a step" if report.counts_steps else "the capture"
    what = f'The first fix on the list ("{first.title}") would bring {one} to {_shorter(first, now)}'
    return f"{what}, the first {_NUMBERS[len(saving)]} to {_shorter(saving[-1], now)}." if len(saving) > 1 else f"{what}."


def _shorter(finding: Finding, now: int) -> str:
    after = finding.step_ns_after or 0
    return f"{duration(after)} ({percent(now - after, now)} less)"


def fix_listing(report: Report, most: int = SHOWN) -> Listing | None:
    """An entry per finding: title and saving; of the first ones why, how to check, what to change. None where nothing was found."""
    return listing_of(report.fix_list, most)


def listing_of(fixes: FixList, most: int = SHOWN) -> Listing | None:
    """The same of a fix list by itself."""
    findings = fixes.findings
    if not findings:
        return None
    entries = tuple(_entry(f) if number < IN_FULL else _entry(f)[:1] for number, f in enumerate(findings[:most]))
    left = len(findings) - most
    more = f"and {plural(left, 'more finding')}: traceread report -f json" if left > 0 else ""
    notes = [part for part in (more, quality_text(fixes.quality)) if part]
    return Listing("fix first", entries, numbered=True, note=". ".join(notes))


def finding_blocks(finding: Finding) -> tuple[Block, ...]:
    """One finding in full, with the places where it can be seen."""
    first, *rest = (line for line in _entry(finding) if not line.startswith("where: "))  # the places below say more
    places = tuple(
        (
            f"{duration(e.end_ns - e.start_ns)} in {shorten(e.step, 40)}, rank {e.rank}",
            *((" · ".join(shorten(kernel_title(name), 60) for name in e.names),) if e.names else ()),
            *((e.source,) if e.source else ()),
        )
        for e in finding.evidence
    )
    return (
        Paragraph(first, Tone.STRONG),
        *(Paragraph(line) for line in rest),
        *((Listing("where", places),) if places else ()),
    )


def _entry(finding: Finding) -> tuple[str, ...]:
    lines = [f"{finding.title}{_saving(finding)} [{finding.rule}]"]
    parts = (
        ("why", finding.why),
        ("where", _lines_of_code(finding)),
        ("check", _SENTENCE.split(finding.confirm)[0]),
        ("change", finding.fix),
    )
    lines += [f"{word}: {text}" for word, text in parts if text]
    return tuple(lines)


def _lines_of_code(finding: Finding) -> str:
    """The lines of the user's code in which it costs the most; "" without stacks."""
    longest = sorted(finding.evidence, key=lambda e: e.start_ns - e.end_ns)
    lines = dict.fromkeys(shorten(e.source, 80) for e in longest if e.source)
    return f"longest in {and_more(list(lines), 2, ', ')}" if lines else ""


def _saving(finding: Finding) -> str:
    text = saving_text(finding)
    return f": {text}" if text else ""


def saving_text(finding: Finding) -> str:
    """What a finding saves and the step after it: "saves 400 ms, the step then takes 3.20 s, MFU 48.5 %"; "" where nothing is known."""
    whole = any(e.step == WHOLE for e in finding.evidence)
    if finding.saving_kind == SIZE_OF_LOSS:
        return f"costs {duration(finding.total_loss_ns)}{'' if whole else ' a step'}"
    if finding.saving_kind != REPLAYED or finding.saving_ns is None or finding.step_ns_after is None:
        return ""
    if not finding.saving_ns:
        return f"saves nothing more after the fixes above, {duration(finding.saving_alone_ns or 0)} by itself"
    mfu = "" if finding.mfu_after is None else f", MFU {part(finding.mfu_after)}"
    return f"saves {duration(finding.saving_ns)}, the {'capture' if whole else 'step'} then takes {duration(finding.step_ns_after)}{mfu}"


def quality_text(quality: ReplayQuality) -> str:
    """How far savings can be trusted."""
    if quality.reason:
        return f"savings are not predicted: {quality.reason}"
    if quality.error is None:
        return ""
    met = "exactly" if not quality.error else f"to {part(quality.error)}"
    if not quality.counts_steps:
        return f"savings are predicted by replaying the capture; unchanged it is met {met}"
    replayed = f"savings are predicted by replaying {plural(quality.steps, 'step')}"
    return f"{replayed}; the unchanged {'step is' if quality.steps == 1 else 'steps are'} met {met}"


def not_looked_at(report: Report) -> Paragraph | None:
    """The rules that could not look, with what they lacked; None if all could."""
    if not report.skipped:
        return None
    by_reason: dict[str, list[str]] = {}
    for one in report.skipped:
        by_reason.setdefault(one.reason, []).append(one.rule)
    parts = [f"{', '.join(rules)} ({reason})" for reason, rules in by_reason.items()]
    return Paragraph(f"not looked at: {'; '.join(parts)}", Tone.FAINT)
