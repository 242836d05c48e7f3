"""Traces behind URLs (s3://, gs://, memory:// and what else fsspec knows): listed there, fetched one at a time, read here.

fsspec and the package of the protocol (s3fs, gcsfs) are imported when a URL is given. A file is fetched whole, into the directory for
temporary files, because SQLite needs it so and readers are faster on it; it is deleted as soon as it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from traceread.errors import InputError, TraceNotFound, TracereadError

if TYPE_CHECKING:
    _Base = Path
else:
    _Base = type(Path())  # before Python 3.12 only this can be subclassed

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?:::[A-Za-z][A-Za-z0-9+.-]*)*://")  # IGNORECASE would cost half a millisecond
_HEAD_BYTES = 1 << 16
_ZIP = b"PK"
_INSTALL = "pip install 'traceread[cluster]'"


class RemotePath(_Base):
    """A file behind a URL, where a path is only named, compared and shown.

    It is no file of this machine: `fetched` makes it one.
    """

    _url: str = ""
    size: int = -1
    """Bytes, -1 if not known."""
    head: bytes = b""
    """Its beginning, where that came with the listing."""

    @classmethod
    def of(cls, url: str, size: int = -1) -> RemotePath:
        """The file behind this URL."""
        path = cls(url)
        path._url, path.size = url, size
        return path

    def __str__(self) -> str:
        return self._url or super().__str__()

    def __reduce__(self) -> tuple[Any, ...]:
        return RemotePath.of, (str(self), self.size)


def is_url(path: str | Path) -> bool:
    """Whether this is the URL of a file or directory, which need not be on this machine."""
    return isinstance(path, RemotePath) or (isinstance(path, str) and _URL.match(path) is not None)


def listed(url: str) -> list[RemotePath]:
    """The files behind a URL: a directory's, without its subdirectories, a pattern's, or the one.

    Raises:
        TraceNotFound: there is none.
        InputError: it cannot be reached.
    """
    with _errors_about(url):
        system, key = _opened(url)
        if any(c in key for c in "*?[") and not system.exists(key):
            found = [system.info(name) for name in sorted(system.glob(key))]
        elif system.isdir(key):
            found = system.ls(key, detail=True)
        else:
            return [RemotePath.of(url, _size(system.info(key)))]
        entries = [entry for entry in found if entry["type"] == "file"]
        files = [RemotePath.of(system.unstrip_protocol(entry["name"]), _size(entry)) for entry in entries]
        names = [entry["name"] for entry in entries]
        heads = system.cat_ranges(names, [0] * len(names), [_HEAD_BYTES] * len(names), on_error="return") if names else []
        for file, head in zip(files, heads, strict=True):
            file.head = head if isinstance(head, bytes) else b""
    if not files:
        raise TraceNotFound(f"there is no file at {url}", "give the directory that holds the traces; its subdirectories are not read")
    return files


def identity(path: RemotePath) -> str:
    """A text that changes when the file does, as far as its system tells.

    Raises:
        TraceNotFound, InputError: it cannot be reached.
    """
    with _errors_about(str(path)):
        system, key = _opened(str(path))
        return f"{path} {system.ukey(key)}"


@contextmanager
def head_of(path: RemotePath) -> Iterator[Path]:
    """The beginning of the file, as a file of the same name on this machine; all of it where its beginning says nothing.

    Raises:
        TraceNotFound, InputError: it cannot be reached.
    """
    with _errors_about(str(path)), _temporary_directory() as folder:
        system, key = _opened(str(path))
        local = Path(folder, path.name)
        head = path.head or system.cat_file(key, 0, _HEAD_BYTES)
        if head.startswith(_ZIP):  # what is in a zip stands at its end
            system.get_file(key, str(local))
        else:
            local.write_bytes(head)
        with _errors_about_local(local, path):
            yield local


@contextmanager
def fetched(path: RemotePath) -> Iterator[Path]:
    """The file, as one of the same name on this machine; deleted at the end. Errors about it name its URL.

    Raises:
        TraceNotFound, InputError: it cannot be reached, or there is no room for it.
    """
    with _errors_about(str(path)), _temporary_directory() as folder:
        system, key = _opened(str(path))
        local = Path(folder, path.name)
        system.get_file(key, str(local))
        with _errors_about_local(local, path):
            yield local


def _temporary_directory() -> AbstractContextManager[str]:
    from tempfile import TemporaryDirectory  # what it imports takes a millisecond, and most traces are files

    return TemporaryDirectory(prefix="traceread-")


def _opened(url: str) -> tuple[Any, str]:
    """The file system of a URL, and its name in there."""
    try:
        fsspec: Any = import_module("fsspec")
    except ImportError:
        raise InputError(f"{url}: reading from URLs needs fsspec, which is not installed", _INSTALL, "remote") from None
    system, key = fsspec.core.url_to_fs(url)
    return system, key


def _size(entry: dict[str, Any]) -> int:
    size = entry.get("size")
    return size if isinstance(size, int) else -1


@contextmanager
def _errors_about(url: str) -> Iterator[None]:
    """Turns what the library of a protocol raises, each in its own way, into errors that name the URL."""
    try:
        yield
    except TracereadError:
        raise
    except FileNotFoundError:
        look = f"import fsspec; fs, path = fsspec.url_to_fs({url.rpartition('/')[0] or url!r}); print(*fs.ls(path), sep='\\n')"
        raise TraceNotFound(f"{url} does not exist", f"python -c {quote(look)}") from None
    except ImportError as error:
        raise InputError(f"{url}: {error}", "pip install the package that it names", "remote") from None
    except Exception as error:
        text = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]
        hint = "check the URL, your access to it, and the room in the directory for temporary files (TMPDIR)"
        raise InputError(f"{url} cannot be read: {text}", hint, "remote") from error


@contextmanager
def _errors_about_local(local: Path, path: RemotePath) -> Iterator[None]:
    try:
        yield
    except TracereadError as error:
        raise type(error)(error.message.replace(str(local), str(path)), error.hint.replace(str(local), str(path)), error.slug) from error
