"""What is simulated: a job is a description of one training step, of the machine it runs on and of the faults planted in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from traceread.simulate.program import US, Code, Group, HostCost

HOST_COST = HostCost(before=5 * US, call=4 * US, after=2 * US, between=3 * US)
"""An operator that launches one kernel, on a fast host."""


@dataclass(frozen=True)
class Machine:
    """Costs of hosts and GPUs in ns; jitter in thousandths.

    Attributes:
        host: host time around a launch.
        queue_depth: launches that may be unfinished before a launch call blocks.
        launch_latency: start of a launch call until the kernel starts on an idle device.
        dispatch: gap between two queued activities, up to 255 ns more.
        sync_call, sync_return: a blocking call that finds nothing to wait for; from the end of what was waited for to its return.
        hand_over: between host threads.
        between_steps: from the end of one step's range to the start of the next.
        host_jitter, gpu_jitter: spread of host and kernel times.
        collective_noise: how far the ends of a collective lie apart.
    """

    host: HostCost = HOST_COST
    queue_depth: int = 1024
    launch_latency: int = 3_500
    dispatch: int = 872
    sync_call: int = 2_500
    sync_return: int = 5 * US
    hand_over: int = 12 * US
    between_steps: int = 24 * US
    host_jitter: int = 100
    gpu_jitter: int = 5
    collective_noise: int = 2 * US


@dataclass(frozen=True)
class Node:
    """A machine of the cluster: its clock runs `offset_ns` ahead of true time and drifts by `drift_ppb` parts per 10⁹."""

    name: str
    offset_ns: int = 0
    drift_ppb: int = 0


@dataclass(frozen=True)
class Site:
    """Where and when a phase is written into a program.

    Attributes:
        job: the job.
        rank, step: for which rank and step (its number counts from 0, warm-up included).
        world: number of ranks.
        without: names of the faults that are removed.
        place: position in the job's description; jitter restarts there.
    """

    job: Job
    rank: int
    step: int
    world: int
    without: frozenset[str]
    place: str = ""

    def group(self, name: str = "world") -> Group:
        """The process group called "world", "pair" (two neighbouring ranks) or "pipeline" (everybody, for sends)."""
        if name == "pair":
            first = self.rank - self.rank % 2
            return Group(str(1 + self.rank // 2), "mesh_tp", (first, first + 1))
        if name == "pipeline":
            return Group("1", "mesh_pp", tuple(range(self.world)))
        return Group("0", "default_pg", tuple(range(self.world)))


@dataclass(frozen=True)
class Phase:
    """A part of a step. Subclasses say what it does; `varies` names what its instructions depend on: "rank", "step"."""

    def emit(self, code: Code, site: Site) -> None:
        """Write the phase's instructions."""
        raise NotImplementedError

    @property
    def varies(self) -> frozenset[str]:
        """What else the instructions depend on."""
        return frozenset()


def emit_all(phases: tuple[Phase, ...], code: Code, site: Site) -> None:
    """Write phases one after the other, each with jitter of its own."""
    for i, phase in enumerate(phases):
        here = replace(site, place=f"{site.place}/{i}")
        code.seed(here.place)
        phase.emit(code, here)


@dataclass(frozen=True)
class Fault(Phase):
    """A planted fault: `broken` where it strikes, `fixed` elsewhere and once it is removed.

    Attributes:
        name: name of the fault.
        broken, fixed: the phases with and without it.
        ranks: the ranks it strikes, None for all.
        every: it strikes one of so many steps.
        first: the first step it strikes, counted from 0, warm-up included.
    """

    name: str
    broken: tuple[Phase, ...]
    fixed: tuple[Phase, ...] = ()
    ranks: tuple[int, ...] | None = None
    every: int = 1
    first: int = 0

    def strikes(self, rank: int, step: int, without: frozenset[str]) -> bool:
        """Whether it strikes this rank in this step."""
        return self.name not in without and (self.ranks is None or rank in self.ranks) and step % self.every == self.first

    def emit(self, code: Code, site: Site) -> None:
        """Write one of the two variants."""
        emit_all(self.broken if self.strikes(site.rank, site.step, site.without) else self.fixed, code, site)


@dataclass(frozen=True)
class Job:
    """A training job.

    Attributes:
        name, about: its name and one sentence.
        step: what a step does.
        between: what happens between the range of a step and that of the next.
        ranks: number of ranks.
        nodes: machines; ranks are spread over them evenly.
        steps: recorded steps.
        warmup: steps before the capture.
        first_step: number of the first recorded step.
        step_range: "profiler" for ProfilerStep#N, "user" for a range of the user's that may leave time between steps.
        windows: "extended" where a step's range reaches to the next step, "as recorded" where time between steps has windows of its own.
        machine: costs.
        device: name of the GPU.
        memory: its memory in bytes.
        multiprocessors: number of SMs.
        workers: data loader worker threads.
        written: ranks that are written, None for all.
        cut: the capture begins and ends this long after the first recorded and the last step begin, instead of at steps.
        run: contents of run.json, empty for none.
    """

    name: str
    about: str
    step: tuple[Phase, ...]
    between: tuple[Phase, ...] = ()
    ranks: int = 2
    nodes: tuple[Node, ...] = (Node("node-0"),)
    steps: int = 5
    warmup: int = 1
    first_step: int = 3
    step_range: str = "profiler"
    windows: str = "extended"
    machine: Machine = Machine()
    device: str = "NVIDIA H100 80GB HBM3"
    memory: int = 85_024_112_640
    multiprocessors: int = 132
    workers: int = 0
    written: tuple[int, ...] | None = None
    cut: tuple[int, int] | None = None
    run: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def phases(self) -> Iterator[Phase]:
        """Every phase of the description, however deep."""
        yield from _walk((self.step, self.between))

    @property
    def faults(self) -> tuple[str, ...]:
        """Names of the planted faults, in order of appearance."""
        return tuple(dict.fromkeys(phase.name for phase in self.phases if isinstance(phase, Fault)))

    def node(self, rank: int, ranks: int) -> int:
        """Which node a rank runs on."""
        return rank * len(self.nodes) // ranks


def _walk(value: object) -> Iterator[Phase]:
    if isinstance(value, Phase):
        yield value
        for f in fields(value):
            yield from _walk(getattr(value, f.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from _walk(item)
