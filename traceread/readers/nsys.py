"""Nsight Systems exports, from 2020 (no schema number) to schema 3.28: one `Trace` per process and GPU.

NVIDIA promises no stable schema: tables appear only when they have rows, and columns come and go between minor versions. So
every table and column is looked for by name, a missing one reads as "not recorded", and unknown ones are ignored. Where a
meaning was seen to change, a comment in the module of that table names the version.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from traceread.errors import CorruptTrace, InputError, LimitExceeded, Notice, TraceNotFound, UnknownFormat, UnsupportedSchema
from traceread.model import NOT_RECORDED, Activities, Calls, Capability, CollectiveRecords, Elsewhere, RangeKind, Ranges, Trace
from traceread.readers import nsys_collectives, nsys_gpu, nsys_host, nsys_job, nsys_waits
from traceread.readers.formats import REPORT_SUFFIXES, SQLITE_MAGIC
from traceread.readers.nsys_export import EVENTS, NO_PROCESS, REEXPORT, Export, in_order, pid_of, processes_of, stacked
from traceread.readers.options import DEFAULTS, ReadOptions
from traceread.readers.sqlite import Database, opened

NEWEST_MAJOR, NEWEST_MINOR = 3, 28

_EXPORT = ("export", "--type", "sqlite", "--force-overwrite", "true")
_RECORD = "nsys profile -t cuda,nvtx,osrt --trace-fork-before-exec=true -o FILE python train.py"


def read(path: Path, options: ReadOptions = DEFAULTS) -> list[Trace]:
    """One Trace per process and device that owns GPU rows, in order of device and process; rank -1 where the file does not say.

    Without any GPU rows, one per process that launched work, else one per process with ranges, with empty activities. A report
    (`.nsys-rep`, `.qdrep`) is exported first, with the `nsys` on PATH.

    Raises:
        TraceNotFound: there is no such file.
        UnknownFormat: neither an export nor a report.
        UnsupportedSchema: an export of a major schema version this program does not know.
        CorruptTrace: damaged, or the export was aborted.
        InputError: a report without `nsys` to export it, or a capture that recorded nothing.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            is_database = file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    except FileNotFoundError:
        raise TraceNotFound(f"{path} does not exist", f"ls {shlex.quote(str(path.parent))}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", f"ls -l {shlex.quote(str(path))}") from None
    if is_database:
        return _traces(path, path, options)
    if path.suffix not in REPORT_SUFFIXES:
        raise UnknownFormat(f"{path} is neither a SQLite export of Nsight Systems nor a report", REEXPORT)
    with exported(path, options.nsys_timeout_s) as export:
        return _traces(path, export, options)


@contextmanager
def exported(report: Path, timeout_s: float) -> Iterator[Path]:
    """The SQLite export of a report in a temporary directory that is removed at the end.

    Raises InputError if there is no `nsys` on PATH, or it fails or takes longer than `timeout_s`.
    """
    import shutil  # these three: exports do without
    import subprocess
    import tempfile

    command = shlex.join(["nsys", *_EXPORT, "-o", str(report.with_suffix(".sqlite")), str(report)])
    nsys = shutil.which("nsys")
    if nsys is None:
        raise InputError(f"{report}: only nsys itself reads its reports, and there is no nsys on PATH", command, "nsys-missing")
    with tempfile.TemporaryDirectory(prefix="traceread-") as folder:
        target = Path(folder, "export.sqlite")
        arguments = [nsys, *_EXPORT, "-o", str(target), str(report.absolute())]
        try:
            done = subprocess.run(
                arguments, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            raise InputError(f"{report}: nsys export took more than {timeout_s:g} s", command, "nsys-export") from None
        except OSError as error:
            raise InputError(f"{report}: nsys could not be started: {error.strerror}", command, "nsys-export") from None
        if done.returncode or not target.is_file():
            raise InputError(
                f"{report}: nsys export failed with exit code {done.returncode}; a report needs an nsys at least as new as its own",
                command,
                "nsys-export",
            )
        yield target


def _traces(path: Path, export_path: Path, options: ReadOptions) -> list[Trace]:
    if export_path.stat().st_size > options.max_uncompressed_bytes:
        raise LimitExceeded(
            f"{path}: larger than {options.max_uncompressed_bytes} bytes", "If you trust the file: --max-uncompressed SIZE reads more of it"
        )
    limit, progress, compiled = options.max_event_bytes, options.progress, options.compiled
    with opened(export_path, named=path, max_value_bytes=limit, progress=progress, compiled=compiled) as db:
        versions, notices = _schema(db)
        _refuse_incomplete(db)
        db.expect(EVENTS)
        traces = _read(Export(db), versions, notices)
        db.read_all()
        return traces


def _read(export: Export, versions: dict[str, str], notices: list[Notice]) -> list[Trace]:
    path, db = export.db.path, export.db
    activities, gpu_process = nsys_gpu.activities(export)
    calls = nsys_host.calls(export)
    gpu_process = nsys_job.only_process_if_unknown(gpu_process, calls)
    owners = nsys_job.owners(export, activities, gpu_process, calls)
    ranges, thread_names = nsys_host.nvtx(export, calls, [process for process, _ in owners])
    owners = owners or [(process, NOT_RECORDED) for process in processes_of(ranges.thread)]
    if not owners:
        raise InputError(f"{path}: nothing was recorded: no GPU work, no API calls, no NVTX ranges", _RECORD, "empty-capture")
    processes = sorted({process for process, _ in owners})
    os_calls = nsys_host.os_calls(export, calls, ranges, processes)
    ranges = stacked(nsys_host.RangeRows, [ranges, os_calls, nsys_host.overheads(export, processes)])
    last = max((int(table.end_ns.max()) for table in (activities, calls, ranges) if len(table)), default=0)
    ranges = ranges.replace(end_ns=np.where(ranges.open == 1, last, ranges.end_ns))
    syncs, records = nsys_waits.synchronizations(export), nsys_waits.event_records(export)

    thread_names = nsys_host.thread_names(export, nsys_host.threads_of(calls, ranges)) | thread_names
    environment = nsys_job.environment(db)
    ranks = nsys_job.ranks(export, owners, thread_names, environment)
    device_of = nsys_job.devices(db, environment)
    host = nsys_job.host(db)
    notices = notices + nsys_job.losses(db, processes)
    notices += nsys_job.unrecorded(export, owners, calls, activities, gpu_process)
    if export.odd_rows:
        notices.append(Notice("odd-times", f"{export.odd_rows} rows have impossible times; they were dropped or given no length"))

    hosts = {process: nsys_host.host_side(process, calls, ranges, thread_names) for process in processes}
    names = tuple(export.names)
    payloads = nsys_collectives.payloads(export, processes)
    traces = []
    for process, device in owners:
        threads, own_calls, own_ranges = hosts[process]
        own, elsewhere = _divided(activities, gpu_process == process, device)
        collectives, groups = nsys_collectives.records(process, own_ranges, names, threads, payloads)
        rank, rank_source, world_size = ranks[process, device]
        traces.append(
            Trace(
                rank=rank,
                rank_source=rank_source,
                source="nsys",
                files=(path,),
                device=device_of(pid_of(process), device),
                host=host,
                pid=None if process == NO_PROCESS else pid_of(process),
                world_size=world_size,
                names=names,
                threads=threads,
                activities=own,
                calls=own_calls,
                ranges=own_ranges,
                stream_waits=nsys_waits.stream_waits(process, own_calls, names, syncs, records, elsewhere),
                recorded=_recorded(own, own_calls, own_ranges, collectives, bool((syncs.process == process).any())),
                versions=versions,
                notices=tuple(notices),
                capture_ns=nsys_job.capture_window(export, own),
                clock="epoch" if export.base_ns else "relative",
                collective_records=collectives,
                groups=groups,
                elsewhere=Elsewhere.empty() if elsewhere is None else Elsewhere.of(elsewhere.correlation),
            )
        )
    return traces


def _divided(activities: Activities, here: npt.NDArray[np.bool_], device: int) -> tuple[Activities, Activities | None]:
    """GPU work of a process on one device in order, and on its others, None if it has no others."""
    on_device = activities.device == device
    if (here & on_device).all():
        return in_order(activities, longest_first=False), None
    elsewhere = activities.take(here & ~on_device)
    return in_order(activities.take(here & on_device), longest_first=False), elsewhere if len(elsewhere) else None


def _schema(db: Database) -> tuple[dict[str, str], list[Notice]]:
    """Versions of exporter and schema, and a notice where the schema is newer than what was tested."""
    table = "META_DATA_EXPORT" if db.has("META_DATA_EXPORT") else "EXPORT_META_DATA"  # renamed between schema 3.1 and 3.4
    meta = {name: value for name, value in db.rows(table, ("name", "value")) if isinstance(name, str) and isinstance(value, str)}
    versions = {"schema": meta.get("EXPORT_SCHEMA_VERSION", "none")[:40]}
    if "EXPORT_PRODUCT_VERSION" in meta:
        versions["nsys"] = meta["EXPORT_PRODUCT_VERSION"][:40]
    number = re.match(r"(\d{1,4})\.(\d{1,4})", versions["schema"])
    if number is None:
        if versions["schema"] == "none":
            return versions, []  # before 2022
        return versions, [Notice("nsys-schema", f"schema version {versions['schema']!r} is not a number; read by what its tables hold")]
    major, minor = int(number[1]), int(number[2])
    if major > NEWEST_MAJOR:
        raise UnsupportedSchema(
            f"{db.path}: schema {versions['schema']} (nsys {versions.get('nsys', 'unknown')}) is newer than {NEWEST_MAJOR}.x",
            "pip install --upgrade traceread",
        )
    if (major, minor) > (NEWEST_MAJOR, NEWEST_MINOR):
        newest = f"{NEWEST_MAJOR}.{NEWEST_MINOR}"
        return versions, [Notice("nsys-schema", f"schema {versions['schema']} is newer than {newest}, the newest that was tested")]
    return versions, []


def _refuse_incomplete(db: Database) -> None:
    """Raises for a database that nsys did not write, or did not finish."""
    if any(db.has(table) for table in EVENTS):
        return
    if not db.has("StringIds"):
        raise UnknownFormat(f"{db.path}: a SQLite database, but not an export of Nsight Systems", "traceread report FILE.sqlite")
    if not any(db.has(table) for table in ("META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_GPU", "ThreadNames", "PROCESSES")):
        # An export that fails, for example of a report newer than the nsys, leaves a valid database with two empty tables.
        raise CorruptTrace(f"{db.path}: incomplete export: nsys stopped before it wrote any events", REEXPORT, "incomplete-export")


def _recorded(
    activities: Activities, calls: Calls, ranges: Ranges, records: CollectiveRecords, synchronizations: bool
) -> frozenset[Capability]:
    """What a trace holds. An absent table says that nothing was seen, not that nothing happened."""
    holds = {
        Capability.ACTIVITIES: len(activities) > 0,
        Capability.LAUNCHES: bool((calls.correlation > 0).any()),
        Capability.OPS: bool((ranges.kind == RangeKind.OP).any()),
        Capability.RANGES: bool((ranges.kind == RangeKind.ANNOTATION).any()),
        Capability.OS_CALLS: bool((ranges.kind == RangeKind.OS).any()),
        Capability.COPY_KINDS: bool((activities.pageable != NOT_RECORDED).any()),
        Capability.SYNC_EVENTS: synchronizations,
        Capability.COLLECTIVES: bool((records.bytes != NOT_RECORDED).any()),
        Capability.GRAPH_NODES: bool((activities.graph_node > 0).any()),
        Capability.OVERHEAD: bool(np.isin(ranges.kind, (RangeKind.PROFILER, RangeKind.LOADING, RangeKind.QUEUE_FULL)).any()),
    }
    return frozenset(capability for capability, held in holds.items() if held)
