"""Options and exit codes of gates: what continuous integration asks of a report or a comparison."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceread.comparison.gates import GateResult


def add_gates(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """--strict, --junit and --github; the group, for the gates themselves."""
    group = parser.add_argument_group("gates", "a gate that fails makes the exit code 3")
    group.add_argument("--strict", action="store_true", help="a gate that cannot be decided fails too")
    group.add_argument("--junit", type=Path, metavar="FILE", help="write the gates as JUnit XML")
    group.add_argument("--github", action="store_true", help="write the gates as annotations of a GitHub workflow, on stderr")
    return group


def report_gates(args: argparse.Namespace, gates: Sequence[GateResult], suite: str) -> int:
    """The exit code; gates are written where the options ask for it, and what fails or is not decided is said on stderr."""
    from traceread.cli import DONE, GATE

    if not gates and args.junit is None and not args.github:
        return DONE
    from traceread.comparison.gates import State, has_failed

    if args.junit is not None:
        from traceread.reporters.files import write_text
        from traceread.reporters.junit import junit_xml

        write_text(args.junit, junit_xml(gates, suite, args.strict))
    if args.github:
        from traceread.reporters.github import workflow_commands

        for line in workflow_commands(gates, args.strict):
            print(line, file=sys.stderr)
    for gate in gates:
        if gate.state is not State.PASSED and not args.quiet and not args.github:
            print(f"traceread: gate {gate.message}", file=sys.stderr)
    return GATE if has_failed(gates, args.strict) else DONE
