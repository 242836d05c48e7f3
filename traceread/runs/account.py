"""What the step logs beside a capture say of the whole job: goodput, and what an evaluation cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceread.errors import Notice, TracereadError
from traceread.run import Described, run_of
from traceread.steplog import PATTERN, Segment, read_log

if TYPE_CHECKING:
    from traceread.runs.ledger import Ledger


def find_account(paths: Sequence[Path], described: Described) -> Described:
    """`goodput` and `cost_per_evaluation` of the runs whose logs lie beside these traces; empty where there is no log.

    A price per GPU hour comes from `described`, else from the log. A log that cannot be read is a notice: the traces do not need it.
    """
    logs = [log for directory in _directories(paths) for log in sorted(directory.glob(PATTERN)) if log.is_file()]
    if not logs:
        return run_of({}, "")
    from traceread.runs.history import order_runs  # what most captures do without
    from traceread.runs.ledger import keep_ledger

    try:
        segments = [segment for log in logs for segment in read_log(log)]
        price = described.run.price_per_gpu_hour or next((p for s in segments if (p := _price(s))), None)
    except TracereadError as error:
        return Described(notices=(Notice("damaged-log", error.message),))
    ledgers = [keep_ledger(run, price) for run in order_runs(segments)]
    return run_of(_account(ledgers), ", ".join(log.name for log in logs))


def _directories(paths: Sequence[Path]) -> list[Path]:
    return list(dict.fromkeys(path if path.is_dir() else path.parent for path in paths))


def _price(segment: Segment) -> float | None:
    return segment.described.run.price_per_gpu_hour


def _account(ledgers: Sequence[Ledger]) -> dict[str, Any]:
    """What is known, in the shape of run.json; nothing of it is ever zero because it was not logged."""
    from traceread.runs.ledger import Part

    known: dict[str, Any] = {}
    allocated = sum(ledger.allocated_ns for ledger in ledgers)
    if allocated:
        known["goodput"] = sum(ledger.gpu_ns[Part.PRODUCTIVE] for ledger in ledgers) / allocated
    evaluations = sum(ledger.evaluations for ledger in ledgers)
    cost = sum(ledger.cost or 0.0 for ledger in ledgers)
    if evaluations and cost:
        known["cost_per_evaluation"] = cost / evaluations
    return known
