"""PyTorch traces (Kineto's Chrome-trace JSON, torch 1.8 to today) in, one `Trace` per GPU out: what the events mean.

GPU work is told by category and nothing else. Rows of `gpu_user_annotation`, `cuda_sync` and `cuda_event` stand on the
same tracks, and GPU process ids collide with those of the host.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from traceread.errors import CorruptTrace, InputError, Notice, UnknownFormat
from traceread.intervals import among, time_order, unique
from traceread.model import (
    NOT_RECORDED,
    Activities,
    ActivityKind,
    Calls,
    Capability,
    Category,
    CopyKind,
    Device,
    Elsewhere,
    RangeKind,
    Ranges,
    StreamWaits,
    Thread,
    Trace,
)
from traceread.readers.event_columns import ABSENT, EventBatch, Scalar
from traceread.readers.json_events import EventReader
from traceread.readers.limits import refuse_more
from traceread.readers.microseconds import LIMIT_NS
from traceread.readers.options import DEFAULTS, ReadOptions
from traceread.readers.unpacking import Unpacked
from traceread.readers.whole_events import WholeEvents

Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


class Row(IntEnum):
    """What a category stands for."""

    UNKNOWN = 0
    IGNORED = 1
    KERNEL = 2
    MEMCPY = 3
    MEMSET = 4
    CALL = 5
    OP = 6
    ANNOTATION = 7
    PYTHON = 8
    OVERHEAD = 9
    SYNC = 10
    SPAN = 11


# The second name of a pair is the one before torch 1.12.
CATEGORIES = {
    "kernel": Row.KERNEL, "Kernel": Row.KERNEL,
    "gpu_memcpy": Row.MEMCPY, "Memcpy": Row.MEMCPY,
    "gpu_memset": Row.MEMSET, "Memset": Row.MEMSET,
    "cuda_runtime": Row.CALL, "Runtime": Row.CALL,  # HIP calls too
    "cuda_driver": Row.CALL,
    "xpu_runtime": Row.CALL, "xpu_driver": Row.CALL,
    "mtia_runtime": Row.CALL, "glow_runtime": Row.CALL,
    "privateuse1_runtime": Row.CALL, "privateuse1_driver": Row.CALL,
    "cpu_op": Row.OP, "Operator": Row.OP,
    "user_annotation": Row.ANNOTATION,
    "python_function": Row.PYTHON,
    "overhead": Row.OVERHEAD,
    "cuda_sync": Row.SYNC,
    "Trace": Row.SPAN,
    # Drawn on GPU tracks or beside them, and no work of anybody.
    "gpu_user_annotation": Row.IGNORED, "cuda_event": Row.IGNORED, "xpu_sync": Row.IGNORED,
    "external_correlation": Row.IGNORED, "cpu_instant_event": Row.IGNORED, "cuda_profiler_range": Row.IGNORED,
    "mtia_insight": Row.IGNORED, "mtia_counters": Row.IGNORED, "hardware_counters": Row.IGNORED, "xpu_scope_profiler": Row.IGNORED,
}  # fmt: skip

# Before torch 1.12 annotations are operators too; these are the ones PyTorch itself makes.
ANNOTATION_PREFIXES = ("ProfilerStep#", "enumerate(DataLoader)#", "Optimizer.")

# Names CUPTI gives its overhead rows, as libkineto prints them.
OVERHEAD_KINDS = {
    "Activity Buffer Request": RangeKind.PROFILER, "Activity Buffer Flush": RangeKind.PROFILER, "Buffer Flush": RangeKind.PROFILER,
    "Instrumentation": RangeKind.PROFILER, "Resource": RangeKind.PROFILER, "UVM Activity Init": RangeKind.PROFILER,
    "Lazy Function Loading": RangeKind.LOADING, "Runtime Triggered Module Loading": RangeKind.LOADING,
    "Driver Compiler": RangeKind.LOADING, "JIT": RangeKind.LOADING,
    "Command Buffer Full": RangeKind.QUEUE_FULL,
}  # fmt: skip
_NO_KIND = 255

# "Memcpy HtoD (Pinned -> Device)": H host, D device, A array in device memory, P the memory of a peer.
COPY_KINDS = {
    "HtoD": CopyKind.HOST_TO_DEVICE, "HtoA": CopyKind.HOST_TO_DEVICE,
    "DtoH": CopyKind.DEVICE_TO_HOST, "AtoH": CopyKind.DEVICE_TO_HOST,
    "DtoD": CopyKind.DEVICE_TO_DEVICE, "AtoA": CopyKind.DEVICE_TO_DEVICE,
    "DtoA": CopyKind.DEVICE_TO_DEVICE, "AtoD": CopyKind.DEVICE_TO_DEVICE,
    "HtoH": CopyKind.HOST_TO_HOST, "PtoP": CopyKind.PEER,
}  # fmt: skip

METADATA_KEYS = (
    "baseTimeNanoseconds", "deviceProperties", "distributedInfo", "host_name", "cuda_runtime_version", "cuda_driver_version",
    "cupti_version", "hip_runtime_version", "hip_driver_version", "roctracer_version", "rocprofiler-sdk_version",
)  # fmt: skip

_COPY = re.compile(r"([HDAP]to[HDAP])\b")
_VERSION_SUFFIX = re.compile(r"_v\d{4,}$")
_THREAD_LABEL = re.compile(r"thread -?\d+ \((.*)\)", re.DOTALL)
_TAG = re.compile(r"\s*\[([^\]]+)\]")
_INTEGER = re.compile(r"-?\d{1,20}(?!\d)")
_PLAIN_VERSION = re.compile(r"[\w.+-]{1,40}")
_LONGEST_NS = 366 * 86_400 * 10**9  # no capture lasts a year
_EPOCH_NS = 10**18  # September 2001; every capture clock that counts from 1970 is later, every other one far earlier


def read(path: Path, options: ReadOptions = DEFAULTS) -> list[Trace]:
    """One `Trace` for each GPU that has work in the file, in order of device; one with device -1 if there is none.

    Host tables are shared between them. The rank is -1 and its source "" unless the file states one. Categories of
    activities are left UNCLASSIFIED. What was wrong with the file is in the notices.

    Raises:
        TraceNotFound, InputError: the file cannot be opened, or holds the merged events of several processes.
        UnknownFormat: it is no JSON, or JSON without a list of events.
        CorruptTrace: nothing in it can be used.
        LimitExceeded: it unpacks to more than the limit.
    """
    return _capture(path, options).traces()


def _capture(path: Path, options: ReadOptions) -> _Capture:
    """Everything that is taken from a file, before tables are made of it; raises what `read` does."""
    unpacked = Unpacked(path, options)
    with closing(unpacked.blocks()) as blocks:
        whole = WholeEvents()
        reader = EventReader(blocks, options, whole.look, unpacked)
        rows = _Rows()
        for batch in reader:
            rows.add(batch, reader.categories)
    metadata = reader.metadata(METADATA_KEYS)
    rows.shift(_base_ns(metadata))
    if not (rows.gpu.rows or rows.calls.rows or rows.ranges.rows):
        raise _nothing_usable(path, reader, unpacked.cut)
    return _Capture(path, reader, rows, metadata, whole, unpacked.cut, options.max_gpus)


# --- rows by kind ------------------------------------------------------------------------------------------------------


class _Columns:
    """Some columns of some rows, collected batch by batch."""

    def __init__(self, *names: str) -> None:
        self._parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in names}
        self.rows = 0

    def add(self, batch: EventBatch, row: npt.NDArray[np.int8], which: npt.NDArray[np.intp]) -> None:
        """Keeps these rows of a batch; "row" is what their category stands for."""
        self.rows += len(which)
        for name, parts in self._parts.items():
            parts.append((row if name == "row" else getattr(batch, name))[which])

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        parts = self._parts[name]
        if len(parts) != 1:
            parts[:] = [np.concatenate(parts) if parts else np.empty(0, np.int64)]
        return parts[0]

    def pop(self, name: str) -> npt.NDArray[Any]:
        """A column that is not asked for again: large ones need not all be in memory twice."""
        column = self[name]
        del self._parts[name]
        return column

    def keep(self, which: Mask) -> int:
        """Drops all other rows and says how many."""
        before = self.rows
        self.rows = int(np.count_nonzero(which))
        for name, parts in self._parts.items():
            parts[:] = [self[name][which]]
        return before - self.rows


class _Rows:
    """The rows that are kept, by what they are, and how many were not.

    Attributes:
        gpu, calls, ranges, syncs, spans: the rows.
        unread: how many rows have a category, or a kind of overhead, that means nothing to this reader.
        untimed: rows whose time cannot be read; lost: GPU rows with time and duration zero; negative: durations set to zero.
    """

    def __init__(self) -> None:
        times = ("start_ns", "dur_ns", "name", "track", "row")
        self.gpu = _Columns(*times, "device", "stream", "correlation", "bytes", "graph_node", "from_device", "to_device")
        self.calls = _Columns(*times, "correlation")
        self.ranges = _Columns(*times)
        self.syncs = _Columns(*times, "device", "stream", "correlation", "event_correlation", "event_stream")
        self.spans = _Columns(*times)
        self.unread: Counter[str] = Counter()
        self.untimed = self.lost = self.negative = 0
        self._row_of: npt.NDArray[np.int8] = np.empty(0, np.int8)

    def add(self, batch: EventBatch, categories: Sequence[str]) -> None:
        """Sorts a batch by what its rows are, leaving out those without a usable time."""
        row = self._meaning(batch.category, categories)
        for code, count in _counts(batch.category[row == Row.UNKNOWN]):
            self.unread[categories[code]] += count
        gpu = (row >= Row.KERNEL) & (row <= Row.MEMSET)
        used = row > Row.IGNORED
        lost = gpu & batch.timed & (batch.start_ns == 0) & (batch.dur_ns == 0)
        self.untimed += int(np.count_nonzero(used & ~batch.timed))
        self.lost += int(np.count_nonzero(lost))
        used &= batch.timed & ~lost
        negative = used & (batch.dur_ns < 0)
        self.negative += int(np.count_nonzero(negative))
        batch.dur_ns[negative] = 0
        for columns, belongs in (
            (self.gpu, gpu),
            (self.calls, row == Row.CALL),
            (self.ranges, (row >= Row.OP) & (row <= Row.OVERHEAD)),
            (self.syncs, row == Row.SYNC),
            (self.spans, row == Row.SPAN),
        ):
            columns.add(batch, row, np.flatnonzero(used & belongs))

    def _meaning(self, category: Codes, categories: Sequence[str]) -> npt.NDArray[np.int8]:
        if len(category) and category.max() >= len(self._row_of):
            more = [CATEGORIES.get(c, Row.UNKNOWN) for c in categories[len(self._row_of) :]]
            self._row_of = np.append(self._row_of, np.array(more, np.int8))
        return self._row_of[category]

    def shift(self, base_ns: int) -> None:
        """Makes all times absolute; rows that leave the range of times, or lie a year from the others, are dropped as untimed ones."""
        every = (self.gpu, self.calls, self.ranges, self.syncs, self.spans)
        for columns in every:
            start = columns["start_ns"]
            start += base_ns  # both lie inside ±2**62
            self._keep_between(columns, -LIMIT_NS, LIMIT_NS)
        start = next((columns["start_ns"] for columns in every if columns.rows), np.zeros(1, np.int64))
        middle = int(np.partition(start, len(start) // 2)[len(start) // 2])
        for columns in every:
            self._keep_between(columns, middle - _LONGEST_NS, middle + _LONGEST_NS)

    def _keep_between(self, columns: _Columns, low: int, high: int) -> None:
        """Drops the rows that do not begin between these two instants, neither included."""
        start = columns["start_ns"]
        if columns.rows and not low < start.min() <= start.max() < high:
            self.untimed += columns.keep((low < start) & (start < high))


# --- tables -----------------------------------------------------------------------------------------------------------


class _Capture:
    """What the rows, labels and metadata of one file add up to."""

    def __init__(
        self, path: Path, reader: EventReader, rows: _Rows, metadata: dict[str, Any], whole: WholeEvents, cut: str, max_gpus: int
    ) -> None:
        self._path = path
        self._reader = reader
        self._rows = rows
        self._metadata = metadata
        self._whole = whole
        self._cut = cut
        self._max_gpus = max_gpus
        self._names: list[str] = list(reader.names)
        self._pid = np.array([_whole(pid) for pid, _ in reader.tracks], np.int64)
        self._tid = np.array([_whole(tid) for _, tid in reader.tracks], np.int64)

    def traces(self) -> list[Trace]:
        """One trace per GPU."""
        pid = self._process()
        thread_of, threads = self._host_threads()
        calls, ranges = self._calls(thread_of), self._ranges(thread_of)
        activities = self._activities()
        job = self._metadata.get("distributedInfo")
        job = job if isinstance(job, dict) else {}
        rank, world_size = _whole(job.get("rank")), _whole(job.get("world_size"))
        of_track = dict(zip(self._reader.tracks, thread_of.tolist(), strict=True))
        base_ns = _base_ns(self._metadata)
        records, groups = self._whole.collectives.table(lambda p, t: of_track.get((p, t), -1), base_ns, job, max(rank, -1))
        matrices = self._whole.matrices.table(lambda p, t: of_track.get((p, t), -1), base_ns)
        host = self._metadata.get("host_name")
        first = min((int(t.start_ns.min()) for t in (activities, calls, ranges) if len(t)), default=0)
        notices = self._notices()  # after the tables: they add to what there is to say
        everywhere = self._recorded(calls, ranges)
        devices = unique(activities.device).tolist() if len(activities) else [NOT_RECORDED]
        refuse_more(self._path, len(devices), self._max_gpus, "GPUs")
        result = []
        for device in devices:
            here = activities.device == device
            own = activities if len(devices) == 1 else activities.take(here)
            result.append(
                Trace(
                    rank=max(rank, -1),
                    rank_source="distributedInfo" if rank >= 0 else "",
                    source="kineto",
                    files=(self._path,),
                    device=_device(device, self._metadata.get("deviceProperties")),
                    host=host if isinstance(host, str) and host else None,
                    pid=pid,
                    world_size=world_size if world_size > 0 else None,
                    names=self._names,
                    threads=threads,
                    activities=own,
                    calls=calls,
                    ranges=ranges,
                    stream_waits=self._stream_waits(device),
                    recorded=everywhere | _recorded_by(own, calls, self._names),
                    versions=_versions(self._metadata, job),
                    notices=notices,
                    capture_ns=self._capture_ns(),
                    clock="epoch" if first >= _EPOCH_NS else "relative",
                    truncated=self._reader.damage.truncated,
                    collective_records=records,
                    groups=groups,
                    matrix_ops=matrices,
                    elsewhere=Elsewhere.of(activities.correlation[~here]),
                )
            )
        return result

    def _activities(self) -> Activities:
        rows = self._rows.gpu
        start = rows.pop("start_ns")
        end = start + rows.pop("dur_ns")
        order = time_order(start, end)
        start, end = start[order], end[order]
        name, row, track = (rows.pop(column)[order] for column in ("name", "row", "track"))
        copies, sized = row == Row.MEMCPY, row != Row.KERNEL
        kind_of, pageable_of = np.zeros(len(self._names), np.uint8), np.full(len(self._names), NOT_RECORDED, np.int8)
        for code in unique(name[copies]).tolist():
            kind_of[code], pageable_of[code] = _copy(self._names[code])
        copy_kind = np.where(copies, kind_of[name], np.uint8(CopyKind.UNKNOWN))
        here, there = rows.pop("from_device")[order], rows.pop("to_device")[order]
        copy_kind[copies & (here != there) & (here >= 0) & (there >= 0)] = CopyKind.PEER
        # AMD numbers GPU processes by agent, so the argument goes first.
        on = _first_recorded(rows.pop("device")[order], self._pid[track])
        return Activities(
            start_ns=start,
            end_ns=end,
            kind=row - Row.KERNEL + ActivityKind.KERNEL,
            device=np.where((on >= 0) & (on < 1 << 31), on, NOT_RECORDED).astype(np.int32),
            stream=_first_recorded(rows.pop("stream")[order], self._tid[track]),
            correlation=rows.pop("correlation")[order],
            name=name,
            bytes=np.where(sized, np.maximum(rows.pop("bytes")[order], NOT_RECORDED), NOT_RECORDED),
            copy_kind=copy_kind,
            pageable=np.where(copies, pageable_of[name], np.int8(NOT_RECORDED)),
            graph_node=np.maximum(rows.pop("graph_node")[order], 0),
            category=np.full(rows.rows, Category.UNCLASSIFIED, np.uint8),
            family=np.zeros(rows.rows, np.uint8),
            fused=np.zeros(rows.rows, np.int8),
        )

    def _calls(self, thread_of: Codes) -> Calls:
        rows = self._rows.calls
        name = rows.pop("name")
        bare = np.arange(len(self._names), dtype=np.int32)
        code_of: dict[str, int] = {}
        for code in np.flatnonzero(self._named(name, lambda n: _VERSION_SUFFIX.search(n) is not None)).tolist():
            code_of = code_of or {n: c for c, n in enumerate(self._names)}
            without = _VERSION_SUFFIX.sub("", self._names[code])
            bare[code] = code_of.setdefault(without, len(self._names))
            if bare[code] == len(self._names):
                self._names.append(without)
        start = rows.pop("start_ns")
        end = start + rows.pop("dur_ns")
        order = time_order(start, -end)
        return Calls(
            start_ns=start[order],
            end_ns=end[order],
            thread=thread_of[rows.pop("track")[order]],
            name=bare[name[order]],
            correlation=rows.pop("correlation")[order],
        )

    def _ranges(self, thread_of: Codes) -> Ranges:
        rows = self._rows.ranges
        name, row = rows.pop("name"), rows.pop("row")
        kind_of = np.full((len(Row), len(self._names)), _NO_KIND, np.uint8)
        kind_of[Row.ANNOTATION], kind_of[Row.PYTHON], kind_of[Row.OP] = RangeKind.ANNOTATION, RangeKind.PYTHON, RangeKind.OP
        for code in unique(name).tolist():
            if self._names[code].startswith(ANNOTATION_PREFIXES):
                kind_of[Row.OP, code] = RangeKind.ANNOTATION
            kind_of[Row.OVERHEAD, code] = OVERHEAD_KINDS.get(self._names[code], _NO_KIND)
        kind = kind_of[row, name]
        known = kind != _NO_KIND
        for code in name[~known].tolist():
            self._rows.unread[f"overhead: {self._names[code]}"] += 1
        start = rows.pop("start_ns")
        end = start + rows.pop("dur_ns")
        order = time_order(start, -end)
        if not known.all():
            order = order[known[order]]
        return Ranges(
            start_ns=start[order],
            end_ns=end[order],
            thread=thread_of[rows.pop("track")[order]],
            name=name[order],
            kind=kind[order],
            open=np.zeros(len(order), np.int8),
        )

    def _named(self, name: Codes, matches: Callable[[str], bool]) -> Mask:
        """For each name code whether its name matches, looked up for the codes in this column only."""
        result = np.zeros(len(self._names), np.bool_)
        for code in unique(name).tolist():
            result[code] = matches(self._names[code])
        return result

    def _stream_waits(self, device: int) -> StreamWaits:
        rows = self._rows.syncs
        waits = self._named(rows["name"], "Stream Wait Event".__eq__)[rows["name"]]
        waits &= _first_recorded(rows["device"], self._pid[rows["track"]]) == device
        table = StreamWaits(
            time_ns=rows["start_ns"],
            stream=_first_recorded(rows["stream"], self._tid[rows["track"]]),
            correlation=rows["correlation"],
            event_correlation=rows["event_correlation"],
            event_stream=rows["event_stream"],
        ).take(waits)
        return table.take(np.argsort(table.time_ns, kind="stable"))

    def _capture_ns(self) -> tuple[int, int] | None:
        start, dur = self._rows.spans["start_ns"], self._rows.spans["dur_ns"]
        return (int(start.min()), int((start + dur).max())) if len(start) else None

    # --- processes and threads ------------------------------------------------------------------------------------

    def _process(self) -> int | None:
        """The id of the host process, None if there is none; refuses the merged events of several."""
        tracks = self._reader.tracks
        row = self._rows.ranges["row"]
        work = (row == Row.OP) | (row == Row.ANNOTATION)
        callers = _rows_by_process(self._rows.calls["track"], tracks)
        workers = callers + _rows_by_process(self._rows.ranges["track"][work], tracks)
        labelled = {_process_key(p) for (event, p, _), label in self._reader.labels.items() if event == "process_labels" and label == "CPU"}
        processes = (labelled & set(workers)) or set(callers) or set(workers)
        everyone = workers + _rows_by_process(self._rows.gpu["track"], tracks)
        tags = {m[1] for key in everyone if isinstance(key, str) and (m := _TAG.match(key))}
        merged = max(processes, tags, key=len)
        if len(merged) > 1:
            seen = ", ".join(sorted(map(str, merged))[:4])
            raise InputError(
                f"{self._path} holds the merged events of {len(merged)} processes ({seen}{', …' if len(merged) > 4 else ''})",
                "One file per rank is read: give the files as the profiler wrote them, before they were merged",
                slug="merged-ranks",
            )
        process = max(processes or labelled, key=lambda p: workers[p], default=None)
        return None if process is None else _whole(process)

    def _host_threads(self) -> tuple[Codes, tuple[Thread, ...]]:
        """The thread of each track code that host rows stand on (else -1), and the threads."""
        named = {(_whole(p), _whole(t)): label for (event, p, t), label in self._reader.labels.items() if event == "thread_name"}
        thread_of = np.full(len(self._reader.tracks), -1, np.int32)
        position: dict[tuple[int, int, str], int] = {}
        threads: list[Thread] = []
        used = np.zeros(len(self._reader.tracks), np.bool_)
        used[self._rows.calls["track"]] = used[self._rows.ranges["track"]] = True
        for track in np.flatnonzero(used).tolist():
            pid, tid = int(self._pid[track]), int(self._tid[track])
            written = self._reader.tracks[track][1]
            own_name = written if isinstance(written, str) and not _INTEGER.fullmatch(written) else ""
            key = (pid, tid, own_name)
            if key not in position:
                position[key] = len(threads)
                label = named.get((pid, tid), "")
                inner = _THREAD_LABEL.fullmatch(label)
                threads.append(Thread(pid, tid, own_name or (inner[1] if inner else label)))
            thread_of[track] = position[key]
        return thread_of, tuple(threads)

    # --- what there is to say -------------------------------------------------------------------------------------

    def _recorded(self, calls: Calls, ranges: Ranges) -> frozenset[Capability]:
        """What the host rows hold."""
        kinds = set(unique(ranges.kind).tolist())
        marks = self._reader.marks
        found = {
            Capability.LAUNCHES: bool((calls.correlation > 0).any()),
            Capability.OPS: RangeKind.OP in kinds,
            Capability.RANGES: RangeKind.ANNOTATION in kinds,
            Capability.STACKS: RangeKind.PYTHON in kinds,
            Capability.OVERHEAD: bool(kinds & set(OVERHEAD_KINDS.values())),
            Capability.SYNC_EVENTS: self._rows.syncs.rows > 0,
            Capability.SHAPES: "shapes" in marks,
            Capability.COLLECTIVES: "collectives" in marks,
        }
        return frozenset(capability for capability, there in found.items() if there)

    def _notices(self) -> tuple[Notice, ...]:
        damage, rows = self._reader.damage, self._rows
        name = self._path.name
        result = []
        if damage.truncated:
            why = f" ({self._cut})" if self._cut else ""
            result.append(Notice("truncated", f"{name} ends before its list of events does{why}; the last steps may lack rows"))
        elif self._cut:
            result.append(Notice("damaged-file", f"{name}: {self._cut}; its events are complete"))
        counted = [
            f"{_counted(damage.mended, 'event')} mended" if damage.mended else "",
            f"{_counted(damage.dropped, 'event')} dropped" if damage.dropped else "",
            f"commas or other text wrong between events in {_counted(damage.separators, 'place')}" if damage.separators else "",
        ]
        if any(counted):
            result.append(Notice("damaged-events", f"{name} is damaged: {', '.join(filter(None, counted))}"))
        if damage.metadata and not damage.truncated:
            result.append(Notice("damaged-metadata", f"{name}: what stands beside the list of events could be read only in part"))
        if rows.untimed:
            result.append(Notice("bad-times", f"{_counted(rows.untimed, 'event')} of {name} dropped: no usable time or duration"))
        if rows.lost:
            result.append(Notice("lost-records", f"{_counted(rows.lost, 'GPU record')} of {name} dropped: the profiler lost their times"))
        if rows.negative:
            result.append(Notice("negative-durations", f"{_counted(rows.negative, 'negative duration')} of {name} taken as zero"))
        if rows.unread:
            kinds = ", ".join(f"{_shown(kind)} ({count})" for kind, count in rows.unread.most_common(3))
            more = f" and {len(rows.unread) - 3} more" if len(rows.unread) > 3 else ""
            result.append(Notice("unread-events", f"{name} holds events of kinds that are not read: {kinds}{more}"))
        return tuple(result)


def _rows_by_process(track: Codes, tracks: Sequence[tuple[Scalar, Scalar]]) -> Counter[int | str]:
    counts: Counter[int | str] = Counter()
    for code, count in _counts(track):
        counts[_process_key(tracks[code][0])] += count
    return counts


def _counts(codes: npt.NDArray[np.integer[Any]]) -> Iterator[tuple[int, int]]:
    """Each code of a column and how often it stands there, in order of code."""
    counts = np.bincount(codes)
    codes = np.flatnonzero(counts)
    return zip(codes.tolist(), counts[codes].tolist(), strict=True)


def _process_key(pid: Scalar) -> int | str:
    """One key per process: 7 and "7" are the same, "[rank0] 7" and "[rank1] 7" are not."""
    return pid if isinstance(pid, str) and not _INTEGER.fullmatch(pid) else _whole(pid)


def _whole(value: Any) -> int:
    """The integer that a value is or, as in "stream 7", ends in; NOT_RECORDED for anything else."""
    if isinstance(value, str):
        found = _INTEGER.findall(value)
        value = int(found[-1]) if found else None
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        return NOT_RECORDED
    return value


def _first_recorded(column: npt.NDArray[np.int64], instead: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.where(column == ABSENT, instead, column)


def _copy(name: str) -> tuple[CopyKind, int]:
    """Direction of a copy and whether the memory of the host side is pageable, from its name."""
    direction = _COPY.search(name)
    pageable = 1 if "Pageable" in name else 0 if "Pinned" in name else NOT_RECORDED
    return COPY_KINDS.get(direction[1], CopyKind.UNKNOWN) if direction else CopyKind.UNKNOWN, pageable


def _recorded_by(activities: Activities, calls: Calls, names: Sequence[str]) -> frozenset[Capability]:
    """What the rows of one GPU hold."""
    found = set()
    if len(activities):
        found.add(Capability.ACTIVITIES)
    if (activities.pageable != NOT_RECORDED).any():
        found.add(Capability.COPY_KINDS)
    graphs = np.array([name.endswith("GraphLaunch") for name in names], np.bool_)
    launches = calls.correlation[graphs[calls.name] & (calls.correlation > 0)]
    # Before kineto wrote node ids, nodes show in that one graph launch owns many activities.
    launched = activities.correlation[among(activities.correlation, launches)]
    if (activities.graph_node > 0).any() or len(unique(launched)) < len(launched):
        found.add(Capability.GRAPH_NODES)
    return frozenset(found)


def _device(index: int, properties: Any) -> Device:
    """The GPU as its process lists it; where the list numbers GPUs otherwise and all are alike, any of them."""
    listed = [_described(p) for p in properties if isinstance(p, dict)] if isinstance(properties, list) else []
    own = next((d for d in listed if d.index == index), None)
    if own is not None or index == NOT_RECORDED:
        return own or Device(index)
    alike = {(d.name, d.memory_bytes, d.multiprocessors) for d in listed}
    return Device(index, *alike.pop()) if len(alike) == 1 else Device(index)


def _described(properties: dict[str, Any]) -> Device:
    name, memory, multiprocessors = properties.get("name"), _whole(properties.get("totalGlobalMem")), _whole(properties.get("numSms"))
    return Device(
        index=_whole(properties.get("id")),
        name=name if isinstance(name, str) and name else None,
        memory_bytes=memory if memory > 0 else None,
        multiprocessors=multiprocessors if multiprocessors > 0 else None,
    )


def _versions(metadata: dict[str, Any], job: dict[str, Any]) -> dict[str, str]:
    """Versions by tool, as people write them; anything that does not look like a version is left out."""
    found: dict[str, Any] = {}
    for tool, key in (("CUDA runtime", "cuda_runtime_version"), ("CUDA driver", "cuda_driver_version")):
        number = _whole(metadata.get(key))
        if number >= 1000:
            found[tool] = f"{number // 1000}.{number % 1000 // 10}"  # 12040 is 12.4
    for tool, key in (("HIP runtime", "hip_runtime_version"), ("HIP driver", "hip_driver_version")):
        number = _whole(metadata.get(key))
        if number >= 10**7:
            found[tool] = f"{number // 10**7}.{number // 10**5 % 100}.{number % 10**5}"  # 60443483 is 6.4.43483
    for tool, key in (("CUPTI", "cupti_version"), ("roctracer", "roctracer_version"), ("rocprofiler-sdk", "rocprofiler-sdk_version")):
        found[tool] = metadata.get(key)
    found["NCCL"] = job.get("nccl_version")
    return {
        tool: str(version)
        for tool, version in found.items()
        if isinstance(version, int | float | str) and _PLAIN_VERSION.fullmatch(str(version)) and version != "unknown"
    }


def _base_ns(metadata: dict[str, Any]) -> int:
    """What times count from, 0 if the file does not say."""
    base = _whole(metadata.get("baseTimeNanoseconds"))
    return base if 0 <= base < LIMIT_NS else 0


def _nothing_usable(path: Path, reader: EventReader, cut: str) -> InputError:
    """Why no trace can be made of a file."""
    what_is_read = "traceread reads files of torch.profiler's export_chrome_trace and of: nsys export --type sqlite"
    again = "Copy it again from where it was recorded, or record it again"
    why = f" ({cut})" if cut else ""
    head = reader.head.lstrip()
    if reader.form == "" and not head:
        return CorruptTrace(f"{path} is empty{why}", again)
    if reader.form == "" and not head.startswith(b"{"):
        return UnknownFormat(f"{path} is no JSON: it starts with {head[:20]!r}", what_is_read)
    if reader.form == "":
        if reader.head_is_json():
            return UnknownFormat(f"{path} is JSON without a list called traceEvents", what_is_read)
        return CorruptTrace(f"{path} ends before its events begin{why}", again)
    damage = reader.damage
    if reader.form == "list" and not reader.events and (reader.objects or damage.separators) and not damage.dropped:
        return UnknownFormat(f"{path} is a JSON list, but not of trace events", what_is_read)
    if damage.dropped or damage.truncated:
        return CorruptTrace(f"{path} is damaged beyond use: none of the {reader.events} events that can be read is of use{why}", again)
    if not reader.events:
        return CorruptTrace(f"{path} holds no events", "Check that the profiler was running: its schedule may have had no active step")
    return CorruptTrace(
        f"{path} holds no events of use: none of its {reader.events} is GPU work, a CUDA call or a host range",
        "Check that the profiler was running: its schedule may have had no active step",
    )


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _shown(text: str) -> str:
    """A text from a file, short and printable."""
    return "".join(c if c.isprintable() else "?" for c in text[:40]) or "without a category"
