"""Honest step times for a whole run, one device synchronisation and one collective per interval, into the step log."""

from __future__ import annotations

import atexit
import hashlib
import json
import math
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from traceread.capture.ranges import DATA_RANGE, phase, range
from traceread.capture.ranks import RankFacts, device_index, find_rank, synchronise
from traceread.capture.step_log import CAPACITY, StepLog, Write

T = TypeVar("T")

_SEGMENT = re.compile(r"steps\.(?:rank\d+\.)?segment(\d{1,6})\.jsonl")


@dataclass
class _Interval:
    """What came together since the last line."""

    since: int
    steps: int = 0
    tokens: int = 0
    data_wait_ns: int = 0
    aside_ns: int = 0
    losses: list[tuple[Any, int]] = field(default_factory=list)
    grad_norms: list[Any] = field(default_factory=list)
    batch_ids: list[Any] = field(default_factory=list)


class StepTimer:
    """Times the steps of a run and logs them, one line per interval.

    Every rank makes one, calls `step()` after each step, and closes it; rank 0 writes for all of them. The step log is
    `steps.segmentN.jsonl` in the directory, N one more than the last there: a resumed run goes on in the same directory.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        interval: int = 10,
        run: str | None = None,
        parent: str | None = None,
        recipe: Mapping[str, Any] | None = None,
        step: int = 0,
        tokens: int = 0,
        capacity: int = CAPACITY,
        write: Write | None = None,
        **described: Any,
    ) -> None:
        """Begins the first interval. A collective where torch.distributed is initialised.

        Args:
            directory: of the run.
            interval: steps to a line.
            run: its name; that of the directory.
            parent: the run that this one goes on from with another recipe.
            recipe: what makes it this run and no other (data, model, learning rate); only its hash is logged.
            step: step number and tokens from which a resumed run goes on.
            tokens: see step; tokens of all ranks.
            capacity: lines that may wait for the disk.
            write: takes the lines instead of the file.
            described: fields of run.json, such as model={"parameters": 6_738_000_000}.
        """
        if interval < 1:
            raise ValueError("an interval has at least one step")
        self._rank = find_rank()
        self._directory, self._interval = Path(directory), interval
        self._step, self._tokens = step, tokens
        self._segment = self._rank.gather(_next_segment(self._directory))[0]
        self._name = (run or self._directory.resolve().name) + ("" if self._shared else f".rank{self._rank.rank}")
        self._closed = False
        self._log: StepLog | None = None
        if self._rank.rank == 0 or not self._rank.joined:
            part = "" if self._shared else f"rank{self._rank.rank}."
            self._log = StepLog(self._directory / f"steps.{part}segment{self._segment}.jsonl", capacity=capacity, write=write)
            atexit.register(self.close, reason=None)
        index = device_index()
        self._device = index
        self._put(
            "restart" if self._segment else "start",
            parent=parent,
            recipe=None if recipe is None else _hash(recipe),
            world_size=self._rank.world_size if self._rank.joined else 1,
            interval=interval,
            described=described or None,
            **_device(index),
        )
        synchronise()
        self._reset_peaks()
        self._now = _Interval(time.perf_counter_ns())

    @property
    def dropped(self) -> int:
        """Lines that did not reach the log."""
        return 0 if self._log is None else self._log.dropped

    def step(self, tokens: int = 0, *, loss: Any = None, grad_norm: Any = None, batch_ids: Sequence[Any] = ()) -> None:
        """Ends a step of this rank. Every `interval` steps the device is synchronised once, and the ranks exchange once.

        Args:
            tokens: valid tokens that this rank trained on.
            loss: mean over these tokens, a number or a tensor; a tensor is looked at only when the interval ends.
            grad_norm: of the model, likewise.
            batch_ids: what names the batch, to find it again after a spike.
        """
        now = self._now
        self._step += 1
        now.steps += 1
        now.tokens += tokens
        if loss is not None:
            now.losses.append((loss.detach() if hasattr(loss, "detach") else loss, tokens))
        if grad_norm is not None:
            now.grad_norms.append(grad_norm.detach() if hasattr(grad_norm, "detach") else grad_norm)
        if batch_ids:
            now.batch_ids.extend(batch_ids)
        if now.steps == self._interval:
            self._end_interval()

    def data(self, loader: Iterable[T]) -> Iterator[T]:
        """The batches of a loader, as capture.data gives them; the wait is logged apart."""
        batches = iter(loader)
        while True:
            begun = time.perf_counter_ns()
            with range(DATA_RANGE):
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            self._now.data_wait_ns += time.perf_counter_ns() - begun
            yield batch

    @contextmanager
    def checkpoint(self, name: str) -> Iterator[None]:
        """Writing a checkpoint of this name: its time is logged apart from the steps."""
        with phase("checkpoint"), self._aside() as took:
            yield
        self._put("checkpoint", checkpoint=name, duration_ns=took[0])

    @contextmanager
    def evaluation(self, checkpoint: str | None = None) -> Iterator[dict[str, float]]:
        """An evaluation, of a checkpoint or of the model as it is; logs what is put into the mapping, and its time apart from the steps."""
        metrics: dict[str, float] = {}
        with phase("evaluation"), self._aside() as took:
            yield metrics
        self._put("eval", checkpoint=checkpoint, duration_ns=took[0], metrics={k: _finite(float(v)) for k, v in metrics.items()})

    def close(self, reason: str | None = "done") -> None:
        """Ends the log, with a reason such as "done" or "stopped early". Steps of an interval that is not full are not logged."""
        if self._closed:
            return
        self._closed = True
        if reason is not None:
            self._put("end", reason=reason)
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> StepTimer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        self.close("done" if kind is None else "failed")

    @property
    def _shared(self) -> bool:
        return self._rank.joined or self._rank.world_size == 1

    @contextmanager
    def _aside(self) -> Iterator[list[int]]:
        """Time that is no step's."""
        synchronise()
        begun = time.perf_counter_ns()
        took: list[int] = []
        try:
            yield took
        finally:
            synchronise()
            took.append(time.perf_counter_ns() - begun)
            self._now.aside_ns += took[0]

    def _end_interval(self) -> None:
        done = self._now
        synchronise()
        ended = time.perf_counter_ns()
        # the next one begins here: what follows is time of the run as well
        self._now = _Interval(ended)
        losses = _numbers([loss for loss, _ in done.losses])
        weights = [tokens or 1 for _, tokens in done.losses]
        allocated, reserved = self._peaks()
        ranks = _exchange(
            self._rank,
            [
                (ended - done.since - done.aside_ns) // done.steps,
                done.data_wait_ns // done.steps,
                done.tokens,
                allocated,
                reserved,
                sum(loss * weight for loss, weight in zip(losses, weights, strict=True)),
                sum(weights),
                max(_numbers(done.grad_norms), default=-1.0),
            ],
        )
        step_ns = [int(r[0]) for r in ranks]
        tokens = sum(int(r[2]) for r in ranks)
        mean_ns = sum(step_ns) // len(ranks)
        self._tokens += tokens
        weight = sum(r[6] for r in ranks)
        grad_norm = max(ranks[0][7], *(r[7] for r in ranks))
        self._put(
            "interval",
            steps=done.steps,
            step_ns=mean_ns,
            step_ns_max=max(step_ns),
            slowest_rank=step_ns.index(max(step_ns)),
            data_wait_ns=max(int(r[1]) for r in ranks),
            tokens_per_s=round(tokens * 10**9 / (mean_ns * done.steps), 3) if mean_ns > 0 else None,
            allocated_bytes=max(int(r[3]) for r in ranks) or None,
            reserved_bytes=max(int(r[4]) for r in ranks) or None,
            loss=_finite(sum(r[5] for r in ranks) / weight) if weight else None,
            grad_norm=None if grad_norm == -1.0 else _finite(grad_norm),
            batch_ids=done.batch_ids or None,
        )

    def _put(self, kind: str, **values: Any) -> None:
        if self._log is None:
            return
        head = {"t": time.time_ns(), "kind": kind, "run": self._name, "segment": self._segment, "rank": self._rank.rank}
        self._log.put({**head, "step": self._step, "tokens": self._tokens, **values, "dropped": self._log.dropped})

    def _peaks(self) -> tuple[int, int]:
        """Peak bytes allocated and reserved since the last interval, which begin anew; 0 without a GPU."""
        if self._device is None:
            return 0, 0
        import torch

        peaks = torch.cuda.max_memory_allocated(self._device), torch.cuda.max_memory_reserved(self._device)
        self._reset_peaks()
        return peaks

    def _reset_peaks(self) -> None:
        if self._device is not None:
            import torch

            torch.cuda.reset_peak_memory_stats(self._device)


def _exchange(rank: RankFacts, values: list[float]) -> list[list[float]]:
    """The numbers of every rank: one collective of a few doubles, exact for whole ns up to 104 days."""
    if not rank.joined:
        return [values]
    import torch
    import torch.distributed as dist

    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    mine = torch.tensor(values, dtype=torch.float64, device=device)
    rows = torch.empty(rank.world_size, len(values), dtype=torch.float64, device=device)
    dist.all_gather(list(rows.unbind()), mine)
    return [[float(v) for v in row] for row in rows.tolist()]


def _numbers(values: list[Any]) -> list[float]:
    """Numbers, from tensors of a device with one copy."""
    if values and all(getattr(v, "is_cuda", False) for v in values):
        import torch

        return [float(v) for v in torch.stack([v.reshape(()) for v in values]).tolist()]
    return [float(v) for v in values]


def _finite(value: float) -> float | str:
    """The number; JSON has no nan and no infinity, so those are text."""
    return value if math.isfinite(value) else str(value)


def _hash(recipe: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(recipe, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _device(index: int | None) -> dict[str, Any]:
    if index is None:
        return {}
    import torch

    properties = torch.cuda.get_device_properties(index)
    return {"gpu": properties.name, "device_bytes": properties.total_memory, "multiprocessors": properties.multi_processor_count}


def _next_segment(directory: Path) -> int:
    try:
        found = [int(match[1]) for path in directory.iterdir() if (match := _SEGMENT.fullmatch(path.name))]
    except OSError:
        return 0
    return max(found, default=-1) + 1
