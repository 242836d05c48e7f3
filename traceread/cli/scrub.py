"""`traceread scrub`: a trace that one may send to others."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from traceread.cli import options

if TYPE_CHECKING:
    from traceread.cli.options import Subparsers
    from traceread.scrub import Scrubbed


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "scrub",
        help="a copy to send to others: without environment, paths, hosts, users, command lines and program output",
        description="Writes a copy of a trace, or of a directory of ranks, that keeps all times and the names of kernels, ops and ranges, "
        "and nothing about the machine and the people: no environment, paths, hosts, users, command lines or program output. Then reads "
        "the copy, compares its report with that of the original, and says what was left out.",
    )
    parser.add_argument("source", type=Path, metavar="IN", help="a trace, or a directory of them with their run.json")
    parser.add_argument("target", type=Path, metavar="OUT", help="the file, or for a directory the directory, to write; it must not exist")
    parser.add_argument(
        "--allow-difference", action="store_true", help="write the copy even if its report differs, because a changed name named steps, say"
    )
    options.add_limits(parser)


def run(args: argparse.Namespace) -> int:
    """Writes the copy and says what is not in it."""
    from traceread.cli.loading import LoadProgress, limits_of
    from traceread.scrub import scrub

    with LoadProgress(wanted=sys.stderr.isatty() and not args.quiet) as progress:
        reading = replace(limits_of(args), progress=progress.update)
        done = scrub(args.source, args.target, reading, allow_difference=args.allow_difference)
    if not args.quiet:
        print("\n".join(_summary(args.source, done)))
    return 0


def _summary(source: Path, done: Scrubbed) -> list[str]:
    from traceread.names import clean
    from traceread.readers.discover import rank_in_name
    from traceread.units import plural

    lines = [f"{source} → {done.path}: {plural(len(done.files), 'trace')}"]
    removed = [f"{kind} ({count})" for kind, count in sorted(done.removed.items())]
    replaced = [f"{kind} ({count})" for kind, count in sorted(done.replaced.items()) if count]
    lines.append(f"left out: {', '.join(removed) or 'nothing'}")
    lines.append(f"replaced in names: {', '.join(replaced) or 'nothing'}")
    rank = rank_in_name(source.name)
    if not source.is_dir() and rank not in (None, rank_in_name(done.path.name)):
        lines.append(f"rank: the name {source.name} says {rank} and {done.path.name} does not; the trace may say it too")
    if done.left_out:
        shown = ", ".join(map(clean, done.left_out[:4]))
        more = f" and {len(done.left_out) - 4} more" if len(done.left_out) > 4 else ""
        lines.append(f"not copied: {shown}{more}")
    lines.append(
        "kept: times, sizes, process and thread numbers, GPU model, names of kernels, ops, ranges, threads, Python functions and files"
    )
    if done.differs:
        lines.append(f"checked: the report of the copy differs from that of the original in {clean(done.differs)}")
    else:
        lines.append("checked: the report of the copy says the same as that of the original")
    lines.append(f"Names are yours: look through them before you send it, traceread report {quote(str(done.path))} --json")
    return lines
