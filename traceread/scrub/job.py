"""The description of a job as it may be sent: numbers, known words and versions; no name, no host, no text of one's own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from traceread.run import FORMAT, read_run
from traceread.scrub.texts import Texts

_STACK = (
    "python", "torch", "cuda", "hip", "cudnn", "nccl", "gpu", "memory_bytes", "multiprocessors", "driver", "clocks_max_sm",
    "clocks_max_memory", "clocks_application_sm", "power_limit", "ecc", "mig",
)  # fmt: skip
_VERSION = re.compile(r"[\w.+()-]{1,60}(?: [\w.+()-]{1,60}){0,6}")
_KEY = re.compile(r"\w{1,40}")


def kept_run(path: Path, texts: Texts, removed: Counter[str]) -> dict[str, Any]:
    """What is kept of a run.json; counts the fields that are not.

    Raises:
        ConfigError: it cannot be understood.
    """
    run = read_run(path).run.to_dict()
    kept = _numbers(run)
    kept["model"] = run.get("model", {})  # its only texts are words from a list
    stack = run.get("stack", {})
    kept["stack"] = {
        key: texts.clean(value) if isinstance(value, str) else value
        for key in _STACK
        if _is_number(value := stack.get(key)) or (isinstance(value, str) and _VERSION.fullmatch(value))
    }
    kept = {"format": FORMAT} | {key: value for key, value in kept.items() if value != {}}
    removed["fields of run.json"] += _leaves({"format": FORMAT} | run) - _leaves(kept)
    return kept


def _numbers(values: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """The numbers and switches in a nested mapping."""
    kept: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping) and depth < 4:
            kept[key] = _numbers(value, depth + 1)
        elif _is_number(value) and _KEY.fullmatch(key):
            kept[key] = value
    return kept


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _leaves(values: Mapping[str, Any]) -> int:
    return sum(_leaves(value) if isinstance(value, Mapping) else 1 for value in values.values())
