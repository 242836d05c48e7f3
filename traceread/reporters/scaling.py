"""Runs of different sizes as a document."""

from __future__ import annotations

from traceread.measurements.scaling import Scaling, ScalingRun, ScalingStep, ScalingTable
from traceread.names import path_title
from traceread.reporters.document import Block, Column, Document, Listing, Name, Paragraph, Table, Tone
from traceread.units import duration, part, plural, quantity, unit_for

_KEPT = {Scaling.STRONG: "the same batch over all GPUs", Scaling.WEAK: "the same batch on each GPU"}


def scaling_document(table: ScalingTable) -> Document:
    """Everything `traceread scaling` shows."""
    blocks: list[Block] = [_runs(table)]
    for kind in Scaling:
        steps = [s for s in table.steps if s.kind is kind]
        if steps:
            blocks.append(_steps(kind, steps))
    if table.steps:
        text = "Added is what a step takes beyond the ideal: communication by subtraction, with everything else that grows with the job."
        blocks.append(Paragraph(text, Tone.FAINT))
    if table.alone:
        entries = tuple((f"{path_title(r.title, 60)}: {reason}",) for r, reason in table.alone)
        blocks.append(Listing("not compared", entries, tone=Tone.FAINT))
    sizes = [r.gpus for r in table.runs]
    return Document(("scaling", plural(len(sizes), "run"), f"{sizes[0]:,} to {sizes[-1]:,} GPUs"), tuple(blocks))


def _runs(table: ScalingTable) -> Table:
    unit = unit_for(max(r.step_ns for r in table.runs))
    rows = tuple(
        (
            f"{r.gpus:,}",
            f"{r.tokens:,}",
            _local(r),
            duration(r.step_ns, unit),
            duration(r.exposed_communication_ns, unit),
            quantity(r.tokens_per_s),
            "" if r.mfu is None else part(r.mfu),
            Name(r.title),
        )
        for r in table.runs
    )
    numbers = ("GPUs", "tokens a step", "per GPU", "step", "exposed comm.", "tokens/s", "MFU")
    return Table((*(Column(name, right=True) for name in numbers), Column("run", grows=True)), rows)


def _local(run: ScalingRun) -> str:
    per_gpu = run.tokens_per_gpu
    return f"{per_gpu.numerator:,}" if per_gpu.denominator == 1 else f"{float(per_gpu):,.1f}"


def _steps(kind: Scaling, steps: list[ScalingStep]) -> Table:
    unit = unit_for(max(s.run.step_ns for s in steps))
    rows = tuple(
        (
            f"{s.run.gpus:,}",
            part(s.efficiency),
            duration(s.ideal_ns, unit),
            duration(s.run.step_ns, unit),
            duration(s.added_ns, unit),
            duration(s.added_communication_ns, unit),
            f"{s.baseline.gpus:,} GPUs, {path_title(s.baseline.title, 40)}",
        )
        for s in steps
    )
    numbers = ("GPUs", "efficiency", "ideal step", "step", "added", "exposed comm. added")
    columns = (*(Column(name, right=True) for name in numbers), Column("against", grows=True))
    return Table(columns, rows, title=f"{kind} scaling: {_KEPT[kind]}")
