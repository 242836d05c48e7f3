"""The plan of a training run as a document."""

from __future__ import annotations

from traceread.measurements.planning import CheckpointPlan, Plan, TrainingPlan
from traceread.reporters.document import Block, Column, Document, Paragraph, Table, Tone
from traceread.units import long_time, part, quantity


def plan_document(plan: Plan) -> Document:
    """Everything `traceread plan` shows."""
    blocks: list[Block] = []
    if plan.training is not None:
        blocks.append(_training(plan, plan.training))
    if plan.deadline_gpus is not None and plan.deadline_s is not None:
        gpus = f"{plan.deadline_gpus:,} GPU{'s' if plan.deadline_gpus > 1 else ''}"
        text = f"{gpus} keep a deadline of {long_time(plan.deadline_s)} if each keeps up its rate; larger jobs rarely do."
        blocks.append(Paragraph(text, Tone.STRONG))
    if plan.checkpoints is not None:
        blocks.append(_checkpoints(plan, plan.checkpoints))
    tokens = () if plan.training is None else (f"{quantity(plan.training.tokens)} tokens",)
    return Document(("plan", *tokens, *((plan.rate_source,) if plan.rate_source else ())), tuple(blocks))


def _training(plan: Plan, training: TrainingPlan) -> Table:
    rows = [_row("as it is" if plan.fixed else "", training, "" if plan.mfu is None else part(plan.mfu))]
    if plan.fixed is not None:
        mfu = None if plan.mfu is None else plan.mfu * plan.fixed.tokens_per_s / training.tokens_per_s
        rows.append(_row("with everything in the fix list", plan.fixed, "" if mfu is None else part(mfu)))
    columns = [Column(grows=True), *(Column(name, right=True) for name in ("GPUs", "tokens/s", "MFU", "time", "GPU hours", "price"))]
    keep = [i for i in range(len(columns)) if i < 3 or any(row[i] for row in rows)]
    return Table(tuple(columns[i] for i in keep), tuple(tuple(row[i] for i in keep) for row in rows))


def _row(title: str, training: TrainingPlan, mfu: str) -> tuple[str, ...]:
    price = "" if training.price is None else f"{training.price:,.0f}"
    time = long_time(training.seconds)
    return (title, f"{training.gpus:,}", quantity(training.tokens_per_s), mfu, time, f"{training.gpu_hours:,.0f}", price)


def _checkpoints(plan: Plan, checkpoints: CheckpointPlan) -> Paragraph:
    mtbf, each = long_time(checkpoints.mtbf_s), long_time(checkpoints.checkpoint_s)
    if not checkpoints.holds:
        text = (
            f"A checkpoint of {each} is too long for a job that fails every {mtbf}: no interval is good. Write checkpoints faster, or make "
            "failures rarer."
        )
        return Paragraph(text, Tone.WARNING)
    interval, failure = f"{checkpoints.interval_s:,.0f} s", f"{checkpoints.mtbf_s:,.0f} s"
    text = (
        f"Write a checkpoint every {interval} ({long_time(checkpoints.interval_s)}): by Young's formula, for {each} each and a failure "
        f"every {failure} ({mtbf}). {part(checkpoints.lost_share)} of the time is lost to checkpoints, failures and work done again"
    )
    wall = plan.wall_s
    return Paragraph(f"{text}: {long_time(wall)} in all." if wall is not None else f"{text}.")
