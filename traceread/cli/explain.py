"""`traceread explain`: what a rule of the fix list means, how to confirm it, what to do."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceread.cli.options import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "explain",
        help="the manual of a rule of the fix list; without a rule, all of them in a line each",
        description="What a rule means, how it is measured, how to confirm it in Nsight Systems and in a PyTorch trace, what to try, and "
        "when it is fine.",
    )
    parser.add_argument("rule", nargs="?", metavar="RULE", help="name of a rule, as it stands in brackets in the fix list")
    parser.add_argument("-o", "--output", metavar="FILE", default="-", help="write to a file (its extension names the format); -: stdout")
    parser.add_argument("-f", "--output-format", choices=("text", "markdown", "json"), help="format of the answer (default: text)")
    parser.add_argument("--json", action="store_const", const="json", dest="output_format", help="the same as -f json")
    parser.set_defaults(formats=("text", "markdown", "json"))


def run(args: argparse.Namespace) -> int:
    """Writes the manual of a rule, or the list of rules."""
    from traceread.cli.output import output_of
    from traceread.reporters.json import to_json
    from traceread.reporters.manuals import manual_dict, manual_document, rules_document
    from traceread.rules import find_rule, load_rules

    output = output_of(args)
    rules, notices = load_rules()
    if args.rule is None:
        text = to_json([manual_dict(r) for r in rules]) if output.format == "json" else output.document(rules_document(rules, notices))
    else:
        rule = find_rule(args.rule)
        text = to_json(manual_dict(rule)) if output.format == "json" else output.document(manual_document(rule))
    output.write(text)
    return 0
