"""`traceread plan`: how long a training run takes, on how many GPUs, and how often to write a checkpoint."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from traceread.cli import options, run_options

if TYPE_CHECKING:
    from traceread.cli.options import Subparsers
    from traceread.measurements.planning import CheckpointPlan, Plan
    from traceread.measurements.utilisation import Utilisation

_S = 10**9
_DAY_S = 86_400


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "plan",
        help="days and GPU hours for a budget of tokens, GPUs for a deadline, checkpoint interval",
        description="Plans a training run from a rate: that of a measured run, tokens per second, or a utilisation of the peak.",
    )
    options.add_input(parser, nargs="*")
    options.add_steps(parser)
    group = parser.add_argument_group("what to plan")
    group.add_argument("--tokens", type=run_options.count, metavar="N", help="tokens to train on, such as 1T")
    group.add_argument("--gpus", type=run_options.count, metavar="N", help="number of GPUs (default: those of the measured run)")
    group.add_argument("--days", type=run_options.number, metavar="D", help="a deadline: how many GPUs keep it")
    group.add_argument("--price", type=run_options.number, metavar="P", help="price of a GPU hour, in any currency")
    group = parser.add_argument_group("rate (instead of a measured run)")
    group.add_argument("--mfu", type=run_options.share, metavar="SHARE", help="utilisation, such as 40%%")
    group.add_argument("--tokens-per-s", type=run_options.number, metavar="R", help="tokens per second of all GPUs")
    group.add_argument("--device", metavar="NAME", help="the GPU, for its peak, such as 'NVIDIA H100 80GB HBM3'")
    group = parser.add_argument_group("checkpoints")
    time = run_options.nanoseconds
    group.add_argument("--checkpoint-time", type=time, metavar="TIME", help="how long training stands still for one, such as 60s")
    group.add_argument("--mtbf", type=time, metavar="TIME", help="mean time between failures of the whole job, such as 3h")
    group.add_argument("--gpu-mtbf", type=time, metavar="TIME", help="the same of one GPU, to be divided by their number")
    group.add_argument("--restart-time", type=time, metavar="TIME", help="from a failure until training goes on")
    run_options.add_model(parser)
    run_options.add_job(parser)
    options.add_output(parser, ("text", "markdown", "json", "html"))


def run(args: argparse.Namespace) -> int:
    """Writes the plan."""
    from traceread.cli.output import output_of

    output = output_of(args)
    plan = _plan(args)
    if output.format == "json":
        from traceread.reporters.json import plan_dict, to_json

        text = to_json(plan_dict(plan))
    else:
        from traceread.reporters.plan import plan_document

        text = output.document(plan_document(plan))
    output.write(text)
    return 0


def _plan(args: argparse.Namespace) -> Plan:
    from traceread.errors import MissingData
    from traceread.measurements.planning import Plan, TrainingPlan, gpus_for

    if args.tokens is None and args.checkpoint_time is None:
        raise MissingData("nothing to plan", "traceread plan --tokens 1T …, or --checkpoint-time 60s --mtbf 3h")
    if args.tokens is None:
        return Plan(checkpoints=_checkpoints(args, args.gpus))
    per_gpu, gpus, source, mfu, fixed, price = _rate(args)
    gpus = args.gpus or gpus
    deadline_s = None if args.days is None else args.days * _DAY_S
    deadline_gpus = None if deadline_s is None else gpus_for(args.tokens, deadline_s, per_gpu)
    gpus = gpus or deadline_gpus
    if gpus is None:
        raise MissingData("the number of GPUs is not known", "give --gpus 256, or a deadline with --days 30")
    training = TrainingPlan(args.tokens, gpus, per_gpu * gpus, price)
    return Plan(
        rate_source=source,
        mfu=mfu,
        training=training,
        fixed=None if fixed is None else TrainingPlan(args.tokens, gpus, fixed * gpus, price),
        deadline_s=deadline_s,
        deadline_gpus=deadline_gpus,
        checkpoints=None if args.checkpoint_time is None else _checkpoints(args, gpus),
    )


def _rate(args: argparse.Namespace) -> tuple[float, int | None, str, float | None, float | None, float | None]:
    """Tokens per second of one GPU, number of GPUs, where that is from, MFU, the rate after all fixes, price of a GPU hour."""
    from traceread.errors import MissingData
    from traceread.measurements.planning import rate_at

    if args.paths:
        return _measured(args)
    if args.tokens_per_s is not None:
        if args.gpus is None:
            raise MissingData("tokens per second of how many GPUs?", f"add --gpus to --tokens-per-s {args.tokens_per_s:g}")
        return args.tokens_per_s / args.gpus, args.gpus, "tokens per second as given", None, None, args.price
    if args.mfu is None:
        raise MissingData("no rate to plan with", "give the traces of a run, --tokens-per-s, or --mfu with --parameters and --peak-flops")
    u = _described(args)
    if u.flops is None or u.peak.flops is None:
        lacks = [m for m in u.missing if "tokens of a step" not in m]
        raise MissingData(f"a utilisation makes no rate yet: {'; '.join(lacks)}", "give --parameters, and --peak-flops or --device")
    source = f"{100 * args.mfu:g} % of {u.peak.flops / 1e12:g} TFLOP/s a GPU, {u.flops.convention} FLOPs a token"
    return rate_at(args.mfu, u.flops.model, 1, u.peak.flops), None, source, args.mfu, None, args.price


def _described(args: argparse.Namespace) -> Utilisation:
    """The model of the options, without a run."""
    from traceread.measurements.utilisation import measure_utilisation
    from traceread.model import Device

    return measure_utilisation(run_options.given(args), 0, [Device(0, args.device)], None, ("bf16", "assumed"))


def _measured(args: argparse.Namespace) -> tuple[float, int | None, str, float | None, float | None, float | None]:
    from traceread.cli.loading import load_report
    from traceread.errors import MissingData

    report = load_report(args)
    efficiency = report.efficiency
    rate = None if efficiency is None else efficiency.utilisation.tokens_per_s()
    if efficiency is None or rate is None:
        raise MissingData("the traces do not say how many tokens a step has", "add --tokens-per-step, or write a run.json beside them")
    u = efficiency.utilisation
    after = [f.step_ns_after for f in report.findings if f.step_ns_after is not None]
    fixed = u.tokens_per_s(step_ns=after[-1]) if after else None
    price = args.price if args.price is not None else efficiency.run.price_per_gpu_hour
    per_gpu = None if fixed is None else fixed / u.gpus
    return rate / u.gpus, u.gpus, f"measured on {u.gpus} GPUs in {report.title}", u.mfu, per_gpu, price


def _checkpoints(args: argparse.Namespace, gpus: int | None) -> CheckpointPlan:
    from traceread.errors import MissingData
    from traceread.measurements.planning import CheckpointPlan

    mtbf = args.mtbf
    if mtbf is None and args.gpu_mtbf is not None and gpus is not None:
        mtbf = args.gpu_mtbf / gpus
    if mtbf is None:
        raise MissingData("how often the job fails is not known", "give --mtbf 3h, or --gpu-mtbf 50000h with --gpus")
    return CheckpointPlan(args.checkpoint_time / _S, mtbf / _S, (args.restart_time or 0) / _S)
