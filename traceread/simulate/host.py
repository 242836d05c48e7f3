"""The host threads of a rank: they execute instructions, launch onto the device, block, and leave rows behind. Times are ticks."""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from traceread.simulate.device import UNKNOWN, Device, Meeting
from traceread.simulate.program import Collective, Instruction, Library, Nature, Op

JITTER_BITS = 12
"""Jitter tables hold 1/4096ths and have 4,096 entries."""
JITTER_MASK = (1 << JITTER_BITS) - 1
NEVER = 1 << 62


class Timing(NamedTuple):
    """Costs of the machine in ticks."""

    latency: int  # start of a launch call → start of the kernel on an idle device
    sync_call: int  # a blocking call that finds nothing to wait for
    sync_return: int  # end of what was waited for → the blocking call returns
    hand_over: int  # between threads
    step: int  # profiler.step()
    jittered: int  # of a longer stretch of host time only this much is jittered


class Span(NamedTuple):
    """Host time of a thread that is not plain execution."""

    thread: int
    start: int
    end: int
    nature: Nature


class HandOver(NamedTuple):
    """A thread waited for another one, whose doings are the reason."""

    thread: int
    start: int
    end: int
    other: int


class StreamRow(NamedTuple):
    """A runtime call that concerns a stream or event: what nsys keeps in tables of its own."""

    kind: str  # "record", "wait", "stream", "event", "device", "query"
    call: int  # row of the call
    stream: int  # UNKNOWN: none
    event: int  # slot of the event, UNKNOWN: none
    record: int  # row of the call that recorded the event, UNKNOWN: none


class Thread:
    """A host thread: its clock and what it is doing."""

    __slots__ = ("blocked", "clock", "code", "id", "jitter", "jobs", "open", "retry", "token")

    def __init__(self, number: int, code: Iterator[Instruction] | None = None) -> None:
        self.id = number
        self.clock = 0
        self.code = code
        self.jobs: deque[tuple[int, Sequence[Instruction], str, int]] = deque()
        self.token = ""
        self.retry: Instruction | None = None
        self.blocked: int | str | None = None if code is not None else "idle"
        self.open: list[tuple[int, int]] = []  # row and nature of the open ranges
        self.jitter = 0


class World(NamedTuple):
    """What a process finds around it."""

    timing: Timing
    host_jitter: Sequence[int]  # in 1/4096ths, JITTER_MASK + 1 of them
    gpu_jitter: Sequence[int]
    meet: Callable[[Collective, int], Meeting]  # the operation with this number in its channel
    wake: Callable[[Host], None]  # run this process again


class Host:
    """One process: its threads, its device and everything they recorded.

    Attributes:
        rank: rank of the process.
        threads: main, autograd and further ones.
        device: the GPU.
        library: names that rows refer to.
        spans, hand_overs: what host time was for; the truth is made of it.
        steps: number, start and end of every step's range.
        closed: when the capture ended.
    """

    def __init__(self, rank: int, program: Iterator[Instruction], threads: int, device: Device, library: Library, world: World) -> None:
        self.rank = rank
        self.device = device
        self.library = library
        self.threads = [Thread(0, program), *(Thread(i) for i in range(1, threads))]
        self._timing, self._host_jitter, self._gpu_jitter, self._meet, self._wake = world
        device.member = rank
        device.wake = self._activity_done
        self.range_start, self.range_end = array("q"), array("q")
        self.range_name, self.range_thread = array("i"), array("b")
        self.call_start, self.call_end = array("q"), array("q")
        self.call_name, self.call_range, self.call_thread = array("i"), array("i"), array("b")
        self.spans: list[Span] = []
        self.hand_overs: list[HandOver] = []
        self.steps: list[tuple[int, int, int]] = []
        self.stream_rows: list[StreamRow] = []
        self.range_collective: dict[int, tuple[int, int]] = {}  # row of record_param_comms → library code, number
        self.overhead: list[tuple[int, int, int]] = []  # of the profiler: start, end, row
        self.loaded: set[int] = set()  # kernels whose code is loaded
        self.closed = UNKNOWN
        self._events: dict[int, tuple[int, int]] = {}  # slot → activity, row of the recording call
        self._done: dict[str, deque[int]] = defaultdict(deque)
        self._awaited: dict[str, Thread] = {}
        self._sleepers: dict[int, list[Thread]] = {}
        self._numbers: dict[str, int] = defaultdict(int)
        self._open_copies: dict[int, tuple[int, int, int, int, int]] = {}  # thread → activity, range row, call row, after, between
        self._limit = NEVER
        self._execute = {
            Op.LAUNCH: self._launch,
            Op.PYTHON: self._python,
            Op.HOST_OP: self._host_op,
            Op.BEGIN: self._begin,
            Op.END: self._end,
            Op.CALL: self._call,
            Op.RECORD: self._record,
            Op.WAIT: self._wait,
            Op.SYNC: self._sync,
            Op.COLLECTIVE: self._collective,
            Op.HAND_OVER: self._hand_over,
            Op.JOIN: self._join,
            Op.GRAPH: self._graph,
            Op.STEP: self._step,
            Op.STEP_END: self._step_end,
            Op.SEED: self._seed,
            Op.COPY_BEGIN: self._copy_begin,
            Op.COPY_END: self._copy_end,
            Op.FIRST_LAUNCH: self._first_launch,
            Op.OVERHEAD: self._overhead,
            Op.CLOSE: self._close,
        }
        self._by_code = [self._execute[op] for op in Op]

    # The loop

    def run(self) -> None:
        """Advance the threads, the earliest first, until all are blocked or done."""
        handlers = self._by_code
        while True:
            runnable = sorted((t for t in self.threads if t.blocked is None), key=lambda t: t.clock)
            if not runnable:
                return
            thread = runnable[0]
            self._limit = runnable[1].clock if len(runnable) > 1 else NEVER
            again = thread.retry
            if again is not None:
                thread.retry = None
                if not handlers[again[0]](thread, again):
                    thread.retry = again
                    continue
            assert thread.code is not None
            for instruction in thread.code:
                if not handlers[instruction[0]](thread, instruction):
                    thread.retry = instruction
                    break
                if thread.clock > self._limit:
                    break
            else:
                self._finish(thread)

    def _finish(self, thread: Thread) -> None:
        if thread.token:
            self._done[thread.token].append(thread.clock)
            waiting = self._awaited.pop(thread.token, None)
            if waiting is not None:
                waiting.blocked = None
        if thread.jobs:
            begin, code, token, giver = thread.jobs.popleft()
            if begin > thread.clock:
                self.hand_overs.append(HandOver(thread.id, thread.clock, begin, giver))
                thread.clock = begin
            thread.code, thread.token = iter(code), token
        else:
            thread.code, thread.token, thread.blocked = None, "", "idle" if thread.id else "done"

    def _activity_done(self, index: int) -> None:
        for thread in self._sleepers.pop(index, ()):
            thread.blocked = None
            self._wake(self)

    def _sleep(self, thread: Thread, index: int) -> bool:
        thread.blocked = index
        self._sleepers.setdefault(index, []).append(thread)
        return False

    def stuck(self) -> list[str]:
        """What threads that never finished are waiting for; empty when all went well."""
        return [f"rank {self.rank} thread {t.id} waits for {t.blocked}" for t in self.threads if t.blocked not in ("idle", "done")]

    # Rows

    def _open_call(self, thread: Thread, name: int, start: int, end: int) -> int:
        self.call_start.append(start)
        self.call_end.append(end)
        self.call_name.append(name)
        self.call_thread.append(thread.id)
        self.call_range.append(thread.open[-1][0] if thread.open else UNKNOWN)
        return len(self.call_start) - 1

    def _range(self, thread: Thread, name: int, start: int, end: int) -> int:
        self.range_start.append(start)
        self.range_end.append(end)
        self.range_name.append(name)
        self.range_thread.append(thread.id)
        return len(self.range_start) - 1

    # Instructions: each returns False where the thread blocks; it is then executed again, so nothing may have happened yet

    def _launch(self, thread: Thread, ins: Instruction, loading: int = 0) -> bool:
        _, code, stream, op, before, call, after, between, ticks, name = ins
        device = self.device
        place = thread.jitter & JITTER_MASK
        jitter = self._host_jitter[place]
        start = thread.clock
        called = start + before + (before * jitter >> JITTER_BITS)
        free, blocker = device.slot(called)
        if blocker != UNKNOWN:
            return self._sleep(thread, blocker)
        thread.jitter += 1
        returned = (free if free > called else called) + call + loading
        ready = returned - call + self._timing.latency
        end = returned + after
        row = len(self.range_start)
        self.range_start.append(start)
        self.range_end.append(end)
        self.range_name.append(op)
        self.range_thread.append(thread.id)
        number = len(self.call_start)
        self.call_start.append(called)
        self.call_end.append(returned)
        self.call_name.append(name)
        self.call_thread.append(thread.id)
        self.call_range.append(row)
        device.occupy(device.enqueue(code, stream, ready, ticks + (ticks * self._gpu_jitter[place] >> JITTER_BITS) or 1, number))
        thread.clock = end + between + (between * jitter >> JITTER_BITS)
        return True

    def _first_launch(self, thread: Thread, ins: Instruction) -> bool:
        _, code, _, _, _, call, _, _, _, _, load, loading_row = ins
        loading = 0 if code in self.loaded else load
        row = len(self.call_start)
        if not self._launch(thread, ins[:10], loading):
            return False
        if loading:
            self.loaded.add(code)
            self.spans.append(Span(thread.id, self.call_start[row], self.call_end[row], Nature.COMPILE))
            if loading_row >= 0:
                self._range(thread, loading_row, self.call_start[row] + 1, self.call_end[row] - call)
        return True

    def _copy_begin(self, thread: Thread, ins: Instruction) -> bool:
        if not self._launch(thread, ins):
            return False
        self._open_copies[thread.id] = (len(self.device.end) - 1, len(self.range_start) - 1, len(self.call_start) - 1, ins[6], ins[7])
        return True

    def _copy_end(self, thread: Thread, ins: Instruction) -> bool:
        index, row, call, after, between = self._open_copies[thread.id]
        done = self.device.end[index]
        if done == UNKNOWN:
            return self._sleep(thread, index)
        returned = max(self.call_end[call], done + self._timing.sync_return)
        self.call_end[call] = returned
        self.range_end[row] = returned + after
        self.spans.append(Span(thread.id, self.call_start[call], returned, Nature.HOST_SYNC))
        thread.clock = returned + after + between
        return True

    def _python(self, thread: Thread, ins: Instruction) -> bool:
        ticks = ins[1]
        thread.clock += ticks + (min(ticks, self._timing.jittered) * self._host_jitter[thread.jitter & JITTER_MASK] >> JITTER_BITS)
        thread.jitter += 1
        return True

    def _host_op(self, thread: Thread, ins: Instruction) -> bool:
        _, name, ticks, between = ins
        jitter = self._host_jitter[thread.jitter & JITTER_MASK]
        thread.jitter += 1
        end = thread.clock + ticks + (min(ticks, self._timing.jittered) * jitter >> JITTER_BITS)
        self._range(thread, name, thread.clock, end)
        thread.clock = end + between
        return True

    def _begin(self, thread: Thread, ins: Instruction) -> bool:
        thread.open.append((self._range(thread, ins[1], thread.clock, UNKNOWN), ins[2]))
        return True

    def _end(self, thread: Thread, ins: Instruction) -> bool:
        row, nature = thread.open.pop()
        self.range_end[row] = thread.clock
        if nature:
            self.spans.append(Span(thread.id, self.range_start[row], thread.clock, Nature(nature)))
        return True

    def _call(self, thread: Thread, ins: Instruction) -> bool:
        _, name, ticks, nature = ins
        end = thread.clock + ticks
        row = self._open_call(thread, name, thread.clock, end)
        if self.library.calls[name] == "cudaEventQuery":
            self.stream_rows.append(StreamRow("query", row, UNKNOWN, row, UNKNOWN))
        if nature:
            self.spans.append(Span(thread.id, thread.clock, end, Nature(nature)))
        thread.clock = end
        return True

    def _record(self, thread: Thread, ins: Instruction) -> bool:
        _, stream, slot, name, ticks = ins
        row = self._open_call(thread, name, thread.clock, thread.clock + ticks)
        self._events[slot] = (self.device.tail[stream], row)
        self.stream_rows.append(StreamRow("record", row, stream, slot, row))
        thread.clock += ticks
        return True

    def _wait(self, thread: Thread, ins: Instruction) -> bool:
        _, stream, slot, name, ticks = ins
        row = self._open_call(thread, name, thread.clock, thread.clock + ticks)
        index, record = self._events[slot]
        self.device.wait_for(stream, index)
        self.stream_rows.append(StreamRow("wait", row, stream, slot, record))
        thread.clock += ticks
        return True

    def _sync(self, thread: Thread, ins: Instruction) -> bool:
        _, name, stream, slot = ins
        waited = self.device.tail if stream < 0 else [self.device.tail[stream]]
        if slot >= 0:
            waited = [self._events[slot][0]]
        done = thread.clock
        for index in waited:
            if index >= 0:
                end = self.device.end[index]
                if end == UNKNOWN:
                    return self._sleep(thread, index)
                done = max(done, end + self._timing.sync_return)
        end = max(done, thread.clock + self._timing.sync_call)
        row = self._open_call(thread, name, thread.clock, end)
        kind = "event" if slot >= 0 else "device" if stream < 0 else "stream"
        if self.library.calls[name] not in ("cudaFree", "cudaMemcpy"):
            self.stream_rows.append(StreamRow(kind, row, stream, slot, self._events[slot][1] if slot >= 0 else UNKNOWN))
        self.spans.append(Span(thread.id, thread.clock, end, Nature.HOST_SYNC))
        thread.clock = end
        return True

    def _collective(self, thread: Thread, ins: Instruction) -> bool:
        _, code, stream, annotation, before, call, after, ticks, name, spec = ins
        called = thread.clock + before
        free, blocker = self.device.slot(called)
        if blocker != UNKNOWN:
            return self._sleep(thread, blocker)
        collective = self.library.collectives[spec]
        number = self._numbers[collective.channel]
        self._numbers[collective.channel] = number + 1
        returned = max(free, called) + call
        self.range_collective[thread.open[-1][0]] = (spec, number)
        self._range(thread, annotation, thread.clock, returned + after)
        row = self._open_call(thread, name, called, returned)
        meeting = self._meet(collective, number)
        index = self.device.enqueue(code, stream, returned - call + self._timing.latency, ticks, row, meeting=meeting)
        self.device.occupy(index)
        thread.clock = returned + after
        return True

    def _graph(self, thread: Thread, ins: Instruction) -> bool:
        _, number, name, ticks = ins
        free, blocker = self.device.slot(thread.clock)
        if blocker != UNKNOWN:
            return self._sleep(thread, blocker)
        start = thread.clock
        end = max(free, start) + ticks
        row = self._open_call(thread, name, start, end)
        index = UNKNOWN
        for node, (code, length, stream) in enumerate(self.library.graphs[number].nodes):
            jitter = self._gpu_jitter[(thread.jitter + node) & JITTER_MASK]
            ready = end - ticks + self._timing.latency
            index = self.device.enqueue(code, stream, ready, length + (length * jitter >> JITTER_BITS) or 1, row, (number << 16) + node + 1)
        thread.jitter += 1
        self.device.occupy(index)
        thread.clock = end
        return True

    def _hand_over(self, thread: Thread, ins: Instruction) -> bool:
        _, number, code, token = ins
        other = self.threads[number]
        begin = thread.clock + self._timing.hand_over
        other.jobs.append((begin, code, token, thread.id))
        if other.blocked == "idle":
            other.blocked = None
            other.code = iter(())
            self._limit = min(self._limit, begin)
        return True

    def _join(self, thread: Thread, ins: Instruction) -> bool:
        _, token, other = ins
        done = self._done[token]
        if not done:
            thread.blocked = token
            self._awaited[token] = thread
            return False
        start = thread.clock
        posted = done.popleft()
        if posted > start:
            thread.clock = posted + self._timing.hand_over
            if other >= 0:
                self.hand_overs.append(HandOver(thread.id, start, thread.clock, other))
        return True

    def _step(self, thread: Thread, ins: Instruction) -> bool:
        self._step_end(thread, ins)
        thread.clock += self._timing.step
        row = self._range(thread, ins[1], thread.clock, UNKNOWN)
        thread.open.append((row, 0))
        self.steps.append((ins[2], thread.clock, UNKNOWN))
        thread.jitter = ins[3]
        return True

    def _step_end(self, thread: Thread, ins: Instruction) -> bool:
        if self.steps and self.steps[-1][2] == UNKNOWN:
            number, start, _ = self.steps[-1]
            row, _ = thread.open.pop()
            self.range_end[row] = thread.clock
            self.steps[-1] = (number, start, thread.clock)
        return True

    def _seed(self, thread: Thread, ins: Instruction) -> bool:
        thread.jitter = ins[1] + len(self.steps) * 7_919
        return True

    def _overhead(self, thread: Thread, ins: Instruction) -> bool:
        _, name, ticks = ins
        row = self._range(thread, name, thread.clock, thread.clock + ticks)
        self.overhead.append((thread.clock, thread.clock + ticks, row))
        thread.clock += ticks
        return True

    def _close(self, thread: Thread, ins: Instruction) -> bool:
        for index in self.device.tail:
            if index >= 0 and self.device.end[index] == UNKNOWN:
                return self._sleep(thread, index)
        done = max((self.device.end[index] for index in self.device.tail if index >= 0), default=thread.clock)
        end = max(done, thread.clock) + self._timing.sync_return
        row = self._open_call(thread, ins[1], thread.clock, end)
        self.stream_rows.append(StreamRow("device", row, UNKNOWN, UNKNOWN, UNKNOWN))
        thread.clock = self.closed = end + self._timing.sync_return
        return True
