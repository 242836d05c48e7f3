"""Writes a simulated job into a directory: the traces in one format, run.json and truth.json."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from traceread.simulate import kineto, nsys
from traceread.simulate.recording import Capture, record
from traceread.simulate.simulation import Run, simulate
from traceread.simulate.truth import StepTime, idle_of, step_time, transfers_of, windows_of

PARALLEL_FROM = 200_000
"""Activities from which on ranks are written by several processes."""

_work: tuple[Run, Capture, Path, frozenset[int], bool] | None = None


def write_run(run: Run, directory: Path, capture: Capture, *, counterfactuals: bool = True, truth: bool = True) -> list[Path]:
    """Write traces, run.json and truth.json; returns the paths of the traces.

    Args:
        run: the simulated job.
        directory: made if it does not exist.
        capture: the format and its variants.
        counterfactuals: simulate again without each fault and without ever more of them, for truth.json.
        truth: write truth.json.
    """
    directory.mkdir(parents=True, exist_ok=True)
    written = frozenset(run.job.written if run.job.written is not None else range(run.job.ranks))
    if run.job.run:
        (directory / "run.json").write_text(json.dumps({"format": 1, "job": run.job.name, **run.job.run}, indent=1) + "\n")
    files: dict[str, list[int]] = {}
    for rank in sorted(written):
        name = kineto.file_name(rank, capture) if capture.format == "kineto" else nsys.file_name(run, rank, capture)
        files.setdefault(name, []).append(rank)
    results = _map(run, capture, directory, written, truth, list(files.items()))
    if truth:
        text = _truth(run, capture, results, without(run) if counterfactuals else [])
        (directory / "truth.json").write_text(text)
    return [directory / name for name in files]


def _map(
    run: Run, capture: Capture, directory: Path, written: frozenset[int], truth: bool, files: Sequence[tuple[str, list[int]]]
) -> list[dict[str, str]]:
    global _work
    _work = (run, capture, directory, written, truth)
    try:
        activities = sum(len(host.device.end) for host in run.hosts)
        workers = min(os.cpu_count() or 1, len(files))
        if activities < PARALLEL_FROM or workers < 2 or "fork" not in multiprocessing.get_all_start_methods():
            return [part for item in files for part in _write_file(item)]
        with multiprocessing.get_context("fork").Pool(workers) as pool:  # children see the run without copying it
            return [part for parts in pool.imap(_write_file, files) for part in parts]
    finally:
        _work = None


def _write_file(item: tuple[str, list[int]]) -> list[dict[str, str]]:
    """Write one file; returns the parts of truth.json that belong to its ranks."""
    assert _work is not None
    run, capture, directory, written, truth = _work
    name, ranks = item
    recorded = [(run.hosts[rank], record(run, run.hosts[rank], capture)) for rank in ranks]
    if capture.format == "kineto":
        kineto.write(run, *recorded[0], capture, directory)
    else:
        nsys.write(run, recorded, capture, directory / name)
    parts = []
    for host, rows in recorded if truth else ():
        windows = windows_of(run, rows, capture)
        node = run.job.nodes[run.job.node(host.rank, run.job.ranks)]
        parts.append(
            {
                "steps": _lines(
                    f'{{"rank": {host.rank}, "step": {json.dumps(w.step)}, "start_ns": {w.start}, "end_ns": {w.end}}}' for w in windows
                ),
                "idle": _lines(
                    f'{{"rank": {host.rank}, "step": {json.dumps(i.step)}, "start_ns": {i.start}, "end_ns": {i.end}, "cause": "{i.cause}"}}'
                    for i in idle_of(run, host, rows, capture, windows)
                ),
                "collectives": _lines(
                    f'{{"id": "{t.id}", "rank": {host.rank}, "operation": "{t.operation}", "start_ns": {t.start}, "end_ns": {t.end}, '
                    f'"wait_ns": {t.wait}, "transfer_ns": {t.transfer}, "seen_wait_ns": {t.seen_wait}}}'
                    for t in transfers_of(run, host, rows, written)
                ),
                "clocks": f'{{"rank": {host.rank}, "offset_ns": {node.offset_ns}, "drift_ppm": {node.drift_ppb / 1000}}}',
            }
        )
    return parts


def _lines(items: Iterable[str]) -> str:
    return ",\n  ".join(items)


def _truth(run: Run, capture: Capture, parts: Sequence[dict[str, str]], removed: Sequence[tuple[tuple[str, ...], StepTime]]) -> str:
    job = run.job
    sections = [
        f' "{name}": [\n  ' + ",\n  ".join(part[name] for part in parts if part[name]) + "\n ]"
        for name in ("clocks", "steps", "idle", "collectives")
    ]
    sections.append(
        ' "without": [\n  '
        + ",\n  ".join(f'{{"faults": {json.dumps(list(f))}, "step_ns": {t.median}, "mean_step_ns": {t.mean}}}' for f, t in removed)
        + "\n ]"
    )
    head = {"format": 1, "job": job.name, "seed": run.seed, "capture": capture.format, "faults": list(job.faults)}
    return json.dumps(head)[:-1] + ",\n" + ",\n".join(sections) + "\n}\n"


def without(run: Run) -> list[tuple[tuple[str, ...], StepTime]]:
    """Step time as it is, without each planted fault alone, and with ever more of them removed, the largest next gain first."""
    times: dict[frozenset[str], StepTime] = {run.without: step_time(run)}

    def time_without(faults: frozenset[str]) -> StepTime:
        if faults not in times:
            times[faults] = step_time(simulate(run.job, seed=run.seed, tick=run.tick, without=faults))
        return times[faults]

    planted = [fault for fault in run.job.faults if fault not in run.without]
    rows: list[tuple[tuple[str, ...], StepTime]] = [((), times[run.without])]
    rows += [((fault,), time_without(run.without | {fault})) for fault in planted]
    removed: tuple[str, ...] = ()
    while len(removed) < len(planted):
        left = [fault for fault in planted if fault not in removed]
        best = min(left, key=lambda fault: time_without(run.without | {*removed, fault}).mean)
        removed = (*removed, best)
        if len(removed) > 1:
            rows.append((removed, time_without(run.without | set(removed))))
    return rows
