"""What a run used and what came of it: throughput and utilisation over tokens, goodput, GPU hours and their price."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from statistics import median
from typing import Any

from traceread.measurements.planning import HOUR_S
from traceread.measurements.utilisation import Utilisation, measure_utilisation
from traceread.model import Device
from traceread.records import record
from traceread.run import Described, run_of
from traceread.runs.history import RunHistory
from traceread.steplog import Entry

_S = 10**9


class Part(StrEnum):
    """Where the allocated time of a run goes."""

    PRODUCTIVE = "productive"
    REPEATED = "done_again"
    CHECKPOINT = "checkpoint"
    EVALUATION = "evaluation"
    BETWEEN = "between_segments"
    OTHER = "not_logged"


@record
class Throughput:
    """Tokens over time.

    Attributes:
        tokens, gpu_ns: of the intervals that count, each segment's warm-up left out, and their time times GPUs.
        median_tokens_per_s: median over these intervals, of all GPUs; None where no interval has it.
        utilisation: MFU and what it lacks: the tokens over the GPU time.
    """

    tokens: int
    gpu_ns: int
    median_tokens_per_s: float | None
    utilisation: Utilisation

    @property
    def tokens_per_s_of_gpu(self) -> float | None:
        """Tokens per second of one GPU."""
        return self.tokens * _S / self.gpu_ns if self.gpu_ns else None


@record
class Ledger:
    """The account of a run.

    Attributes:
        gpu_ns: GPU time by part; the parts add up to what was allocated.
        restarts, lost_steps: how often it was started again, and logged steps that were done again.
        price_per_gpu_hour: in any currency, None if not given.
        evaluations: number of evaluation points.
    """

    gpu_ns: dict[Part, int]
    restarts: int
    lost_steps: int
    price_per_gpu_hour: float | None
    evaluations: int

    @property
    def allocated_ns(self) -> int:
        """GPU time from the first start to the last line."""
        return sum(self.gpu_ns.values())

    @property
    def allocated_gpu_hours(self) -> float:
        """The same in hours."""
        return self.allocated_ns / _S / HOUR_S

    @property
    def productive_gpu_hours(self) -> float:
        """GPU hours of steps that count."""
        return self.gpu_ns[Part.PRODUCTIVE] / _S / HOUR_S

    @property
    def goodput(self) -> float | None:
        """Productive over allocated GPU time."""
        return self.gpu_ns[Part.PRODUCTIVE] / self.allocated_ns if self.allocated_ns else None

    @property
    def cost(self) -> float | None:
        """Price of all that was allocated."""
        return self._priced(self.allocated_gpu_hours)

    @property
    def productive_cost(self) -> float | None:
        """Price of the steps that count."""
        return self._priced(self.productive_gpu_hours)

    @property
    def cost_per_evaluation(self) -> float | None:
        """Price of the run for each of its evaluation points."""
        return self.cost / self.evaluations if self.cost is not None and self.evaluations else None

    def _priced(self, hours: float) -> float | None:
        return None if self.price_per_gpu_hour is None else hours * self.price_per_gpu_hour

    def to_dict(self) -> dict[str, Any]:
        """The account as JSON builtins; `gpu_ns` by part."""
        return {
            "gpu_ns": {str(part): ns for part, ns in self.gpu_ns.items()},
            "allocated_gpu_hours": self.allocated_gpu_hours,
            "productive_gpu_hours": self.productive_gpu_hours,
            "goodput": self.goodput,
            "restarts": self.restarts,
            "lost_steps": self.lost_steps,
            "price_per_gpu_hour": self.price_per_gpu_hour,
            "cost": self.cost,
            "productive_cost": self.productive_cost,
            "evaluations": self.evaluations,
            "cost_per_evaluation": self.cost_per_evaluation,
        }


def counted_intervals(run: RunHistory, warmup: int) -> list[tuple[Entry, int, int]]:
    """The intervals that count, without the first `warmup` of each segment, each with its tokens and its GPUs."""
    found: list[tuple[Entry, int, int]] = []
    for stretch in run.stretches:
        before = stretch.segment.start.tokens
        for at, entry in enumerate(stretch.kept):
            if at >= warmup:
                found.append((entry, max(entry.tokens - before, 0), stretch.segment.gpus))
            before = entry.tokens
    return found


def measure_throughput(run: RunHistory, described: Described, warmup: int = 1) -> Throughput:
    """Throughput of the steps that count; MFU is the model FLOPs of their tokens over what the GPUs could do in their time."""
    counted = [(e, tokens, gpus) for e, tokens, gpus in counted_intervals(run, warmup) if e.wall_ns]
    tokens = sum(tokens for _, tokens, _ in counted)
    gpu_ns = sum(e.wall_ns * gpus for e, _, gpus in counted)
    rates = [tokens * _S / e.wall_ns for e, tokens, _ in counted]
    # one GPU that did all of it in the time of all GPUs: the same share of the peak, and sizes may change between segments
    seen = run_of({"world_size": 1, "tokens_per_step": {"valid": tokens}}, "step log")
    utilisation = measure_utilisation(seen.over(described), gpu_ns, _devices(run), None, None)
    return Throughput(tokens, gpu_ns, median(rates) if rates else None, utilisation)


def keep_ledger(run: RunHistory, price_per_gpu_hour: float | None) -> Ledger:
    """The account of a run. Time that no line explains is OTHER: starting up, and steps of an interval that was cut off."""
    parts = dict.fromkeys(Part, 0)
    for at, stretch in enumerate(run.stretches):
        gpus, entries = stretch.segment.gpus, stretch.segment.entries
        following = run.stretches[at + 1].segment.start.t if at + 1 < len(run.stretches) else entries[-1].t
        between = max(following - entries[-1].t, 0)
        parts[Part.PRODUCTIVE] += gpus * sum(e.wall_ns for e in stretch.kept)
        parts[Part.REPEATED] += gpus * sum(e.wall_ns for e in stretch.repeated)
        parts[Part.CHECKPOINT] += gpus * sum(e.duration_ns or 0 for e in entries if e.kind == "checkpoint")
        parts[Part.EVALUATION] += gpus * sum(e.duration_ns or 0 for e in entries if e.kind == "eval")
        parts[Part.BETWEEN] += gpus * between
        logged = sum(e.wall_ns for e in stretch.segment.intervals) + sum(e.duration_ns or 0 for e in entries)
        parts[Part.OTHER] += gpus * max(entries[-1].t - entries[0].t - logged, 0)
    evaluations = sum(e.kind == "eval" for e in run.entries)
    lost = sum(s.lost_steps for s in run.stretches)
    return Ledger(parts, len(run.stretches) - 1, lost, price_per_gpu_hour, evaluations)


def _devices(run: RunHistory) -> Sequence[Device]:
    start = run.stretches[0].segment.start
    return [] if start.gpu is None else [Device(0, start.gpu, start.device_bytes, start.multiprocessors)]
