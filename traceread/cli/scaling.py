"""`traceread scaling`: strong and weak scaling of runs of different sizes."""

from __future__ import annotations

import argparse
from shlex import quote
from typing import TYPE_CHECKING

from traceread.cli import options, run_options

if TYPE_CHECKING:
    from traceread.cli.options import Subparsers
    from traceread.measurements.scaling import ScalingRun


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "scaling",
        help="strong and weak scaling efficiency of runs of different sizes, communication by subtraction",
        description="Each PATH is a run with a run.json. Every run is compared with the smallest one of the same model that has the same "
        "tokens in a step, over all GPUs (strong scaling) or per GPU (weak scaling).",
    )
    options.add_input(parser)
    options.add_steps(parser)
    run_options.add_model(parser)
    options.add_output(parser, ("text", "markdown", "json", "html"))


def run(args: argparse.Namespace) -> int:
    """Writes the comparison."""
    from traceread.cli.output import output_of
    from traceread.measurements.scaling import compare_sizes

    output = output_of(args)
    table = compare_sizes([_run(args, path) for path in args.paths])
    if output.format == "json":
        from traceread.reporters.json import scaling_dict, to_json

        text = to_json(scaling_dict(table))
    else:
        from traceread.reporters.scaling import scaling_document

        text = output.document(scaling_document(table))
    output.write(text)
    return 0


def _run(args: argparse.Namespace, path: str) -> ScalingRun:
    from traceread.cli.loading import load_report
    from traceread.errors import MissingData
    from traceread.measurements.classes import StepClass
    from traceread.measurements.scaling import ScalingRun

    report = load_report(args, [path])
    summary, efficiency = report.summary, report.efficiency
    if summary is None or efficiency is None:
        raise MissingData(f"no GPU work was recorded in {path}", f"traceread info {quote(str(path))}")
    u, shape = efficiency.utilisation, efficiency.run.model
    if u.tokens.valid is None:
        raise MissingData(f"the tokens of a step are not known in {path}", "write them into a run.json beside the traces")
    if u.gpus_source == "ranks loaded":
        raise MissingData(f"the number of GPUs is not known in {path}", "write world_size into a run.json beside the traces")
    return ScalingRun(
        title=report.title,
        gpus=u.gpus,
        tokens=u.tokens.valid,
        step_ns=summary.mean_ns,
        compute_ns=summary.class_ns[StepClass.COMPUTE],
        exposed_communication_ns=summary.class_ns[StepClass.EXPOSED_COMMUNICATION],
        model=(shape.parameters, shape.layers, shape.attention_width, shape.sequence_length, shape.precision, shape.recomputation),
        mfu=u.mfu,
    )
