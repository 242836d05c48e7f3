"""`traceread runs`: what whole training runs did and cost, from their step logs."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from traceread.cli import options, run_options

if TYPE_CHECKING:
    from traceread.cli.options import Subparsers
    from traceread.runs.summary import Runs


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
    log_help = "log every run to a tracker through its own client, which is set up as usual (MLFLOW_TRACKING_URI, WANDB_MODE)"
    group.add_argument("--log-to", choices=("mlflow", "wandb"), action="append", default=[], help=log_help)
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
    for tracker in args.log_to:
        _log(runs, tracker)
    if output.format == "json":
        from traceread.reporters.json import to_json
        from traceread.reporters.runs import runs_dict

        text = to_json(runs_dict(runs))
    elif output.format == "html":
        from traceread.reporters.runs_page import render_runs_page

        text = render_runs_page(runs)
    else:
        from traceread.reporters.runs import runs_document

        text = output.document(runs_document(runs))
    output.write(text)
    return 0


def _log(runs: Runs, tracker: str) -> None:
    """Nothing; every run is in the tracker.

    Raises:
        MissingData: its client is not installed.
        OutputError: the client says that it did not work.
    """
    from traceread.errors import OutputError, TracereadError

    log_run = import_module(f"traceread.history.{tracker}").log_run
    try:
        for run in runs.runs:
            log_run(run)
    except TracereadError:
        raise
    except Exception as error:  # whatever a client raises: it is not known here, and says it best
        hint = f"set {tracker} up as for your training, or leave --log-to away; docs/history.md shows both trackers without a server"
        raise OutputError(f"{tracker} did not take the runs: {error}", hint) from error
