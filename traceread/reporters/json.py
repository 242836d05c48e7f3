"""Results as JSON builtins: format 1. Fields are added, never renamed; times are integer ns counted from profile.base_ns."""

from __future__ import annotations

import json
import re
from typing import Any

import traceread
from traceread.findings import Skipped
from traceread.measurements.evidence import Gap
from traceread.measurements.kernels import KernelTime
from traceread.measurements.planning import Plan
from traceread.measurements.scaling import ScalingTable
from traceread.measurements.steps import StepSource
from traceread.model import Capability
from traceread.report import FORMAT, RankReport, Report
from traceread.reporters.capture import judge
from traceread.reporters.gaps import GAPS, longest_gaps
from traceread.reporters.headline import headline
from traceread.reporters.losses import idle_reasons
from traceread.reporters.recording import GUIDES, missing
from traceread.reporters.waiting import Against, ranks_headline
from traceread.reporters.windows import why_not_used

KERNELS_KEPT = 500
"""Kernels and copies of the critical rank in the JSON: enough to compare a later report with."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_STEERING = re.compile(r"[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""Beside what JSON itself escapes: terminals take orders from it, or write backwards."""


def to_json(value: Any) -> str:
    """The text of a JSON document, valid UTF-8 whatever names it holds, ending in a newline."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1)
    text = _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def report_dict(report: Report, gaps: int = GAPS) -> dict[str, Any]:
    """The report, format 1."""
    summary = report.summary
    critical = None if summary is None else report.rank(summary.critical_rank)
    return {
        **_head(report),
        "headline": list(headline(report)),
        "steps": _steps(report),
        "partition": report.partition.to_dict(),
        "summary": None if summary is None else summary.to_dict(),
        "idle_reasons": [] if critical is None or summary is None else _reasons(critical, list(summary.steps)),
        "idle_gaps": [_gap(g, report.base_ns) for g in longest_gaps(report, gaps)],
        "kernels": [] if critical is None else _kernels(critical, KERNELS_KEPT),
        "families": [] if critical is None else [_kernel(k, critical) for k in critical.kernels.by_family()],
        "ranges": [] if critical is None else [r.to_dict() for r in critical.ranges],
        "host_rows": [row for r in report.ranks for row in _host_rows(r)],
        "not_recorded": [
            {"what": str(m.capability), "ranks": list(m.ranks), "how": GUIDES[m.capability].how(report.source)} for m in missing(report)
        ],
        "findings": [f.to_dict(report.base_ns) for f in report.findings],
        "skipped": [_skipped(s, report.source) for s in report.skipped],
        "replay": report.fix_list.quality.to_dict(),
        "efficiency": {} if report.efficiency is None else report.efficiency.to_dict(),
    }


def capture_dict(report: Report) -> dict[str, Any]:
    """What `traceread info` says."""
    verdict = judge(report)
    return {
        **_head(report),
        "steps": _steps(report),
        "recorded": [
            {
                "what": str(capability),
                "tells": guide.tells,
                "ranks": [r.rank for r in report.ranks if capability in r.recorded],
                "how": guide.how(report.source),
            }
            for capability, guide in GUIDES.items()
        ],
        "verdict": {"good_enough": verdict.good, "reasons": list(verdict.reasons)},
    }


def windows_dict(report: Report) -> dict[str, Any]:
    """What `traceread steps` says: the partition, with the reason why a window is not used."""
    reasons = [why_not_used(r).get(i, "") for r in report.ranks for i in range(len(r.steps.windows))]
    windows = [{**row, "reason": reason} for row, reason in zip(report.partition.to_dict(), reasons, strict=True)]
    return {**_head(report), "steps": _steps(report), "partition": windows}


def kernels_dict(report: Report, rank: RankReport, by: str, limit: int) -> dict[str, Any]:
    """What `traceread kernels` says."""
    rows = rank.kernels.by_family() if by == "family" else rank.kernels.rows
    return {
        **_head(report),
        "rank": rank.rank,
        "by": by,
        "steps_used": rank.kernels.steps,
        "window_ns": rank.kernels.window_ns,
        "kernels": [_kernel(k, rank) for k in (rows[:limit] if limit else rows)],
    }


def ranks_dict(report: Report, link_bytes_per_s: float | None = None, against: Against = ()) -> dict[str, Any]:
    """What `traceread ranks` says."""
    return {
        **_head(report),
        "steps": _steps(report),
        "headline": list(ranks_headline(report)) if report.summary else list(headline(report)),
        **report.rank_table.to_dict(report.base_ns, link_bytes_per_s),
        "against": [
            {
                "title": title,
                "world_size": world_size,
                "ranks_loaded": loaded,
                "window_ns": c.window_ns,
                "communication_ns": c.exposed_ns + c.hidden_ns,
                "exposed_ns": c.exposed_ns,
                "wait_ns": c.wait_ns,
                "hidden_ns": c.hidden_ns,
            }
            for title, world_size, loaded, c in against
        ],
        "partition": report.partition.to_dict(),
    }


def plan_dict(plan: Plan) -> dict[str, Any]:
    """What `traceread plan` says."""
    return {"format": FORMAT, "traceread": traceread.__version__, "plan": plan.to_dict()}


def scaling_dict(table: ScalingTable) -> dict[str, Any]:
    """What `traceread scaling` says."""
    return {"format": FORMAT, "traceread": traceread.__version__, **table.to_dict()}


def _head(report: Report) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "traceread": traceread.__version__,
        "profile": {
            "source": report.source,
            "title": report.title,
            "base_ns": str(report.base_ns),
            "world_size": report.world_size,
            "ranks": [_rank(r) for r in report.ranks],
            "warnings": [n.to_dict() for n in report.all_notices],
            "skipped_files": [{"file": str(path), "reason": reason} for path, reason in report.skipped_files],
        },
    }


def _rank(r: RankReport) -> dict[str, Any]:
    return {
        "rank": r.rank,
        "rank_source": r.rank_source,
        "device": r.device.name,
        "device_index": r.device.index,
        "host": r.host,
        "files": [str(f) for f in r.files],
        "versions": dict(r.versions),
        "recorded": sorted(str(c) for c in r.recorded),
        "rows": dict(r.counts),
    }


def _steps(report: Report) -> dict[str, Any]:
    summary = report.summary
    worked = [r for r in report.ranks if r.steps.windows]
    lead = report.rank(summary.critical_rank) if summary else report.ranks[0] if report.ranks else None
    stepped = [r for r in worked if r.steps.source is not StepSource.WHOLE_CAPTURE]
    busy = sum(r.busy_ns for r in stepped)
    return {
        "source": str(lead.steps.source) if lead else str(StepSource.WHOLE_CAPTURE),
        "name": lead.steps.name if lead else "",
        "used": list(summary.steps) if summary else [],
        "excluded": [
            {"step": r.steps.windows[position].label, "rank": r.rank, "reason": reason}
            for r in report.ranks
            for position, reason in r.steps.excluded
        ],
        "fallback": [{"rank": r.rank, "reason": r.steps.fallback} for r in worked if r.steps.fallback],
        "outside_share": sum(r.outside_ns for r in stepped) / busy if busy else 0.0,
    }


def _reasons(rank: RankReport, labels: list[str]) -> list[dict[str, Any]]:
    """Why the critical rank was idle, summed over its used steps."""
    return [
        {
            "class": r.step_class.key,
            "reason": r.reason.text,
            "evidence": _evidence(r.recorded),
            "name": r.name or None,
            "total_ns": r.total_ns,
            "count": r.count,
        }
        for r in idle_reasons(rank, labels)
    ]


def _skipped(skipped: Skipped, source: str) -> dict[str, Any]:
    """A rule that could not look, with how to record what it lacked."""
    how = [GUIDES[Capability(need)].how(source) for need in skipped.needs]
    return {"rule": skipped.rule, "reason": ". ".join([skipped.reason, *how]), "needs": list(skipped.needs)}


def _evidence(recorded: bool) -> str:
    return "recorded" if recorded else "inferred"


def _gap(gap: Gap, base_ns: int) -> dict[str, Any]:
    return {
        "rank": gap.rank,
        "step": gap.step,
        "start_ns": gap.start_ns - base_ns,
        "end_ns": gap.end_ns - base_ns,
        "causes": [
            {
                "class": c.step_class.key,
                "reason": c.reason.text,
                "evidence": _evidence(c.recorded),
                "duration_ns": c.duration_ns,
                "names": list(c.names),
            }
            for c in gap.causes
        ],
        "next": gap.next_activity or None,
        "call": gap.launch_call or None,
        "thread": gap.thread or None,
        "names": list(gap.ranges),
        "source": gap.source or None,
    }


def _kernels(rank: RankReport, count: int) -> list[dict[str, Any]]:
    longest = sorted(rank.kernels.rows, key=lambda k: (-k.exposed_ns, -k.total_ns, k.name))
    return [_kernel(k, rank) for k in longest[:count]]


def _kernel(k: KernelTime, rank: RankReport) -> dict[str, Any]:
    """Sums over the rank's used steps; share is of the used steps."""
    window = rank.kernels.window_ns
    return {
        "name": k.name,
        "category": k.category,
        "family": k.family,
        "count": k.count,
        "total_ns": k.total_ns,
        "exposed_ns": k.exposed_ns,
        "share": k.exposed_ns / window if window else 0.0,
        "op": k.op,
        "fused": k.fused,
    }


def _host_rows(r: RankReport) -> list[dict[str, Any]]:
    if r.host_summary is None:
        return []
    return [{"rank": r.rank, "name": h.name, "kind": h.kind, "count": h.count, "total_ns": h.total_ns} for h in r.host_summary.rows]
