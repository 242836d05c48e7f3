"""What host threads execute: instructions, the library of names they refer to, and `Code`, with which phases write them.

An instruction is a tuple whose first element is its `Op`; the other elements are integers in *ticks* (one or 1,000 ns) and codes
into the `Library`. `Code` takes nanoseconds and nouns and writes instructions; `traceread.simulate.host` executes them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from traceread.simulate.kernels import COLLECTIVE_KERNELS, COLLECTIVE_OPS, NCCL_ARGUMENTS, RCCL_KERNEL, Kernel

US = 1_000
MS = 1_000_000
SECOND = 1_000_000_000

Instruction = tuple[Any, ...]


class Stream(IntEnum):
    """Streams of a rank."""

    COMPUTE = 0
    COMM = 1
    PEER = 2  # sends and receives of a pipeline
    COPY = 3
    SECOND = 4  # a second communicator: gradients of a pipeline, dispatch of experts


class Op(IntEnum):
    """What an instruction does."""

    LAUNCH = 0  # an operator that launches one activity
    PYTHON = 1  # host time without a recorded row
    HOST_OP = 2  # an operator without a launch
    BEGIN = 3  # begin a range
    END = 4  # end the innermost range
    CALL = 5  # a runtime call that neither launches nor waits
    RECORD = 6  # record an event on a stream
    WAIT = 7  # make a stream wait for an event
    SYNC = 8  # block until a stream, an event or the device is done
    COLLECTIVE = 9  # launch an activity that meets its peers
    HAND_OVER = 10  # give another thread something to do
    JOIN = 11  # wait for a thread to be done with it
    GRAPH = 12  # launch a CUDA graph
    STEP = 13  # begin a step
    STEP_END = 14  # end the step without beginning another
    SEED = 15  # restart the jitter, so that both variants of a fault share it
    COPY_BEGIN = 16  # a copy whose call blocks: launch it
    COPY_END = 17  # ... and return once it is done
    FIRST_LAUNCH = 18  # a launch that loads the kernel's code the first time
    OVERHEAD = 19  # the profiler at work on this thread
    CLOSE = 20  # the profiler's closing synchronisation: the capture ends


class Nature(IntEnum):
    """What a stretch of host time is for, where it is not plain execution."""

    PLAIN = 0
    CHECKPOINT = 1
    DATA_WAIT = 2
    HOST_SYNC = 3
    ALLOCATION = 4
    COMPILE = 5


class Activity(NamedTuple):
    """What the GPU is asked to do."""

    name: str
    amd: str
    kind: str  # "kernel", "memcpy", "memset"
    call: str
    bytes: int = 0
    copy: str = ""  # "HtoD", "DtoH", "DtoD"
    pageable: bool = False
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (1, 1, 1)
    registers: int = 0
    shared: int = 0
    short: str = ""
    collective: int = -1


class Range(NamedTuple):
    """A host range's name and kind: op, annotation, python, os, step, loading or profiler."""

    text: str
    kind: str


class Group(NamedTuple):
    """A process group."""

    name: str
    description: str
    ranks: tuple[int, ...]


class Collective(NamedTuple):
    """A collective operation as it is recorded."""

    operation: str  # recorded name, such as "allreduce"
    elements_in: int
    elements_out: int
    dtype: str  # as recorded: "BFloat16", "Float"
    group: Group
    channel: str  # operations of one channel meet in order
    members: tuple[int, ...]  # ranks that meet
    root: int = -1
    source: int = -1
    destination: int = -1


class HostCost(NamedTuple):
    """Host time around a launch in ns: operator before and after the call, the call itself, Python until the next operator."""

    before: int
    call: int
    after: int
    between: int


class Graph(NamedTuple):
    """A CUDA graph: nodes (activity, ticks, stream) that run in order."""

    name: str
    nodes: tuple[tuple[int, int, int], ...]
    recorded: tuple[bool, ...]  # whether the profiler records the node


@dataclass
class Library:
    """Names and descriptions that instructions refer to by code."""

    activities: list[Activity] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)
    _codes: dict[Any, int] = field(default_factory=dict)

    def _code(self, table: list[Any], entry: Any) -> int:
        key = (id(table), entry)
        if key not in self._codes:
            self._codes[key] = len(table)
            table.append(entry)
        return self._codes[key]

    def activity(self, entry: Activity) -> int:
        """The code of an activity."""
        return self._code(self.activities, entry)

    def kernel(self, kernel: Kernel, call: str = "") -> int:
        """The code of a kernel, launched by another call than usual if given."""
        amd, by, short = kernel.amd or kernel.name, call or kernel.call, kernel.short
        shape = kernel.grid, kernel.block, kernel.registers, kernel.shared
        return self.activity(Activity(kernel.name, amd, "kernel", by, 0, "", False, *shape, short))

    def range(self, text: str, kind: str) -> int:
        """The code of a range name."""
        return self._code(self.ranges, Range(text, kind))

    def call(self, name: str) -> int:
        """The code of a runtime call."""
        return self._code(self.calls, name)

    def collective(self, entry: Collective) -> int:
        """The code of a collective."""
        return self._code(self.collectives, entry)

    def graph(self, entry: Graph) -> int:
        """The code of a CUDA graph."""
        return self._code(self.graphs, entry)


class Code:
    """Instructions of one host thread, written by phases.

    Attributes:
        library: where names are looked up.
        cost: default host cost of a launch.
        tick: ns per tick of the simulation.
        instructions: what was written so far.
    """

    def __init__(self, library: Library, cost: HostCost, tick: int, thread: int = 0) -> None:
        self.library = library
        self.cost = cost
        self.tick = tick
        self.thread = thread
        self.instructions: list[Instruction] = []
        self._slots = 0

    def write(self, op: Op, *operands: Any) -> None:
        """Append one instruction."""
        self.instructions.append((int(op), *operands))

    def seed(self, place: str) -> None:
        """Restart the jitter at a place of the job's description."""
        self.write(Op.SEED, zlib.crc32(place.encode()))

    def kernel(self, kernel: Kernel, ns: int, stream: Stream = Stream.COMPUTE, cost: HostCost | None = None) -> None:
        """Launch a kernel from its operator."""
        self._launch(Op.LAUNCH, self.library.kernel(kernel), kernel.op, ns, stream, cost)

    def first_launch(self, kernel: Kernel, ns: int, load_ns: int, *, recorded: bool = False) -> None:
        """Launch a kernel; the first launch of its name in the process spends `load_ns` on its code, in a row of its own if recorded."""
        row = self.library.range("Lazy Function Loading", "loading") if recorded else -1
        self._launch(Op.FIRST_LAUNCH, self.library.kernel(kernel), kernel.op, ns, Stream.COMPUTE, None, load_ns // self.tick, row)

    def copy(self, direction: str, size: int, ns: int, stream: Stream = Stream.COMPUTE, op: str = "aten::copy_") -> None:
        """Launch an asynchronous copy; `direction` is HtoD or DtoH to or from pinned memory, or DtoD."""
        self._launch(Op.LAUNCH, self._copy(direction, size, pageable=False, call="cudaMemcpyAsync"), op, ns, stream, None)

    def blocking_copy(
        self, direction: str, size: int, ns: int, stream: Stream = Stream.COMPUTE, op: str = "aten::copy_", call: str = "cudaMemcpyAsync"
    ) -> None:
        """Copy to or from pageable memory: the call returns when the copy is done."""
        self._launch(Op.COPY_BEGIN, self._copy(direction, size, pageable=True, call=call), op, ns, stream, None)
        self.write(Op.COPY_END)

    def _copy(self, direction: str, size: int, *, pageable: bool, call: str) -> int:
        memory = "Pageable" if pageable else "Pinned"
        ends = {"HtoD": (memory, "Device"), "DtoH": ("Device", memory), "DtoD": ("Device", "Device")}[direction]
        name = f"Memcpy {direction} ({ends[0]} -> {ends[1]})"
        plain = name.replace("Pageable", "Host").replace("Pinned", "Host")
        return self.library.activity(Activity(name, plain, "memcpy", call, size, direction, pageable))

    def memset(self, size: int, ns: int, stream: Stream = Stream.COMPUTE) -> None:
        """Launch a memset."""
        code = self.library.activity(Activity("Memset (Device)", "Memset (Device)", "memset", "cudaMemsetAsync", size))
        self._launch(Op.LAUNCH, code, "aten::zero_", ns, stream, None)

    def _launch(self, op: Op, code: int, name: str, ns: int, stream: Stream, cost: HostCost | None, *more: int) -> None:
        c = cost or self.cost
        t = self.tick
        self.write(
            op,
            code,
            int(stream),
            self.library.range(name, "op"),
            c.before // t,
            c.call // t,
            c.after // t,
            c.between // t,
            max(ns // t, 1),
            self.library.call(self.library.activities[code].call),
            *more,
        )

    def python(self, ns: int) -> None:
        """Spend host time that leaves no row."""
        self.write(Op.PYTHON, ns // self.tick)

    def op(self, name: str, ns: int, between: int) -> None:
        """Spend host time in an operator that launches nothing, then `between` ns without a row."""
        self.write(Op.HOST_OP, self.library.range(name, "op"), ns // self.tick, between // self.tick)

    @contextmanager
    def range(self, name: str, kind: str = "annotation", nature: Nature = Nature.PLAIN) -> Iterator[None]:
        """A host range around what is written inside."""
        self.write(Op.BEGIN, self.library.range(name, kind), int(nature))
        yield
        self.write(Op.END)

    def call(self, name: str, ns: int, nature: Nature = Nature.PLAIN) -> None:
        """A runtime call that neither launches nor waits."""
        self.write(Op.CALL, self.library.call(name), ns // self.tick, int(nature))

    def record(self, stream: Stream) -> int:
        """Record an event on a stream; returns the event's slot."""
        self._slots += 1
        slot = self.thread * 1_000_000 + self._slots
        self.write(Op.RECORD, int(stream), slot, self.library.call("cudaEventRecord"), 1_400 // self.tick)
        return slot

    def wait(self, stream: Stream, slot: int) -> None:
        """Make a stream wait for a recorded event."""
        self.write(Op.WAIT, int(stream), slot, self.library.call("cudaStreamWaitEvent"), 1_100 // self.tick)

    @staticmethod
    def named_slot(event: str) -> int:
        """The slot of a named event, the same on every thread and in every step."""
        return 1 << 40 | zlib.crc32(event.encode())

    def record_named(self, stream: Stream, event: str) -> None:
        """Record a named event on a stream."""
        self.write(Op.RECORD, int(stream), self.named_slot(event), self.library.call("cudaEventRecord"), 1_400 // self.tick)

    def wait_named(self, stream: Stream, event: str) -> None:
        """Make a stream wait for a named event."""
        self.wait(stream, self.named_slot(event))

    def order(self, before: Stream, after: Stream) -> None:
        """Make what follows on `after` wait for what was launched on `before`."""
        self.wait(after, self.record(before))

    def synchronize(self, stream: Stream | None = None, slot: int = -1, call: str = "") -> None:
        """Block until a stream, a recorded event or (neither given) the device is done."""
        name = call or ("cudaEventSynchronize" if slot >= 0 else "cudaDeviceSynchronize" if stream is None else "cudaStreamSynchronize")
        self.write(Op.SYNC, self.library.call(name), -1 if stream is None else int(stream), slot)

    def collective(self, spec: Collective, ns: int, stream: Stream) -> None:
        """Launch a collective of `ns` transfer time, with the operators and annotations that PyTorch puts around it."""
        operator, annotation, _ = COLLECTIVE_OPS[spec.operation]
        dtype = {"BFloat16": "bf16", "Float": "f32"}[spec.dtype]
        kernel = COLLECTIVE_KERNELS[spec.operation].format(dtype=dtype)
        code = self.library.collective(spec)
        activity = self.library.activity(
            Activity(
                kernel + NCCL_ARGUMENTS,
                RCCL_KERNEL,
                "kernel",
                "cudaLaunchKernelExC",
                grid=(16, 1, 1),
                block=(512, 1, 1),
                registers=96,
                shared=82_240,
                short=kernel,
                collective=code,
            )
        )
        cost, t = self.cost, self.tick
        with self.range(operator, "op"), self.range("record_param_comms", "op"):
            self.write(
                Op.COLLECTIVE,
                activity,
                int(stream),
                self.library.range(annotation, "annotation"),
                cost.before // t,
                cost.call // t,
                cost.after // t,
                max(ns // t, 1),
                self.library.call("cudaLaunchKernelExC"),
                code,
            )
        self.python(cost.between)

    def graph(self, graph: Graph, call_ns: int) -> None:
        """Launch a CUDA graph."""
        self.write(Op.GRAPH, self.library.graph(graph), self.library.call("cudaGraphLaunch"), call_ns // self.tick)

    def hand_over(self, thread: int, code: Code, token: str) -> None:
        """Give another thread code to run; it posts `token` when it is done."""
        self.write(Op.HAND_OVER, thread, tuple(code.instructions), token)

    def join(self, token: str, thread: int = -1) -> None:
        """Wait until `token` was posted; `thread`: on whose behalf, where that thread's doings are the cause of the wait."""
        self.write(Op.JOIN, token, thread)

    def on_thread(self, thread: int) -> Code:
        """Fresh code for another thread."""
        return Code(self.library, self.cost, self.tick, thread)

    def overhead(self, name: str, ns: int) -> None:
        """The profiler at work on this thread."""
        self.write(Op.OVERHEAD, self.library.range(name, "profiler"), ns // self.tick)
