"""`traceread diff`: whether it is faster, where the time went, and whether the comparison is fair."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from traceread.cli import options
from traceread.cli.gates import add_gates, report_gates

if TYPE_CHECKING:
    from traceread.cli.options import Subparsers
    from traceread.comparison.gates import Gate
    from traceread.comparison.side import Side


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "diff",
        help="what changed from one capture to another, per step, and whether the steps show it",
        description="Compares two captures step for step. Either side may be traces of any kind or a report saved as JSON.",
    )
    parser.add_argument("before", metavar="BEFORE", help="a trace, a directory or glob of them, or a report saved with report -o FILE.json")
    parser.add_argument("after", metavar="AFTER", help="the same of the other side")
    options.add_reading(parser)
    options.add_steps(parser)
    options.add_output(parser, ("text", "markdown", "json", "html", "csv"))
    fair = parser.add_argument_group("fairness")
    fair.add_argument("--allow-mismatch", type=_keys, action="extend", default=[], metavar="KEY,…", help="compare keys that may differ")
    set_help = "a value of a compare key that is not recorded, for both sides or KEY=BEFORE:AFTER"
    fair.add_argument("--set", type=_declared, action="append", default=[], metavar="KEY=VALUE", help=set_help)
    gates = add_gates(parser)
    gates.add_argument("--fail-if-slower", type=_slower, action="append", dest="gates", metavar="LIMIT", help="such as 2%% or 5ms a step")
    if_help = "such as 'exposed_communication>+5ms' or 'median>2%%'; may be repeated"
    gates.add_argument("--fail-if", type=_gate, action="append", dest="gates", metavar="METRIC>LIMIT", help=if_help)


def run(args: argparse.Namespace) -> int:
    """Writes the comparison and says by the exit code whether every gate holds."""
    from traceread.cli.output import output_of
    from traceread.comparison import compare
    from traceread.comparison.gates import check_gates
    from traceread.reporters.diff import diff_document, render_diff

    output = output_of(args)
    declared: Mapping[str, tuple[str, str]] = dict(args.set)
    found = compare(_side(args, args.before), _side(args, args.after), args.allow_mismatch, declared)
    gates = check_gates(found, args.gates or [])
    data = output.format in ("json", "csv", "html")
    output.write(render_diff(found, output.format, gates) if data else output.document(diff_document(found, gates)))
    return report_gates(args, gates, f"{args.before} → {args.after}")


def _side(args: argparse.Namespace, path: str) -> Side:
    from traceread.cli.loading import load_report
    from traceread.comparison.side import is_saved, read_saved, side_of

    if is_saved(Path(path)):
        ignored = [name for name, given in (("--steps", args.steps), ("--ranks", args.ranks), ("--step-range", args.step_range)) if given]
        if ignored and not args.quiet:
            print(f"traceread: {path} is a saved report: {', '.join(ignored)} cannot change it", file=sys.stderr)
        return read_saved(Path(path))
    return side_of(load_report(argparse.Namespace(**{**vars(args), "paths": [path]}), details=True))


def _keys(text: str) -> list[str]:
    return [key.strip() for key in text.split(",") if key.strip()]


def _declared(text: str) -> tuple[str, tuple[str, str]]:
    key, sign, value = text.partition("=")
    before, colon, after = value.partition(":")
    if not sign or not key.strip() or not before.strip() or (colon and not after.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} sets nothing; write KEY=VALUE or KEY=BEFORE:AFTER, such as global_batch=256:512")
    return key.strip(), (before.strip(), after.strip() if colon else before.strip())


def _gate(text: str) -> Gate:
    from traceread.comparison.gates import parse_gate
    from traceread.errors import ComparisonError

    try:
        return parse_gate(text)
    except ComparisonError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}") from None


def _slower(text: str) -> Gate:
    from traceread.comparison.gates import gate_of
    from traceread.errors import ComparisonError

    try:
        return gate_of("step", text)
    except ComparisonError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}") from None
