"""Everything `traceread runs` says: each run with its account, its evaluations and what was odd, and all of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from traceread.errors import Notice
from traceread.names import clean
from traceread.records import record
from traceread.run import Described, find_run
from traceread.runs.curve import Point, draw_curve
from traceread.runs.history import RunHistory, order_runs
from traceread.runs.ledger import Ledger, Throughput, counted_intervals, keep_ledger, measure_throughput
from traceread.runs.spikes import GRAD_NORM_Z, LOSS_Z, Drop, Spike, find_drops, find_spikes
from traceread.runs.telemetry import GpuTelemetry, read_telemetry
from traceread.steplog import Entry, find_logs, read_log

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

_S = 10**9


@record
class Evaluation:
    """An evaluation point.

    Attributes:
        checkpoint: what was evaluated, "" for the model as it was.
        step, tokens: those of the checkpoint, else those at which the evaluation ran.
        metrics: its results.
    """

    checkpoint: str
    step: int
    tokens: int
    metrics: dict[str, float | str]

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as JSON builtins."""
        return {"checkpoint": self.checkpoint or None, "step": self.step, "tokens": self.tokens, "metrics": self.metrics}


@record
class Memory:
    """Peaks of the rank with the most.

    Attributes:
        allocated_bytes: largest of all intervals.
        gap_bytes: largest of reserved minus allocated in an interval: fragmentation, and what is kept for reuse.
        device_bytes: of the device, None if not logged.
    """

    allocated_bytes: int
    gap_bytes: int | None
    device_bytes: int | None

    @property
    def headroom(self) -> float | None:
        """Share of the device that was never allocated."""
        return None if not self.device_bytes else 1 - self.allocated_bytes / self.device_bytes


@record
class RunSummary:
    """A run.

    Attributes:
        history: its segments.
        throughput, ledger: what it did and what it took.
        curve: its intervals that count, over the tokens seen.
        evaluations: by tokens.
        spikes, drops: where loss, gradient norm or rate were not as usual.
        skew: median of the slowest rank's step over the mean rank's; None with one rank.
        slowest_rank: the rank that was it most often, with the share of intervals.
        data_wait_share: of the step, over intervals that count.
        memory: None without a GPU.
        log_bytes: of its logs.
        values: numbers in its logs.
    """

    history: RunHistory
    throughput: Throughput
    ledger: Ledger
    curve: tuple[Point, ...]
    evaluations: tuple[Evaluation, ...]
    spikes: tuple[Spike, ...]
    drops: tuple[Drop, ...]
    skew: float | None
    slowest_rank: tuple[int, float] | None
    data_wait_share: float | None
    memory: Memory | None
    log_bytes: int
    values: int

    @property
    def gpus(self) -> int:
        """Of its last segment."""
        return self.history.stretches[-1].segment.gpus

    @property
    def log_bytes_per_day(self) -> float | None:
        """What such a log grows by in a day of training; None for a run without time."""
        entries = self.history.entries
        span = entries[-1].t - entries[0].t
        return self.log_bytes * 86_400 * _S / span if span > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """The run as JSON builtins."""
        t, u = self.throughput, self.throughput.utilisation
        return {
            "run": self.history.name,
            "parent": self.history.parent or None,
            "recipe": self.history.recipe or None,
            "ended": self.history.ended or None,
            "gpus": self.gpus,
            "tokens": self.history.tokens,
            "segments": [
                {
                    "file": s.segment.path.name,
                    "segment": s.segment.start.segment,
                    "gpus": s.segment.gpus,
                    "first_step": s.segment.start.step,
                    "last_step": max(e.step for e in s.segment.entries),
                    "kept_to": s.kept_to,
                    "lost_steps": s.lost_steps,
                }
                for s in self.history.stretches
            ],
            "throughput": {
                "tokens": t.tokens,
                "gpu_ns": t.gpu_ns,
                "tokens_per_s_of_gpu": t.tokens_per_s_of_gpu,
                "median_tokens_per_s": t.median_tokens_per_s,
                "mfu": u.mfu,
                "mfu_without_attention": u.mfu_without_attention,
                "convention": None if u.flops is None else u.flops.convention,
                "peak_flops": u.peak.flops,
                "missing": list(u.missing),
            },
            "ledger": self.ledger.to_dict(),
            "evaluations": [e.to_dict() for e in self.evaluations],
            "spikes": [s.to_dict() for s in self.spikes],
            "drops": [d.to_dict() for d in self.drops],
            "skew": self.skew,
            "slowest_rank": None if self.slowest_rank is None else {"rank": self.slowest_rank[0], "share": self.slowest_rank[1]},
            "data_wait_share": self.data_wait_share,
            "memory": None
            if self.memory is None
            else {
                "allocated_bytes": self.memory.allocated_bytes,
                "gap_bytes": self.memory.gap_bytes,
                "device_bytes": self.memory.device_bytes,
                "headroom": self.memory.headroom,
            },
            "log": {"bytes": self.log_bytes, "values": self.values, "bytes_per_day": self.log_bytes_per_day},
        }


@record
class Runs:
    """All runs, and the telemetry beside them."""

    runs: tuple[RunSummary, ...]
    gpus: tuple[GpuTelemetry, ...]
    notices: tuple[Notice, ...]

    def __repr__(self) -> str:
        return f"<Runs {', '.join(clean(r.history.name) for r in self.runs[:3])}{' …' if len(self.runs) > 3 else ''}>"

    @property
    def cost(self) -> float | None:
        """Of all runs, those that were stopped early and failed ones too; None where a price is not known."""
        costs = [r.ledger.cost for r in self.runs]
        return None if any(c is None for c in costs) else sum(c for c in costs if c is not None)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON builtins."""
        return {
            "runs": [r.to_dict() for r in self.runs],
            "total": {
                "allocated_gpu_hours": sum(r.ledger.allocated_gpu_hours for r in self.runs),
                "productive_gpu_hours": sum(r.ledger.productive_gpu_hours for r in self.runs),
                "cost": self.cost,
            },
            "telemetry": [g.to_dict() for g in self.gpus],
            "warnings": [n.to_dict() for n in self.notices],
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per interval that counts: run, and the attributes of `traceread.runs.curve.Point`."""
        import pandas as pd

        rows = [{"run": r.history.name, **p.to_dict()} for r in self.runs for p in r.curve]
        return pd.DataFrame(rows, columns=["run", *Point.__dataclass_fields__])

    def plot(self) -> Figure:
        """Throughput and MFU over the tokens seen."""
        from traceread.figures.runs import plot_throughput

        return plot_throughput(self)

    def _repr_html_(self) -> str:
        from traceread.reporters.runs import runs_html

        return runs_html(self)


def read_runs(paths: Sequence[str | Path], given: Described | None = None, telemetry: Sequence[Path] = (), warmup: int = 1) -> Runs:
    """The runs whose step logs are in these files and directories.

    Args:
        paths: step logs, or directories with any.
        given: what the command line says of the job; it wins over run.json beside a log, and that over the log's own start.
        telemetry: logs of nvidia-smi or dcgmi.
        warmup: intervals of each segment that are left out of throughput.

    Raises:
        TraceNotFound: there is no step log.
        InputError: one of them, or the telemetry, cannot be read.
    """
    segments = [segment for path in find_logs(paths) for segment in read_log(path)]
    runs = [_summary(run, given or Described(), warmup) for run in order_runs(segments)]
    notices = dict.fromkeys(n for r in runs for n in (*r.history.notices, *_description(r.history).notices))
    return Runs(tuple(runs), tuple(g for path in telemetry for g in read_telemetry(path)), tuple(notices))


def _description(run: RunHistory) -> Described:
    first = run.stretches[0].segment
    return find_run([first.path]).over(first.described)


def _summary(run: RunHistory, given: Described, warmup: int) -> RunSummary:
    described = given.over(_description(run))
    counted = [(e, tokens) for e, tokens, _ in counted_intervals(run, warmup)]
    kept = run.kept
    skews = [e.step_ns_max / e.step_ns for e, _ in counted if e.step_ns and e.step_ns_max]
    several = max(s.segment.gpus for s in run.stretches) > 1
    throughput = measure_throughput(run, described, warmup)
    return RunSummary(
        history=run,
        throughput=throughput,
        ledger=keep_ledger(run, described.run.price_per_gpu_hour),
        curve=draw_curve(run, throughput, warmup),
        evaluations=tuple(_evaluations(run)),
        spikes=(*find_spikes(kept, "loss", LOSS_Z), *find_spikes(kept, "grad_norm", GRAD_NORM_Z)),
        drops=tuple(find_drops((e.step, tokens * _S / e.wall_ns) for e, tokens in counted if e.wall_ns and tokens)),
        skew=median(skews) if skews and several else None,
        slowest_rank=_slowest([e for e, _ in counted]) if several else None,
        data_wait_share=_data_wait([e for e, _ in counted]),
        memory=_memory(run),
        log_bytes=sum(s.segment.size for s in run.stretches),
        values=sum(_numbers(e) for e in run.entries),
    )


def _evaluations(run: RunHistory) -> list[Evaluation]:
    """Points by tokens: those of the checkpoint, whenever it was evaluated."""
    saved: dict[str, Entry] = {e.checkpoint: e for e in run.entries if e.kind == "checkpoint" and e.checkpoint}
    found = []
    for e in run.entries:
        if e.kind == "eval":
            at = saved.get(e.checkpoint or "", e)
            found.append(Evaluation(e.checkpoint or "", at.step, at.tokens, e.metrics or {}))
    return sorted(found, key=lambda e: e.tokens)


def _slowest(entries: list[Entry]) -> tuple[int, float] | None:
    ranks = Counter(e.slowest_rank for e in entries if e.slowest_rank is not None)
    if not ranks:
        return None
    [(rank, count)] = ranks.most_common(1)
    return rank, count / ranks.total()


def _data_wait(entries: list[Entry]) -> float | None:
    known = [e for e in entries if e.data_wait_ns is not None and e.wall_ns and e.steps]
    whole = sum(e.wall_ns for e in known)
    return sum((e.data_wait_ns or 0) * (e.steps or 0) for e in known) / whole if whole else None


def _memory(run: RunHistory) -> Memory | None:
    known = [e for e in run.entries if e.allocated_bytes is not None]
    if not known:
        return None
    gaps = [e.reserved_bytes - (e.allocated_bytes or 0) for e in known if e.reserved_bytes is not None]
    device = next((s.segment.start.device_bytes for s in run.stretches if s.segment.start.device_bytes), None)
    return Memory(max(e.allocated_bytes or 0 for e in known), max(gaps) if gaps else None, device)


def _numbers(entry: Entry) -> int:
    values = (getattr(entry, name) for name in Entry.__struct_fields__)
    return sum(isinstance(v, int | float) for v in values) + len(entry.metrics or ()) + len(entry.batch_ids or ())
