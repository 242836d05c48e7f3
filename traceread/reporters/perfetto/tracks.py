"""Tracks of what was found out about a rank: steps, classes, idle causes, the evidence of every finding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from traceread.measurements.classes import CLASSES, Reason, StepClass
from traceread.measurements.partition import class_intervals
from traceread.report import RankReport, Report
from traceread.reporters.perfetto.document import Clocks, Event, Processes, encodable, microseconds, said

CATEGORY = "traceread"
"""Category of all events made here."""
_STEPS, _CLASSES, _IDLE, _FINDINGS = 1, 2, 3, 4

Mask = npt.NDArray[np.bool_]


def track_events(report: Report, rank: RankReport, clocks: Clocks, processes: Processes, only_used: bool) -> Iterator[Event]:
    """The tracks of one rank; with `only_used` those of its used windows only."""
    if not rank.steps.windows:
        return
    pid = processes.number(rank.rank, None)
    for tid, name in ((_STEPS, "steps"), (_CLASSES, "class"), (_IDLE, "idle cause")):
        yield said("thread_name", pid, tid, name=name)
        yield said("thread_sort_index", pid, tid, sort_index=tid)
    used = np.array(rank.steps.used, bool)
    shown = used if only_used else np.ones(len(used), bool)
    yield from _steps(rank, shown, pid, clocks)
    yield from _classes(rank, shown, pid, clocks)
    yield from _idle(rank, shown, pid, clocks)
    yield from _findings(report, rank, shown, pid, clocks)


def _steps(rank: RankReport, shown: Mask, pid: int, clocks: Clocks) -> Iterator[Event]:
    windows = [(w, rank.steps.used[i], i) for i, w in enumerate(rank.steps.windows) if shown[i] and w.duration_ns > 0]
    stamps = clocks.stamps(rank.rank, np.array([w.start_ns for w, _, _ in windows], np.int64))
    for stamp, (w, used, i) in zip(stamps, windows, strict=True):
        classes = {name: ns for name, ns in zip(CLASSES, rank.partition.class_ns[i].tolist(), strict=True) if ns}
        args = {"used": used, "duration_ns": w.duration_ns, "class_ns": classes} | ({"partial": w.partial} if w.partial else {})
        yield _slice(w.label, pid, _STEPS, stamp, w.duration_ns, args)


def _slice(name: str, pid: int, tid: int, stamp: msgspec.Raw, duration_ns: int, args: dict[str, Any]) -> Event:
    return {
        "ph": "X",
        "cat": CATEGORY,
        "name": encodable(name),
        "pid": pid,
        "tid": tid,
        "ts": stamp,
        "dur": microseconds(duration_ns),
        "args": args,
    }


def _classes(rank: RankReport, shown: Mask, pid: int, clocks: Clocks) -> Iterator[Event]:
    """One event per stretch of one class inside one window."""
    parts = class_intervals(rank.steps, rank.busy, rank.idle)
    keep = shown[np.minimum(parts["window"], len(shown) - 1)]
    start, end, window, cls = (parts[name][keep] for name in ("start_ns", "end_ns", "window", "class"))
    if not len(start):
        return
    begins = np.flatnonzero(np.concatenate(([True], (cls[1:] != cls[:-1]) | (window[1:] != window[:-1]) | (start[1:] != end[:-1]))))
    last = np.append(begins[1:], len(start)) - 1
    length = end[last] - start[begins]
    for stamp, ns, c in zip(clocks.stamps(rank.rank, start[begins]), length.tolist(), cls[begins].tolist(), strict=True):
        yield _slice(StepClass(c).title, pid, _CLASSES, stamp, ns, {"duration_ns": ns})


def _idle(rank: RankReport, shown: Mask, pid: int, clocks: Clocks) -> Iterator[Event]:
    rows = np.flatnonzero(shown[rank.idle.window]) if len(rank.idle) else np.empty(0, np.int64)
    idle = rank.idle.take(rows)
    columns = (idle.cause, idle.reason, idle.recorded, idle.end_ns - idle.start_ns, rank.idle_names.code[rows])
    stamps = clocks.stamps(rank.rank, idle.start_ns)
    for stamp, cause, reason, recorded, ns, code in zip(stamps, *(c.tolist() for c in columns), strict=True):
        args: dict[str, Any] = {
            "class": StepClass(cause).key,
            "reason": Reason(reason).text,
            "evidence": "recorded" if recorded else "inferred",
            "duration_ns": ns,
        }
        if code >= 0:
            args["name"] = encodable(rank.idle_names.names[code])
        yield _slice(args.get("name") or Reason(reason).text, pid, _IDLE, stamp, ns, args)


def _findings(report: Report, rank: RankReport, shown: Mask, pid: int, clocks: Clocks) -> Iterator[Event]:
    """The evidence of every finding on a track of its own, so that overlapping ones are all seen."""
    labels = {w.label for w, keep in zip(rank.steps.windows, shown, strict=True) if keep}
    for number, finding in enumerate(report.findings, 1):
        places = [e for e in finding.evidence if e.rank == rank.rank and e.step in labels]
        if not places:
            continue
        tid = _FINDINGS + number - 1
        yield said("thread_name", pid, tid, name=encodable(f"fix {number}: {finding.title}"))
        yield said("thread_sort_index", pid, tid, sort_index=tid)
        stamps = clocks.stamps(rank.rank, np.array([e.start_ns for e in places], np.int64))
        for stamp, place in zip(stamps, places, strict=True):
            args = {
                "rule": finding.rule,
                "saving_ns": finding.saving_ns,
                "why": encodable(finding.why),
                "change": encodable(finding.fix),
                "names": [encodable(n) for n in place.names],
                "source": encodable(place.source),
                "duration_ns": place.end_ns - place.start_ns,
            }
            yield _slice(finding.title, pid, tid, stamp, place.end_ns - place.start_ns, args)
