"""Whether two captures say the same: their reports, but for what names files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import traceread
from traceread.config import Config
from traceread.engine import Workers
from traceread.readers.options import ReadOptions
from traceread.reporters.json import report_dict
from traceread.scrub.texts import Texts

_ABOUT_FILES = frozenset(("files", "title", "skipped_files"))
_ABOUT_STACK = ("job", "stack", "profiler")  # of run.json: no number is made of them
# What is wrong with a file is not wrong with its copy: that is written anew, and what could not be read is not in it.
_MENDED = frozenset(("damaged-events", "damaged-file", "damaged-metadata", "unread-events", "unknown-field"))


def answers(path: Path, options: ReadOptions) -> dict[str, Any]:
    """The report of a capture as JSON builtins, without the user's traceread.toml.

    Raises:
        TracereadError: the capture cannot be used.
    """
    return report_dict(traceread.analyze(path, config=Config(), options=options, workers=Workers(0)))


def comparable(answer: dict[str, Any], folder: Path, texts: Texts | None = None) -> dict[str, Any]:
    """An answer without what names files; with `texts`, its names as they are in a scrubbed capture."""

    def text(said: str) -> str:
        said = said.replace(str(folder), "")
        return said if texts is None else texts.clean(said)

    result: dict[str, Any] = _mapped(answer, text, texts)
    for part in ("run", "sources"):
        described = result["efficiency"].get(part, {})
        result["efficiency"][part] = {key: value for key, value in described.items() if key.partition(".")[0] not in _ABOUT_STACK}
    profile = result["profile"]
    profile["warnings"] = [
        {**warning, "message": "" if warning["slug"] == "truncated" else warning["message"]}
        for warning in profile["warnings"]
        if warning["slug"] not in _MENDED
    ]
    return result


def difference(before: Any, after: Any) -> str:
    """Where two answers differ first, such as "summary.step_ns.median"; "" if nowhere. The order of ties in a list may differ."""
    return next(_differences(before, after, ""), "")


def _differences(before: Any, after: Any, place: str) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        for key in before:
            yield from _differences(before[key], after[key], f"{place}.{key}" if place else key)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        # Rows with equal times stand in the order of their names, some of which are others now.
        for i, (one, other) in enumerate(zip(sorted(before, key=repr), sorted(after, key=repr), strict=True)):
            yield from _differences(one, other, f"{place}[{i}]")
    else:
        yield place


def _mapped(value: Any, text: Callable[[str], str], texts: Texts | None) -> Any:
    if isinstance(value, dict):
        parts = {key: _mapped(part, text, texts) for key, part in value.items() if key not in _ABOUT_FILES}
        if texts is not None and isinstance(value.get("host"), str):
            parts["host"] = texts.host(value["host"])
        return parts
    if isinstance(value, list):
        return [_mapped(part, text, texts) for part in value]
    return text(value) if isinstance(value, str) else value
