"""What a profiler would have recorded of a simulated rank: numpy columns in ns on the rank's own clock, cut to the capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from traceread.simulate.device import UNKNOWN
from traceread.simulate.host import Host
from traceread.simulate.job import Node
from traceread.simulate.program import Library
from traceread.simulate.simulation import Run

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

EPOCH_NS = 1_772_698_215_000_000_000
"""True time at which a simulation begins."""


@dataclass(frozen=True)
class Capture:
    """What is recorded and how it is written.

    Attributes:
        format: "kineto" or "nsys".
        era: Kineto: "ns" (today), "ns-epoch" (spring 2024), "us" (torch 1.12 to 2.3), "2021" (torch 1.8 and 1.9, list form).
        vendor: "nvidia" or "amd".
        stacks: Python frames are recorded.
        shapes: input dimensions of operators are recorded.
        collectives: metadata of collectives is recorded.
        sync_events: Kineto: the rows of `enable_cuda_sync_events`.
        schema: nsys: "old" (2021), "middle" (2023.4) or "new" (2026.2).
        graphs: nsys: "node" or "graph", how CUDA graphs are recorded.
        files: nsys: one file per "rank", "host" or "job".
        oddities: nsys: further peculiarities to write, see `nsys.ODDITIES`.
        compress: Kineto: gzip the files.
    """

    format: str = "kineto"
    era: str = "ns"
    vendor: str = "nvidia"
    stacks: bool = False
    shapes: bool = False
    collectives: bool = True
    sync_events: bool = False
    schema: str = "new"
    graphs: str = "node"
    files: str = "rank"
    oddities: frozenset[str] = frozenset()
    compress: bool = True

    def step_name(self, step_range: str, number: str) -> str:
        """How the range of a step is called."""
        return f"ProfilerStep#{number}" if step_range == "profiler" else f"step {number}"


@dataclass(frozen=True, eq=False)
class Rows:
    """Recorded activities, calls and ranges of one rank; times in ns since the epoch on the rank's clock.

    Attributes:
        start, end: of each activity, in order of start.
        code, stream, call, node: library code, stream, position of the launching call or UNKNOWN, graph node or 0.
        launch: row of the launching call in the host's tables, recorded or not.
        graph: the activity stands for a whole graph launch.
        hidden_start, hidden_end: activities that ran but were not recorded.
        call_start, call_end, call_name, call_thread, call_range: the calls, in order of their row `call_row` in the host's tables.
        range_start, range_end, range_name, range_thread, range_open: the ranges; `range_row` likewise.
        window: start and end of the capture.
    """

    rank: int
    library: Library
    start: Ints
    end: Ints
    code: Ints
    stream: Ints
    call: Ints
    node: Ints
    launch: Ints
    graph: Flags
    hidden_start: Ints
    hidden_end: Ints
    call_start: Ints
    call_end: Ints
    call_name: Ints
    call_thread: Ints
    call_range: Ints
    call_row: Ints
    range_start: Ints
    range_end: Ints
    range_name: Ints
    range_thread: Ints
    range_open: Flags
    range_row: Ints
    window: tuple[int, int]


class Clock:
    """Turns ticks of true time into ns since the epoch on a node's clock."""

    def __init__(self, tick: int, node: Node) -> None:
        self._tick = tick
        self._node = node

    def __call__(self, ticks: int) -> int:
        """One instant."""
        ns = ticks * self._tick
        return EPOCH_NS + ns + self._node.offset_ns + ns * self._node.drift_ppb // 1_000_000_000

    def column(self, ticks: Sequence[int] | Ints) -> Ints:
        """Many instants."""
        ns = np.asarray(ticks, np.int64) * self._tick
        return EPOCH_NS + ns + self._node.offset_ns + ns * self._node.drift_ppb // 1_000_000_000


def clock_of(run: Run, rank: int) -> Clock:
    """The clock of the node that a rank runs on."""
    return Clock(run.tick, run.job.nodes[run.job.node(rank, run.job.ranks)])


def capture_window(run: Run, host: Host) -> tuple[int, int]:
    """Start and end of the capture on a rank, in ticks."""
    first, last = host.steps[run.job.warmup], host.steps[-1]
    if run.job.cut is None:
        return first[1] - run.job.machine.between_steps // run.tick // 2, host.closed
    begin, end = run.job.cut
    return first[1] + begin // run.tick, last[1] + end // run.tick


def record(run: Run, host: Host, capture: Capture) -> Rows:
    """What the capture holds of one rank.

    A row that lies outside the capture, even in part, is dropped; ranges still open at its end are kept, marked open.
    """
    clock = clock_of(run, host.rank)
    window = capture_window(run, host)
    device = host.device
    start, end = np.array(device.start, np.int64), np.array(device.end, np.int64)
    code, call = np.array(device.code, np.int64), np.array(device.call, np.int64)
    node, stream = np.array(device.node, np.int64), np.array(device.stream, np.int64)
    call_start, call_end = np.array(host.call_start, np.int64), np.array(host.call_end, np.int64)
    range_start, range_end = np.array(host.range_start, np.int64), np.array(host.range_end, np.int64)
    range_name = np.array(host.range_name, np.int64)

    opened = (range_end == UNKNOWN) | (range_end > window[1])
    range_end = np.where(opened, window[1], range_end)
    kinds = np.array([r.kind for r in run.library.ranges])
    wanted = ~np.isin(kinds, _unrecorded_kinds(capture))[range_name] & (~opened | np.isin(kinds, ("step", "annotation"))[range_name])
    kept_ranges = np.flatnonzero((range_start >= window[0]) & (range_start < window[1]) & wanted)
    kept_ranges = kept_ranges[np.argsort(range_start[kept_ranges], kind="stable")]
    kept_calls = np.flatnonzero((call_start >= window[0]) & (call_end <= window[1]))
    place_of_call = np.full(len(call_start) + 1, UNKNOWN)
    place_of_call[kept_calls] = np.arange(len(kept_calls))
    place_of_range = np.full(len(range_start) + 1, UNKNOWN)
    place_of_range[kept_ranges] = np.arange(len(kept_ranges))

    seen = (start >= window[0]) & (end <= window[1])
    recorded_node = np.array([True] + [flag for graph in run.library.graphs for flag in graph.recorded])
    offset = np.cumsum([0] + [len(graph.recorded) for graph in run.library.graphs])
    which = np.where(node > 0, offset[node >> 16] + (node & 0xFFFF), 0)
    hidden = seen & ~recorded_node[which]
    kept = np.flatnonzero(seen & ~hidden)
    whole = np.zeros(len(start), bool)
    if capture.format == "nsys" and capture.graphs == "graph":
        start, end, kept, whole = _graphs_as_one(start, end, call, node, seen, kept)
        hidden[:] = False
    kept = kept[np.argsort(start[kept], kind="stable")]
    hidden_rows = np.flatnonzero(hidden | ((end > window[0]) & (start < window[0])))
    return Rows(
        rank=host.rank,
        library=run.library,
        start=clock.column(start[kept]),
        end=clock.column(end[kept]),
        code=code[kept],
        stream=stream[kept],
        call=place_of_call[call[kept]],
        node=node[kept],
        launch=call[kept],
        graph=whole[kept],
        hidden_start=clock.column(start[hidden_rows]),
        hidden_end=clock.column(end[hidden_rows]),
        call_start=clock.column(call_start[kept_calls]),
        call_end=clock.column(call_end[kept_calls]),
        call_name=np.array(host.call_name, np.int64)[kept_calls],
        call_thread=np.array(host.call_thread, np.int64)[kept_calls],
        call_range=place_of_range[np.array(host.call_range, np.int64)[kept_calls]],
        call_row=kept_calls,
        range_start=clock.column(range_start[kept_ranges]),
        range_end=clock.column(range_end[kept_ranges]),
        range_name=range_name[kept_ranges],
        range_thread=np.array(host.range_thread, np.int64)[kept_ranges],
        range_open=opened[kept_ranges],
        range_row=kept_ranges,
        window=(clock(window[0]), clock(window[1])),
    )


def _unrecorded_kinds(capture: Capture) -> list[str]:
    kinds = ["hidden"]
    if capture.format == "nsys" or not capture.stacks:
        kinds.append("python")
    if capture.format == "kineto":
        kinds.append("os")
    return kinds


def _graphs_as_one(start: Ints, end: Ints, call: Ints, node: Ints, seen: Flags, kept: Ints) -> tuple[Ints, Ints, Ints, Flags]:
    """In graph mode a launch is one row from the start of its first node to the end of its last."""
    whole = np.zeros(len(start), bool)
    nodes = np.flatnonzero((node > 0) & seen)
    if not len(nodes):
        return start, end, kept, whole
    begins = np.flatnonzero(np.concatenate(([True], np.diff(call[nodes]) != 0)))
    first = nodes[begins]
    end = end.copy()
    end[first] = np.maximum.reduceat(end[nodes], begins)
    whole[first] = True
    return start, end, np.concatenate((kept[node[kept] == 0], first)), whole
