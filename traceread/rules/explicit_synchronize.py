"""The script synchronises with the GPU.

What it means. torch.cuda.synchronize(), stream.synchronize() or event.synchronize() between the operations of a step: usually a timer, a
debugging aid that stayed, or a wait meant for another stream. The host stops, the queue runs dry.

How it is measured. The step re-timed with these calls returning at once.

In Nsight Systems. cudaDeviceSynchronize, cudaStreamSynchronize or cudaEventSynchronize outside any operation's range.

In a PyTorch trace. The same calls in category cuda_runtime with no cpu_op around them.

How to confirm. Search the script and its libraries for synchronize( and for timers with sync=True; take them out and compare the step
time.

What to try. Remove it from the loop; time with torch.cuda.Event(enable_timing=True) and read elapsed_time some steps later; order streams
among each other with stream.wait_event or wait_stream, which do not stop the host.

When it is fine. Around a benchmark; once per many steps. The profiler's own synchronisation after the last step is not counted.

Documentation. https://docs.pytorch.org/docs/stable/generated/torch.cuda.Event.html
https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

from __future__ import annotations

from collections.abc import Iterator

from traceread.findings import Effort, Finding
from traceread.model import Capability
from traceread.rules import GENERAL, Facts, rule
from traceread.rules.syncs import EXPLICIT, wait_findings, waits_titled


@rule("explicit-synchronize", needs={Capability.ACTIVITIES, Capability.LAUNCHES, Capability.OPS}, effort=Effort.CODE, turn=GENERAL)
def explicit_synchronize(facts: Facts) -> Iterator[Finding]:
    """One finding per call that stands in no operation."""
    for wait in waits_titled(facts, EXPLICIT):
        yield from wait_findings(facts, iter((wait,)), f"the script calls {wait.title}", "the host waits outside any operation")
