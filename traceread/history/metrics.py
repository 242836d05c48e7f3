"""A report as the flat numbers and texts that trackers of experiments take."""

from __future__ import annotations

from traceread.measurements.classes import CLASSES
from traceread.report import Report


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
