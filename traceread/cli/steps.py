"""`traceread steps`: every window of every rank, used or not."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from traceread.cli import options

if TYPE_CHECKING:
    from traceread.cli.options import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "steps",
        help="every step of every rank: length, classes, used or why not",
        description="A line per step window and rank: its length, the shares of its classes, and why it is not used if it is not.",
    )
    options.add_input(parser)
    options.add_steps(parser)
    options.add_output(parser, ("text", "markdown", "json", "html", "csv"))


def run(args: argparse.Namespace) -> int:
    """Writes the windows."""
    from traceread.cli.loading import load_report
    from traceread.cli.output import output_of

    output = output_of(args)
    report = load_report(args)
    if output.format == "json":
        from traceread.reporters.json import to_json, windows_dict

        text = to_json(windows_dict(report))
    elif output.format == "csv":
        from traceread.reporters.csv import report_csv

        text = report_csv(report)
    else:
        from traceread.reporters.windows import windows_document

        text = output.document(windows_document(report))
    output.write(text)
    return 0
