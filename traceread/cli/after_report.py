"""What `traceread report` does with a report beside showing it: checks gates on its findings, appends it to a history."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traceread.cli.gates import add_gates, report_gates

if TYPE_CHECKING:
    from traceread.comparison.gates import GateResult
    from traceread.findings import Finding, Skipped
    from traceread.report import Report


def add_options(parser: argparse.ArgumentParser) -> None:
    """--fail-on and --db with what belongs to them."""
    on_help = "the id of a rule, or high (a tenth of the step or more), medium (2 %% or more) or low; may be repeated"
    add_gates(parser).add_argument("--fail-on", action="append", default=[], metavar="RULE|SEVERITY", help=on_help)
    group = parser.add_argument_group("history")
    group.add_argument("--db", type=Path, metavar="FILE", help="append the report to this database, for traceread history")
    group.add_argument("--job", metavar="NAME", help="name of the job in it (default: that of run.json, else the path)")
    group.add_argument("--commit", metavar="ID", help="what ran (default: what continuous integration says)")


def check_options(args: argparse.Namespace) -> None:
    """Nothing comes back; asked before anything is read, shown or appended.

    Raises:
        ComparisonError: `--fail-on` names neither a rule nor a severity.
    """
    _gates_on((), (), 0, args.fail_on)


def after_report(args: argparse.Namespace, report: Report) -> int:
    """The exit code, once the report is appended and its gates are checked.

    Raises:
        ComparisonError: there is nothing to append.
        InputError: the database cannot be used.
    """
    if args.db is not None:
        from traceread.comparison.side import side_of
        from traceread.history import append, entry_of

        new = append(args.db, entry_of(side_of(report), args.job, args.commit))
        if not args.quiet:
            print(f"traceread: {'appended to' if new else 'already in'} {args.db}", file=sys.stderr)
    step = report.summary.mean_ns if report.summary else 0
    gates = _gates_on(report.findings, report.skipped, step, args.fail_on) if args.fail_on else ()
    return report_gates(args, gates, report.title)


def _gates_on(findings: Sequence[Finding], skipped: Sequence[Skipped], step_ns: int, wanted: Sequence[str]) -> tuple[GateResult, ...]:
    if not wanted:
        return ()
    from traceread.comparison.gates import check_findings
    from traceread.rules import load_rules

    return check_findings(findings, skipped, step_ns, wanted, [rule.id for rule in load_rules()[0]])
