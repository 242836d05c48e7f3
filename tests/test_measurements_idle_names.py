"""What idle time is called (evidence.name_idle, evidence.sum_reasons)."""

import numpy as np
import pytest
from building import MS, US, Build, analyse
from hypothesis import given
from hypothesis import strategies as st

from traceread.measurements.classes import Reason, StepClass
from traceread.measurements.evidence import ROUNDING_NS, name_idle, parents_of, sum_reasons


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


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), max_size=40), st.sampled_from([1, 300, 5_000]))
def test_parents(ranges, unit):
    rows = sorted(((start * unit, (start + length) * unit) for start, length in ranges), key=lambda r: (r[0], -r[1]))

    def holds(outer, inner):
        beyond = inner[1] - outer[1]
        return beyond <= 0 or (beyond <= ROUNDING_NS and 2 * (outer[1] - inner[0]) >= inner[1] - inner[0])

    found = parents_of(*np.array(rows, np.int64).reshape(-1, 2).T).tolist()
    assert found == [max((j for j in range(i) if holds(rows[j], rows[i])), default=-1) for i in range(len(rows))]


@pytest.mark.parametrize(("beyond", "named"), [(0, "aten::item"), (700, "aten::item"), (1_300, "aten::_local_scalar_dense")])
def test_a_child_that_ends_after_its_parent_by_a_rounding_is_still_its_child(beyond, named):
    b = Build().op(0, 100 * US, "aten::item").op(10 * US, 100 * US + beyond, "aten::_local_scalar_dense")
    b.call(20 * US, 90 * US, "cudaStreamSynchronize").kernel(0, 30 * US, launch=(-10 * US, -5 * US))
    b.kernel(MS, 2 * MS, launch=(200 * US, 210 * US))
    assert (StepClass.HOST_SYNC, Reason.HOST_BLOCKED, f"cudaStreamSynchronize in {named}") in reasons(b)


@pytest.mark.parametrize(("thread", "length", "name"), [(1, MS, "GC: 2 increments"), (3, MS, "GC: 2 increments"), (1, 400 * US, "")])
def test_host_code_that_is_mostly_garbage_collection_is_named(thread, length, name):
    b = Build().kernel(0, 10 * US, launch=(-10 * US, -5 * US))
    b.range(10 * US, 10 * US + length, "GC: 2 increments", thread=thread).op(10 * US, 10 * US + MS)
    b.kernel(10 * US + MS, 2 * MS, launch=(10 * US + MS - 1, 10 * US + MS))
    assert reasons(b)[StepClass.LAUNCH_BOUND, Reason.HOST_EXECUTION, name] == MS - 1
