"""`traceread simulate`: write the traces of a job whose truth is known."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traceread.errors import SelectionError

if TYPE_CHECKING:
    from traceread.simulate import Capture, Job


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """The parser of the verb, added to the others."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "simulate",
        help="write the traces of a simulated job, with the truth about it",
        description="Simulate a training job and write what a profiler would have recorded, with truth.json beside it: the cause of every "
        "idle interval, waiting and transfer of every collective, clocks, and the step time without each planted fault.",
    )
    parser.add_argument("scenario", nargs="?", help="name of a scenario, see --list")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="directory to write to; made if it does not exist")
    parser.add_argument("--list", action="store_true", help="list the scenarios and their faults")
    parser.add_argument("--format", choices=("kineto", "nsys"), default="kineto", help="what profiler to imitate (default: kineto)")
    parser.add_argument("--ranks", type=int, metavar="N", help="number of ranks (default: the scenario's)")
    parser.add_argument("--steps", type=int, metavar="N", help="recorded steps (default: the scenario's)")
    parser.add_argument("--write", metavar="RANKS", help='ranks to write, such as "0-3,7" (default: the scenario\'s)')
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the jitter (default: 0)")
    parser.add_argument("--without", action="append", default=[], metavar="FAULT", help='remove a planted fault; "all" removes every one')
    parser.add_argument("--no-truth", action="store_true", help="do not write truth.json")
    kineto = parser.add_argument_group("PyTorch traces")
    kineto.add_argument(
        "--era",
        choices=("ns", "ns-epoch", "us", "2021"),
        default="ns",
        help="ns: today; ns-epoch: spring 2024; us: torch 1.12 to 2.3; 2021: torch 1.8 and 1.9 (default: ns)",
    )
    kineto.add_argument("--vendor", choices=("nvidia", "amd"), default="nvidia", help="whose GPUs and runtime (default: nvidia)")
    kineto.add_argument("--stacks", action="store_true", help="record Python frames")
    kineto.add_argument("--shapes", action="store_true", help="record input shapes")
    kineto.add_argument("--no-collectives", action="store_true", help="leave out the metadata of collectives")
    kineto.add_argument("--sync-events", action="store_true", help="record stream and event synchronisation")
    kineto.add_argument("--plain", action="store_true", help="do not gzip")
    nsys = parser.add_argument_group("Nsight Systems exports")
    nsys.add_argument("--schema", choices=("old", "middle", "new"), default="new", help="2021, 3.7.2 or 3.25.0 (default: new)")
    nsys.add_argument("--graphs", choices=("node", "graph"), default="node", help="how CUDA graphs are recorded (default: node)")
    nsys.add_argument("--files", choices=("rank", "host", "job"), default="rank", help="one file per rank, host or job (default: rank)")
    nsys.add_argument(
        "--oddity",
        action="append",
        default=[],
        metavar="NAME",
        choices=("aborted", "bad-text", "data-loss", "user-columns"),
        help="write a peculiarity: aborted, bad-text, data-loss, user-columns",
    )
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Exit code of the verb: 0 done, 2 nothing to do."""
    from traceread.simulate import scenarios, simulate, write_run

    jobs = scenarios()
    if args.list or args.scenario is None:
        _list(jobs)
        return 0 if args.list else 2
    job = jobs.get(args.scenario)
    if job is None:
        raise SelectionError(
            f"There is no scenario called {args.scenario!r}; there are {', '.join(jobs)}.", "Type `traceread simulate --list`."
        )
    if args.output is None:
        raise SelectionError("Where to? No output directory was given.", f"Type `traceread simulate {args.scenario} -o DIR`.")
    capture = _capture(args)
    if args.write:
        job = replace(job, written=_ranks(args.write, args.ranks or job.ranks))
    without = frozenset(job.faults if "all" in args.without else args.without)
    # eras of whole microseconds are simulated in microseconds, so that nothing is rounded
    tick = 1_000 if capture.format == "kineto" and capture.era in ("us", "2021") else 1
    simulated = simulate(job, ranks=args.ranks, steps=args.steps, seed=args.seed, tick=tick, without=without)
    paths = write_run(simulated, args.output, capture, truth=not args.no_truth)
    files = f"{len(paths)} trace{'s' if len(paths) > 1 else ''}" + ("" if args.no_truth else " and truth.json")
    print(f"{files} in {args.output}", file=sys.stderr)
    return 0


def _ranks(text: str, world: int) -> tuple[int, ...]:
    """Ranks from a list of numbers and ranges."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or not (last or first).isdigit() or int(last or first) >= world:
            raise SelectionError(f"{text!r} are not ranks of a job of {world}.", f'Type ranks as "0-3,7", below {world}.')
        found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def _capture(args: argparse.Namespace) -> Capture:
    from traceread.simulate import Capture

    return Capture(
        format=args.format,
        era=args.era,
        vendor=args.vendor,
        stacks=args.stacks,
        shapes=args.shapes,
        collectives=not args.no_collectives,
        sync_events=args.sync_events,
        schema=args.schema,
        graphs=args.graphs,
        files=args.files,
        oddities=frozenset(args.oddity),
        compress=not args.plain,
    )


def _list(jobs: dict[str, Job]) -> None:
    width = max(len(name) for name in jobs)
    for name, job in jobs.items():
        faults = f" Faults: {', '.join(job.faults)}." if job.faults else ""
        print(f"{name:{width}}  {job.about}{faults}")
