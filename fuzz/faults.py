"""Kills, interrupts and starves commands at random moments, and looks at what they leave.

    python fuzz/faults.py --rounds 200 --seed 1

Each round runs one command on a small capture: a report as markdown, JSON or page, an export for Perfetto, as SQLite or as CSV, a report
into a history or with a cache. It is killed (SIGKILL) or interrupted (SIGINT) at a random moment of its run, or may write no file longer
than a random number of bytes, which stands for a full disk. After every round what is under the final name must be what was there before or
whole; a history has its old rows, a cache reads; an interrupted command ends with 130 and without a traceback. Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]


def one(state: object, name: str, folder: Path, whole_s: float, rng: random.Random) -> str:
    """What was done in one round and how the command ended; AssertionError if it left what it must not."""
    import fault_states as faults

    how = rng.choice(("kill", "kill", "interrupt", "full disk"))
    command = faults.arguments(name, folder)
    if how == "full disk":
        code, err = faults.run(command, folder, largest_file=int(10 ** rng.uniform(2.3, 6)))
        assert code in (0, 1), (code, err)
        assert "[internal]" not in err, err
        state.check(done=False)
    else:
        number = signal.SIGKILL if how == "kill" else signal.SIGINT
        code, err = faults.run(command, folder, after_s=rng.uniform(0, 1.1 * whole_s), how=number)
        assert code in (0, -signal.SIGKILL if how == "kill" else 130), (code, err)
        assert how == "kill" or "Traceback" not in err or "Exception ignored" in err, err  # in a callback of Python's own
        state.check(done=code == 0)
    return f"{how}, exit code {code}"


def main() -> int:
    """Runs and tells; exit code 1 if something was left that must not be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, help="how many (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: 1); they are not exactly the same twice")
    args = parser.parse_args()
    import fault_states as faults

    rng = random.Random(args.seed)
    seen: Counter[str] = Counter()
    failures = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        states = {}
        for name in faults.EVERYTHING:
            folder = Path(place, name)
            folder.mkdir()
            states[name] = faults.State(name, folder)
            faults.run(faults.arguments(name, folder), folder)
            states[name].check(done=True)
            begun = time.monotonic()
            faults.run(faults.arguments(name, folder), folder)
            states[name].check(done=True)
            states[name].seconds = time.monotonic() - begun
        for number in range(args.rounds):
            name = faults.EVERYTHING[number % len(faults.EVERYTHING)]
            try:
                seen[f"{name}: {one(states[name], name, Path(place, name), states[name].seconds, rng)}"] += 1
            except AssertionError:
                failures += 1
                print(f"=== round {number}, {name}\n{traceback.format_exc()[-1500:]}")
    for what, count in sorted(seen.items()):
        print(f"{count:6} {what}")
    print(f"{args.rounds} rounds, seed {args.seed}, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
