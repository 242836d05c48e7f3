"""`traceread history`: what a database of reports says about a job."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from traceread.cli import options

if TYPE_CHECKING:
    from traceread.cli.options import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "history",
        help="how a job does against its own first measurements, from a database of reports",
        description="Reads a database that `traceread report --db` appends to, and answers four questions about a job.",
    )
    parser.add_argument("database", type=Path, metavar="FILE", help="the database")
    parser.add_argument("--job", metavar="NAME", help="the job; needed where the database holds several")
    parser.add_argument("--alert", type=_share, default=0.02, metavar="SHARE", help="how much change is worth an alert (default 2%%)")
    parser.add_argument("--fail-on-alert", action="store_true", help="exit code 3 if there is something to look at")
    parser.add_argument("--prometheus", type=Path, metavar="FILE", help="write the latest figures of every job in Prometheus' text format")
    parser.add_argument("--prometheus-rules", type=Path, metavar="FILE", help="write recording and alerting rules for these figures")
    options.add_output(parser, ("text", "markdown", "json", "html", "csv"))


def run(args: argparse.Namespace) -> int:
    """Writes the history, and says by the exit code whether there is something to look at, where that was asked for."""
    from dataclasses import replace

    from traceread.cli import DONE, GATE
    from traceread.cli.output import output_of
    from traceread.history import jobs_in, read
    from traceread.reporters.files import write_text
    from traceread.reporters.history import history_document, jobs_document, render_history

    output = output_of(args)
    jobs = jobs_in(args.database)
    histories = [replace(read(args.database, job), alert=args.alert) for job in jobs]
    if args.prometheus is not None or args.prometheus_rules is not None:
        from traceread.history.prometheus import RULES, exposition

        for path, text in ((args.prometheus, exposition(histories)), (args.prometheus_rules, RULES)):
            if path is not None:
                write_text(path, text)
    several = args.job is None and len(histories) > 1
    if several and output.format in ("text", "markdown", "html"):
        shown = histories
        output.write(output.document(jobs_document(histories, str(args.database))))
    else:
        shown = [replace(read(args.database, args.job), alert=args.alert)]
        data = output.format in ("json", "csv")
        output.write(render_history(shown[0], output.format) if data else output.document(history_document(shown[0])))
    return GATE if args.fail_on_alert and any(h.alerts for h in shown) else DONE


def _share(text: str) -> float:
    found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,6})?)\s*%", text.strip())
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a share; write 2%")
    return float(found[1]) / 100
