"""Answers written to files: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from traceread.errors import OutputError


def write_text(path: Path, text: str) -> Path:
    """The path, now holding the text in UTF-8. It is written beside the target and moved over it, so a failure leaves what was there.

    Raises:
        OutputError: the file cannot be written.
    """
    with replacing(path) as file:
        file.write(text.encode("utf-8", "replace"))
    return path


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` once the block has ended well; after an exception what was there is left.

    Raises:
        OutputError: the file cannot be written.
    """
    with replacing_path(path) as partial, partial.open("wb" if partial.exists() else "xb") as file:
        yield file
        file.flush()
        if partial.is_file():
            os.fsync(file.fileno())


@contextlib.contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """A path to write to that is moved over `path` once the block has ended well; after an exception what was there is left.

    What is no file, such as a pipe or a device, has nothing to keep and is written to itself.

    Raises:
        OutputError: the file cannot be written.
    """
    target = path.resolve() if path.is_symlink() else path
    try:
        if target.is_dir():
            raise IsADirectoryError(None, "it is a directory")
        if target.exists() and not target.is_file():
            yield target
            return
        with _beside(target) as partial:
            yield partial
    except OSError as error:
        hint = "choose another place" if target.parent.exists() else f"mkdir -p {shlex.quote(str(path.parent))}"
        raise OutputError(f"cannot write {path}: {error.strerror or error}", hint) from None


@contextlib.contextmanager
def _beside(target: Path) -> Iterator[Path]:
    """A path beside the target, moved over it once the block has ended well and removed otherwise."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        yield partial
        if target.exists():
            partial.chmod(target.stat().st_mode & 0o7777)
        partial.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
