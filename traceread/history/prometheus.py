"""The latest report of each job in Prometheus' text format, for a textfile collector or a push gateway; and rules to record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from traceread.history.entry import Entry
from traceread.history.trend import History
from traceread.names import clean

RULES = """\
# Recording and alerting rules for what `traceread history FILE --prometheus OUT` writes.
groups:
  - name: traceread
    rules:
      - record: job:traceread_mfu:ratio_to_first
        expr: traceread_mfu_ratio / traceread_mfu_first_ratio
      - record: job:traceread_step:ratio_to_first
        expr: traceread_step_seconds{stat="median"} / ignoring(stat) traceread_step_first_seconds
      - record: job:traceread_step:deriv1d
        expr: deriv(traceread_step_seconds{stat="median"}[1d])
      - record: job:traceread_skew:ratio_to_first
        expr: traceread_step_skew_ratio / traceread_step_skew_first_ratio
      - alert: TracereadStepSlowerThanAtFirst
        expr: job:traceread_step:ratio_to_first > 1.02
        for: 1h
        labels: {severity: warning}
        annotations: {summary: "{{ $labels.job }}: a step takes {{ $value | humanizePercentage }} of what it took at first"}
      - alert: TracereadMfuLowerThanAtFirst
        expr: job:traceread_mfu:ratio_to_first < 0.98
        for: 1h
        labels: {severity: warning}
        annotations: {summary: "{{ $labels.job }}: MFU is {{ $value | humanizePercentage }} of what it was at first"}
      - alert: TracereadOneRankSlow
        expr: traceread_step_skew_ratio > 1.15
        for: 1h
        labels: {severity: warning}
        annotations: {summary: "{{ $labels.job }}: the slowest rank takes {{ $value }} times the median one"}
"""
"""What `--prometheus-rules` writes."""

_Sample = tuple[dict[str, str], float]


def exposition(histories: Sequence[History]) -> str:
    """The metrics of the latest report of each job, in the text format 0.0.4."""
    lines: list[str] = []
    for name, help_, samples in _families(histories):
        values = list(samples)
        if values:
            lines += [f"# HELP {name} {help_}", f"# TYPE {name} gauge"]
            lines += [f"{name}{{{_labels(labels)}}} {value!r}" for labels, value in values]
    return "\n".join(lines) + "\n"


def _families(histories: Sequence[History]) -> Iterator[tuple[str, str, Iterable[_Sample]]]:
    jobs = [({"job": h.job}, h, h.last) for h in histories]
    first = [(job, h.baseline) for job, h, _ in jobs if h.baseline]
    yield (
        "traceread_step_seconds",
        "Step time of the critical rank in the latest report.",
        [
            ({**job, "stat": stat}, ns / 1e9)
            for job, _, e in jobs
            for stat, ns in (("median", e.median_ns), ("mean", e.mean_ns), ("max", e.max_ns))
        ],
    )
    yield (
        "traceread_step_first_seconds",
        "Median step of the first reports.",
        [(job, _median(e.median_ns for e in es) / 1e9) for job, es in first],
    )
    yield (
        "traceread_class_seconds",
        "Mean time per step by class; the classes sum to the mean step.",
        [({**job, "class": name}, ns / 1e9) for job, _, e in jobs for name, ns in e.class_ns.items()],
    )
    yield "traceread_mfu_ratio", "Model FLOPs utilisation.", [(job, e.mfu) for job, _, e in jobs if e.mfu is not None]
    yield (
        "traceread_mfu_first_ratio",
        "Model FLOPs utilisation of the first reports.",
        [(job, _median(e.mfu for e in es if e.mfu is not None)) for job, es in first if any(e.mfu is not None for e in es)],
    )
    yield (
        "traceread_tokens_per_second",
        "Valid tokens of the whole job.",
        [(job, e.tokens_per_s) for job, _, e in jobs if e.tokens_per_s is not None],
    )
    yield "traceread_step_skew_ratio", "Slowest rank's step over the median rank's.", [(job, e.skew) for job, _, e in jobs if e.ranks > 1]
    yield (
        "traceread_step_skew_first_ratio",
        "The same of the first reports.",
        [(job, _median(e.skew for e in es)) for job, es in first if es[0].ranks > 1],
    )
    yield "traceread_report_timestamp_seconds", "When the latest report was captured.", [(job, _seconds(e)) for job, _, e in jobs]
    yield (
        "traceread_alert",
        "1 where the history says to look.",
        [({**job, "question": a.key}, float(a.alert)) for job, h, _ in jobs for a in h.answers],
    )


def _median(values: Iterable[float]) -> float:
    from statistics import median

    return float(median(values))


def _seconds(e: Entry) -> float:
    return datetime.fromisoformat(e.at.replace("Z", "+00:00")).timestamp()


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return "\n".join(map(clean, value.split("\n"))).replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
