"""The profilers that ranges go to: torch's record_function and NVTX."""

from __future__ import annotations

import os
from typing import Any

from traceread.capture.files import log
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
    import torch

    try:
        import nvtx
    except ImportError:
        nvtx = None
    if nvtx is not None and not _gives_up(nvtx):
        return (NvtxSink(nvtx),)
    if torch.cuda.is_available():
        return (NvtxSink(torch.cuda.nvtx),)
    if nvtx is not None:
        log.warning("this nsys is too old for this nvtx, which will send no range: pip install 'nvtx<0.2.12', or use a newer nsys")
    return ()


def _gives_up(nvtx: Any) -> bool:
    """Whether nvtx sends nothing although nsys runs.

    nvtx asks from 0.2.12 on whether somebody listens; nsys 2022.4 does not know the question, which counts as no.
    """
    if "NSYS_PROFILING_SESSION_ID" not in os.environ or not hasattr(nvtx, "get_domain"):
        return False
    return type(nvtx.get_domain(None)).__name__ == "DummyDomain"
