"""Manuals of rules as documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from traceread.errors import Notice
from traceread.reporters.document import Block, Column, Document, Listing, Paragraph, Table, Tone
from traceread.rules import Rule
from traceread.rules.manual import EFFORTS, read_manual


def manual_document(rule: Rule) -> Document:
    """Everything about one rule."""
    manual = read_manual(rule.manual)
    blocks: list[Block] = [Paragraph(f"{manual.title}.", Tone.STRONG)]
    blocks += [Paragraph(f"{name}. {text}") for name, text in manual.sections.items() if name != "Documentation"]
    needs = ", ".join(sorted(n.words for n in rule.needs)) or "nothing"
    blocks.append(Paragraph(f"It needs recorded: {needs}. The fix asks for {EFFORTS[rule.effort]}.", Tone.FAINT))
    if manual.docs:
        blocks.append(Listing("documentation", tuple((link,) for link in manual.docs)))
    return Document((rule.id,), tuple(blocks))


def rules_document(rules: Sequence[Rule], notices: Sequence[Notice]) -> Document:
    """All rules in a line each, and plug-ins that could not be loaded."""
    rows = tuple((rule.id, rule.title) for rule in rules)
    blocks: list[Block] = [Table((Column("rule"), Column("finds", grows=True)), rows, note="the manual of one: traceread explain RULE")]
    if notices:
        blocks.append(Listing("warnings", tuple((n.message,) for n in notices), tone=Tone.WARNING))
    return Document(("rules of the fix list",), tuple(blocks))


def manual_dict(rule: Rule) -> dict[str, Any]:
    """A manual as JSON builtins."""
    manual = read_manual(rule.manual)
    sections = {name.lower().replace(" ", "_"): text for name, text in manual.sections.items() if name != "Documentation"}
    return {
        "rule": rule.id,
        "title": manual.title,
        "needs": sorted(str(n) for n in rule.needs),
        "effort": rule.effort.name.lower(),
        **sections,
        "docs": list(manual.docs),
    }
