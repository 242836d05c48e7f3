"""`traceread ranks`: who waits for whom, what that costs, which rank is late and why."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from traceread.cli import options

if TYPE_CHECKING:
    from traceread.cli.options import Subparsers
    from traceread.measurements.ranks import CommunicationShare
    from traceread.report import Report


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "ranks",
        help="who waits for whom in collectives, which rank is late and why; bandwidths, bubbles",
        description="Matches the collectives of all ranks, divides exposed communication into waiting and transfer, and charges the "
        "waiting to the rank that was late and to what it was late with.",
    )
    options.add_input(parser)
    options.add_steps(parser)
    options.add_output(parser, ("text", "markdown", "json", "html", "csv"))
    parser.add_argument("--collectives", action="store_true", help="csv: a row per rank and collective instead of one per step")
    parser.add_argument("--link", type=_rate, metavar="GB/S", help="what a GPU can send, to set bandwidths beside it (default: run.json)")
    parser.add_argument(
        "--against", action="append", default=[], metavar="PATH", help="a capture of another world size to compare with; may be repeated"
    )


def run(args: argparse.Namespace) -> int:
    """Writes the comparison of the ranks."""
    from traceread.cli.loading import load_report
    from traceread.cli.output import output_of

    output = output_of(args)
    report = load_report(args)
    link = args.link * 1e9 if args.link else report.described.run.link_bytes_per_s
    against = [_share(load_report(args, [path])) for path in args.against]
    against = [_share(report), *against] if against else []
    if output.format == "json":
        from traceread.reporters.json import ranks_dict, to_json

        text = to_json(ranks_dict(report, link, against))
    elif output.format == "csv":
        from traceread.reporters.csv import collectives_csv, ranks_csv

        text = collectives_csv(report) if args.collectives else ranks_csv(report)
    else:
        from traceread.reporters.waiting import ranks_document

        text = output.document(ranks_document(report, link, against))
    output.write(text)
    return 0


def _share(report: Report) -> tuple[str, int | None, int, CommunicationShare]:
    return report.title, report.world_size, len(report.ranks), report.rank_table.communication


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate; write GB per second, such as 450")
    return rate
