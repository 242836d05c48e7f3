"""Recording by torch.profiler: a Chrome trace per rank and window, compressed while training goes on."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from traceread.capture.files import compress, log
from traceread.capture.ranges import Sink
from traceread.capture.schedule import Action, Schedule


class TorchRecorder:
    """One rank's recording.

    Attributes:
        paths: traces written so far, as they are called once they are compressed.
        write_ns: how long training stood still for the last one.
        sinks: where ranges go.
    """

    def __init__(self, directory: Path, rank: int, schedule: Schedule, options: Mapping[str, bool]) -> None:
        import torch.profiler as profiler

        from traceread.capture.sinks import TorchSink, nvtx_sinks

        self.paths: list[Path] = []
        self.write_ns = 0
        self.sinks: tuple[Sink, ...] = (TorchSink(), *nvtx_sinks())
        self._directory, self._rank, self._schedule = directory, rank, schedule
        self._compressing = ThreadPoolExecutor(1, "traceread-compress")
        if schedule.every is not None:  # that is what is wanted here
            warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
        actions = {
            Action.NOTHING: profiler.ProfilerAction.NONE,
            Action.WARM_UP: profiler.ProfilerAction.WARMUP,
            Action.RECORD: profiler.ProfilerAction.RECORD,
            Action.RECORD_LAST: profiler.ProfilerAction.RECORD_AND_SAVE,
        }
        self._profiler = profiler.profile(
            schedule=lambda step: actions[schedule.action(step)],
            on_trace_ready=self._write,
            experimental_config=_synchronisations(),
            **options,
        )

    def start(self) -> None:
        """Begins with step 0."""
        self._profiler.start()

    def step(self, step: int, action: Action) -> None:
        """Begins a step."""
        self._profiler.step()

    def stop(self) -> None:
        """Ends; a window that is not over yet is written as far as it is. Waits for the compression."""
        try:
            self._profiler.stop()
        finally:
            self._compressing.shutdown(wait=True)

    def _write(self, profiler: Any) -> None:
        """Writes the plain trace, so that a job killed a moment later leaves it, and compresses it behind training's back."""
        begun = time.perf_counter_ns()
        last = max(profiler.step_num - 1, self._schedule.first)
        window = "" if self._schedule.every is None else f".step{self._schedule.window_of(last)}"
        path = self._directory / f"rank{self._rank}{window}.pt.trace.json"
        try:
            profiler.export_chrome_trace(str(path))
        except Exception as error:  # whatever torch raises here, training must go on
            log.warning("cannot write %s: %s; training goes on without it", path, error)
            return
        self.write_ns = time.perf_counter_ns() - begun
        if not path.is_file():  # torch reports a full disk in its own log only
            log.warning("torch.profiler did not write %s; training goes on without it", path)
            return
        self.paths.append(path.with_name(path.name + ".gz"))
        self._compressing.submit(compress, path)


def _synchronisations() -> Any:
    """The option that records which stream waits for which; None where there is no GPU, or torch does not have it."""
    import torch

    if not torch.cuda.is_available():
        return None
    try:
        return torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    except (AttributeError, TypeError):
        return None
