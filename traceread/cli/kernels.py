"""`traceread kernels`: kernels and copies by name or family, per step."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from traceread.cli import options

if TYPE_CHECKING:
    from traceread.cli.options import Subparsers

_LIMIT = 25


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "kernels",
        help="kernels and copies by name or family: count, total, exposed, share of step",
        description="Kernels and copies of one rank over its used steps, the longest first.",
    )
    options.add_input(parser)
    options.add_steps(parser)
    options.add_output(parser, ("text", "markdown", "json", "html", "csv"))
    parser.add_argument("--by", choices=("name", "family"), default="name", help="what a line stands for (default: name)")
    parser.add_argument("--limit", type=options.count, default=_LIMIT, metavar="N", help=f"so many lines, 0 for all (default {_LIMIT})")
    parser.add_argument("--rank", type=options.count, metavar="N", help="the rank (default: the one with the longest step)")


def run(args: argparse.Namespace) -> int:
    """Writes the kernels."""
    from traceread.cli.loading import load_report
    from traceread.cli.output import output_of

    output = output_of(args)
    report = load_report(args, details=True)
    summary = report.summary
    wanted = args.rank if args.rank is not None else summary.critical_rank if summary else report.ranks[0].rank
    rank = report.rank(wanted)
    if output.format == "json":
        from traceread.reporters.json import kernels_dict, to_json

        text = to_json(kernels_dict(report, rank, args.by, args.limit))
    elif output.format == "csv":
        from traceread.reporters.csv import kernels_csv

        text = kernels_csv(rank, args.by, args.limit)
    else:
        from traceread.reporters.kernels import kernels_document

        text = output.document(kernels_document(report, rank, args.by, args.limit))
    output.write(text)
    return 0
