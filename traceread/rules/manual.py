"""Manuals of rules: their sections, and all of them as one page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from traceread.findings import Effort
from traceread.records import record
from traceread.rules import Rule

SECTIONS = (
    "What it means",
    "How it is measured",
    "In Nsight Systems",
    "In a PyTorch trace",
    "How to confirm",
    "What to try",
    "When it is fine",
    "Documentation",
)
"""What every manual says, in this order; a section is a paragraph that begins with its name and a full stop."""

_LINK = re.compile(r"https?://\S+")


@record
class Manual:
    """A manual in parts.

    Attributes:
        title: its first line.
        sections: text of each section by name, its lines joined.
        docs: pages of the documentation.
    """

    title: str
    sections: dict[str, str]
    docs: tuple[str, ...]


@cache
def read_manual(text: str) -> Manual:
    """The parts of a manual; sections it does not have are left out."""
    paragraphs = [" ".join(p.split()) for p in re.split(r"\n\s*\n", text.strip())]
    sections: dict[str, str] = {}
    for paragraph in paragraphs[1:]:
        name, dot, rest = paragraph.partition(". ")
        if dot and name in SECTIONS:
            sections[name] = rest
        elif sections:
            last = next(reversed(sections))
            sections[last] = f"{sections[last]}\n\n{paragraph}"
    docs = tuple(_LINK.findall(sections.get("Documentation", "")))
    return Manual(paragraphs[0].rstrip(".") if paragraphs else "", sections, docs)


def rules_page(rules: Sequence[Rule]) -> str:
    """All manuals as one markdown page."""
    parts = [
        "# The rules of the fix list",
        "Generated from the rules themselves; `traceread explain RULE` prints one of them. A rule that needs something the capture "
        "does not hold is listed as not looked at, never as nothing found.",
        "\n".join(f"- [{rule.id}](#{rule.id}): {rule.title}" for rule in rules),
    ]
    for rule in rules:
        manual = read_manual(rule.manual)
        needs = ", ".join(sorted(rule.needs)) or "nothing beyond GPU work"
        parts += [f"## {rule.id}", f"**{manual.title}.**"]
        parts += [f"**{name}.** {text}" for name, text in manual.sections.items() if name != "Documentation"]
        parts += [f"Needs: {needs}. The fix asks for: {EFFORTS[rule.effort]}."]
        if manual.docs:
            parts.append("Documentation: " + ", ".join(f"<{link}>" for link in manual.docs))
    return "\n\n".join(parts) + "\n"


EFFORTS = {
    Effort.SETTING: "a setting",
    Effort.CODE: "some lines of code",
    Effort.DESIGN: "a change of how the model or the job is laid out",
}


if __name__ == "__main__":
    import sys

    from traceread.rules import load_rules

    sys.stdout.write(rules_page([rule for rule in load_rules()[0] if rule.check.__module__.startswith("traceread.rules.")]))
