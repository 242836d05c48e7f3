"""`traceread report`: what holds the run back, and the numbers behind it."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import TYPE_CHECKING

from traceread.cli import after_report, options, run_options

if TYPE_CHECKING:
    from traceread.cli.options import Subparsers
    from traceread.cli.output import Output
    from traceread.report import Report

_GAPS = 5


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "report",
        help="where the step goes, class by class, with the causes of idle time",
        description="Divides every training step exactly into what the GPU did and why it did nothing.",
    )
    options.add_input(parser)
    options.add_steps(parser)
    run_options.add_model(parser)
    run_options.add_job(parser)
    options.add_output(parser, ("text", "markdown", "json", "html", "csv"))
    gaps_help = f"so many of the longest idle gaps (default {_GAPS}, at most 20 a rank)"
    question_help = "answer this instead: the step if so much of a class were left, such as 'data_wait=0,exposed_communication=50%%'"
    parser.add_argument("--what-if", metavar="QUESTION", help=question_help)
    parser.add_argument(
        "--plotlyjs",
        choices=("inline", "cdn"),
        default="inline",
        help="html: plotly.js within the page, or loaded from cdn.plot.ly when it is opened (default: inline)",
    )
    parser.add_argument("--gaps", type=options.count, default=_GAPS, metavar="N", help=gaps_help)
    after_report.add_options(parser)


def run(args: argparse.Namespace) -> int:
    """Writes the report."""
    from traceread.cli.loading import load_report
    from traceread.cli.output import output_of

    output = output_of(args)
    after_report.check_options(args)
    details = output.format not in ("text", "markdown") or args.db is not None
    report = load_report(args, prepare=_prepared if output.format == "text" else None, details=details)
    if args.what_if is not None:
        output.write(_answer(report, args.what_if, output))
        return 0
    if output.format == "json":
        from traceread.reporters.json import report_dict, to_json

        text = to_json(report_dict(report, args.gaps))
    elif output.format == "csv":
        from traceread.reporters.csv import report_csv

        text = report_csv(report)
    elif output.format == "html":
        from traceread.reporters.page import render_page

        text = render_page(report, args.plotlyjs)
    else:
        from traceread.reporters.answer import report_document

        text = output.document(report_document(report, args.gaps))
    output.write(text)
    return after_report.after_report(args, report)


def _prepared() -> None:
    """Imports what writes text."""
    for module in ("traceread.reporters.answer", "traceread.reporters.text", "rich.console", "rich.table"):
        import_module(module)


def _answer(report: Report, question: str, output: Output) -> str:
    """What the step would be, in the format asked for."""
    answer = report.what_if(question)
    if output.format == "json":
        from traceread.reporters.json import to_json

        return to_json(answer.to_dict())
    from traceread.reporters.what_if import what_if_document

    return output.document(what_if_document(report, answer))
