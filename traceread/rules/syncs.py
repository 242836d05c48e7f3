"""Which operation made the host wait for the GPU, as far as names and stacks tell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from traceread.findings import Finding
from traceread.measurements.classes import StepClass
from traceread.model import IntColumn, RangeKind
from traceread.rules.facts import Blocked, Facts, Mask
from traceread.rules.losses import Loss
from traceread.units import duration, plural

READS_A_VALUE = re.compile(r" in aten::(?:item|_local_scalar_dense|is_nonzero|equal|allclose|tolist|__bool__)$")
READS_A_TENSOR = re.compile(r" in aten::(?:to|_to_copy|copy_|cpu|numpy_T|clone|detach)$")
DEPENDS_ON_DATA = re.compile(
    r" in aten::(?:nonzero|nonzero_numpy|masked_select|unique\w*|_unique2?|index|index_put_|_index_put_impl_|repeat_interleave|bincount|"
    r"argwhere|where|masked_scatter_?|histc|split_with_sizes|tensor_split)$"
)
EXPLICIT = re.compile(r"^(?:cuda|hip|cu)(?:Device|Ctx|Stream|Event)Synchronize$|^cuCtxSynchronize$")
FREES_MEMORY = re.compile(r"^(?:cudaFree|hipFree|cuMemFree(?:_v2)?)(?: in |$)")
COPIES = re.compile(r"^(?:cuda|hip|cu)Memcpy")


def wait_findings(facts: Facts, waits: Iterator[Blocked], title: str, why: str, **more: object) -> Iterator[Finding]:
    """One finding for these waits together; none where they waited for less than a hundredth of the steps.

    No host can gain more than it waited, so shorter ones are not worth a replay.
    """
    found = list(waits)
    waited = sum(w.ns for w in found)
    loss = sum((w.loss for w in found), Loss())
    if not loss or not facts.worth(max(waited, facts.loss_total_ns(loss))):
        return
    calls = sum(w.count for w in found)
    lost = duration(facts.per_step(facts.loss_total_ns(loss)))
    numbers = f"{plural(calls, 'such call')} over {facts.all_steps} wait {facts.mean(waited)}"
    yield Finding(
        title=title,
        loss=replace(loss, names=tuple(w.title for w in found[:3] if w.title)),
        why=f"{why}: {numbers} and leave the GPU idle for {lost}.",
        **more,  # type: ignore[arg-type]
    )


def split(facts: Facts, wait: Blocked, inside: Mask) -> tuple[Blocked, Blocked]:
    """The rows of a wait that a mask selects, and the others, each with the idle time they are to blame for."""
    parts = []
    idle = wait.idle
    source = facts.idle.source[idle]
    for keep in (inside, ~inside):
        rows = wait.rows[keep]
        mine = np.isin(source, rows) | ((source < 0) & _follows(facts, idle, rows, wait.rows))
        parts.append(facts.blocked_rows(wait.title, rows, idle[mine]))
    return parts[0], parts[1]


def _follows(facts: Facts, idle: IntColumn, rows: IntColumn, all_rows: IntColumn) -> Mask:
    """For each idle row whether the latest of all rows that ended before it is one of `rows`."""
    if not len(rows):
        return np.zeros(len(idle), bool)
    by_end = all_rows[np.argsort(facts.rows.end[all_rows], kind="stable")]
    at = np.searchsorted(facts.rows.end[by_end], facts.idle.start_ns[idle], side="right") - 1
    found: Mask = (at >= 0) & np.isin(by_end[np.maximum(at, 0)], rows)
    return found


def inside_code(facts: Facts, wait: Blocked, pattern: str) -> Mask:
    """Which rows of a wait begin inside a Python frame or range whose name holds the pattern."""
    outer = facts.ranges_named(pattern, (RangeKind.PYTHON, RangeKind.ANNOTATION, RangeKind.OP))
    return facts.begun_inside(wait.rows, outer)


def waits_titled(facts: Facts, pattern: re.Pattern[str]) -> Iterator[Blocked]:
    """The waits of the used steps whose title holds the pattern."""
    return (w for w in facts.blocked(StepClass.HOST_SYNC) if pattern.search(w.title))


def waits_in_code(facts: Facts, pattern: str) -> Iterator[Blocked]:
    """The parts of all waits that begin inside code with such a name."""
    for wait in facts.blocked(StepClass.HOST_SYNC):
        if wait.title and len(wait.rows):
            inside = inside_code(facts, wait, pattern)
            if inside.any():
                yield split(facts, wait, inside)[0]
