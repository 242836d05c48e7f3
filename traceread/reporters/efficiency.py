"""How much of the hardware is used, the least a step could take, and where its wall time goes."""

from __future__ import annotations

from traceread.measurements.efficiency import Efficiency
from traceread.measurements.estimates import Estimate, Resource
from traceread.measurements.flops import Recomputation
from traceread.measurements.reconciliation import Part
from traceread.report import Report
from traceread.reporters.document import Bar, Block, Column, Table
from traceread.units import duration, part, percent, quantity, unit_for

_KINDS = {
    Part.MODEL: "compute",
    Part.AGAIN: "compute",
    Part.COMMUNICATION: "exposed_communication",
    Part.IMBALANCE: "exposed_communication",
    Part.HOST: "host_sync",
    Part.CHECKPOINT: "checkpoint",
    Part.UNCLASSIFIED: "unattributed",
}


def efficiency_blocks(report: Report) -> list[Block]:
    """Utilisation, estimates and the parts of the step, as far as they are known."""
    efficiency = report.efficiency
    if efficiency is None:
        return []
    blocks: list[Block] = []
    if efficiency.utilisation.mfu is not None:
        blocks.append(_utilisation(efficiency))
    if any(row.least_ns is not None for row in efficiency.estimates.rows if row.resource is not Resource.HOST):
        blocks.append(_estimates(efficiency))
    if efficiency.utilisation.mfu is not None:
        blocks.append(_parts(efficiency))
    known = [b.measured for b in efficiency.regimes.families]
    if efficiency.matrices.flops or (efficiency.utilisation.mfu is not None and any(known)):
        blocks.append(_bounds(efficiency))
    return blocks


def mfu_missing(report: Report) -> str:
    """Why MFU is not computed and what would help, as a sentence; "" where it is, or where there is no GPU work."""
    u = None if report.efficiency is None else report.efficiency.utilisation
    if u is None or u.mfu is not None or not u.missing:
        return ""
    if u.flops is None and u.tokens.valid is None:
        return "MFU is not computed: the model and the batch are not known. Give --parameters and --tokens-per-step, or a run.json"
    return f"MFU is not computed: {'; '.join(u.missing)}"


def mfu_sentence(report: Report) -> str:
    """MFU now and once everything in the fix list is fixed, as a sentence; "" where it is not known."""
    mfu = None if report.efficiency is None else report.efficiency.utilisation.mfu
    if mfu is None:
        return ""
    after = [f.mfu_after for f in report.findings if f.mfu_after is not None]
    then = f", and {part(after[-1])} with everything in the fix list" if after else ""
    return f"MFU is {part(mfu)}{then}."


def _utilisation(efficiency: Efficiency) -> Table:
    u = efficiency.utilisation
    rows: list[tuple[str, str, str]] = []
    for kind in ("valid", "padded", "dropped"):
        rate, count = u.tokens_per_s(kind), getattr(u.tokens, kind)
        if rate is not None:
            source = f" ({u.tokens_source})" if kind == "valid" else ""
            rows.append((f"{kind} tokens", f"{quantity(rate)}/s", f"{count:,} a step{source}"))
    if u.mfu is not None and u.flops is not None:
        others = [("the causal half of attention", u.mfu_causal), ("6N alone", u.mfu_without_attention if u.flops.attention else None)]
        beside = ", ".join(f"{part(value)} by {what}" for what, value in others if value is not None)
        rows.append(("MFU", part(u.mfu), f"{u.flops.convention} FLOPs a valid token{f'; {beside}' if beside else ''}"))
    if u.mfu_untraced is not None and u.untraced_step_ns is not None:
        rows.append(("MFU untraced", part(u.mfu_untraced), f"of the step without the profiler, {duration(u.untraced_step_ns)}"))
    if u.hfu is not None and u.flops is not None:
        rows.append(("HFU", part(u.hfu), _hardware(u.flops.recomputation, bool(u.tokens.padded))))
    if u.peak.flops is not None:
        rows.append(("peak", f"{u.gpus} × {quantity(u.peak.flops, 'FLOP/s')}", f"dense; peak: {u.peak.source}, GPUs: {u.gpus_source}"))
    return Table((Column("efficiency"), Column(right=True), Column(grows=True)), tuple(rows))


def _hardware(recomputation: Recomputation | None, padded: bool) -> str:
    again = {
        Recomputation.NONE: "nothing is computed again",
        Recomputation.SELECTIVE: "the core of attention is computed again",
        Recomputation.FULL: "the whole forward is computed again",
    }
    return (again[recomputation] if recomputation else "") + ("; padding counts too" if padded else "")


def _estimates(efficiency: Efficiency) -> Table:
    rows = efficiency.estimates.rows
    unit = unit_for(max(row.measured_ns for row in rows))
    lines = tuple(
        (
            row.resource.value,
            duration(row.measured_ns, unit),
            "?" if row.least_ns is None else duration(row.least_ns, unit),
            "" if row.reached is None or not row.least_ns else part(row.reached, 0),
            "?" if row.gap_ns is None else duration(row.gap_ns, unit),
            _reason(efficiency, row),
        )
        for row in rows
    )
    numbers = (Column("measured", right=True), Column("least", right=True), Column("reached", right=True), Column("gap", right=True))
    return Table((Column("measured against estimate"), *numbers, Column("the least time is", grows=True)), lines, note=_stop(efficiency))


def _reason(efficiency: Efficiency, row: Estimate) -> str:
    u = efficiency.utilisation
    if row.resource is Resource.COMPUTE and row.least_ns is not None and u.peak.flops is not None:
        flops = u.hardware_flops if u.hardware_flops is not None else u.model_flops
        text = f"{quantity(flops or 0, 'FLOP')} at {quantity(u.peak.flops, 'FLOP/s')}"
        model = u.time_of(u.model_flops)
        if model is not None and model != row.least_ns:
            text += f"; the model alone {duration(model)}"
        return text
    if row.resource is Resource.COMMUNICATION:
        exposed = f"; {duration(row.exposed_ns)} is exposed" if row.exposed_ns else ""
        if row.least_ns is not None and efficiency.run.link_bytes_per_s is not None:
            sent = quantity(efficiency.sent, "B")
            text = f"{sent} at {quantity(efficiency.run.link_bytes_per_s, 'B/s')}"
            return text + row.reason.removeprefix("bytes over the link") + exposed
        return f"{row.reason}{exposed}"
    return row.reason


def _stop(efficiency: Efficiency) -> str:
    """What cannot be beaten, and when to stop."""
    estimates = efficiency.estimates
    if estimates.least_step_ns is None:
        return ""
    text = f"no step is shorter than {duration(estimates.least_step_ns)}"
    compute = estimates.of(Resource.COMPUTE)
    if compute.ceiling_ns is not None and efficiency.utilisation.matmul_flops is not None:
        rate = quantity(efficiency.utilisation.matmul_flops, "FLOP/s")
        left = max(compute.measured_ns - compute.ceiling_ns, 0)
        text += f"; at the {rate} that large products reach, computing takes {duration(compute.ceiling_ns)}, a gap of {duration(left)}"
    if estimates.done:
        return f"{text}. No gap is worth more work: stop here"
    return f"{text}. Stop once gaps are under 1 % of the step"


def _parts(efficiency: Efficiency) -> Table:
    found = efficiency.reconciliation
    unit = unit_for(found.whole_ns)
    rows = tuple(
        (
            p.words,
            Bar(found.ns[p], found.whole_ns, _KINDS[p]),
            duration(found.ns[p], unit),
            percent(found.ns[p], found.whole_ns),
            _detail(efficiency, p),
        )
        for p in Part
        if found.ns[p] or p is Part.MODEL
    )
    return Table(
        (Column("wall time"), Column(), Column("time", right=True), Column("share", right=True), Column(grows=True)),
        rows,
        total=("sum", "", duration(found.whole_ns, unit), percent(found.whole_ns, found.whole_ns), ""),
    )


def _detail(efficiency: Efficiency, which: Part) -> str:
    found, u = efficiency.reconciliation, efficiency.utilisation
    if which is Part.MODEL and u.mfu is not None:
        rate = found.rate_while_computing(u.mfu)
        text = "" if rate is None else f"at {part(rate)} of the peak, which makes MFU {part(u.mfu)}"
        return text if found.again_known else f"{text}; what is computed again is not known, and in here"
    if which is Part.COMMUNICATION:
        if found.transfer_ns is None or found.wait_ns is None:
            return "transfer or waiting for other ranks"
        return f"transfer {duration(found.transfer_ns)}" + (f", waiting {duration(found.wait_ns)}" if found.wait_ns else "")
    return {
        Part.AGAIN: "compute beyond the model's FLOPs, in proportion to FLOPs",
        Part.IMBALANCE: "waiting for ranks that were later, and for stages of the pipeline",
        Part.HOST: "data wait, host sync, launch-bound, allocation, compile, exposed copies",
        Part.UNCLASSIFIED: "queued, profiler, unattributed",
    }.get(which, "")


def _bounds(efficiency: Efficiency) -> Table:
    """What bounds the kernels, family by family."""
    found = efficiency.regimes
    total = sum(b.pace.ns for b in found.families)
    shown = [b for b in found.families if 50 * b.pace.ns >= total]
    rows = tuple(
        (
            b.pace.name,
            percent(b.pace.ns, total),
            duration(b.pace.kernel_ns),
            "?" if b.pace.launch_ns < 0 else duration(b.pace.launch_ns),
            _rate(efficiency, b.pace.name),
            str(b.regime),
            b.evidence,
        )
        for b in shown
    )
    numbers = ("share", "kernel", "launch", "of peak")
    columns = (Column("what bounds kernels"), *(Column(n, right=True) for n in numbers), Column("regime"), Column("because", grows=True))
    return Table(columns, rows, note=_bounds_note(efficiency))


def _rate(efficiency: Efficiency, family: str) -> str:
    peaks = {} if efficiency.utilisation.gpu is None else efficiency.utilisation.gpu.flops
    shares = [kind.peak_share(peaks) for kind in efficiency.matrices.kinds if kind.kind.key == family]
    return part(shares[0]) if shares and shares[0] is not None else ""


def _bounds_note(efficiency: Efficiency) -> str:
    found, matrices = efficiency.regimes, efficiency.matrices
    notes = []
    if found.step is not None and found.shares is not None:
        most = ", ".join(f"{regime} {part(share)}" for regime, share in found.shares.items() if share >= 0.005)
        notes.append(f"of the step: {most}")
    if matrices.flops:
        notes.append(
            f"{quantity(matrices.flops, 'FLOP')} a step by recorded shapes, which cover {part(matrices.coverage)} of the kernels' time"
        )
    slow = [p for p in found.phases if p.busy_share is not None and p.busy_share < 0.9]
    notes += [
        f"{p.name}: kernels of {duration(p.kernel_ns)}, a launch every {duration(p.launch_ns)}, so at most {part(p.busy_share or 0)} busy"
        for p in slow
    ]
    return ". ".join(notes)
