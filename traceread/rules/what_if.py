"""Questions of one's own: what a step would take if some classes took less."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from traceread.errors import MissingData, SelectionError
from traceread.measurements.classes import StepClass
from traceread.measurements.replay_job import JobGraph, JobReplay, alone
from traceread.records import record
from traceread.rules.inspection import Inspection

_EXAMPLE = "data_wait=0,exposed_communication=50%"
_FOR_EVER = (StepClass.QUEUED, StepClass.UNATTRIBUTED, StepClass.PROFILER)
_PART = r"\s*(?P<name>[A-Za-z][A-Za-z_ -]*?)\s*=\s*(?P<left>\d{1,3}(?:\.\d)?)\s*(?P<unit>%?)\s*"


@record
class WhatIf:
    """The answer to a what-if question.

    Attributes:
        keep: thousandths of each class that are left.
        step_ns: mean step as measured.
        step_ns_then: mean step of the same rank with those classes reduced, all else equal.
        error: of the replay of the unchanged steps, as a share of them.
        trusted: whether the error is small enough for a prediction.
    """

    keep: tuple[tuple[StepClass, int], ...]
    step_ns: int
    step_ns_then: int
    error: float
    trusted: bool

    @property
    def saving_ns(self) -> int:
        """By how much the step gets shorter; negative where it gets longer."""
        return self.step_ns - self.step_ns_then

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON builtins."""
        return {
            "keep": {c.key: thousandths / 1000 for c, thousandths in self.keep},
            "step_ns": self.step_ns,
            "step_ns_then": self.step_ns_then,
            "saving_ns": self.saving_ns,
            "replay_error": self.error,
            "trusted": self.trusted,
        }


def parse_question(question: str) -> dict[StepClass, int]:
    """What is left of each class named in a question, in thousandths: "data_wait=0,exposed_communication=50%".

    Raises:
        SelectionError: it cannot be understood.
    """
    keep: dict[StepClass, int] = {}
    for part in question.split(","):
        found = re.fullmatch(_PART, part)
        if found is None:
            raise SelectionError(f"what-if {part.strip()!r} is not CLASS=SHARE", f"write what is left of a class: {_EXAMPLE}")
        name = found["name"].strip().lower().replace("-", "_").replace(" ", "_")
        match = [c for c in StepClass if c.key == name]
        if not match:
            raise SelectionError(f"what-if names no class of time: {name!r}", f"classes are {', '.join(c.key for c in StepClass)}")
        whole, _, tenth = found["left"].partition(".")
        left = int(whole) * 10 + int(tenth or 0)
        if not found["unit"]:
            if found["left"] not in ("0", "1"):
                raise SelectionError(f"what-if {part.strip()!r}: {found['left']} of what?", f"write a share: {name}={found['left']}%")
            left *= 100
        if left > 1000:
            raise SelectionError(f"what-if {part.strip()!r}: only less than there is can be replayed", "write a share of 100% or less")
        keep[match[0]] = left
    return keep


def answer(ranks: Mapping[int, Inspection], critical: int, step_ns: int, question: str, job: JobGraph | None = None) -> WhatIf:
    """What the steps of the critical rank, `step_ns` long in the mean, would take if every rank changed.

    Raises:
        SelectionError: the question cannot be understood, or names a class that nothing can take away.
        MissingData: the steps cannot be replayed.
    """
    keep = parse_question(question)
    graph = ranks[critical].graph
    if graph is None:
        raise MissingData("the steps cannot be replayed: their launches were not recorded", "traceread info says what to record")
    stay = [c.key for c in keep if c in _FOR_EVER]
    if stay:
        can = ", ".join(c.key for c in StepClass if c not in _FOR_EVER)
        raise SelectionError(f"what-if cannot take away {', '.join(stay)}: no fix of the script does", f"classes are {can}")
    replay = JobReplay(job or alone(graph))
    parts = [
        {rank: replace(ranks[rank].classes[c], keep=left) for rank in replay.job.graphs if c in ranks[rank].classes}
        for c, left in keep.items()
    ]
    return WhatIf(tuple(keep.items()), step_ns, step_ns - replay.saving(parts), replay.error, replay.trusted)
