"""The rank that the others wait for, in words."""

from __future__ import annotations

import re

from traceread.measurements.blame import Cause
from traceread.measurements.stragglers import Straggler
from traceread.names import row_title, shorten
from traceread.units import percent, ratio

_LAUNCH_CALL = re.compile(r"(?:cu|hip)\w*Launch")
_LATE_WITH = {
    Cause.COMPUTE: "its computing takes longer",
    Cause.COMMUNICATION: "its other communication takes longer",
    Cause.COPY: "copies",
    Cause.DATA_WAIT: "it waits for its batch",
    Cause.HOST_SYNC: "its host waits for its GPU",
    Cause.LAUNCH_BOUND: "its host launches late",
    Cause.ALLOCATION: "it allocates memory",
    Cause.COMPILE: "it compiles or loads code",
    Cause.CHECKPOINT: "it writes a checkpoint",
    Cause.PROFILER: "the profiler's own work",
    Cause.QUEUED: "pauses between queued work",
    Cause.UNATTRIBUTED: "its GPU is idle and the trace does not show why",
    Cause.UNEXPLAINED: "not explained: what it did before is not in the capture, or no different from the others",
}


def straggler_sentence(s: Straggler, counts_steps: bool) -> str:
    """Which rank the others wait for, how long, and why it is late; in steps, or in captures as a whole."""
    named = s.evidence and not _LAUNCH_CALL.match(s.evidence)
    evidence = f" ({shorten(row_title(s.evidence), 44)})" if named else ""
    mostly = "" if s.causes[0][1] == s.charged_ns else "mostly "
    why = f"; {mostly}" if s.cause is Cause.UNEXPLAINED else f", {mostly}because "
    time = "steps" if counts_steps else "time"
    text = f"Rank {s.rank} holds the others up: they wait {percent(s.charged_ns, s.others_ns)} of their {time} for it"
    text += f"{why}{_LATE_WITH[s.cause]}{evidence}."
    if s.kernels is not None:
        what = "The same kernels take" if s.kernels.everywhere else "Some of its kernels take"
        reason = ": clocks, power, or another process on its GPU." if s.kernels.everywhere else ", more work rather than a slower GPU."
        text += f" {what} {ratio(s.kernels.own_ns, s.kernels.typical_ns)} × as long as on the median rank{reason}"
    if s.launches is not None:
        text += f" From launch to launch its host takes {ratio(s.launches.own_ns, s.launches.typical_ns)} × as long as the median host."
    return text
