"""What the communication of a rank does, operation by operation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from traceread.model import Category, Operation
from traceread.rules.facts import Facts, Mask


def operations(facts: Facts) -> Iterator[tuple[Operation, Mask]]:
    """Each operation that communication kernels of this rank do, with its activities; UNKNOWN last, with copies between GPUs."""
    a = facts.trace.activities
    table = facts.collectives.collectives
    operation = np.full(len(a), -1, np.int64)
    operation[a.category == Category.COMMUNICATION] = Operation.UNKNOWN
    operation[table.activity] = table.operation
    found = [Operation(code) for code in np.unique(operation[operation >= 0]).tolist()]
    for one in sorted(found, key=lambda o: (o is Operation.UNKNOWN, o)):
        yield one, operation == one


def operation(facts: Facts, *wanted: Operation) -> Mask:
    """Which activities do one of these operations."""
    result: Mask = np.zeros(len(facts.trace.activities), bool)
    for one, which in operations(facts):
        if one in wanted:
            result |= which
    return result


def title_of(operation: Operation) -> str:
    """What an operation is called in sentences."""
    return "communication" if operation is Operation.UNKNOWN else operation.title
