"""The profilers that ranges go to: torch's record_function and NVTX."""

from __future__ import annotations

from typing import Any

from traceread.capture.ranges import Sink


class TorchSink:
    """record_function: torch.profiler shows it as a user annotation."""

    def __init__(self) -> None:
        from torch.profiler import record_function

        self._record_function = record_function

    def push(self, name: str) -> Any:
        """Begins a range."""
        begun = self._record_function(name)
        begun.__enter__()
        return begun

    def pop(self, begun: Any) -> None:
        """Ends it."""
        begun.__exit__(None, None, None)


class NvtxSink:
    """NVTX push/pop ranges: Nsight Systems shows them with -t nvtx. The module is nvtx, or torch.cuda.nvtx where that is missing."""

    def __init__(self, module: Any) -> None:
        self._push = getattr(module, "push_range", None) or module.range_push
        self._pop = getattr(module, "pop_range", None) or module.range_pop

    def push(self, name: str) -> None:
        """Begins a range."""
        self._push(name)

    def pop(self, begun: None) -> None:
        """Ends the innermost range of this thread."""
        self._pop()


def nvtx_sinks() -> tuple[Sink, ...]:
    """The NVTX sink, if there is an NVTX: the nvtx package, else that of a torch with CUDA."""
    try:
        import nvtx
    except ImportError:
        import torch

        return (NvtxSink(torch.cuda.nvtx),) if torch.cuda.is_available() else ()
    return (NvtxSink(nvtx),)
