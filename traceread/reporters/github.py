"""Gates as annotations of a GitHub workflow: lines that its runner reads off the log."""

from __future__ import annotations

from collections.abc import Sequence

from traceread.comparison.gates import GateResult, State
from traceread.names import clean

_LEVELS = {State.PASSED: "notice", State.FAILED: "error", State.UNDECIDED: "warning"}
_ESCAPES = (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"))
_IN_TITLES = (*_ESCAPES, (":", "%3A"), (",", "%2C"))


def workflow_commands(gates: Sequence[GateResult], strict: bool = False) -> list[str]:
    """One workflow command per gate: an error, a warning where it is undecided (an error where gates are strict), or a notice."""
    lines = []
    for gate in gates:
        level = "error" if strict and gate.state is State.UNDECIDED else _LEVELS[gate.state]
        lines.append(f"::{level} title={_escaped(f'traceread {gate.name}', _IN_TITLES)}::{_escaped(gate.message, _ESCAPES)}")
    return lines


def _escaped(text: str, escapes: Sequence[tuple[str, str]]) -> str:
    text = clean(text)
    for character, escape in escapes:
        text = text.replace(character, escape)
    return text
