"""How well a job scales: runs of different sizes against the smallest that does the same work.

Strong scaling keeps the batch of the whole job and divides it among more GPUs; weak scaling keeps the batch of a GPU. Only runs of the same
model at the same shape say anything about each other, so each is compared with the smallest valid one, which is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction
from typing import Any

from traceread.records import record


class Scaling(StrEnum):
    """What is kept the same."""

    STRONG = "strong"  # the tokens of a step over all GPUs
    WEAK = "weak"  # the tokens of a step per GPU


@record
class ScalingRun:
    """One run.

    Attributes:
        title: how it is called.
        gpus: number of GPUs.
        tokens: of a step over all of them.
        step_ns: mean step of its slowest rank.
        compute_ns, exposed_communication_ns: of that rank, in a step.
        model: what must be the same for runs to be compared: parameters, layers, width, sequence length, precision, recomputation.
        mfu: utilisation, None if not known.
    """

    title: str
    gpus: int
    tokens: int
    step_ns: int
    compute_ns: int
    exposed_communication_ns: int
    model: tuple[Any, ...] = ()
    mfu: float | None = None

    @property
    def tokens_per_gpu(self) -> Fraction:
        """Tokens of a step on one GPU."""
        return Fraction(self.tokens, self.gpus)

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of all GPUs."""
        return self.tokens * 1e9 / self.step_ns


@record
class ScalingStep:
    """A run against its baseline.

    Attributes:
        kind: what both have the same.
        run, baseline: the two.
    """

    kind: Scaling
    run: ScalingRun
    baseline: ScalingRun

    @property
    def ideal_ns(self) -> int:
        """The step if nothing were lost: the baseline's, divided by as much less work as a GPU has."""
        if self.kind is Scaling.WEAK:
            return self.baseline.step_ns
        return self.baseline.step_ns * self.baseline.gpus // self.run.gpus

    @property
    def efficiency(self) -> float:
        """Ideal over measured step."""
        if self.kind is Scaling.WEAK:
            return self.baseline.step_ns / self.run.step_ns
        return self.baseline.step_ns * self.baseline.gpus / (self.run.step_ns * self.run.gpus)

    @property
    def added_ns(self) -> int:
        """What the larger run has in a step beyond the ideal: communication by subtraction, and everything else that grows with it."""
        return self.run.step_ns - self.ideal_ns

    @property
    def added_communication_ns(self) -> int:
        """By how much exposed communication as measured is longer than in the baseline."""
        return self.run.exposed_communication_ns - self.baseline.exposed_communication_ns

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON builtins."""
        return {
            "kind": str(self.kind),
            "run": self.run.title,
            "baseline": self.baseline.title,
            "efficiency": self.efficiency,
            "ideal_ns": self.ideal_ns,
            "added_ns": self.added_ns,
            "added_communication_ns": self.added_communication_ns,
        }


@record
class ScalingTable:
    """Runs of different sizes.

    Attributes:
        runs: in order of size.
        steps: each run with each baseline it has, strong before weak.
        alone: runs that nothing is compared with, and why.
    """

    runs: tuple[ScalingRun, ...]
    steps: tuple[ScalingStep, ...]
    alone: tuple[tuple[ScalingRun, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """The table as JSON builtins."""
        return {
            "runs": [
                {
                    "title": r.title,
                    "gpus": r.gpus,
                    "tokens": r.tokens,
                    "tokens_per_gpu": float(r.tokens_per_gpu),
                    "step_ns": r.step_ns,
                    "compute_ns": r.compute_ns,
                    "exposed_communication_ns": r.exposed_communication_ns,
                    "tokens_per_s": r.tokens_per_s,
                    "mfu": r.mfu,
                }
                for r in self.runs
            ],
            "steps": [s.to_dict() for s in self.steps],
            "not_compared": [{"run": r.title, "reason": reason} for r, reason in self.alone],
        }


def compare_sizes(runs: Sequence[ScalingRun]) -> ScalingTable:
    """Each run against the smallest one with the same model and the same batch, of the whole job or of a GPU."""
    ordered = tuple(sorted(runs, key=lambda r: (r.gpus, r.title)))
    steps: list[ScalingStep] = []
    for kind in Scaling:
        for i, run in enumerate(ordered):
            same = [b for b in ordered[:i] if b.gpus < run.gpus and b.model == run.model and _batch(kind, b) == _batch(kind, run)]
            if same:
                steps.append(ScalingStep(kind, run, same[0]))
    used = {id(run) for s in steps for run in (s.run, s.baseline)}
    alone = tuple((run, _why_alone(run, ordered)) for run in ordered if id(run) not in used)
    return ScalingTable(ordered, tuple(steps), alone)


def _batch(kind: Scaling, run: ScalingRun) -> Fraction:
    return Fraction(run.tokens) if kind is Scaling.STRONG else run.tokens_per_gpu


def _why_alone(run: ScalingRun, runs: Sequence[ScalingRun]) -> str:
    others = [r for r in runs if r is not run]
    if not others:
        return "there is no other run"
    if all(r.model != run.model for r in others):
        return "no other run has the same model, sequence length and precision"
    if all(r.gpus == run.gpus for r in others if r.model == run.model):
        return "the other runs have as many GPUs"
    return "no other run has the same tokens in a step, of the whole job or of a GPU"
