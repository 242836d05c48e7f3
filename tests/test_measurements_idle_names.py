"""What idle time is called (evidence.name_idle, evidence.sum_reasons)."""

import numpy as np
import pytest
from building import MS, US, Build, analyse
from hypothesis import given
from hypothesis import strategies as st

from traceread.measurements.classes import Reason, StepClass
from traceread.measurements.evidence import name_idle, parents_of, sum_reasons


def reasons(build):
    trace = build.trace()
    _, steps, _, idle, partition = analyse(trace)
    found = sum_reasons(idle, name_idle(trace, steps, idle), range(len(steps.windows)))
    assert sum(r.total_ns for r in found) == int(partition.class_ns[:, StepClass.DATA_WAIT :].sum())
    return {(r.step_class, r.reason, r.name): r.total_ns for r in found}


def blocked(*ranges, call="cudaStreamSynchronize"):
    """A GPU idle for a millisecond while the host is blocked in a call inside these ranges."""
    b = Build().kernel(0, 10 * US, launch=(-10 * US, -5 * US))
    b.call(10 * US, 10 * US + MS, call)
    for depth, (name, kind) in enumerate(ranges):
        b.op(-100 * US + depth, 2 * MS - depth, name) if kind == "op" else b.range(-100 * US + depth, 2 * MS - depth, name)
    return b.kernel(10 * US + MS, 2 * MS, launch=(10 * US + MS - 1, 10 * US + MS))


@pytest.mark.parametrize(
    ("ranges", "name"),
    [
        ((), "cudaStreamSynchronize"),
        ((("aten::item", "op"), ("aten::_local_scalar_dense", "op")), "cudaStreamSynchronize in aten::item"),
        ((("MyLoss", "op"), ("aten::nonzero", "op")), "cudaStreamSynchronize in aten::nonzero"),
        ((("validate", "range"),), "cudaStreamSynchronize in validate"),
    ],
)
def test_a_blocking_call_is_named_with_the_op_that_made_it(ranges, name):
    assert reasons(blocked(*ranges))[StepClass.HOST_SYNC, Reason.HOST_BLOCKED, name] == MS - 1


def test_the_range_of_a_step_is_no_op():
    b = blocked()
    b.range(-200 * US, 3 * MS, "ProfilerStep#1")
    assert (StepClass.HOST_SYNC, Reason.HOST_BLOCKED, "cudaStreamSynchronize") in reasons(b)


def test_a_range_that_blocks_is_named_itself():
    b = Build().kernel(0, 10 * US, launch=(-10 * US, -5 * US)).range(10 * US, MS, "get_batch").kernel(MS + 1, 2 * MS, launch=(MS, MS + 1))
    assert reasons(b)[StepClass.DATA_WAIT, Reason.HOST_BLOCKED, "get_batch"] == MS - 10 * US


def test_execution_has_no_name():
    b = Build().kernel(0, 10 * US, launch=(-10 * US, -5 * US)).op(-10 * US, MS, "aten::mm").kernel(MS + 1, 2 * MS, launch=(MS, MS + 1))
    assert reasons(b)[StepClass.LAUNCH_BOUND, Reason.HOST_EXECUTION, ""] == MS - 10 * US


def test_no_idle_time_no_reasons():
    assert reasons(Build().kernel(0, MS, launch=(-10, -5))) == {}


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), max_size=40))
def test_parents(ranges):
    rows = sorted(((start, start + length) for start, length in ranges), key=lambda r: (r[0], -r[1]))
    found = parents_of(np.array([end for _, end in rows], np.int64)).tolist()
    assert found == [max((j for j in range(i) if rows[j][1] >= rows[i][1]), default=-1) for i in range(len(rows))]
