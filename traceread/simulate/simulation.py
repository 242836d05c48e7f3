"""The event loop: every rank runs until all its threads are blocked; collectives that complete wake the ranks that wait for them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from traceread.errors import TracereadError
from traceread.simulate.device import Device, Meeting
from traceread.simulate.host import JITTER_BITS, Host, Timing, World
from traceread.simulate.job import Fault, Job, Machine, Site, emit_all
from traceread.simulate.program import Code, Collective, HostCost, Instruction, Library, Op

JITTERED_NS = 100_000
"""Of a longer stretch of host time only this much is jittered."""


class SimulationError(TracereadError):
    """A job description that cannot run to its end."""

    slug = "simulation"


@dataclass(frozen=True)
class Run:
    """A simulated job.

    Attributes:
        job: what was simulated, with the ranks and steps asked for.
        seed: of the jitter.
        tick: ns per tick of the rows.
        without: faults that were removed.
        library: names that rows refer to.
        hosts: what happened on every rank.
    """

    job: Job
    seed: int
    tick: int
    without: frozenset[str]
    library: Library
    hosts: tuple[Host, ...]


def simulate(
    job: Job, *, ranks: int | None = None, steps: int | None = None, seed: int = 0, tick: int = 1, without: frozenset[str] = frozenset()
) -> Run:
    """What happens when the job runs; the same for the same arguments.

    Args:
        job: the description.
        ranks: another number than the job's.
        steps: another number than the job's.
        seed: of the jitter.
        tick: ns per tick; 1,000 makes every time a whole microsecond.
        without: names of planted faults to remove.

    Raises:
        SimulationError: a fault that the job does not have, or threads that wait for each other for ever.
    """
    unknown = without - set(job.faults)
    if unknown:
        raise SimulationError(
            f"{job.name} has no fault called {', '.join(sorted(unknown))}; it has {', '.join(job.faults) or 'none'}.",
            "Type `traceread simulate --list`.",
        )
    job = replace(job, ranks=ranks or job.ranks, steps=steps or job.steps)
    library = Library()
    compiler = _Compiler(job, library, tick, without)
    meetings: dict[tuple[str, int], Meeting] = {}
    todo: deque[Device] = deque()
    awake: deque[Host] = deque()

    def meet(spec: Collective, number: int) -> Meeting:
        key = (spec.channel, number)
        if key not in meetings:
            meetings[key] = Meeting(spec, number)
        return meetings[key]

    m = job.machine
    hosts = []
    for rank in range(job.ranks):
        noise = [abs(n) for n in _table(f"{seed} {rank} noise", m.collective_noise // tick)]
        device = Device(m.queue_depth, max(m.dispatch // tick, 1), 255 if tick == 1 else 0, noise, todo)
        world = World(
            _timing(m, tick),
            _table(f"{seed} {rank} host", m.host_jitter * (1 << JITTER_BITS) // 1000),
            _table(f"{seed} {rank} gpu", m.gpu_jitter * (1 << JITTER_BITS) // 1000),
            meet,
            awake.append,
        )
        hosts.append(Host(rank, chain.from_iterable(compiler.program(rank)), 3 + job.workers, device, library, world))
    awake.extend(hosts)
    while awake:
        awake.popleft().run()
        while todo:
            todo.popleft().settle()
    stuck = [line for host in hosts for line in host.stuck()]
    if stuck:
        raise SimulationError(
            f"{job.name} does not run to its end: {stuck[0]} and {len(stuck) - 1} more.",
            "Check that all ranks launch the same collectives in the same order.",
        )
    return Run(job, seed, tick, without, library, tuple(hosts))


def _table(seed: str, spread: int) -> list[int]:
    """4,096 integers, evenly spread over [-spread, spread]."""
    numbers = random.Random(seed)  # noqa: S311 - jitter, no secrets
    return [numbers.randint(-spread, spread) for _ in range(1 << JITTER_BITS)]


def _timing(machine: Machine, tick: int) -> Timing:
    m = machine
    return Timing(
        m.launch_latency // tick,
        m.sync_call // tick,
        m.sync_return // tick,
        m.hand_over // tick,
        m.between_steps // tick,
        JITTERED_NS // tick,
    )


class _Compiler:
    """Turns the description into instructions, once for every variant that occurs."""

    def __init__(self, job: Job, library: Library, tick: int, without: frozenset[str]) -> None:
        self._job = job
        self._library = library
        self._tick = tick
        self._without = without
        self._faults = [phase for phase in job.phases if isinstance(phase, Fault)]
        self._varies = frozenset[str]().union(*(phase.varies for phase in job.phases))
        self._code: dict[object, tuple[tuple[Instruction, ...], tuple[Instruction, ...]]] = {}

    def program(self, rank: int) -> Iterator[tuple[Instruction, ...]]:
        """The main thread's instructions, step by step."""
        job = self._job
        user = job.step_range == "user"
        for step in range(job.warmup + job.steps):
            number = job.first_step - job.warmup + step
            inside, between = self._step(rank, step)
            yield ((int(Op.STEP), self._library.range(str(number), "step"), number, step * 7_919 + rank * 104_729),)
            yield inside
            if between or user:
                if user:
                    yield ((int(Op.STEP_END),),)
                yield between
        yield ((int(Op.STEP_END),), (int(Op.CLOSE), self._library.call("cudaDeviceSynchronize")))

    def _step(self, rank: int, step: int) -> tuple[tuple[Instruction, ...], tuple[Instruction, ...]]:
        key = (
            tuple(fault.strikes(rank, step, self._without) for fault in self._faults),
            rank if "rank" in self._varies else -1,
            step if "step" in self._varies else -1,
        )
        if key not in self._code:
            site = Site(self._job, rank, step, self._job.ranks, self._without)
            parts = []
            for name, phases in (("step", self._job.step), ("between", self._job.between)):
                m = self._job.machine
                code = Code(self._library, HostCost(*m.host), self._tick)
                emit_all(phases, code, replace(site, place=name))
                parts.append(tuple(code.instructions) if phases else ())
            self._code[key] = (parts[0], parts[1])
        return self._code[key]
