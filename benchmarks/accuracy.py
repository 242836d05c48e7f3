"""How close the analysis comes to the truth: every scenario, both formats, through the whole pipeline.

    python benchmarks/accuracy.py                  the table, on stdout
    python benchmarks/accuracy.py --write          ... kept in docs/accuracy.md
    python benchmarks/accuracy.py item-sync        some scenarios
    python benchmarks/accuracy.py --detail NAME    cause by cause where analysis and truth differ

Exit code 1 if an idle cause is more than 1 % of its step off, a partition does not add up, or windows differ.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import traceread
from traceread.simulate import Capture, Job, scenarios, simulate, write_run

BUSY = ("compute", "exposed_communication", "exposed_copy")
TOLERANCE = 0.01
DOCUMENT = Path(__file__).parents[1] / "docs" / "accuracy.md"

INTRODUCTION = """\
# How accurate the attribution is

Every scenario of the simulator, written in both formats, read back and analysed. The simulator shares no code with the analysis; it
knows the cause of every idle interval from what it did. `error` is the largest difference between the time the analysis gives to a
cause and the true time, over all ranks, used steps and causes, as a share of the step; `idle` is the true idle share of the used steps.
`windows` says whether the step windows are the true ones to the nanosecond, `sums` whether every partition adds up to its window exactly.

Both tables are printed by `python benchmarks/accuracy.py --write`.
"""

SAVINGS = """\

## What the fixes save

Mean step of the slowest rank: as it is, simulated again with the planted faults removed, and predicted by the fix list when everything
on it is fixed. A prediction goes further than the faults where the healthy job itself leaves something to gain.
"""


@dataclass(frozen=True)
class Window:
    """One step of one rank: true and found time by cause."""

    rank: int
    step: str
    length: int
    true: dict[str, int]
    found: dict[str, int]
    bounds_agree: bool
    adds_up: bool
    used: bool

    def differences(self) -> dict[str, int]:
        """Found minus true time of every cause that either knows."""
        return {cause: self.found.get(cause, 0) - self.true.get(cause, 0) for cause in sorted({*self.true, *self.found})}


@dataclass(frozen=True)
class Steps:
    """Step times in ns: as it is, without the planted faults, and predicted with everything on the fix list fixed."""

    now: int
    without: int
    predicted: int
    rules: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """A scenario in one format."""

    scenario: str
    capture: Capture
    windows: list[Window] = field(default_factory=list)
    steps_ns: Steps | None = None

    @property
    def used(self) -> list[Window]:
        """The windows that count."""
        return [w for w in self.windows if w.used]

    @property
    def error(self) -> tuple[float, str]:
        """The largest difference as a share of its step, and the cause."""
        return max(
            ((abs(ns) / w.length, cause if ns else "") for w in self.used for cause, ns in w.differences().items()), default=(0.0, "")
        )

    @property
    def idle(self) -> float:
        """True idle share of the used steps."""
        return sum(sum(w.true.values()) for w in self.used) / max(sum(w.length for w in self.used), 1)

    @property
    def windows_agree(self) -> bool:
        """Whether there are used windows, all where they truly are."""
        return bool(self.used) and all(w.bounds_agree for w in self.used)

    @property
    def adds_up(self) -> bool:
        """Whether every partition sums to its window."""
        return all(w.adds_up for w in self.windows)

    @property
    def passes(self) -> bool:
        """Whether it is as accurate as promised."""
        return self.error[0] <= TOLERANCE and self.windows_agree and self.adds_up


def measure(job: Job, capture: Capture, directory: Path, *, savings: bool = False, **changes: int) -> Result:
    """Simulate a job, write it, analyse it and compare.

    Args:
        job: the scenario.
        capture: format and variant.
        directory: an empty directory to write to.
        savings: simulate without the faults too.
        changes: ranks, steps or seed.
    """
    whole_microseconds = capture.format == "kineto" and capture.era in ("us", "2021")
    write_run(simulate(job, tick=1_000 if whole_microseconds else 1, **changes), directory, capture, counterfactuals=savings)
    report = traceread.analyze(traceread.load(directory))
    truth = json.loads((directory / "truth.json").read_text())
    relative = capture.format == "nsys" and capture.schema == "old"
    windows = list(_windows(report.partition.to_dict(), report.base_ns, truth, relative=relative))
    return Result(job.name, capture, windows, _steps(report.findings, truth) if savings and job.faults else None)


def _steps(findings: Sequence[Any], truth: dict) -> Steps:
    times = [row["mean_step_ns"] for row in truth["without"]]
    fixed = [finding.step_ns_after for finding in findings if finding.step_ns_after is not None]
    return Steps(times[0], times[-1], min(fixed, default=times[0]), tuple(finding.rule for finding in findings))


def _windows(rows: Iterable[dict], base_ns: int, truth: dict, *, relative: bool) -> Iterator[Window]:
    """The windows of a report beside their truth; `relative`: the capture does not say when it began."""
    idle: dict[tuple[int, str, int], dict[str, int]] = {}
    bounds: dict[tuple[int, str, int], tuple[int, int]] = {}
    seen: dict[tuple[int, str], int] = defaultdict(int)
    starts: dict[int, list[tuple[int, tuple[int, str, int]]]] = defaultdict(list)
    for step in truth["steps"]:
        key = (step["rank"], step["step"], seen[step["rank"], step["step"]])
        seen[step["rank"], step["step"]] += 1
        bounds[key] = (step["start_ns"], step["end_ns"])
        idle[key] = defaultdict(int)
        starts[step["rank"]].append((step["start_ns"], key))
    for part in truth["idle"]:
        key = next(k for start, k in reversed(starts[part["rank"]]) if start <= part["start_ns"])
        idle[key][part["cause"]] += part["end_ns"] - part["start_ns"]
    count: dict[tuple[int, str], int] = defaultdict(int)
    shift: dict[int, int] = {}
    for row in rows:
        key = (row["rank"], row["step"], count[row["rank"], row["step"]])
        count[row["rank"], row["step"]] += 1
        start, end = row["start_ns"] + base_ns, row["end_ns"] + base_ns
        if relative:
            offset = shift.setdefault(row["rank"], bounds[key][0] - start)
            start, end = start + offset, end + offset
        yield Window(
            rank=row["rank"],
            step=row["step"],
            length=max(end - start, 1),
            true=dict(idle.get(key, {})),
            found={cause: ns for cause, ns in row["classes"].items() if cause not in BUSY and ns},
            bounds_agree=bounds.get(key) == (start, end),
            adds_up=sum(row["classes"].values()) == end - start,
            used=row["used"],
        )


def table(results: list[Result]) -> str:
    """The results as a markdown table, one line per scenario."""
    lines = ["| scenario | idle | Kineto error | cause | nsys error | cause | windows | sums |", "|---|---|---|---|---|---|---|---|"]
    by_name: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_name[result.scenario].append(result)
    for name, pair in by_name.items():
        errors = " | ".join(f"{100 * r.error[0]:.3f} % | {r.error[1] or '–'}" for r in pair)
        agree = "exact" if all(r.windows_agree for r in pair) else "**differ**"
        sums = "exact" if all(r.adds_up for r in pair) else "**wrong**"
        lines.append(f"| {name} | {100 * pair[0].idle:.1f} % | {errors} | {agree} | {sums} |")
    return "\n".join(lines) + "\n"


def savings_table(results: list[Result]) -> str:
    """Predicted and true step times as a markdown table, one line per scenario with faults."""
    lines = ["| scenario | step | without the faults | predicted | fix list |", "|---|---|---|---|---|"]
    for result in results:
        steps = result.steps_ns
        if steps is not None:
            times = " | ".join(f"{ns / 1e6:.2f} ms" for ns in (steps.now, steps.without, steps.predicted))
            lines.append(f"| {result.scenario} | {times} | {', '.join(dict.fromkeys(steps.rules)) or '–'} |")
    return "\n".join(lines) + "\n"


def detail(result: Result) -> str:
    """Cause by cause where analysis and truth differ by more than 0.1 % of a step."""
    lines = []
    for w in result.used:
        off = {c: ns for c, ns in w.differences().items() if abs(ns) > w.length // 1000}
        if off or not w.bounds_agree:
            bounds = "" if w.bounds_agree else ", window differs"
            lines.append(f"{result.scenario} {result.capture.format} rank {w.rank} {w.step}, {w.length:,} ns{bounds}")
            lines += [f"    {c:22} true {w.true.get(c, 0):>12,} found {w.found.get(c, 0):>12,}" for c in off]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description="Compare the analysis with the truth of simulated captures.")
    parser.add_argument("scenario", nargs="*")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}")
    parser.add_argument("--detail", action="store_true", help="say where they differ")
    args = parser.parse_args(argv)
    jobs = scenarios()
    results = []
    for name in args.scenario or jobs:
        for format_ in ("kineto", "nsys"):
            with tempfile.TemporaryDirectory() as directory:
                result = measure(jobs[name], Capture(format_, compress=False), Path(directory), savings=format_ == "kineto")
            results.append(result)
            print(f"{name} {format_}: {'passes' if result.passes else 'DIFFERS'}", file=sys.stderr)
            if args.detail:
                print(detail(result), file=sys.stderr)
    text = table(results)
    saved = savings_table(results)
    print(text)
    print(saved)
    if args.write:
        DOCUMENT.write_text(INTRODUCTION + "\n" + text + SAVINGS + "\n" + saved)
    return 0 if all(r.passes for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
