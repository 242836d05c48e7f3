"""The GPU of a rank: streams, the launch queue, events, and the meetings of collectives.

An activity starts when its launch has reached the device, its stream has finished what came before, and the events its stream
waits for are done; whatever is not known yet (a collective waits for ranks that have not got there) is settled later. Times are ticks.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence

from traceread.simulate.program import Collective, Stream

UNKNOWN = -1


class Meeting:
    """One collective operation in progress: who arrived when, and who may leave.

    Attributes:
        spec: what is recorded of it.
        number: its number within the channel.
        starts: arrival of each member so far.
        ends: end on each member so far.
    """

    __slots__ = ("ends", "number", "spec", "starts", "ticks")

    def __init__(self, spec: Collective, number: int) -> None:
        self.spec = spec
        self.number = number
        self.ticks = 0
        self.starts: dict[int, tuple[Device, int, int]] = {}
        self.ends: dict[int, int] = {}

    def awaited(self, rank: int) -> Sequence[int]:
        """The ranks whose data a rank needs before the transfer to it can start."""
        spec = self.spec
        if spec.operation in ("broadcast", "scatter"):
            return () if rank == spec.root else (spec.root,)
        if spec.operation in ("reduce", "gather"):
            return spec.members if rank == spec.root else ()
        return spec.members

    def arrive(self, rank: int, device: Device, index: int, start: int, ticks: int) -> None:
        """Note an arrival, and let everybody leave whose peers are all there."""
        self.starts[rank] = (device, index, start)
        self.ticks = max(self.ticks, ticks)
        if len(self.starts) < len(self.spec.members) and self.spec.operation not in ("broadcast", "scatter", "reduce", "gather"):
            return
        for member, (where, which, began) in self.starts.items():
            awaited = self.awaited(member)
            if member not in self.ends and all(peer in self.starts for peer in awaited):
                ready = max([began, *(self.starts[peer][2] for peer in awaited)])
                end = ready + self.ticks + where.noise(self.number)
                self.ends[member] = end
                where.finished.append((which, end))
                where.todo.append(where)


class Device:
    """Streams and launch queue of one GPU.

    Attributes:
        start, end: of each activity, UNKNOWN until settled.
        code, stream, call, node: of each activity: library code, stream, row of the launching call, node within a graph (0: none).
        depth: launched, unfinished launches that the queue holds.
    """

    def __init__(self, depth: int, dispatch: int, spread: int, noise: Sequence[int], todo: deque[Device]) -> None:
        self.depth = depth
        self._dispatch = dispatch
        self._spread = spread
        self._noise = noise
        self.todo = todo  # devices with something to settle, shared by all ranks
        self.finished: deque[tuple[int, int]] = deque()
        self._ready: deque[int] = deque()
        self.start, self.end = array("q"), array("q")
        self.code, self.call, self.node = array("i"), array("i"), array("i")
        self.stream = array("b")
        self.tail = [UNKNOWN] * len(Stream)
        self.meetings: dict[int, Meeting] = {}
        self.member = 0
        self.wake: Callable[[int], None] = lambda index: None
        self._blockers: list[list[int]] = [[] for _ in Stream]
        self._after: dict[int, list[int]] = {}
        self._pending: dict[int, list[int]] = {}
        self._queue: list[deque[int]] = [deque() for _ in Stream]
        self._in_flight = 0

    def noise(self, number: int) -> int:
        """How much later than its peers this rank leaves the collective with this number, in ticks."""
        return self._noise[number % len(self._noise)]

    def slot(self, now: int) -> tuple[int, int]:
        """When the launch queue takes one more launch, and UNKNOWN; or UNKNOWN and the activity that it depends on."""
        if self._in_flight < self.depth:
            return now, UNKNOWN
        end = self.end
        blocker = soonest = UNKNOWN
        first = None
        for queue in self._queue:
            while queue:
                done = end[queue[0]]
                if done == UNKNOWN:
                    blocker = queue[0]
                elif done <= now:
                    queue.popleft()
                    self._in_flight -= 1
                    continue
                elif first is None or done < soonest:
                    first, soonest = queue, done
                break
        if self._in_flight < self.depth:
            return now, UNKNOWN
        if blocker != UNKNOWN or first is None:
            return UNKNOWN, blocker
        self._in_flight -= 1
        first.popleft()
        return soonest, UNKNOWN

    def occupy(self, index: int) -> None:
        """The launch whose last activity this is takes a place in the launch queue."""
        self._queue[self.stream[index]].append(index)
        self._in_flight += 1

    def enqueue(self, code: int, stream: int, ready: int, ticks: int, call: int, node: int = 0, meeting: Meeting | None = None) -> int:
        """Put an activity at the end of a stream; returns its index. `ready`: when the launch reaches the device."""
        end = self.end
        index = len(end)
        gap = self._dispatch + (index * 37 & self._spread)
        earliest = ready
        missing = 0
        before = self.tail[stream]
        blockers = self._blockers[stream]
        if before >= 0:
            blockers.append(before)
        for blocker in blockers:
            done = end[blocker]
            if done == UNKNOWN:
                missing += 1
                self._after.setdefault(blocker, []).append(index)
            elif done + gap > earliest:
                earliest = done + gap
        blockers.clear()
        self.tail[stream] = index
        self.code.append(code)
        self.stream.append(stream)
        self.call.append(call)
        self.node.append(node)
        if missing or meeting is not None:
            self.start.append(UNKNOWN)
            end.append(UNKNOWN)
            self._pending[index] = [missing, earliest, ticks, gap]
            if meeting is not None:
                self.meetings[index] = meeting
            if not missing:
                self._ready.append(index)
                self.todo.append(self)
        else:
            self.start.append(earliest)
            end.append(earliest + ticks)
        return index

    def wait_for(self, stream: int, index: int) -> None:
        """What is launched next on a stream waits for an activity."""
        if index >= 0:
            self._blockers[stream].append(index)

    def settle(self) -> None:
        """Give times to the activities whose predecessors are now all known."""
        while self._ready or self.finished:
            while self._ready:
                index = self._ready.popleft()
                _, start, ticks, _ = self._pending.pop(index)
                self.start[index] = start
                meeting = self.meetings.get(index)
                if meeting is None:
                    self.finished.append((index, start + ticks))
                else:
                    meeting.arrive(self.member, self, index, start, ticks)
            while self.finished:
                index, end = self.finished.popleft()
                self.end[index] = end
                self.wake(index)
                for later in self._after.pop(index, ()):
                    pending = self._pending[later]
                    pending[0] -= 1
                    pending[1] = max(pending[1], end + pending[3])
                    if not pending[0]:
                        self._ready.append(later)
