"""Hand-built collectives of several ranks, and small simulated jobs; used by the tests of what ranks do together."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

import traceread
from traceread.measurements.collectives import Collectives, Evidence, Peers, RankCollectives
from traceread.model import NOT_RECORDED, Operation, ProcessGroup
from traceread.simulate import Capture, Fault, Node, phases, scenarios, simulate, write_run

REAL = Path(__file__).parents[2] / "shared" / "traces"
US, MS = 1_000, 1_000_000
EPOCH = 1_700_000_000 * 10**9

DEFAULTS = {
    "activity": 0,
    "launch_ns": NOT_RECORDED,
    "stream": 20,
    "window": -1,
    "step": -1,
    "operation": Operation.ALL_REDUCE,
    "evidence": Evidence.RECORD,
    "group": 0,
    "sequence": -1,
    "dtype": 11,  # BFloat16
    "elements_in": 1024,
    "elements_out": 1024,
    "bytes": 2048,
    "source": -1,
    "destination": -1,
    "root": -1,
    "largest_in": -1,
    "largest_out": -1,
    "parts": 1,
    "sends": 0,
    "receives": 0,
}


def table(spans, **columns):
    """Collectives from (start, end) pairs; other columns are one value for all or one each."""
    start, end = (np.array([EPOCH + s[i] for s in spans], np.int64) for i in (0, 1))
    values = {name: np.broadcast_to(columns.get(name, default), len(spans)) for name, default in DEFAULTS.items()}
    return Collectives(start_ns=start, end_ns=end, **values)


def rank(number, spans, *, world=2, host=None, clock="", epoch=True, groups=None, peers=None, **columns):
    """The collectives of one rank."""
    groups = (ProcessGroup("0", "default_pg", tuple(range(world)), world),) if groups is None else groups
    return RankCollectives(number, host, clock, epoch, groups, table(spans, **columns), Peers.empty() if peers is None else peers)


def moved(of, offset_ns, drift_ppb=0):
    """The same rank with a clock that is ahead and drifts."""

    def on_clock(at):
        return at + offset_ns + (at - EPOCH) * drift_ppb // 10**9

    c = of.collectives
    return replace(of, collectives=c.replace(start_ns=on_clock(c.start_ns), end_ns=on_clock(c.end_ns)))


def part(of, first, stop=None):
    """The same rank, its capture starting and ending at other operations."""
    return replace(of, collectives=of.collectives.take(slice(first, stop)), peers=Peers.empty())


def steady(ranks, count=40, *, seed=0, noise=2 * US, late=(), transfer=100 * US, apart=10 * MS, kinds=1, **more):
    """Ranks that do `count` all-reduces together; those in `late` arrive 1 ms after the others."""
    random = np.random.default_rng(seed)
    at = np.arange(count) * apart + np.cumsum(random.integers(0, apart // 20, count))
    starts = [at + random.integers(0, 300 * US, count) + (MS if r in late else 0) for r in range(ranks)]
    ready = np.max(starts, axis=0) + transfer
    elements = 1024 + np.arange(count) % kinds
    result = []
    for r in range(ranks):
        end = ready + random.integers(0, noise + 1, count)
        spans = list(zip(starts[r].tolist(), end.tolist(), strict=True))
        result.append(rank(r, spans, world=ranks, elements_in=elements, elements_out=elements, **more))
    return result


@cache
def simulated(job, *, ranks=None, steps=None, nodes=0, format="kineto", without=(), **capture):
    """Report and truth of a simulated job or scenario; `nodes`: spread over so many machines whose clocks differ."""
    job = scenarios()[job] if isinstance(job, str) else job
    changes = {} if steps is None else {"steps": steps}
    if ranks is not None:
        changes["ranks"] = ranks
    if nodes:
        changes["nodes"] = tuple(Node(f"node-{i}", OFFSETS[i % len(OFFSETS)], DRIFTS[i % len(DRIFTS)]) for i in range(nodes))
    directory = Path(mkdtemp(prefix="traceread-test-"))
    write_run(simulate(replace(job, **changes), without=frozenset(without)), directory, Capture(format, **capture), counterfactuals=False)
    report = traceread.analyze(directory)
    truth = json.loads((directory / "truth.json").read_text("utf-8"))
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()
    return report, truth


def with_fault(*broken, rank=2):
    """A job of which one rank does these phases in every step and the others do not."""
    job = scenarios()["straggler-sync"]
    step = tuple(replace(p, broken=broken, ranks=(rank,)) if isinstance(p, Fault) else p for p in job.step)
    return replace(job, name="planted", step=step)


def coarse(name, by=12):
    """A scenario with fewer kernels that take as long together, for jobs of many ranks."""

    def coarser(phase):
        if isinstance(phase, phases.Compute):
            return replace(phase, kernels=max(phase.kernels // by, 1), each=phase.each * by)
        inner = {f: tuple(map(coarser, getattr(phase, f))) for f in ("phases", "broken", "fixed") if hasattr(phase, f)}
        return replace(phase, **inner)

    job = scenarios()[name]
    return replace(job, step=tuple(map(coarser, job.step)))


OFFSETS = (0, -50 * MS, 50 * MS, 1_234_567, -7 * US, 300 * US, -20 * MS, 43_210 * US)
DRIFTS = (0, 100_000, -100_000, 4_000, -60_000, 0, 25_000, -10_000)


def true_waits(truth, rank):
    """Waits of one rank in order of start."""
    rows = sorted((row for row in truth["collectives"] if row["rank"] == rank), key=lambda row: row["start_ns"])
    return [row["wait_ns"] for row in rows]
