"""Answers written to files: whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from traceread.errors import OutputError


def write_text(path: Path, text: str) -> Path:
    """The path, now holding the text in UTF-8. It is written beside the target and moved over it, so a failure leaves what was there.

    Raises:
        OutputError: the file cannot be written.
    """
    target = path.resolve() if path.is_symlink() else path
    try:
        if target.exists() and not target.is_file():  # a pipe or a device: there is nothing to keep
            if target.is_dir():
                raise IsADirectoryError(None, "it is a directory")
            target.write_text(text, "utf-8")
            return path
        _replace(target, text.encode("utf-8", "replace"))
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}", "choose another place with -o FILE") from None
    return path


def _replace(target: Path, data: bytes) -> None:
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with partial.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            partial.chmod(target.stat().st_mode & 0o7777)
        partial.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
