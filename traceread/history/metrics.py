"""A report, or a whole run, as the flat numbers and texts that trackers of experiments take."""

from __future__ import annotations

from traceread.measurements.classes import CLASSES
from traceread.report import Report
from traceread.runs.curve import Point
from traceread.runs.summary import RunSummary


def metrics_of(report: Report) -> dict[str, float]:
    """Numbers by name: step times and classes in ms, MFU, tokens/s, skew; what is not known is left out.

    Times become floats here because trackers know nothing else.
    """
    summary = report.summary
    if summary is None:
        return {}
    slowest, middle = summary.skew
    found: dict[str, float] = {
        "traceread/step_median_ms": summary.median_ns / 1e6,
        "traceread/step_mean_ms": summary.mean_ns / 1e6,
        "traceread/step_max_ms": summary.max_ns / 1e6,
        "traceread/skew": slowest / middle if middle else 1.0,
    }
    found |= {f"traceread/class/{name}_ms": ns / 1e6 for name, ns in zip(CLASSES, summary.class_ns, strict=True)}
    if report.efficiency is not None:
        used = report.efficiency.to_dict()
        rate = used["tokens_per_s"]["valid"]
        known = {"mfu": used["mfu"], "hfu": used["hfu"], "tokens_per_s": rate}
        found |= {f"traceread/{name}": float(value) for name, value in known.items() if value is not None}
    savings = [f.saving_ns for f in report.findings if f.saving_ns]
    return found | {"traceread/savings_ms": sum(savings) / 1e6, "traceread/findings": float(len(report.findings))}


def parameters_of(report: Report) -> dict[str, str]:
    """Texts by name: what was captured, on what, and the largest finding."""
    summary = report.summary
    gpu = next((r.device.name for r in report.ranks if r.device.name), None)
    texts = {
        "traceread.title": report.title,
        "traceread.source": report.source,
        "traceread.gpu": gpu,
        "traceread.ranks": str(len(report.ranks)),
        "traceread.world_size": None if report.world_size is None else str(report.world_size),
        "traceread.steps": None if summary is None else ", ".join(summary.steps),
        "traceread.first_finding": report.findings[0].title if report.findings else None,
    }
    return {name: text[:500] for name, text in texts.items() if text}


def metrics_of_run(run: RunSummary) -> dict[str, float]:
    """Numbers of a whole run by name; what is not known is left out."""
    ledger, throughput = run.ledger, run.throughput
    known = {
        "tokens_per_s_of_gpu": throughput.tokens_per_s_of_gpu,
        "mfu": throughput.utilisation.mfu,
        "goodput": ledger.goodput,
        "gpu_hours": ledger.allocated_gpu_hours,
        "productive_gpu_hours": ledger.productive_gpu_hours,
        "cost": ledger.cost,
        "cost_per_evaluation": ledger.cost_per_evaluation,
        "restarts": ledger.restarts,
        "lost_steps": ledger.lost_steps,
        "spikes": len(run.spikes),
        "drops": len(run.drops),
        "skew": run.skew,
        "data_wait_share": run.data_wait_share,
    }
    return {f"traceread/run/{name}": float(value) for name, value in known.items() if value is not None}


def metrics_of_point(point: Point) -> dict[str, float]:
    """Numbers of an interval by name; what is not known is left out."""
    known = {name: getattr(point, name) for name in ("tokens_per_s", "mfu", "loss", "grad_norm")}
    known["data_wait_ms"] = None if point.data_wait_ns is None else point.data_wait_ns / 1e6
    return {f"traceread/interval/{name}": float(value) for name, value in known.items() if value is not None}


def parameters_of_run(run: RunSummary) -> dict[str, str]:
    """Texts of a whole run by name."""
    convention = run.throughput.utilisation.flops
    texts = {
        "traceread.run": run.history.name,
        "traceread.parent": run.history.parent,
        "traceread.recipe": run.history.recipe,
        "traceread.gpus": str(run.gpus),
        "traceread.ended": run.history.ended or "no end logged",
        "traceread.mfu_convention": "" if convention is None else convention.convention,
    }
    return {name: text[:500] for name, text in texts.items() if text}
