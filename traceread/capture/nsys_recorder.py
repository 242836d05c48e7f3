"""Recording by Nsight Systems: it runs around the script, which names the steps and says when to record."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from traceread.capture.files import log
from traceread.capture.ranges import Sink
from traceread.capture.ranks import synchronise
from traceread.capture.schedule import Action, Schedule

_RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")


class NsysRecorder:
    """One rank's side of a recording by nsys.

    Attributes:
        paths: empty; nsys writes.
        write_ns: 0; nsys writes when the window is over, on its own.
        sinks: where ranges go: NVTX.
    """

    def __init__(self, schedule: Schedule) -> None:
        from traceread.capture.sinks import nvtx_sinks

        self.paths: list[Path] = []
        self.write_ns = 0
        self.sinks: tuple[Sink, ...] = nvtx_sinks()
        if not self.sinks:
            log.warning("no NVTX: steps and ranges will not be in the report; traceread[capture] brings nvtx")
        self._schedule = schedule
        self._recording = False
        self._step_open = False

    def start(self) -> None:
        """Begins with step 0."""
        self.step(0, self._schedule.action(0))

    def step(self, step: int, action: Action) -> None:
        """Ends the step before and begins this one; starts and stops the recording around the window."""
        self._end_step()
        wanted = action in (Action.RECORD, Action.RECORD_LAST)
        if self._recording and not wanted:
            self._switch(on=False)
        elif wanted and not self._recording:
            self._switch(on=True)
        if wanted:
            for sink in self.sinks:
                sink.push(f"step {step}")
            self._step_open = True

    def stop(self) -> None:
        """Ends a window that is not over yet."""
        self._end_step()
        if self._recording:
            self._switch(on=False)

    def _end_step(self) -> None:
        if self._step_open:
            for sink in self.sinks:
                sink.pop(None)
            self._step_open = False

    def _switch(self, *, on: bool) -> None:
        import torch

        self._recording = on
        synchronise()  # what was launched before must not run within, and the last kernels must not be cut off
        if torch.cuda.is_available():
            torch.cuda.profiler.start() if on else torch.cuda.profiler.stop()


def nsys_command(
    directory: Path, schedule: Schedule, *, gpu: bool, environment: Mapping[str, str] = os.environ, arguments: Sequence[str] | None = None
) -> str:
    """The shell command that records this script with nsys; under a launcher it stands in for the script, once per rank.

    It holds the script's own arguments: it is shown, never written to a file.
    """
    variable = next((name for name in _RANK_VARIABLES if name in environment), None)
    report = shlex.quote(str(directory)) + (f"/rank%q{{{variable}}}" if variable else "/rank0")
    traced = "cuda,nvtx,osrt" if gpu else "nvtx,osrt"
    ends = "stop" if schedule.every is None else "repeat"
    # without a GPU there is no cudaProfilerStart: everything is recorded
    window = f" --capture-range=cudaProfilerApi --capture-range-end={ends}" if gpu else ""
    script = shlex.join(["python", *(sys.argv if arguments is None else arguments)])
    return f"nsys profile -t {traced} --sample=none --cpuctxsw=none{window} -o {report} {script}"
