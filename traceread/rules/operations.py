"""What the communication of a rank does, operation by operation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread import intervals
from traceread.model import Category, IntColumn, Operation
from traceread.rules.facts import Facts, Mask


def operations(facts: Facts) -> Iterator[tuple[Operation, Mask]]:
    """Each operation that communication kernels of this rank do, with its activities; UNKNOWN last, with copies between GPUs."""
    rows, operation = _communication(facts)
    found = [Operation(code) for code in intervals.unique(operation).tolist()]
    for one in sorted(found, key=lambda o: (o is Operation.UNKNOWN, o)):
        yield one, _mask(facts, rows[operation == one])


def operation(facts: Facts, *wanted: Operation) -> Mask:
    """Which activities do one of these operations."""
    rows, operation = _communication(facts)
    return _mask(facts, rows[np.isin(operation, wanted)])


def _communication(facts: Facts) -> tuple[IntColumn, IntColumn]:
    """The activities that communicate, in no order, and the operation of each."""
    table = facts.collectives.collectives
    unknown = facts.trace.activities.category == Category.COMMUNICATION
    unknown[table.activity] = False
    others = np.flatnonzero(unknown)
    return np.concatenate((table.activity, others)), np.append(table.operation, np.full(len(others), Operation.UNKNOWN))


def _mask(facts: Facts, rows: IntColumn) -> Mask:
    result = np.zeros(len(facts.trace.activities), bool)
    result[rows] = True
    return result


def title_of(operation: Operation) -> str:
    """What an operation is called in sentences."""
    return "communication" if operation is Operation.UNKNOWN else operation.title
