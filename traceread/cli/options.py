"""Options that several commands share, each defined once. Nothing here imports more than argparse until an option is used."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(i?b)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def add_global(parser: argparse.ArgumentParser) -> None:
    """-q, -v, --no-color, --debug: valid before and after the command."""
    group = parser.add_argument_group("global options")
    quiet = argparse.SUPPRESS  # an absent option of the command must not undo one given before it
    group.add_argument("-q", "--quiet", action="store_true", default=quiet, help="say nothing on stderr but errors")
    group.add_argument("-v", "--verbose", action="store_true", default=quiet, help="also list the files that were skipped, on stderr")
    group.add_argument("--no-color", action="store_true", default=quiet, help="no colours and no block characters (as with NO_COLOR)")
    group.add_argument("--debug", action="store_true", default=quiet, help="show where an error comes from")


def add_input(parser: argparse.ArgumentParser, nargs: str = "+") -> None:
    """PATH... and how to read it."""
    parser.add_argument("paths", nargs=nargs, metavar="PATH", help="a trace, several, a directory of them or a glob")
    add_reading(parser)


def add_reading(parser: argparse.ArgumentParser) -> None:
    """How traces are read."""
    group = parser.add_argument_group("input")
    group.add_argument("--format", choices=("kineto", "nsys"), help="which traces to take where a directory holds both kinds")
    group.add_argument("--ranks", type=_ranks, metavar="LIST", help="only these ranks, such as 0-3,7")
    group.add_argument("--config", type=Path, metavar="FILE", help="a traceread.toml other than the one beside the traces")
    add_limits(group)
    jobs_help = "processes that read ranks (default: one for each CPU, where that pays)"
    group.add_argument("--jobs", type=count, default=0, metavar="N", help=jobs_help)
    group.add_argument("--cache", type=Path, metavar="DIR", help="keep what was read there, so that the next time is faster")
    group.add_argument("--cluster", metavar="ADDRESS", help="read ranks on a Dask cluster, such as tcp://host:8786")
    group.add_argument("--keep-going", action="store_true", help="leave out ranks that cannot be read, and say which")


def add_limits(parser: argparse._ActionsContainer) -> None:
    """--max-uncompressed and --trust."""
    parser.add_argument(
        "--max-uncompressed", type=_size, metavar="SIZE", help="refuse files that unpack to more, such as 64G (the default)"
    )
    parser.add_argument("--trust", action="store_true", help="read files however large, and with however many GPUs and threads")


def add_steps(parser: argparse.ArgumentParser) -> None:
    """--steps and --step-range."""
    group = parser.add_argument_group("steps")
    group.add_argument("--steps", type=_steps, metavar="A:B", help="only steps A to B-1 by their own numbers, such as 12:17")
    group.add_argument(
        "--step-range",
        type=_pattern,
        metavar="REGEX|infer|none",
        help="the ranges that are steps; infer: guess them from what repeats; none: the whole capture",
    )


def add_output(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    """-f, --json and -o."""
    group = parser.add_argument_group("output")
    group.add_argument("-f", "--output-format", choices=formats, dest="output_format", help="format of the answer (default: text)")
    group.add_argument("--json", action="store_const", const="json", dest="output_format", help="the same as -f json")
    group.add_argument("-o", "--output", metavar="FILE", default="-", help="write to a file (its extension names the format); -: stdout")
    parser.set_defaults(formats=tuple(formats))


def count(text: str) -> int:
    """A whole number that is not negative."""
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if not found or not int(found[1]) or len(found[1]) > 15:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write bytes or a number with K, M, G or T, such as 64G")
    return int(found[1]) << 10 * _POWERS[found[2].lower()]


def _ranks(text: str) -> frozenset[int]:
    from traceread.errors import SelectionError
    from traceread.selection import parse_ranks

    try:
        return parse_ranks(text)
    except SelectionError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}") from None


def _steps(text: str) -> str:
    from traceread.errors import SelectionError
    from traceread.selection import parse_steps

    try:
        parse_steps(text)
    except SelectionError as error:
        raise argparse.ArgumentTypeError(f"{error.message}; {error.hint}") from None
    return text


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None
    return text
