"""Reports as their JSON, made of numbers alone; used by the tests of comparisons and histories."""

import json

from traceread.comparison.side import Side, _decoded
from traceread.measurements.classes import CLASSES

RUN = {
    "job": "toy",
    "world_size": 2,
    "model": {"parameters": 10**9, "sequence_length": 2048, "precision": "bf16"},
    "global_batch_sequences": 64,
    "tokens_per_step": {"valid": 131_072},
}


def report(steps, /, *, ranks=1, title="run/", **more):
    """Format 1 of a job whose ranks all take these steps; a step is its length in ns (all compute) or classes by name."""
    at, partition = 0, []
    for number, step in enumerate(steps):
        classes = {"compute": step} if isinstance(step, int) else dict(step)
        length = sum(classes.values())
        for rank in range(ranks):
            window = {"rank": rank, "step": f"step {number}", "start_ns": at, "end_ns": at + length, "used": True, "partial": False}
            full = {name: classes.get(name, 0) for name in CLASSES}
            partition.append({**window, "classes": full, "hidden_communication": 7, "hidden_copy": 0})
        at += length
    value = {
        "format": 1,
        "traceread": "0.1.0",
        "profile": {
            "source": "kineto",
            "title": title,
            "base_ns": "0",
            "world_size": ranks,
            "ranks": [{"rank": r, "device": "NVIDIA H100 80GB HBM3", "versions": {}, "recorded": ["launches"]} for r in range(ranks)],
            "warnings": [],
        },
        "steps": {"source": "recorded", "name": "step", "used": [f"step {n}" for n in range(len(steps))]},
        "partition": partition,
        "summary": {"critical_rank": 0},
        "kernels": [],
        "families": [],
        "ranges": [],
        "findings": [],
        "efficiency": {},
    }
    return merged(value, more)


def merged(value, changes):
    """The value with parts of it exchanged, objects key by key."""
    for name, change in changes.items():
        if isinstance(change, dict) and isinstance(value.get(name), dict):
            value[name] = merged(dict(value[name]), change)
        else:
            value[name] = change
    return value


def side(steps, /, **more):
    """A side of these steps, see `report`."""
    return side_of_dict(report(steps, **more))


def side_of_dict(value) -> Side:
    return Side(_decoded(json.dumps(value).encode(), value["profile"]["title"]))


def kernel(name, *, count=10, total=1_000_000, category="compute", family="gemm", op="", exposed=None):
    exposed = total if exposed is None else exposed
    return {"name": name, "category": category, "family": family, "count": count, "total_ns": total, "exposed_ns": exposed, "op": op}
