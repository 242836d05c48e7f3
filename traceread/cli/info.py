"""`traceread info`: what a capture holds and whether it is good enough to decide on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from traceread.cli import options

if TYPE_CHECKING:
    from traceread.cli.options import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "info",
        help="what was recorded, what was not, how to record it",
        description="What is in a capture, what is not and how to record it, and whether it is good enough to decide on.",
    )
    options.add_input(parser)
    options.add_steps(parser)
    options.add_output(parser, ("text", "markdown", "json", "html"))


def run(args: argparse.Namespace) -> int:
    """Writes what the capture holds."""
    from traceread.cli.loading import load_report
    from traceread.cli.output import output_of

    output = output_of(args)
    report = load_report(args)
    if output.format == "json":
        from traceread.reporters.json import capture_dict, to_json

        output.write(to_json(capture_dict(report)))
    else:
        from traceread.readers import pages, scanner
        from traceread.reporters.capture import capture_document

        read_with = scanner.in_use() if report.source == "kineto" else pages.in_use()
        output.write(output.document(capture_document(report, read_with)))
    return 0
