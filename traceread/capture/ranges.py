"""Ranges that both profilers see, and that cost next to nothing while neither records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

PHASES = ("forward", "backward", "optimizer", "evaluation", "checkpoint")
"""Parts of a step that traceread knows by name."""

DATA_RANGE = "data wait"
"""What the host does while it waits for the next batch, in the name by which the report knows it."""


class Sink(Protocol):
    """Where ranges go: a profiler."""

    def push(self, name: str) -> Any:
        """Begins a range and returns what ends it."""

    def pop(self, begun: Any) -> None:
        """Ends the range."""


class _Off:
    """The range of a script that is not recorded."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        return None


class _On:
    """A range in every sink there was when it began, even if recording ends within."""

    __slots__ = ("_begun", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._begun: list[tuple[Sink, Any]] = []

    def __enter__(self) -> None:
        self._begun = [(sink, sink.push(self._name)) for sink in _sinks]

    def __exit__(self, *exception: object) -> None:
        for sink, begun in reversed(self._begun):
            sink.pop(begun)


_OFF = _Off()
_sinks: tuple[Sink, ...] = ()


def record_to(sinks: tuple[Sink, ...]) -> None:
    """Sends ranges that begin from now on to these sinks; to none: stops recording."""
    global _sinks
    _sinks = sinks


def recording() -> bool:
    """Whether ranges go anywhere."""
    return bool(_sinks)


def range(name: str) -> AbstractContextManager[None]:
    """A range of the script with this name: a record_function and an NVTX range at once; nothing while nobody records."""
    return _On(name) if _sinks else _OFF


def phase(name: str) -> AbstractContextManager[None]:
    """A range that is one of PHASES: the report knows what they mean.

    Raises:
        ValueError: it is none of them.
    """
    if name not in PHASES:
        raise ValueError(f"{name!r} is not a phase of a step: {', '.join(PHASES)}; capture.range takes any name")
    return range(name)


def data(loader: Iterable[T]) -> Iterator[T]:
    """The batches of a loader; the wait for each is a range that the report counts as data wait."""
    batches = iter(loader)
    while True:
        with range(DATA_RANGE):
            try:
                batch = next(batches)
            except StopIteration:
                return
        yield batch


class Annotation:
    """Hooks in a model; `remove()` takes them out, so does leaving a `with`."""

    def __init__(self, handles: list[Any]) -> None:
        self._handles = handles

    def remove(self) -> None:
        """Takes the hooks out of the model."""
        while self._handles:
            self._handles.pop().remove()

    def __enter__(self) -> Annotation:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def annotate(model: Any, depth: int | None = None) -> Annotation:
    """Names the forward of each submodule of a torch model by its path, such as "layers.3.attention", by hooks.

    Args:
        model: a torch.nn.Module.
        depth: only so many levels below the model; None: all.
    """
    open_ranges = threading.local()
    handles: list[Any] = []
    for path, module in model.named_modules():
        if path and (depth is None or path.count(".") < depth):
            handles.append(module.register_forward_pre_hook(_begins(path, open_ranges)))
            # always_call: a forward that raises must not leave its range open
            handles.append(module.register_forward_hook(_ends(open_ranges), always_call=True))
    return Annotation(handles)


def _begins(path: str, open_ranges: threading.local) -> Callable[..., None]:
    def begin(module: Any, inputs: Any) -> None:
        begun = range(path)
        begun.__enter__()
        open_ranges.__dict__.setdefault("stack", []).append(begun)

    return begin


def _ends(open_ranges: threading.local) -> Callable[..., None]:
    def end(module: Any, inputs: Any, output: Any) -> None:
        stack = open_ranges.__dict__.get("stack")
        if stack:
            stack.pop().__exit__(None, None, None)

    return end
