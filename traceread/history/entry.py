"""A report in one row: what is kept of it in the history."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from shlex import quote
from typing import Any

from traceread.comparison.side import Side
from traceread.errors import ComparisonError
from traceread.records import record
from traceread.report import median

_COMMITS = ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT", "BUILDKITE_COMMIT")
"""Where services of continuous integration say which commit is tested."""

_FIRST_REAL_NS = 10**18
"""Captures whose clock does not count from 1970 lie before September 2001."""


@record
class Family:
    """Kernels of one family: time and launches per step."""

    category: str
    family: str
    step_ns: int
    launches: float

    @property
    def launch_ns(self) -> float:
        """Time per launch."""
        return self.step_ns / self.launches if self.launches else 0.0


@record
class Entry:
    """One report of a job.

    Attributes:
        key: of its content; equal reports have equal keys.
        job, commit: what ran.
        captured_at, appended_at: ISO 8601 in UTC; `captured_at` is None where the capture has no clock of the day.
        title, source, version: what it was made of, and by which traceread.
        gpu, gpus, ranks: GPU model, GPUs of the job, ranks that were loaded.
        workload: what must be equal for step times to be comparable, in words.
        steps: how many are used.
        median_ns, mean_ns, max_ns: step times of the critical rank.
        critical_rank: the rank they are of.
        slowest_rank: the rank that takes longest itself, waiting left out where it is told apart.
        slowest_ns, middle_ns: its mean step, and that of the median rank.
        tokens_per_s, mfu, convention, hfu: use of the hardware, None where not known.
        class_ns: mean time per step by class.
        rank_ns: mean step of every rank, waiting left out where it is told apart.
        families: kernels by family.
        findings: rule, title, loss_ns, saving_ns of each.
        stack: versions, and what run.json says of clocks and power.
    """

    key: str
    job: str
    commit: str | None
    captured_at: str | None
    appended_at: str
    title: str
    source: str
    version: str
    gpu: str | None
    gpus: int | None
    ranks: int
    workload: str
    steps: int
    median_ns: int
    mean_ns: int
    max_ns: int
    critical_rank: int
    slowest_rank: int
    slowest_ns: int
    middle_ns: int
    tokens_per_s: float | None
    mfu: float | None
    convention: str | None
    hfu: float | None
    class_ns: Mapping[str, int]
    rank_ns: Mapping[int, int]
    families: tuple[Family, ...]
    findings: tuple[Mapping[str, Any], ...]
    stack: Mapping[str, Any]

    @property
    def at(self) -> str:
        """When it was captured, else when it was appended."""
        return self.captured_at or self.appended_at

    @property
    def skew(self) -> float:
        """The slowest rank's step over the median rank's."""
        return self.slowest_ns / self.middle_ns if self.middle_ns else 1.0


def entry_of(side: Side, job: str | None = None, commit: str | None = None, now: datetime | None = None) -> Entry:
    """The row of a report.

    Args:
        side: the report, see `traceread.comparison.side.side_of` and `read_saved`.
        job: its name; by default that of run.json, else the title.
        commit: what ran; by default what continuous integration says.
        now: when it is appended.

    Raises:
        ComparisonError: it holds no GPU work.
    """
    if not side.has_work:
        raise ComparisonError(
            f"{side.title} holds no GPU work, so there is nothing to follow", f"traceread info {quote(side.title)}", "nothing-to-compare"
        )
    job = job or _text(side.run.get("job")) or side.title
    commit = commit or next((os.environ[name] for name in _COMMITS if os.environ.get(name)), None)
    own = side.rank_own_ns
    slowest = max(own, key=lambda rank: (own[rank], -rank))
    known = side.saved.efficiency
    tokens = known.get("tokens_per_s")
    gpus = side.saved.profile.world_size or _whole(known.get("gpus"))
    gpu = next((r.device for r in side.saved.profile.ranks if r.device), None)
    content = [side.saved.profile.base_ns, job, commit, [(w.rank, w.step, w.start_ns, w.end_ns, w.classes) for w in side.saved.partition]]
    return Entry(
        key=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32],
        job=job,
        commit=commit,
        captured_at=_captured(side),
        appended_at=_iso(now or datetime.now(UTC)),
        title=side.title,
        source=side.saved.profile.source,
        version=side.saved.traceread,
        gpu=gpu,
        gpus=gpus,
        ranks=len(side.saved.profile.ranks),
        workload=_workload(side, gpu, gpus),
        steps=len(side.step_ns),
        median_ns=side.median_ns,
        mean_ns=side.mean_ns,
        max_ns=max(side.step_ns),
        critical_rank=side.critical_rank,
        slowest_rank=slowest,
        slowest_ns=own[slowest],
        middle_ns=median(list(own.values())),
        tokens_per_s=_number(tokens.get("valid")) if isinstance(tokens, Mapping) else None,
        mfu=_number(known.get("mfu")),
        convention=_text(known.get("convention")),
        hfu=_number(known.get("hfu")),
        class_ns=side.class_ns,
        rank_ns=own,
        families=tuple(_family(side, k) for k in side.saved.families),
        findings=tuple(
            {"rule": f.rule, "title": f.title, "loss_ns": sum(f.loss_ns.values()), "saving_ns": f.saving_ns} for f in side.saved.findings
        ),
        stack=_stack(side),
    )


def _family(side: Side, kernel: Any) -> Family:
    steps = max(side.kernel_steps, 1)
    return Family(kernel.category, kernel.family, (2 * kernel.total_ns + steps) // (2 * steps), kernel.count / steps)


def _captured(side: Side) -> str | None:
    at = int(side.saved.profile.base_ns) + min((w.start_ns for w in side.saved.partition), default=0)
    if at < _FIRST_REAL_NS or at >= 10**19:
        return None
    return _iso(datetime.fromtimestamp(at // 10**9, UTC).replace(microsecond=at % 10**9 // 1000))


def _workload(side: Side, gpu: str | None, gpus: int | None) -> str:
    """What must be equal for step times to be comparable."""
    model = side.run.get("model")
    model = model if isinstance(model, Mapping) else {}
    parts = [
        f"{gpus or '?'} × {gpu or 'unknown GPU'}",
        *(
            f"{name} {value}"
            for name, value in (("batch", side.run.get("global_batch_sequences")), ("sequence", model.get("sequence_length")))
            if value
        ),
        *(str(value) for value in (model.get("precision"),) if value),
        *([f"{model['parameters']:,} parameters"] if isinstance(model.get("parameters"), int) else []),
    ]
    return " · ".join(parts)


def _stack(side: Side) -> dict[str, Any]:
    """Versions that the traces record, and the fingerprint of run.json without what names the machine."""
    versions: dict[str, Any] = {}
    for r in side.saved.profile.ranks:
        versions |= {k: v for k, v in r.versions.items() if k not in versions}
    said = side.run.get("stack")
    fingerprint = {str(k): v for k, v in said.items() if str(k).lower() not in ("host", "hostname")} if isinstance(said, Mapping) else {}
    return versions | fingerprint


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
