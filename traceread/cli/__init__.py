"""The command line. `main` is the only place that catches TracereadError; every verb is a file beside this one."""

from __future__ import annotations

import argparse
import atexit
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import traceread
from traceread.cli import options
from traceread.errors import TracereadError

DONE, COULD_NOT, USAGE, GATE = 0, 1, 2, 3
"""Exit codes: done, could not, wrong usage, a gate you asked for failed."""
INTERRUPTED = 130

VERBS = (
    "report", "info", "steps", "kernels", "ranks", "diff", "history", "explain", "export", "plan", "scaling", "runs", "scrub", "simulate",
)  # fmt: skip

_EXAMPLES = """\
examples:
  traceread report run/                     every rank in a directory
  traceread report trace.json.gz            one PyTorch trace
  traceread report a.sqlite -o report.md    one Nsight Systems export, answer to a file
  traceread info run/                       what was recorded, what was not, how to record it
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code."""
    atexit.register(gc.freeze)  # all goes with the process: to look through it for cycles first takes a tenth of a small report's time
    try:
        return _main(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:  # before the command has begun
        return INTERRUPTED


def _main(arguments: list[str]) -> int:
    parser, verbs = _parser(arguments[0] if arguments else "")
    if not arguments:
        parser.print_help(sys.stderr)
        return USAGE
    if arguments[0] not in verbs and not arguments[0].startswith("-") and Path(arguments[0]).exists():
        print(f"traceread: error: {arguments[0]} is not a command\ntraceread: hint: traceread report {arguments[0]}", file=sys.stderr)
        return USAGE
    try:
        args = parser.parse_args(arguments)
    except SystemExit as stop:  # --help, --version, wrong usage
        return stop.code if isinstance(stop.code, int) else DONE
    return _run(verbs[args.verb], args)


def _parser(first: str = "") -> tuple[argparse.ArgumentParser, dict[str, ModuleType]]:
    """The parser and the modules of the verbs; of one verb alone where that is the first argument, because the others take time."""
    parser = argparse.ArgumentParser(
        prog="traceread",
        description="Where did the training step go? Reads PyTorch and Nsight Systems traces.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"traceread {traceread.__version__}")
    options.add_global(parser)
    subparsers = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True)
    wanted = (first,) if first in VERBS else VERBS
    verbs = {verb: import_module(f"traceread.cli.{verb}") for verb in wanted if find_spec(f"traceread.cli.{verb}")}
    for verb, module in verbs.items():
        module.add_parser(subparsers)
        options.add_global(subparsers.choices[verb])
    parser.set_defaults(quiet=False, verbose=False, no_color=False, debug=False)
    return parser, verbs


def _run(verb: ModuleType, args: argparse.Namespace) -> int:
    try:
        return int(verb.run(args))
    except BrokenPipeError:  # whoever read the answer has seen enough; Python must not complain when it closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except TracereadError as error:
        if args.debug:
            raise
        _complain(error.message, error.hint, error.slug)
    except OSError as error:  # of what no reader and no writer has a better word for: a full disk under stdout, a file that went away
        if args.debug:
            raise
        where = error.filename or "the system says"
        _complain(f"{where}: {error.strerror or error}", "make room or choose another place, then run the same command again", "output")
    except Exception as error:
        if args.debug:
            raise
        hint = "this is a bug in traceread; the same command with --debug shows where"
        _complain(f"unexpected {type(error).__name__}: {error}", hint, "internal")
    return COULD_NOT


def _complain(message: str, hint: str, slug: str) -> None:
    from traceread.names import clean

    print(f"traceread: error: {clean(message)} [{slug}]", file=sys.stderr)
    if hint:
        print(f"traceread: hint: {clean(hint)}", file=sys.stderr)
