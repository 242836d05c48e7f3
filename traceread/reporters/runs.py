"""Whole runs as a document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import traceread
from traceread.report import FORMAT
from traceread.reporters.document import Block, Cell, Column, Document, Listing, Name, Table, Tone
from traceread.reporters.notebook import safe_html
from traceread.runs.ledger import Part
from traceread.runs.spikes import DROP, GRAD_NORM_Z, LOSS_Z, Spike
from traceread.runs.summary import Runs, RunSummary
from traceread.units import part, plural, quantity, size

_SHOWN = 10
_TITLES = {
    Part.PRODUCTIVE: "productive",
    Part.REPEATED: "done again",
    Part.CHECKPOINT: "checkpoint",
    Part.EVALUATION: "evaluation",
    Part.BETWEEN: "between",
    Part.OTHER: "not logged",
}


def runs_dict(runs: Runs) -> dict[str, Any]:
    """What `traceread runs` says, as JSON builtins."""
    return {"format": FORMAT, "traceread": traceread.__version__, **runs.to_dict()}


def runs_document(runs: Runs) -> Document:
    """Everything `traceread runs` shows."""
    return Document(runs_heading(runs), tuple(block for part in blocks_of(runs).values() for block in part))


def runs_html(runs: Runs) -> str:
    """The runs for a notebook cell."""
    return safe_html(runs, lambda: runs_document(runs))


def runs_heading(runs: Runs) -> tuple[str, ...]:
    """What is shown: how many runs, and their tokens."""
    return "runs", plural(len(runs.runs), "run"), f"{quantity(sum(r.history.tokens for r in runs.runs))} tokens"


def blocks_of(runs: Runs) -> dict[str, tuple[Block, ...]]:
    """What is shown, by name and in order; a part that has nothing to show is empty."""
    stalled = [f"GPU {g.index} is {part(g.utilisation or 0)} utilised and stalled: {g.stalled}" for g in runs.gpus if g.stalled]
    odd = [f"{_of(runs, r)}{text}" for r in runs.runs for text in _oddities(r)]
    lacking = [f"{_of(runs, r)}{text}" for r in runs.runs for text in r.throughput.utilisation.missing]
    warnings = [f"{n.message} [{n.slug}]" for n in runs.notices]
    found: dict[str, Block | None] = {
        "throughput": _throughput(runs),
        "costs": _costs(runs),
        "parts": _parts(runs),
        "evaluations": _evaluations(runs),
        "telemetry": _telemetry(runs),
        "stalled": _listing("GPUs that only look busy", stalled, Tone.WARNING),
        "oddities": _listing("to look at", odd, Tone.PLAIN),
        "lacking": _listing("MFU is not known", lacking, Tone.FAINT),
        "warnings": _listing("warnings", warnings, Tone.WARNING),
    }
    return {name: () if block is None else (block,) for name, block in found.items()}


def _listing(title: str, texts: list[str], tone: Tone) -> Listing | None:
    return Listing(title, tuple((text,) for text in texts), tone=tone) if texts else None


def _of(runs: Runs, run: RunSummary) -> str:
    return f"{run.history.name}: " if len(runs.runs) > 1 else ""


def _throughput(runs: Runs) -> Table:
    rows = tuple(
        (
            Name(r.history.name),
            f"{r.gpus:,}",
            quantity(r.history.tokens),
            _known(r.throughput.median_tokens_per_s),
            _known(r.throughput.tokens_per_s_of_gpu),
            _share(r.throughput.utilisation.mfu),
            "" if r.throughput.utilisation.flops is None else r.throughput.utilisation.flops.convention,
            _share(r.data_wait_share),
            r.history.ended or "no end logged",
        )
        for r in runs.runs
    )
    numbers = ("GPUs", "tokens", "tokens/s", "per GPU", "MFU")
    columns = (
        Column("run", grows=True),
        *(Column(n, right=True) for n in numbers),
        Column("by"),
        Column("data wait", right=True),
        Column("ended"),
    )
    kept = [at for at in range(len(columns)) if any(row[at] for row in rows)]
    return Table(
        tuple(columns[at] for at in kept),
        tuple(tuple(row[at] for at in kept) for row in rows),
        note="Over tokens of steps that count, each segment's warm-up left out; tokens/s is the median interval.",
    )


def _costs(runs: Runs) -> Table:
    rows = tuple(
        (
            Name(r.history.name),
            Name(r.history.parent),
            f"{r.ledger.allocated_gpu_hours:,.1f}",
            f"{r.ledger.productive_gpu_hours:,.1f}",
            _share(r.ledger.goodput),
            str(r.ledger.restarts),
            f"{r.ledger.lost_steps:,}",
            money(r.ledger.productive_cost),
            money(r.ledger.cost),
            money(r.ledger.cost_per_evaluation),
        )
        for r in runs.runs
    )
    allocated = sum(r.ledger.allocated_gpu_hours for r in runs.runs)
    productive = sum(r.ledger.productive_gpu_hours for r in runs.runs)
    total = ("all", "", f"{allocated:,.1f}", f"{productive:,.1f}", "", "", "", "", money(runs.cost), "") if len(runs.runs) > 1 else None
    numbers = ("GPU hours", "productive", "goodput", "restarts", "steps again", "of use", "price", "each eval")
    columns = (Column("run", grows=True), Column("child of"), *(Column(n, right=True) for n in numbers))
    note = "Steps again: logged, and done again after a resume. Of use: price of the productive GPU hours."
    kept = [at for at in range(len(columns)) if at == 0 or any(row[at] not in ("", Name("")) for row in rows)]
    return Table(
        tuple(columns[at] for at in kept),
        tuple(tuple(row[at] for at in kept) for row in rows),
        title="GPU hours and price",
        total=None if total is None else tuple(total[at] for at in kept),
        note=note,
    )


def _parts(runs: Runs) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (Name(r.history.name), *(part(r.ledger.gpu_ns[p] / r.ledger.allocated_ns) if r.ledger.allocated_ns else "" for p in Part))
        for r in runs.runs
    )
    return Table((Column("run", grows=True), *(Column(_TITLES[p], right=True) for p in Part)), rows, title="where the GPU hours went")


def _evaluations(runs: Runs) -> Table | None:
    rows = tuple(
        (Name(r.history.name), Name(e.checkpoint), f"{e.step:,}", quantity(e.tokens), ", ".join(f"{k} {v}" for k, v in e.metrics.items()))
        for r in runs.runs
        for e in r.evaluations
    )
    columns = (Column("run"), Column("checkpoint"), Column("step", right=True), Column("tokens", right=True), Column("result", grows=True))
    return Table(columns, rows, title="evaluations") if rows else None


def _telemetry(runs: Runs) -> Table | None:
    rows = tuple(
        (
            str(g.index),
            _share(g.utilisation),
            "" if g.power_w is None else f"{g.power_w:.2f} W",
            "" if g.clock_mhz is None else f"{g.clock_mhz:.0f} MHz",
            "" if g.sm_active is None else f"{g.sm_active:.3f}",
            "stalled" if g.stalled else "",
        )
        for g in runs.gpus
    )
    numbers = ("GPU", "utilisation", "power", "SM clock", "SM active")
    return Table((*(Column(n, right=True) for n in numbers), Column(grows=True)), rows, title="telemetry, medians") if rows else None


def _oddities(run: RunSummary) -> Iterator[str]:
    for what, z in (("loss", LOSS_Z), ("grad_norm", GRAD_NORM_Z)):
        spikes = [s for s in run.spikes if s.what == what]
        yield from map(_spike, spikes[:_SHOWN])
        if len(spikes) > _SHOWN:
            yield f"{len(spikes) - _SHOWN} more spikes of {what} above {z:g} standard deviations"
    for d in run.drops[:_SHOWN]:
        yield (
            f"tokens/s more than {part(DROP)} below usual from step {d.first_step:,} to {d.last_step:,}: "
            f"{quantity(d.tokens_per_s)} instead of {quantity(d.usual)}"
        )
    if run.skew is not None and run.slowest_rank is not None:
        rank, often = run.slowest_rank
        yield f"the slowest rank takes {run.skew:.3f} times the mean rank's step; rank {rank} is it in {part(often)} of the intervals"
    if run.memory is not None:
        room = "" if run.memory.headroom is None else f", {part(run.memory.headroom)} of the device never used"
        gap = "" if run.memory.gap_bytes is None else f"; up to {size(run.memory.gap_bytes)} reserved and not allocated"
        yield f"peak memory {size(run.memory.allocated_bytes)}{room}{gap}"
    if run.log_bytes_per_day is not None:
        yield f"the log holds {run.values:,} numbers in {size(run.log_bytes)}: {size(round(run.log_bytes_per_day))} a day"


def _spike(spike: Spike) -> str:
    above = "" if spike.z is None else f", {spike.z:.1f} standard deviations above"
    batches = "; ".join(f"step {step}: {', '.join(map(str, ids[:8]))}{'…' if len(ids) > 8 else ''}" for step, ids in spike.batch_ids)
    where = f"; batches {batches}" if batches else ""
    return f"{spike.what} {spike.value:.4g} at step {spike.step:,}, usual {spike.usual:.4g}{above}{where}"


def _known(value: float | None) -> str:
    return "" if value is None else quantity(value)


def _share(value: float | None) -> str:
    return "" if value is None else part(value)


def money(value: float | None) -> str:
    """A price without its currency, "" if it is not known."""
    return "" if value is None else f"{value:,.0f}"
