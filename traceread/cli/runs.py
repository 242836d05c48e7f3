"""`traceread runs`: what whole training runs did and cost, from their step logs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from traceread.cli import options, run_options

if TYPE_CHECKING:
    from traceread.cli.options import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "runs",
        help="throughput, MFU, goodput, cost and spikes of whole runs, from step logs",
        description="Reads the step logs that traceread.capture.StepTimer writes (steps*.jsonl), in directories however deep.",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a step log, several, or directories of them")
    group = parser.add_argument_group("runs")
    group.add_argument("--price", type=run_options.number, metavar="P", help="price of a GPU hour, in any currency")
    group.add_argument("--telemetry", type=Path, action="append", default=[], metavar="FILE", help="a log of nvidia-smi or dcgmi dmon")
    warmup = "intervals at the start of each segment that are left out of throughput (default: 1)"
    group.add_argument("--warmup", type=options.count, default=1, metavar="N", help=warmup)
    run_options.add_model(parser)
    options.add_output(parser, ("text", "markdown", "json", "html"))


def run(args: argparse.Namespace) -> int:
    """Writes what the runs did."""
    from traceread.cli.output import output_of
    from traceread.run import run_of
    from traceread.runs.summary import read_runs

    output = output_of(args)
    given = run_options.given(args)
    if args.price is not None:
        given = run_of({"price_per_gpu_hour": args.price}, "command line").over(given)
    runs = read_runs(args.paths, given, args.telemetry, args.warmup)
    if output.format == "json":
        from traceread.reporters.json import to_json
        from traceread.reporters.runs import runs_dict

        text = to_json(runs_dict(runs))
    else:
        from traceread.reporters.runs import runs_document

        text = output.document(runs_document(runs))
    output.write(text)
    return 0
