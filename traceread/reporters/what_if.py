"""The answer to a question of one's own: what a step would take if some classes took less."""

from __future__ import annotations

from traceread.report import Report
from traceread.reporters.document import Document, Paragraph, Tone
from traceread.reporters.headline import heading
from traceread.rules.what_if import WhatIf
from traceread.units import duration, part, percent


def what_if_document(report: Report, answer: WhatIf) -> Document:
    """The step with those classes reduced, and how far that can be trusted."""
    left = [f"{c.title} at {percent(keep, 1000)}" if keep else f"no {c.title}" for c, keep in answer.keep]
    saving = answer.saving_ns
    difference = f"{duration(abs(saving))} ({percent(abs(saving), answer.step_ns)}) {'less' if saving > 0 else 'more'}"
    change = difference if saving else "the same"
    one = "a step" if report.counts_steps else "the capture"
    said = f"With {' and '.join(left)} {one} takes {duration(answer.step_ns_then)} instead of {duration(answer.step_ns)}: {change}."
    blocks = [Paragraph(said, Tone.STRONG)]
    if answer.trusted:
        met = f"to {part(answer.error)}" if answer.error else "exactly"
        blocks.append(Paragraph(f"Predicted by re-timing the recorded steps; the unchanged steps are met {met}.", Tone.FAINT))
    else:
        error = f"the replay of the unchanged steps is off by {part(answer.error)}"
        blocks.append(Paragraph(f"Not to be trusted: {error}.", Tone.WARNING))
    return Document(heading(report), tuple(blocks))
