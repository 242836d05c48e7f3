"""Files that are whole or not there, and whose failure never reaches the training loop."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger("traceread.capture")


def write_json(path: Path, values: Mapping[str, Any]) -> bool:
    """Whether the values could be written, whole; what was there before stays if not, and the log says why."""
    part = path.with_name(path.name + ".tmp")
    try:
        part.write_text(json.dumps(values, indent=1) + "\n", "utf-8")
        part.replace(path)
    except OSError as error:
        log.warning("cannot write %s: %s; training goes on without it", path, error.strerror or error)
        _remove(part)
        return False
    return True


def compress(path: Path) -> Path:
    """A file as path.gz, the plain one gone; the plain one stays if that fails, and the log says why."""
    import shutil

    from isal import igzip

    packed = path.with_name(path.name + ".gz")
    part = packed.with_name(packed.name + ".tmp")
    try:
        with path.open("rb") as plain, igzip.IGzipFile(part, "wb", compresslevel=1) as out:  # type: ignore[no-untyped-call]
            shutil.copyfileobj(plain, out, 1 << 20)
        part.replace(packed)
        path.unlink()
    except OSError as error:
        log.warning("cannot compress %s: %s; it stays as it is", path, error.strerror or error)
        _remove(part)
        return path
    return packed


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        log.debug("%s is left behind", path)
