"""A capture of a few steps of every rank, with the run.json that says what a trace cannot."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from traceread.capture.files import log, write_json
from traceread.capture.fingerprint import ranks_by_hash, read_fingerprint
from traceread.capture.nsys_recorder import NsysRecorder, nsys_command
from traceread.capture.ranges import Sink, record_to
from traceread.capture.ranks import find_rank, synchronise
from traceread.capture.schedule import Action, Schedule
from traceread.capture.torch_recorder import TorchRecorder

Backend = Literal["torch", "nsys"]

RUN_FORMAT = 1
DESCRIBED = (
    "job",
    "parallel",
    "model",
    "global_batch_sequences",
    "tokens_per_step",
    "peak_flops",
    "matmul_flops",
    "link_bytes_per_s",
    "link_latency_ns",
    "input_bytes_per_step",
    "input_bytes_per_s",
    "price_per_gpu_hour",
)
"""Fields of run.json that only the user knows."""

_OPTIONS = ("with_stack", "record_shapes", "profile_memory")


class Recorder(Protocol):
    """A profiler as a capture uses it."""

    paths: list[Path]
    write_ns: int
    sinks: tuple[Sink, ...]

    def start(self) -> None:
        """Before step 0."""

    def step(self, step: int, action: Action) -> None:
        """Begins a step."""

    def stop(self) -> None:
        """After the last step."""


class Profiling:
    """A capture under way. Every rank enters it, calls `step()` after each of its steps, and leaves it.

    Attributes:
        directory: where traces and run.json go.
        rank: this process.
        schedule: which steps are recorded.
        untraced_step_ns: a step before the window, mean of a few between two synchronisations of the device; None until it is known.
    """

    def __init__(
        self,
        directory: Path,
        schedule: Schedule,
        ranks: Collection[int] | None,
        backend: Backend,
        options: Mapping[str, bool],
        described: Mapping[str, Any],
    ) -> None:
        self.directory, self.schedule = directory, schedule
        self.rank = find_rank()
        self.untraced_step_ns: int | None = None
        self._chosen = ranks is None or self.rank.rank in ranks
        self._backend, self._options, self._described = backend, options, described
        self._recorder: Recorder | None = None
        self._stack: dict[str, Any] = {}
        self._step = 0
        self._timed_since = 0

    @property
    def command(self) -> str:
        """The nsys command that records this script; for backend "nsys"."""
        return nsys_command(self.directory, self.schedule, gpu="gpu" in self._stack)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Traces that this rank wrote so far."""
        return () if self._recorder is None else tuple(self._recorder.paths)

    def __enter__(self) -> Profiling:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            log.warning("cannot make %s: %s; training goes on without a capture", self.directory, error.strerror or error)
            self._chosen = False
        self._stack = self._compared(read_fingerprint())
        if self._backend == "nsys" and "NSYS_PROFILING_SESSION_ID" not in os.environ:
            log.warning("nsys does not run around this script; start it so: %s", self.command)
        if self._chosen:
            self._start()
        self._write_run()
        self._begin(0)
        return self

    def __exit__(self, *exception: object) -> None:
        record_to(())
        if self._recorder is not None:
            self._stop(self._recorder)
            self._write_run()

    def step(self) -> None:
        """Ends a step and begins the next; never raises because of the capture."""
        self._step += 1
        action = self.schedule.action(self._step)
        self._time_untraced()
        if self._recorder is not None:
            try:
                self._recorder.step(self._step, action)
            except Exception as error:  # see _stop
                log.warning("the profiler failed in step %d: %s; training goes on without it", self._step, error)
                recorder, self._recorder = self._recorder, None
                self._stop(recorder)
        self._begin(self._step)

    def _begin(self, step: int) -> None:
        """Ranges go to the profiler from warm-up on, so that their first use is not in a recorded step."""
        on = self._recorder is not None and self.schedule.action(step) is not Action.NOTHING
        record_to(self._recorder.sinks if on and self._recorder is not None else ())

    def _time_untraced(self) -> None:
        first, end = self.schedule.untraced
        if first < end and self._step == first:
            synchronise()
            self._timed_since = time.perf_counter_ns()
        elif first < end and self._step == end:
            synchronise()
            self.untraced_step_ns = (time.perf_counter_ns() - self._timed_since) // (end - first)
            self._write_run()

    def _start(self) -> None:
        try:
            recorder = self._new_recorder()
            recorder.start()
        except Exception as error:  # see _stop
            log.warning("the profiler could not be started: %s; training goes on without it", error)
        else:
            self._recorder = recorder

    def _stop(self, recorder: Recorder) -> None:
        try:
            recorder.stop()
        except Exception as error:  # a capture that fails must not fail the training
            log.warning("the profiler could not be stopped: %s", error)

    def _new_recorder(self) -> Recorder:
        if self._backend == "nsys":
            return NsysRecorder(self.schedule)
        return TorchRecorder(self.directory, self.rank.rank, self.schedule, self._options)

    def _compared(self, stack: dict[str, Any]) -> dict[str, Any]:
        """The stack of this rank, with the ranks of each one where they are not all the same. A collective."""
        groups = ranks_by_hash(self.rank.gather(stack["hash"]))
        if len(groups) < 2:
            return stack
        log.warning("the ranks run %d different stacks: %s", len(groups), groups)
        return {**stack, "ranks_by_hash": groups}

    def _write_run(self) -> None:
        """run.json by rank 0 for all; by each rank of its own where they do not know of each other."""
        shared = self.rank.joined or self.rank.world_size == 1
        if shared and self.rank.rank != 0:
            return
        recorder = self._recorder
        profiler: dict[str, Any] = {
            "backend": self._backend,
            "wait": self.schedule.wait,
            "warmup": self.schedule.warmup,
            "steps": self.schedule.steps,
            **({} if self.schedule.every is None else {"every": self.schedule.every}),
            **(self._options if self._backend == "torch" else {}),
            **({} if recorder is None or not recorder.write_ns else {"write_ns": recorder.write_ns}),
        }
        values = {
            "format": RUN_FORMAT,
            "world_size": self.rank.world_size,
            **self._described,
            **({} if self.untraced_step_ns is None else {"untraced_step_ns": self.untraced_step_ns}),
            "stack": self._stack,
            "profiler": profiler,
        }
        write_json(self.directory / ("run.json" if shared else f"run.rank{self.rank.rank}.json"), values)


def profile(
    directory: str | os.PathLike[str],
    *,
    steps: int = 5,
    warmup: int = 3,
    wait: int = 10,
    every: int | None = None,
    ranks: Literal["all"] | Collection[int] = "all",
    backend: Backend = "torch",
    with_stack: bool = False,
    record_shapes: bool = False,
    profile_memory: bool = False,
    **described: Any,
) -> Profiling:
    """A capture of some steps, as a context manager whose `step()` is called after each step of training.

    Every rank must enter it: that is a collective where torch.distributed is initialised.

    Args:
        directory: where rankN.pt.trace.json.gz and run.json go; all ranks may share it.
        steps: recorded ones.
        warmup: steps before them in which the profiler runs and keeps nothing.
        wait: steps before those; the last of them are timed as the step without a profiler.
        every: record again after so many steps.
        ranks: those that record; "all".
        backend: "torch" writes traces; "nsys" makes NVTX ranges and starts and stops nsys, which must run around the script:
            `.command` says how.
        with_stack: source lines, by torch.profiler; costs the most.
        record_shapes: shapes of operators' inputs.
        profile_memory: allocations.
        described: fields of run.json (DESCRIBED), such as model={"parameters": 6_738_000_000} and tokens_per_step=4_194_304.

    Raises:
        TypeError: a field that run.json does not have.
        ValueError: a schedule or a backend that cannot be.
    """
    if unknown := sorted(set(described) - set(DESCRIBED)):
        raise TypeError(f"run.json has no {', '.join(unknown)}; it has {', '.join(DESCRIBED)}")
    if backend not in ("torch", "nsys"):
        raise ValueError(f"no backend {backend!r}: there are torch and nsys")
    if isinstance(described.get("tokens_per_step"), int):
        described["tokens_per_step"] = {"valid": described["tokens_per_step"]}
    options = dict(zip(_OPTIONS, (with_stack, record_shapes, profile_memory), strict=True))
    wanted = None if ranks == "all" else frozenset(int(rank) for rank in ranks)
    return Profiling(Path(directory), Schedule(wait, warmup, steps, every), wanted, backend, options, described)
