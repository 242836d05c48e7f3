"""`traceread export`: the capture with what was found out, for Perfetto, or as tables for one's own tools."""

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
    from traceread.report import Report

FORMATS = ("perfetto", "sqlite", "csv", "parquet")
_ENDINGS = {".json": "perfetto", ".json.gz": "perfetto", ".sqlite": "sqlite", ".sqlite3": "sqlite", ".db": "sqlite"}


def add_parser(subparsers: Subparsers) -> None:
    """Adds the command."""
    parser = subparsers.add_parser(
        "export",
        help="the capture with steps, classes, idle causes and findings as tracks for Perfetto; or tables: SQLite, CSV, Parquet",
        description="Writes the recorded events together with tracks of what was found out, for ui.perfetto.dev and chrome://tracing; "
        "an Nsight Systems export too. Or tables of steps, intervals, idle causes, kernels, collectives and findings.",
    )
    options.add_input(parser)
    options.add_steps(parser)
    group = parser.add_argument_group("output")
    group.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="PATH",
        help="annotated.json.gz for Perfetto, tables.sqlite for a database, a folder for csv and parquet",
    )
    group.add_argument("-f", "--output-format", choices=FORMATS, help="what to write (default: what the ending of PATH says)")


def run(args: argparse.Namespace) -> int:
    """Writes the export."""
    from traceread.cli.loading import load_report

    format = args.output_format or _format_of(args.output)
    _check_place(args.output, is_folder=format in ("csv", "parquet"))
    report = load_report(args, details=True)
    written = _write(report, format, args)
    if not args.quiet:
        shown = written[0] if len(written) == 1 else f"{len(written)} tables in {args.output}"
        where = "; open it at https://ui.perfetto.dev (it stays on your machine) or in chrome://tracing" if format == "perfetto" else ""
        print(f"traceread: wrote {shown}{where}", file=sys.stderr)
    return 0


def _format_of(path: Path) -> str:
    from traceread.errors import OutputError

    found = next((format for ending, format in _ENDINGS.items() if path.name.lower().endswith(ending)), None)
    if found is None:
        raise OutputError(
            f"{path}: the ending names no export",
            "name it annotated.json.gz for Perfetto or tables.sqlite, or say -f csv or -f parquet and give a folder",
        )
    return found


def _check_place(path: Path, *, is_folder: bool) -> None:
    """Asked before the traces are read, so that a wrong place costs nothing."""
    from traceread.errors import OutputError

    if is_folder and path.exists() and not path.is_dir():
        raise OutputError(f"cannot write to {path}: it is a file", f"give a folder: -o {quote(str(path.with_suffix('')))}")
    if not is_folder and path.is_dir():
        raise OutputError(f"cannot write {path}: it is a directory", f"give a file in it: -o {quote(str(path / 'annotated.json.gz'))}")
    if not is_folder and not path.parent.is_dir():
        raise OutputError(f"cannot write {path}: there is no directory {path.parent}", f"mkdir -p {quote(str(path.parent))}")


def _write(report: Report, format: str, args: argparse.Namespace) -> tuple[Path, ...]:
    from traceread.reporters import tables

    if format == "sqlite":
        return (tables.save_sqlite(report, args.output),)
    if format == "csv":
        return tables.save_csv(report, args.output)
    if format == "parquet":
        return tables.save_parquet(report, args.output)
    import traceread
    from traceread.cli.loading import limits_of
    from traceread.reporters.perfetto import export_perfetto

    # PyTorch traces are copied from their files; of Nsight Systems the tables are needed once more
    profile = None
    if report.source != "kineto":
        limits = replace(limits_of(args), cache=args.cache)
        profile = traceread.load(args.paths, source=args.format, ranks=args.ranks, config=args.config, options=limits)
    return (export_perfetto(report, args.output, profile, only_used=args.steps is not None),)
