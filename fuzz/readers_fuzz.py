"""Reads traces made wrong, a million of them: nothing may crash, hang, grow without bound, or be read in two ways.

    python fuzz/readers_fuzz.py --inputs 100000 --seed 1 --processes 2

Most inputs are PyTorch traces, every fortieth is an export of Nsight Systems; they are changed copies of small generated ones and, where
../shared/traces is there, of cut-outs of real ones. What is looked at:

- every input: the compiled way of reading (of every eighth trace with a head start) and the one in pure Python, each with chunks of its own
  length, say the same: all columns, names and warnings, or the same error. An error is a TracereadError with a message.
- every `--analyse-every`th that can be read: the whole report in every format; the classes of every window sum to it, no rule fails.

An input depends on seed and number alone: --first N --inputs 1 makes number N again. Inputs that show something are saved (--save), and one
that is still at work after --limit seconds, or whose process dies, is saved too. Exit code 1 if there is a finding.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "fuzz")]
REAL = ROOT.parent / "shared" / "traces"

NSYS_EVERY = 40
WHOLE_EVERY = 16  # PyTorch traces of which both ways of reading make whole tables; of the others only what tables are made of is compared
EARLY_EVERY = 8  # PyTorch traces that the compiled way begins to read early, in two threads
HTML_EVERY = 8  # reports of which the page is made too
GROWTH_BYTES = 128 << 20  # more memory than this for one input of some kilobytes is a finding
STACK_KEPT = 3
CHUNKS = (100, 700, 1 << 20, 1 << 20, 1 << 20)


class Finding(Exception):
    """Something that must not be; the message says what."""


class Hang(BaseException):
    """An input took too long."""


@dataclass
class Work:
    """What one process has to do."""

    seed: int
    first: int
    inputs: int
    stride: int
    analyse_every: int
    limit_s: float
    minutes: float
    save: Path
    only: str
    nice: int


@dataclass
class Told:
    """What one process has seen."""

    inputs: int = 0
    stages: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[str]] = field(default_factory=dict)
    peak_bytes: int = 0


# --- one input ---------------------------------------------------------------------------------------------------------------


def columns_of(table: Any, names: Any) -> list[tuple[str, str, object]]:
    """A table as what can be compared; codes of names are told by their names."""
    told = {name: [names[code] for code in values.tolist()] if name == "name" else values.tobytes() for name, values in table.columns()}
    return [(name, str(values.dtype), told[name]) for name, values in table.columns()]


def traces_told(traces: list[Any]) -> list[dict[str, Any]]:
    """Traces as what can be compared."""
    from traceread.model import Table

    told = []
    for trace in traces:
        fields = {}
        for name in trace.__dataclass_fields__:
            value = getattr(trace, name)
            is_set = name in ("recorded", "names")  # codes are given out in another order where SQLite reads a table once more
            fields[name] = columns_of(value, trace.names) if isinstance(value, Table) else repr(sorted(value) if is_set else value)
        told.append(fields)
    return told


def capture_told(capture: Any) -> dict[str, Any]:
    """What tables are made of, as what can be compared."""
    reader, rows, whole = capture._reader, capture._rows, capture._whole
    told: dict[str, Any] = {
        f"{kind}.{name}": getattr(rows, kind)[name].tobytes()
        for kind in ("gpu", "calls", "ranges", "syncs", "spans")
        if getattr(rows, kind).rows
        for name in getattr(rows, kind)._parts
    }
    told |= {
        name: repr(getattr(reader, name)) for name in ("names", "categories", "tracks", "labels", "damage", "form", "objects", "events")
    }
    told |= {name: repr(getattr(rows, name)) for name in ("untimed", "lost", "negative")}
    told |= {"unread": repr(sorted(rows.unread.items())), "marks": repr(sorted(reader.marks)), "metadata": repr(capture._metadata)}
    # Annotations beside named records go when the table is made; whether they are there before depends on chunks.
    found = [(one._replace(said=0), whole.collectives._said[one.said]) for one in whole.collectives._used()]
    told |= {"cut": capture._cut, "collectives": repr(found)}
    told["matrices"] = repr((whole.matrices._times, whole.matrices._works, whole.matrices._tracks))
    return told


def attempt(function: Any, *args: Any) -> tuple[Any, str]:
    """The result of a function, or the TracereadError it raised in words."""
    from traceread.errors import TracereadError

    try:
        return function(*args), ""
    except TracereadError as error:
        if not error.message.strip() or not error.slug:
            raise Finding(f"{type(error).__name__} without a message") from error
        if error.slug == "internal":
            raise Finding(f"unexpected: {error.message}") from error
        return None, f"{type(error).__name__} [{error.slug}]: {error.message} | {error.hint}"


def same(one: Any, other: Any, what: str) -> None:
    """Nothing, if two ways of reading say the same; raises Finding with the first difference."""
    if one == other:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one | other:
            if one.get(name) != other.get(name):
                raise Finding(f"{what}: {name} differs: {str(one.get(name))[:300]} and {str(other.get(name))[:300]}")
    raise Finding(f"{what} differ: {str(one)[:300]} and {str(other)[:300]}")


def read_kineto(path: Path, rng: random.Random, number: int) -> str:
    """The error with which a PyTorch trace is refused, "" if it can be read; raises Finding."""
    from traceread.readers import kineto
    from traceread.readers.file_parts import head_start
    from traceread.readers.options import ReadOptions

    ways = [ReadOptions(compiled=compiled, threads=1, chunk_bytes=rng.choice(CHUNKS)) for compiled in (True, False)]
    with head_start(path, replace(ways[0], threads=2), 0) if number % EARLY_EVERY == 0 else nullcontext() as begun:
        if begun is not None:
            ways[0] = replace(ways[0], threads=2, head_start=begun)
        captures, errors = zip(*(attempt(kineto._capture, path, way) for way in ways), strict=True)
    same(errors[0], errors[1], "errors")
    if errors[0]:
        return str(errors[0])
    same(capture_told(captures[0]), capture_told(captures[1]), "events")
    both = number % WHOLE_EVERY == 0
    told = []
    for capture in captures if both else captures[:1]:
        traces, error = attempt(capture.traces)
        told.append((traces_told(traces) if both and traces else traces is None, error))
        for trace in traces or ():
            sane(trace)
    if both:
        same(told[0][1], told[1][1], "errors of tables")
        if told[0][1] == "":
            for one, other in zip(told[0][0], told[1][0], strict=True):
                same(one, other, "tables")
    return told[0][1]


def read_nsys(path: Path, rng: random.Random, number: int) -> str:
    """The error with which an export is refused, "" if it can be read; raises Finding."""
    from traceread.readers import nsys
    from traceread.readers.options import ReadOptions

    results, errors = zip(*(attempt(nsys.read, path, ReadOptions(compiled=compiled)) for compiled in (True, False)), strict=True)
    same(errors[0], errors[1], "errors")
    if errors[0]:
        return str(errors[0])
    if len(results[0]) != len(results[1]):
        raise Finding("numbers of traces differ")
    for one, other in zip(*map(traces_told, results), strict=True):
        same(one, other, "tables")
    for trace in results[0]:
        sane(trace)
    return ""


def sane(trace: Any) -> None:
    """Nothing, if the tables of a trace keep their promises; raises Finding."""
    for name in ("activities", "calls", "ranges"):
        table = getattr(trace, name)
        if not len(table):
            continue
        if (table.end_ns < table.start_ns).any() or (table.start_ns[1:] < table.start_ns[:-1]).any():
            raise Finding(f"{name}: times out of order")
        if table.name.min() < 0 or table.name.max() >= len(trace.names):
            raise Finding(f"{name}: a code without a name")
        if name != "activities" and (table.thread.min() < -1 or table.thread.max() >= len(trace.threads)):
            raise Finding(f"{name}: a thread that is not there")


def analyse(path: Path, with_page: bool) -> str:
    """The error with which the report of a file is refused, "" if it is written; raises Finding."""
    import traceread
    from traceread.reporters import render

    report, error = attempt(traceread.analyze, str(path))
    if error:
        return error
    for window in report.partition.to_dict():
        classes = window["classes"].values()
        if sum(classes) != window["end_ns"] - window["start_ns"] or min(classes) < 0:
            raise Finding(f"rank {window['rank']} {window['step']}: classes sum to {sum(classes)}, not to the window")
    failed = [n.message for n in report.notices if n.slug in ("rule-failed", "internal")]
    failed += [n.message for r in report.ranks for n in r.notices if n.slug in ("rule-failed", "internal")]
    if failed:
        raise Finding(f"a rule failed: {failed[0]}")
    for form in ("text", "markdown", "json", "csv", *(("html",) if with_page else ())):
        if not render(report, form):
            raise Finding(f"nothing in {form}")
    return ""


# --- many inputs -------------------------------------------------------------------------------------------------------------


def work(job: Work, offset: int, place: Path, done: Any, result: Any) -> None:
    """Looks at every stride-th input; puts what it saw into the queue."""
    import kineto_inputs
    import nsys_inputs

    os.nice(max(0, job.nice - os.nice(0)))
    gc.freeze()
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGPROF, _too_long)
    kineto = kineto_inputs.Mutator(kineto_inputs.generated() + kineto_inputs.cut_outs(REAL / "kineto"))
    nsys = nsys_inputs.Mutator(nsys_inputs.generated() + nsys_inputs.cut_outs(REAL / "nsys"))
    told, parent = Told(), os.getppid()
    until = time.monotonic() + 60 * job.minutes
    readable = 0
    memory = _peak_bytes()
    for number in range(job.first + offset, job.first + job.inputs, job.stride):
        if time.monotonic() > until or os.getppid() != parent:
            break
        rng = random.Random(job.seed << 40 | number)
        is_nsys = number % NSYS_EVERY == 0 if not job.only else job.only == "nsys"
        content = (nsys if is_nsys else kineto).make(rng)
        path = place / ("input.sqlite" if is_nsys else "input.json")
        path.write_bytes(content)
        kind = "nsys" if is_nsys else "kineto"
        stage = "reading"
        signal.setitimer(signal.ITIMER_PROF, job.limit_s)
        try:
            error = (read_nsys if is_nsys else read_kineto)(path, rng, number)
            if error:
                told.stages[f"{kind}: refused, {error.split(':')[0]}"] += 1
            else:
                told.stages[f"{kind}: read"] += 1
                readable += 1
                if job.analyse_every and readable % job.analyse_every == 0:
                    stage = "analysis"
                    error = analyse(path, readable // job.analyse_every % HTML_EVERY == 0)
                    told.stages[f"{kind}: analysed" if not error else f"{kind}: not analysed, {error.split(':')[0]}"] += 1
            signal.setitimer(signal.ITIMER_PROF, 0)
        except BaseException as error:
            signal.setitimer(signal.ITIMER_PROF, 0)
            if isinstance(error, KeyboardInterrupt):
                break
            _keep(told, job, number, path, f"{kind} {stage}: {_signature(error)}", traceback.format_exc())
        grown = _peak_bytes()
        if grown - memory > GROWTH_BYTES and stage == "reading":
            _keep(told, job, number, path, f"{kind} {stage}: memory", f"{grown - memory} bytes for a file of {len(content)}")
        memory = max(memory, grown)
        told.inputs += 1
        done.value = number + 1
    told.peak_bytes = memory
    result.put(told)


def _too_long(*_: object) -> None:
    raise Hang("it took too long")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _signature(error: BaseException) -> str:
    """What makes two findings one: the error and the place it came from, numbers left out."""
    frames = traceback.extract_tb(error.__traceback__)
    where = next((f for f in reversed(frames) if "traceread" in f.filename), frames[-1])
    if isinstance(error, Finding):
        return f"{str(error)[:60]}"
    return f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}"


def _keep(told: Told, job: Work, number: int, path: Path, signature: str, story: str) -> None:
    seen = told.findings.setdefault(signature, [])
    if len(seen) >= STACK_KEPT:
        seen[-1] = f"… {number}"
        return
    job.save.mkdir(parents=True, exist_ok=True)
    saved = job.save / f"{job.seed}-{number}{path.suffix}"
    shutil.copy(path, saved)
    seen.append(f"number {number}, saved as {saved}\n{story[-1800:]}")


def run(job: Work, processes: int) -> Told:
    """What all processes saw together; one that dies or hangs beyond help is a finding and is started again behind its input."""
    context = multiprocessing.get_context("spawn")
    total = Told()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="readers-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        running: dict[int, Any] = {}
        starts = dict.fromkeys(range(processes), 0)

        def start(w: int) -> None:
            place = Path(folder, str(w))
            place.mkdir(exist_ok=True)
            done, queue = context.Value("q", job.first + starts[w]), context.Queue()
            left = job.minutes - (time.monotonic() - begun) / 60
            own = Work(**{**job.__dict__, "minutes": left, "stride": processes})
            process = context.Process(target=work, args=(own, starts[w] + w, place, done, queue), daemon=True)
            process.start()
            running[w] = (process, done, queue, place, [time.monotonic(), done.value])

        for w in range(processes):
            start(w)
        said = time.monotonic()
        while running:
            time.sleep(0.2)
            for w, (process, done, queue, place, seen) in list(running.items()):
                told = None
                with suppress(Exception):
                    told = queue.get_nowait()
                if told is not None:
                    _merge(total, told)
                    process.join()
                    del running[w]
                    continue
                now = time.monotonic()
                if done.value != seen[1]:
                    seen[:] = [now, done.value]
                stuck = now - seen[0] > 4 * job.limit_s + 60
                if process.is_alive() and not stuck:
                    continue
                process.kill()
                process.join()
                del running[w]
                for path in place.iterdir():
                    _keep(total, job, int(done.value), path, f"process {'stuck' if stuck else f'ended with {process.exitcode}'}", "")
                total.inputs += 1
                starts[w] = max(0, int(done.value) - job.first - w + processes)
                start(w)
            if time.monotonic() - said > 60:
                said = time.monotonic()
                print(
                    f"… {max((int(r[1].value) for r in running.values()), default=0) - job.first} after {said - begun:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
    return total


def _merge(total: Told, told: Told) -> None:
    total.inputs += told.inputs
    total.stages += told.stages
    total.peak_bytes = max(total.peak_bytes, told.peak_bytes)
    for signature, found in told.findings.items():
        total.findings.setdefault(signature, []).extend(found)


def main() -> int:
    """Runs and tells; exit code 1 if there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000, help="how many (default: 100000)")
    parser.add_argument("--seed", type=int, default=1, help="which (default: 1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first (default: 0)")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after so many")
    parser.add_argument("--processes", type=int, default=1, help="how many at once (default: 1)")
    parser.add_argument("--analyse-every", type=int, default=100, help="of those that can be read; 0: none (default: 100)")
    parser.add_argument("--limit", type=float, default=20.0, help="seconds of CPU for one input (default: 20)")
    parser.add_argument("--only", choices=("kineto", "nsys"), default="", help="inputs of one kind")
    parser.add_argument("--save", type=Path, default=Path("fuzz-findings"), help="folder for inputs that show something")
    parser.add_argument("--nice", type=int, default=19, help="how far back the processes stand for others (default: 19)")
    args = parser.parse_args()
    job = Work(
        seed=args.seed,
        first=args.first,
        inputs=args.inputs,
        stride=args.processes,
        analyse_every=args.analyse_every,
        limit_s=args.limit,
        minutes=args.minutes,
        save=args.save.absolute(),
        only=args.only,
        nice=args.nice,
    )
    begun = time.monotonic()
    told = run(job, args.processes)
    seconds = time.monotonic() - begun
    print(f"{told.inputs} inputs, seed {args.seed}, numbers from {args.first}, {seconds:.0f} s, {told.inputs / seconds:.0f} a second")
    print(f"analysis of every {args.analyse_every}th that can be read; peak memory of a process {told.peak_bytes >> 20} MiB")
    for stage, count in sorted(told.stages.items(), key=lambda pair: -pair[1]):
        print(f"{count:9} {stage}")
    print(f"{len(told.findings)} findings")
    for signature, found in sorted(told.findings.items()):
        print(f"\n=== {signature}")
        print("\n".join(found))
    return 1 if told.findings else 0


if __name__ == "__main__":
    sys.exit(main())
