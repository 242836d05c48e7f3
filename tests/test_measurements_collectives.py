"""What is known about each communication kernel: from arguments, ranges around or before its launch, or its name alone."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from building import MS, US, Build, analyse

import traceread
from traceread.measurements.collectives import GROUPED_NS, Evidence, find_collectives
from traceread.model import ELEMENT_BYTES, NOT_RECORDED, Category, CollectiveRecords, Operation, ProcessGroup

REAL = Path(__file__).parents[2] / "shared" / "traces"
DTYPES = list(ELEMENT_BYTES)
REDUCE, GATHER, SEND_RECV, GENERIC = (
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)",
    "ncclDevKernel_AllGather_RING_LL(x)",
    "ncclDevKernel_SendRecv(x)",
    "ncclDevKernel_Generic_4(x)",
)
FOUR = ProcessGroup("0", "default_pg", (0, 1, 2, 3), 4)


class Job(Build):
    """A trace of communication kernels and what was recorded about them."""

    def __init__(self):
        super().__init__()
        self.records = []

    def collective(self, start, end, name=REDUCE, launch=None, **more):
        return self.kernel(start, end, launch=launch, name=name, category=Category.COMMUNICATION, stream=20, **more)

    def record(self, start, end, operation, *, thread=1, correlation=NOT_RECORDED, **told):
        columns = dict.fromkeys(("group", "sequence", "elements_in", "elements_out", "bytes", "source", "destination", "root"), -1) | {
            "dtype": 0,
            "largest_in": -1,
            "largest_out": -1,
        }
        columns |= told
        place = self.thread(thread) if correlation == NOT_RECORDED else -1
        self.records.append(
            {"start_ns": start, "end_ns": end, "thread": place, "correlation": correlation, "operation": operation} | columns
        )
        return self

    def found(self, rank=0, groups=(FOUR,), **more):
        names = [name for name, _ in CollectiveRecords.empty().columns()]
        rows = sorted(self.records, key=lambda r: (r["start_ns"], -r["end_ns"]))
        table = CollectiveRecords.from_rows([tuple(int(r[name]) for name in names) for r in rows])
        trace = self.trace(rank, collective_records=table, groups=groups, **more)
        launches, steps, *_ = analyse(trace)
        return find_collectives(trace, launches, steps)


def column(of, name):
    return getattr(of.collectives, name).tolist()


def test_a_kernel_is_what_the_range_around_its_launch_says():
    job = Job().collective(100 * US, 200 * US, launch=(12 * US, 15 * US)).collective(300 * US, 400 * US, launch=(40 * US, 45 * US))
    job.record(10 * US, 20 * US, Operation.ALL_REDUCE, group=0, sequence=3, dtype=DTYPES.index("Float"), elements_in=100, elements_out=100)
    found = job.found()
    assert column(found, "evidence") == [Evidence.RECORD, Evidence.KERNEL_NAME]
    assert column(found, "sequence") == [3, -1]
    assert column(found, "bytes") == [400, -1]
    assert column(found, "launch_ns") == [12 * US, 40 * US]
    assert column(found, "group") == [0, -1]


def test_a_range_of_another_thread_or_time_says_nothing():
    job = Job().collective(100 * US, 200 * US, launch=(12 * US, 15 * US))
    job.record(10 * US, 20 * US, Operation.ALL_GATHER, thread=2).record(15 * US, 30 * US, Operation.ALL_GATHER)
    assert column(job.found(), "operation") == [Operation.ALL_REDUCE]


def test_arguments_of_the_kernel_itself_need_no_launch():
    job = Job().collective(100 * US, 200 * US, GENERIC, correlation=5)
    job.record(100 * US, 200 * US, Operation.REDUCE_SCATTER, correlation=5, group=0, elements_in=4096, elements_out=1024, dtype=11)
    found = job.found()
    assert column(found, "operation") == [Operation.REDUCE_SCATTER]
    assert column(found, "bytes") == [8192]


def test_the_outermost_range_decides_and_inner_ones_complete_it():
    """all_to_all as PyTorch does it: sends and receives of NCCL stand inside the annotation."""
    job = Job().collective(100 * US, 200 * US, SEND_RECV, launch=(16 * US, 18 * US))
    job.record(10 * US, 20 * US, Operation.ALL_TO_ALL)
    for i in range(4):
        job.record((11 + i) * US, (11 + i) * US + 400, Operation.SEND, group=0, bytes=1000)
        job.record((11 + i) * US + 500, (11 + i) * US + 900, Operation.RECV, group=0, bytes=1000)
    found = job.found()
    assert column(found, "operation") == [Operation.ALL_TO_ALL]
    assert column(found, "bytes") == [4000]
    assert column(found, "group") == [0]


def test_a_batch_of_sends_and_receives_is_one_kernel_with_many_parts():
    job = Job().collective(100 * US, 200 * US, SEND_RECV, launch=(30 * US, 33 * US))
    job.record(10 * US, 12 * US, Operation.SEND, group=0, source=0, destination=1, elements_in=64)
    job.record(14 * US, 16 * US, Operation.RECV, group=0, source=3, destination=0, elements_out=32)
    found = job.found()
    assert column(found, "operation") == [Operation.SEND_RECV]
    assert (column(found, "parts"), column(found, "sends"), column(found, "receives")) == ([2], [1], [1])
    assert column(found, "evidence") == [Evidence.GROUP]
    pairs = zip(found.peers.source.tolist(), found.peers.destination.tolist(), found.peers.elements.tolist(), strict=True)
    assert set(pairs) == {(0, 1, 64), (3, 0, 32)}


def test_a_batch_ends_with_the_launch_before_and_after_a_while():
    job = Job()
    job.record(10 * US, 12 * US, Operation.ALL_REDUCE, group=0, elements_in=10, elements_out=10, dtype=11)
    job.collective(100 * US, 200 * US, launch=(20 * US, 22 * US))
    job.record(30 * US, 32 * US, Operation.ALL_REDUCE, group=0, elements_in=20, elements_out=20, dtype=11)
    job.collective(300 * US, 400 * US, launch=(40 * US, 42 * US))
    job.record(50 * US, 52 * US, Operation.ALL_REDUCE, group=0, elements_in=30, elements_out=30, dtype=11)
    job.collective(2 * GROUPED_NS, 2 * GROUPED_NS + US, launch=(GROUPED_NS + MS, GROUPED_NS + 2 * MS))
    found = job.found()
    assert column(found, "elements_in") == [10, 20, -1]
    assert column(found, "evidence") == [Evidence.GROUP, Evidence.GROUP, Evidence.KERNEL_NAME]


def test_coalesced_tensors_are_added_up_if_all_are_alike():
    job = Job().collective(100 * US, 200 * US, launch=(40 * US, 42 * US))
    for i in range(3):
        job.record((10 + 5 * i) * US, (12 + 5 * i) * US, Operation.ALL_REDUCE, group=0, elements_in=10, elements_out=10, dtype=11)
    found = job.found()
    assert (column(found, "elements_in"), column(found, "bytes"), column(found, "parts")) == ([30], [60], [3])
    job.records[1]["dtype"] = DTYPES.index("Float")
    assert column(job.found(), "elements_in") == [-1]


def test_a_kernel_takes_only_what_it_can_do():
    job = Job().collective(100 * US, 200 * US, GATHER, launch=(40 * US, 42 * US))
    job.record(10 * US, 12 * US, Operation.ALL_REDUCE, group=0, sequence=9)
    found = job.found()
    assert column(found, "operation") == [Operation.ALL_GATHER]
    assert column(found, "sequence") == [-1]


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        (REDUCE, Operation.ALL_REDUCE),
        (GATHER, Operation.ALL_GATHER),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)", Operation.REDUCE_SCATTER),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", Operation.ALL_REDUCE),
        (SEND_RECV, Operation.SEND_RECV),
        (GENERIC, Operation.UNKNOWN),
    ],
)
def test_names_alone(name, operation):
    found = Job().collective(0, 10 * US, name).found()
    assert column(found, "operation") == [operation]
    assert column(found, "evidence") == [Evidence.NOTHING if operation is Operation.UNKNOWN else Evidence.KERNEL_NAME]


@pytest.mark.parametrize(
    ("operation", "given", "taken", "expected"),
    [  # nccl-tests: the whole tensor for gathering and scattering operations, one rank's part for all others
        (Operation.ALL_REDUCE, 100, 100, 200),
        (Operation.ALL_GATHER, 100, 400, 800),
        (Operation.ALL_GATHER, 100, -1, 800),
        (Operation.REDUCE_SCATTER, 400, 100, 800),
        (Operation.REDUCE_SCATTER, -1, 100, 800),
        (Operation.ALL_TO_ALL, 400, 300, 800),
        (Operation.BROADCAST, 100, 100, 200),
        (Operation.GATHER, 100, 400, 800),
        (Operation.SCATTER, 400, 100, 800),
        (Operation.ALL_REDUCE, -1, -1, -1),
    ],
)
def test_message_sizes(operation, given, taken, expected):
    job = Job().collective(100 * US, 200 * US, GENERIC, launch=(12 * US, 15 * US))
    job.record(10 * US, 20 * US, operation, group=0, dtype=DTYPES.index("BFloat16"), elements_in=given, elements_out=taken)
    assert column(job.found(), "bytes") == [expected]


def test_a_size_needs_a_dtype_and_where_parts_are_recorded_a_group():
    job = Job().collective(100 * US, 200 * US, GENERIC, launch=(12 * US, 15 * US))
    job.record(10 * US, 20 * US, Operation.ALL_GATHER, elements_in=100, dtype=DTYPES.index("BFloat16"))
    assert column(job.found(), "bytes") == [-1]
    job.records[0] |= {"operation": Operation.ALL_REDUCE, "dtype": 0}
    assert column(job.found(), "bytes") == [-1]
    job.records[0] |= {"bytes": 512}  # NCCL's own payload
    assert column(job.found(), "bytes") == [512]


def test_copies_and_compute_are_no_collectives():
    job = Job().kernel(0, 10).copy(20, 30)
    job.activity(40, 50, name=REDUCE, category=Category.COMMUNICATION)
    assert column(job.found(), "start_ns") == [40]


def test_windows_are_those_of_the_launch():
    job = Job()
    for step in range(3):
        job.range(step * MS, (step + 1) * MS, f"ProfilerStep#{step + 41}")
        job.kernel(step * MS + 100 * US, step * MS + 200 * US, launch=(step * MS + 10 * US, step * MS + 15 * US))
    job.collective(MS + 50 * US, MS + 80 * US, launch=(900 * US, 910 * US))  # starts in the step after
    found = job.found()
    assert column(found, "step") == [41]
    assert column(found, "window") == [0]


def test_without_collectives_there_is_an_empty_table():
    found = Job().kernel(0, 10).found()
    assert len(found.collectives) == len(found.peers) == 0


def real(name):
    found = sorted((REAL).glob(f"*/{name}*"))
    if not found:
        pytest.skip("real traces are not here")
    return traceread.analyze(found[0])


@pytest.mark.parametrize(
    ("name", "operations", "largest_bytes"),
    [
        ("mi300_resnet_ddp", {"broadcast": 6, "all_reduce": 6, "unknown": 5}, 17_632_384),
        ("ddp_nccl_metadata", {"broadcast": 6, "all_reduce": 15}, 31_502_336),
        ("b200_eager_8rank_job", {"all_gather": 1, "all_reduce": 73}, 5_455_872),
        ("dlrm_8rank", {"all_to_all": 5, "all_reduce": 3}, 1_576_964),
        ("fsdp_2gpu_before", {"all_to_all": 32, "send_recv": 1}, -1),
        ("fsdp_2gpu_after", {"all_to_all": 30, "send_recv": 1}, -1),
    ],
)
def test_real_collectives(name, operations, largest_bytes):
    for rank in real(name).ranks:
        table = rank.collectives.collectives
        assert Counter(Operation(o).key for o in table.operation.tolist()) == operations
        assert table.bytes.max() == largest_bytes
        assert (table.evidence[table.operation == Operation.SEND_RECV] == Evidence.KERNEL_NAME).all()
        assert (np.diff(table.start_ns) >= 0).all()
