"""Makes the files that docs/security.md lists at full size, and shows what a command does with each.

    python fuzz/hostile.py                 all of them (some minutes, 2 GB of disk)
    python fuzz/hostile.py gzip-bomb       one

Printed is how the command ended, how long it took, how much memory it used at most, and what it said. Exit code 1 if one did not end as it
must: a refusal must name its flag, and nothing may end with a traceback, take more than --limit seconds or more than 4 GiB.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
MOST_BYTES = 4 << 30


@dataclass(frozen=True)
class Case:
    """A file, the command that meets it, and how that must end.

    Attributes:
        make: writes it: path and count.
        count: how large.
        name: of the file.
        code: exit code.
        says: what must be in the output.
        arguments: of the command before the path.
    """

    make: Callable[[Path, int], Path]
    count: int
    name: str = "trace.json"
    code: int = 0
    says: str = ""
    arguments: tuple[str, ...] = ("report",)


def cases() -> dict[str, Case]:
    """Every case by name."""
    import hostile_files as h

    return {
        "gzip-bomb": Case(h.bomb, 8 << 30, code=1, says="--max-uncompressed"),
        "zip-bomb": Case(h.zip_bomb, 1200 << 20, code=1, says="--max-uncompressed"),
        "long-name": Case(h.long_name, 300_000_000, says="dropped"),
        "deep-nesting": Case(h.deep, 10_000_000, says="damaged"),
        "streams": Case(h.streams, 1_000_000),
        "names": Case(h.names, 1_000_000),
        "steps": Case(h.steps, 200_000),
        "process-groups": Case(h.groups, 200_000),
        "overlapping": Case(h.overlapping, 500_000),
        "gpus": Case(h.gpus, 1_000_000, code=1, says="--trust"),
        "threads": Case(h.threads, 1_000_000, code=1, says="--trust"),
        "huge-times": Case(h.huge_times, 0, says="no usable time"),
        "directory": Case(lambda path, _: h.directory(path), 0, "run", says="not a regular file", arguments=("-v", "report")),
        "zip-path": Case(lambda path, _: h.zip_of_path(path), 0, "trace.zip"),
        "names-in-json": Case(lambda path, _: h.nasty_trace(path), 0),
        "names-in-export": Case(lambda path, _: h.nasty_export(path), 0, "a.sqlite"),
        "secrets": Case(lambda path, _: h.secret_export(path), 0, "a.sqlite"),
        **{
            f"sql-{how}": Case(lambda path, _, how=how: h.odd_database(path, how), 0, "a.sqlite", arguments=("info",))
            for how in ("view", "trigger", "virtual", "generated", "index")
        },
    }


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (3 * MOST_BYTES, 3 * MOST_BYTES))  # this machine is needed afterwards


def show(name: str, case: Case, limit_s: float) -> bool:
    """Whether the command ended as it must; prints how it did."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as place:
        path = case.make(Path(place, case.name), case.count)
        size = path.stat().st_size
        command = [sys.executable, "-m", "traceread", *case.arguments, str(path)]
        with Path(place, "out").open("w+b") as out:
            begun = time.monotonic()
            process = subprocess.Popen(command, stdout=out, stderr=out, cwd=ROOT, preexec_fn=_bounded)
            code, peak = None, 0
            while code is None:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    code, peak = os.waitstatus_to_exitcode(status), usage.ru_maxrss << 10
                elif time.monotonic() - begun > limit_s:
                    process.kill()
                time.sleep(0.02)
            seconds = time.monotonic() - begun
            out.seek(0)
            text = out.read().decode("utf-8", "replace")
    secret = "hunter2" in text
    steered = any((ord(c) < 32 and c != "\n") or 0x7F <= ord(c) < 0xA0 for c in text)
    right = code == case.code and case.says in text and "Traceback" not in text and peak < MOST_BYTES and not secret and not steered
    last = text.strip().splitlines()[-1] if text.strip() else ""
    shown = next((line for line in text.splitlines() if "error:" in line or (case.says and case.says in line)), last)
    print(f"{'ok' if right else 'WRONG':6}{name}: {size:,} bytes, exit code {code}, {seconds:.1f} s, {peak >> 20} MiB\n      {shown[:150]}")
    return right


def main() -> int:
    """Shows the cases; exit code 1 if one did not end as it must."""
    known = cases()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(known)}")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one (default: 300)")
    args = parser.parse_args()
    if unknown := set(args.cases) - set(known):
        parser.error(f"no case {', '.join(sorted(unknown))}")
    return 0 if not [name for name in args.cases or known if not show(name, known[name], args.limit)] else 1


if __name__ == "__main__":
    sys.exit(main())
