"""What a capture is, once read: tables of one rank (`Trace`) and all ranks of one capture (`Profile`).

Times are int64 nanoseconds since the epoch of the capture's clock, intervals are half-open `[start, end)`. Strings are
codes into `Trace.names`. A table is a frozen set of equally long numpy columns; the field metadata says unit and meaning.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import field
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.errors import Notice
from traceread.records import record

if TYPE_CHECKING:
    import pandas as pd

IntColumn = npt.NDArray[np.int64]
CodeColumn = npt.NDArray[np.int32]
ByteColumn = npt.NDArray[np.uint8]
FlagColumn = npt.NDArray[np.int8]

NOT_RECORDED = -1
"""In an integer column: the trace does not say."""


class ActivityKind(IntEnum):
    """What the GPU did."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    GRAPH = 3  # a whole CUDA graph launch recorded as one opaque activity (nsys graph mode)


class CopyKind(IntEnum):
    """Direction of a memcpy."""

    UNKNOWN = 0
    HOST_TO_DEVICE = 1  # host → device or device array
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 3  # inside one device
    HOST_TO_HOST = 4
    PEER = 5  # between two devices


class Category(IntEnum):
    """Section 2 of the time model: what an activity is, for the partition."""

    COMPUTE = 0
    COMMUNICATION = 1
    COPY = 2
    UNCLASSIFIED = 255


class RangeKind(IntEnum):
    """What kind of host range a row is."""

    OP = 0  # framework operator: Kineto cpu_op; NVTX written by emit_nvtx
    ANNOTATION = 1  # record_function, NVTX push/pop and start/end
    PYTHON = 2  # Python frame
    OS = 3  # OS runtime call (nsys osrt)
    PROFILER = 4  # the profiler's own work: buffer flush or request, initialisation
    LOADING = 5  # code loading recorded by the profiler: module, library, lazy function, JIT
    QUEUE_FULL = 6  # "command buffer full" recorded by the profiler: a launch waited for room in the queue


class Operation(IntEnum):
    """What a collective operation does."""

    UNKNOWN = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    ALL_TO_ALL = 4
    BROADCAST = 5
    REDUCE = 6
    GATHER = 7
    SCATTER = 8
    BARRIER = 9
    SEND = 10
    RECV = 11
    SEND_RECV = 12  # sends and receives launched as one

    @property
    def key(self) -> str:
        """The name in JSON and tables, such as "all_reduce"."""
        return self.name.lower()

    @property
    def title(self) -> str:
        """The name in sentences, such as "all-reduce"."""
        if self is Operation.SEND_RECV:
            return "send/recv"
        return "unknown operation" if self is Operation.UNKNOWN else self.key.replace("_", "-")


class MatrixKind(IntEnum):
    """What an operator that multiplies matrices is."""

    GEMM = 0
    ATTENTION = 1
    CONVOLUTION = 2

    @property
    def key(self) -> str:
        """The name in JSON and tables; that of the family of its kernels."""
        return self.name.lower()


ELEMENT_BYTES: dict[str, int] = {
    "": -1,  # position 0: not recorded
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Int": 4, "Long": 8, "UInt16": 2, "UInt32": 4, "UInt64": 8,
    "Half": 2, "BFloat16": 2, "Float": 4, "Double": 8, "ComplexHalf": 4, "ComplexFloat": 8, "ComplexDouble": 16,
    "Float8_e5m2": 1, "Float8_e4m3fn": 1, "Float8_e5m2fnuz": 1, "Float8_e4m3fnuz": 1, "Float8_e8m0fnu": 1,
}  # fmt: skip
"""Size of an element by dtype, as torch names dtypes; positions in it are the codes of dtype columns."""


class Capability(StrEnum):
    """What a trace can hold; `Trace.recorded` lists what it does hold."""

    ACTIVITIES = "activities"  # GPU work
    LAUNCHES = "launches"  # runtime and driver API calls with correlation ids
    OPS = "ops"  # framework operators
    RANGES = "ranges"  # NVTX or record_function
    STACKS = "stacks"  # Python frames
    OS_CALLS = "os_calls"
    COPY_KINDS = "copy_kinds"  # pinned or pageable memory of copies
    SYNC_EVENTS = "sync_events"  # stream waits and event records
    COLLECTIVES = "collectives"  # names, sizes and groups of collectives
    SHAPES = "shapes"  # input dimensions of ops
    GRAPH_NODES = "graph_nodes"  # kernels inside CUDA graphs, one by one
    OVERHEAD = "overhead"  # the profiler's own rows

    @property
    def words(self) -> str:
        """The name in sentences, such as "stream waits"."""
        return _WORDS[self]


_WORDS = {
    Capability.ACTIVITIES: "GPU work",
    Capability.LAUNCHES: "launches",
    Capability.OPS: "framework ops",
    Capability.RANGES: "named ranges",
    Capability.STACKS: "Python stacks",
    Capability.OS_CALLS: "operating system calls",
    Capability.COPY_KINDS: "memory kinds of copies",
    Capability.SYNC_EVENTS: "stream waits",
    Capability.COLLECTIVES: "collective operations",
    Capability.SHAPES: "shapes of ops",
    Capability.GRAPH_NODES: "kernels inside CUDA graphs",
    Capability.OVERHEAD: "the profiler's own work",
}


def column(dtype: str, unit: str, meaning: str) -> Any:
    """A table field with its dtype, unit and meaning."""
    return field(metadata={"dtype": dtype, "unit": unit, "meaning": meaning})


@record(eq=False)
class Table:
    """Equally long numpy columns; subclasses declare them as fields."""

    def __post_init__(self) -> None:
        length = None
        for f in dataclasses.fields(self):
            values = np.ascontiguousarray(getattr(self, f.name), dtype=f.metadata["dtype"])
            if length is None:
                length = len(values)
            elif len(values) != length:
                raise ValueError(f"{type(self).__name__}.{f.name} has {len(values)} rows, not {length}")
            object.__setattr__(self, f.name, values)

    def __len__(self) -> int:
        return len(getattr(self, dataclasses.fields(self)[0].name))

    @classmethod
    def empty(cls) -> Self:
        """A table without rows."""
        return cls(**{f.name: np.empty(0, f.metadata["dtype"]) for f in dataclasses.fields(cls)})

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]]) -> Self:
        """A table from rows of integers in field order; meant for tests and small tables."""
        if not rows:
            return cls.empty()
        by_column = zip(*rows, strict=True)
        return cls(**{f.name: np.array(c, f.metadata["dtype"]) for f, c in zip(dataclasses.fields(cls), by_column, strict=True)})

    def take(self, which: npt.NDArray[Any]) -> Self:
        """The rows at these positions, or where this boolean mask is true."""
        return type(self)(**{f.name: getattr(self, f.name)[which] for f in dataclasses.fields(self)})

    def replace(self, **columns: npt.NDArray[Any]) -> Self:
        """The same table with these columns exchanged."""
        return dataclasses.replace(self, **columns)

    def columns(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Name and values of every column, in order."""
        for f in dataclasses.fields(self):
            yield f.name, getattr(self, f.name)

    def to_frame(self) -> pd.DataFrame:
        """The table as a fresh DataFrame with the documented columns."""
        import pandas as pd

        return pd.DataFrame({name: values.copy() for name, values in self.columns()})


@record(eq=False)
class Activities(Table):
    """What the GPU did: kernels, memcpys, memsets, opaque graphs. Sorted by (start, end)."""

    start_ns: IntColumn = column("int64", "ns", "start on the device")
    end_ns: IntColumn = column("int64", "ns", "end on the device")
    kind: ByteColumn = column("uint8", "", "ActivityKind")
    device: CodeColumn = column("int32", "", "device ordinal as recorded")
    stream: IntColumn = column("int64", "", "stream id as recorded")
    correlation: IntColumn = column("int64", "", "correlation id of the launch, 0 or -1: none")
    name: CodeColumn = column("int32", "", "code into Trace.names")
    bytes: IntColumn = column("int64", "bytes", "size of a copy or memset, -1: not recorded")
    copy_kind: ByteColumn = column("uint8", "", "CopyKind, UNKNOWN unless memcpy")
    pageable: FlagColumn = column("int8", "", "1: host side is pageable memory, 0: pinned, -1: not recorded or no copy")
    graph_node: IntColumn = column("int64", "", "CUDA graph node id, 0: none or not recorded")
    category: ByteColumn = column("uint8", "", "Category")
    family: ByteColumn = column("uint8", "", "position in categories.FAMILIES")
    fused: FlagColumn = column("int8", "", "1: the kernel computes and communicates")


@record(eq=False)
class Calls(Table):
    """CUDA/HIP runtime and driver API calls on host threads. Sorted by (start, -end)."""

    start_ns: IntColumn = column("int64", "ns", "start of the call")
    end_ns: IntColumn = column("int64", "ns", "end of the call")
    thread: CodeColumn = column("int32", "", "position in Trace.threads")
    name: CodeColumn = column("int32", "", "code into Trace.names; version suffixes such as _v3020 removed")
    correlation: IntColumn = column("int64", "", "correlation id, 0 or -1: none")


@record(eq=False)
class Ranges(Table):
    """Every other host range: ops, annotations, Python frames, OS calls, profiler rows. Sorted by (start, -end)."""

    start_ns: IntColumn = column("int64", "ns", "start of the range")
    end_ns: IntColumn = column("int64", "ns", "end of the range; the capture's end where it was still open")
    thread: CodeColumn = column("int32", "", "position in Trace.threads")
    name: CodeColumn = column("int32", "", "code into Trace.names")
    kind: ByteColumn = column("uint8", "", "RangeKind")
    open: FlagColumn = column("int8", "", "1: still open when the capture ended")


@record(eq=False)
class StreamWaits(Table):
    """Recorded waits of a stream for an event (cudaStreamWaitEvent with its stream)."""

    time_ns: IntColumn = column("int64", "ns", "when the host enqueued the wait")
    stream: IntColumn = column("int64", "", "stream that waits")
    correlation: IntColumn = column("int64", "", "correlation id of the call, 0 or -1: none")
    event_correlation: IntColumn = column("int64", "", "correlation id of the event record waited for, -1: not recorded")
    event_stream: IntColumn = column("int64", "", "stream on which that event was recorded, -1: not recorded")


@record(eq=False)
class Elsewhere(Table):
    """Launches of the same process whose work is on its other GPUs: they lack nothing here. Sorted."""

    correlation: IntColumn = column("int64", "", "correlation id of the launch")

    @classmethod
    def of(cls, correlation: IntColumn) -> Self:
        """The table of the work with these correlation ids."""
        return cls(intervals.unique(correlation[correlation > 0]))


@record(eq=False)
class CollectiveRecords(Table):
    """What was recorded about collective operations: one row per host range, or per kernel that carries it. Sorted by start."""

    start_ns: IntColumn = column("int64", "ns", "start of the host range, or of the kernel")
    end_ns: IntColumn = column("int64", "ns", "end of it")
    thread: CodeColumn = column("int32", "", "position in Trace.threads, -1: the row is about a kernel")
    correlation: IntColumn = column("int64", "", "correlation id of the kernel, -1: the row is a host range")
    operation: ByteColumn = column("uint8", "", "Operation")
    group: CodeColumn = column("int32", "", "position in Trace.groups, -1: not recorded")
    sequence: IntColumn = column("int64", "", "number of the operation within its group, -1: not recorded")
    dtype: ByteColumn = column("uint8", "", "position in ELEMENT_BYTES, 0: not recorded")
    elements_in: IntColumn = column("int64", "", "elements this rank gives, -1: not recorded")
    elements_out: IntColumn = column("int64", "", "elements this rank gets, -1: not recorded")
    bytes: IntColumn = column("int64", "bytes", "message size where it is recorded in bytes, -1: not recorded")
    source: IntColumn = column("int64", "", "rank that sends, for send and receive, -1: not recorded")
    destination: IntColumn = column("int64", "", "rank that receives, for send and receive, -1: not recorded")
    root: IntColumn = column("int64", "", "root of a broadcast, reduce, gather or scatter, -1: not recorded")
    largest_in: IntColumn = column("int64", "", "all-to-all: most elements given to one peer, -1: not recorded or the same for all")
    largest_out: IntColumn = column("int64", "", "all-to-all: most elements got from one peer, -1: not recorded or the same for all")


@record(eq=False)
class MatrixOps(Table):
    """Framework operators that multiply matrices, as far as their shapes are recorded. Sorted by (start, -end); they may nest."""

    start_ns: IntColumn = column("int64", "ns", "start of the operator's range")
    end_ns: IntColumn = column("int64", "ns", "end of it")
    thread: CodeColumn = column("int32", "", "position in Trace.threads")
    kind: ByteColumn = column("uint8", "", "MatrixKind")
    dtype: ByteColumn = column("uint8", "", "position in ELEMENT_BYTES, 0: not recorded")
    flops: IntColumn = column("int64", "FLOP", "multiply-adds twice; attention counts the whole square")
    bytes: IntColumn = column("int64", "bytes", "of the matrices, read and written once")


@record
class ProcessGroup:
    """A process group (communicator) as recorded.

    Attributes:
        name: its name, "" if not recorded.
        description: what it is for, such as "default_pg" or "mesh_tp"; "" if not recorded.
        ranks: its ranks in the job, in order; empty if not recorded.
        size: number of ranks, -1 if not recorded.
    """

    name: str
    description: str = ""
    ranks: tuple[int, ...] = ()
    size: int = -1


@record
class Thread:
    """A host thread: OS ids and the recorded name ("" if none)."""

    pid: int
    tid: int
    name: str = ""


@record
class Device:
    """The GPU of a rank as recorded; None where it was not."""

    index: int
    name: str | None = None
    memory_bytes: int | None = None
    multiprocessors: int | None = None


@record(eq=False)
class Trace:
    """One rank: one GPU driven by one process, as recorded.

    Attributes:
        rank: rank in the job.
        rank_source: where the rank number comes from ("distributedInfo", "environment", "MPI_RANKS", "thread name",
            "file name", "order").
        source: "kineto" or "nsys".
        files: the files it was read from.
        device: the GPU.
        host: host name, None if not recorded (never taken from a captured environment).
        pid: process id of the rank, None if not recorded.
        world_size: number of ranks of the job, None if not recorded.
        names: string of each name code.
        threads: host threads; thread columns are positions in it.
        activities, calls, ranges, stream_waits: the tables.
        collective_records: what was recorded about collective operations.
        groups: the process groups they belong to.
        matrix_ops: operators that multiply matrices, where shapes are recorded.
        elsewhere: launches that the calls hold and whose work is on other GPUs of the process.
        recorded: what the trace holds.
        versions: tool and library versions worth showing, such as {"nsys": "2025.1.3", "schema": "3.17.2"}.
        notices: warnings about this trace.
        capture_ns: start and end of the recorded window where the trace states it, else None.
        windows_ns: start and end of each capture where several of the same rank were joined, else empty. Between them nothing was
            recorded, which is not idle time.
        clock: "epoch" where times are comparable between hosts up to their clocks, else "relative".
        truncated: the file ended early; the last steps may lack rows.
    """

    rank: int
    rank_source: str
    source: str
    files: tuple[Path, ...]
    device: Device
    host: str | None
    pid: int | None
    world_size: int | None
    names: Sequence[str]
    threads: tuple[Thread, ...]
    activities: Activities
    calls: Calls
    ranges: Ranges
    stream_waits: StreamWaits
    recorded: frozenset[Capability] = frozenset()
    versions: dict[str, str] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()
    capture_ns: tuple[int, int] | None = None
    windows_ns: tuple[tuple[int, int], ...] = ()
    clock: str = "epoch"
    truncated: bool = False
    collective_records: CollectiveRecords = field(default_factory=CollectiveRecords.empty)
    groups: tuple[ProcessGroup, ...] = ()
    matrix_ops: MatrixOps = field(default_factory=MatrixOps.empty)
    elsewhere: Elsewhere = field(default_factory=Elsewhere.empty)

    def __repr__(self) -> str:
        return f"<Trace rank {self.rank}, {len(self.activities)} activities, {self.device.name or 'unknown device'}, {self.source}>"

    def _repr_html_(self) -> str:
        from traceread.reporters.notebook import trace_html

        return trace_html(self)


@record(eq=False)
class Profile:
    """All ranks of one capture of one job, in order of rank.

    Attributes:
        source: "kineto" or "nsys".
        title: how the input is called in headlines (its path as given).
        traces: one per rank.
        notices: warnings about the capture as a whole; those of a rank are on its trace.
        skipped: files in the directory that are not part of the profile, with the reason.
    """

    source: str
    title: str
    traces: tuple[Trace, ...]
    notices: tuple[Notice, ...] = ()
    skipped: tuple[tuple[Path, str], ...] = ()

    def __repr__(self) -> str:
        devices = sorted({t.device.name or "unknown device" for t in self.traces})
        ranks = "1 rank" if len(self.traces) == 1 else f"{len(self.traces)} ranks"
        return f"<Profile {ranks}, {', '.join(devices) or 'no device'}, {self.source}>"

    def _repr_html_(self) -> str:
        from traceread.reporters.notebook import profile_html

        return profile_html(self)

    def __len__(self) -> int:
        return len(self.traces)

    def __iter__(self) -> Iterator[Trace]:
        return iter(self.traces)
