"""Whose traces an Nsight Systems export holds: processes, devices and ranks, and what it says about records that are missing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from traceread.errors import CorruptTrace, Notice
from traceread.intervals import unique
from traceread.model import NOT_RECORDED, Activities, ActivityKind, Device, IntColumn
from traceread.readers.nsys_export import (
    GRAPH_TRACE,
    LONGEST_NS,
    NO_PROCESS,
    REEXPORT,
    THREAD_BITS,
    Export,
    pid_of,
    process_of,
    processes_of,
)
from traceread.readers.nsys_host import CallRows
from traceread.readers.sqlite import Database
from traceread.records import record

_MOST_GPUS = 4096
_LAUNCHING = re.compile(r"cu(da)?(Launch|GraphLaunch|Memcpy|Memset)")
_KERNEL_LAUNCH = re.compile(r"cu(da)?Launch(Cooperative)?Kernel")
_GRAPH_LAUNCH = re.compile(r"cu(da)?GraphLaunch")

LOSSES = {
    "Not all CUDA events might have been collected.": "CUDA events",
    "Not all NVTX events might have been collected.": "NVTX events",
    "Not all OS runtime libraries events might have been collected.": "OS runtime events",
}
"""Whole sentences of DIAGNOSTIC_EVENT that say that records are missing, and which. Its texts are never repeated: they hold paths."""
NOT_STARTED = "CUDA profiling might have not been started correctly."
OTHER_LOSS = "Records were lost."
"""Stands for sentences that are not known, and speak of loss."""
WARNING = 2
"""The least severity of a diagnostic that is a warning."""
_LOST = re.compile(r"\b(?:lost|dropped|overflow\w*)\b", re.IGNORECASE)
SYSTEM = "TARGET_INFO_SYSTEM_ENV"
"""The table about the machine; it holds the whole environment."""

# Of the captured environment only these are ever looked at: rank and size as a launcher sets them, in order of preference.
_RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


@record
class Environment:
    """All that is ever kept of a captured environment."""

    rank: int | None = None
    world_size: int | None = None
    remaps_devices: bool = False  # CUDA_VISIBLE_DEVICES is something else than 0, 1, 2, …


def owners(export: Export, activities: Activities, gpu_process: IntColumn, calls: CallRows) -> list[tuple[int, int]]:
    """(process, device) of each trace: those with GPU rows, else the processes that launched work, on an unknown device."""
    pairs: list[tuple[int, int]] = []
    for process in unique(gpu_process).tolist():
        devices = unique(activities.device[gpu_process == process]).tolist()
        pairs += [(process, device) for device in devices]
        if len(pairs) > _MOST_GPUS:
            raise CorruptTrace(f"{export.db.path}: claims more than {_MOST_GPUS} GPUs", REEXPORT)
    if pairs:
        return sorted(pairs, key=lambda pair: (pair[1], pid_of(pair[0]), pair[0]))
    return [(process, NOT_RECORDED) for process in processes_of(calls.thread[_called(export, calls, _LAUNCHING)])]


def _called(export: Export, calls: CallRows, pattern: re.Pattern[str]) -> npt.NDArray[np.bool_]:
    """Which calls have a name that starts so."""
    return np.isin(calls.name, [code for code, name in enumerate(export.names) if pattern.match(name)])


def only_process_if_unknown(gpu_process: IntColumn, calls: CallRows) -> IntColumn:
    """The same processes, those not recorded replaced by the only one that called CUDA, if there is only one."""
    callers = processes_of(calls.thread)
    return np.where(gpu_process == NO_PROCESS, callers[0], gpu_process) if len(callers) == 1 else gpu_process


def ranks(
    export: Export, owners: Sequence[tuple[int, int]], thread_names: dict[int, str], environment: Environment
) -> dict[tuple[int, int], tuple[int, str, int | None]]:
    """Rank, where it comes from and world size of each (process, device); -1 where the file does not say.

    A process that drives several devices is several ranks, so no number of its own names them.
    """
    processes = [process for process, _ in owners]
    claims: dict[int, set[tuple[int, str]]] = {}
    for thread, rank in export.db.rows("MPI_RANKS", ("globalTid", "rank")):
        if isinstance(thread, int) and isinstance(rank, int):
            claims.setdefault(thread & ~THREAD_BITS, set()).add((rank, "MPI_RANKS"))
    for thread, name in thread_names.items():
        numbered = re.fullmatch(r"MPI Rank (\d{1,9})", name)
        if numbered and thread & ~THREAD_BITS not in claims:
            claims[thread & ~THREAD_BITS] = {(int(numbered[1]), "thread name")}
    found: dict[tuple[int, int], tuple[int, str, int | None]] = {}
    for process, device in owners:
        claimed = claims.get(process, set())
        if processes.count(process) > 1:
            found[process, device] = (NOT_RECORDED, "", None)
        elif len(owners) == 1 and environment.rank is not None:
            found[process, device] = (environment.rank, "environment", environment.world_size)
        elif len(claimed) == 1:
            found[process, device] = (*next(iter(claimed)), None)
        else:
            found[process, device] = (NOT_RECORDED, "", None)
    return found


def environment(db: Database) -> Environment:
    """Rank, size and device mapping from the captured environment. Everything else in it stays where it is: it holds secrets.

    It is the environment of the command that nsys started, one for the whole file.
    """
    found: dict[str, str] = {}
    for (text,) in db.rows(SYSTEM, ("value",), "name = 'DeviceEnvironment'"):
        if isinstance(text, str):
            found |= told_by_environment(text)
    visible = found.get("CUDA_VISIBLE_DEVICES", "").split(",")
    remaps = visible != [""] and visible != [str(i) for i in range(len(visible))]
    for rank, size in _RANK_VARIABLES:
        if re.fullmatch(r"[0-9]{1,7}", found.get(rank, "")):
            world_size = int(found[size]) if re.fullmatch(r"[0-9]{1,7}", found.get(size, "")) else None
            return Environment(int(found[rank]), world_size, remaps)
    return Environment(remaps_devices=remaps)


def told_by_environment(text: str) -> dict[str, str]:
    """The variables of a captured environment that are ever looked at: rank, size and visible devices."""
    found = {}
    before = r"[\n\0]" if re.search(r"[\n\0]", text) else r"[\s;\"']"
    for name in sorted({name for pair in _RANK_VARIABLES for name in pair} | {"CUDA_VISIBLE_DEVICES"}):
        entry = re.search(rf"(?:^|{before}){name}=([\w,-]*)", text)
        if entry is not None:
            found[name] = entry[1][:100]
    return found


def devices(db: Database, environment: Environment) -> Callable[[int, int], Device]:
    """A function (pid, device ordinal) → the GPU as recorded.

    TARGET_INFO_GPU.id counts otherwise than CUDA does. TARGET_INFO_CUDA_DEVICE (since schema 3.17) translates; before, cuDevice
    is the ordinal, unless CUDA_VISIBLE_DEVICES moved it. Where all GPUs are alike it does not matter which one it is.
    """
    described: dict[int, tuple[str | None, int | None, int | None]] = {}
    by_ordinal: dict[int, int] = {}
    for key, name, memory, processors, ordinal in db.rows("TARGET_INFO_GPU", ("id", "name", "totalMemory", "smCount", "cuDevice")):
        if not isinstance(key, int) or processors == 0:  # an adapter without multiprocessors is no CUDA device
            continue
        described[key] = (
            name if isinstance(name, str) else None,
            memory if isinstance(memory, int) and memory > 0 else None,
            processors if isinstance(processors, int) else None,
        )
        if isinstance(ordinal, int):
            by_ordinal[ordinal] = key
    translated = {(pid, ordinal): key for key, ordinal, pid in db.rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId", "pid"))}
    alike = len(set(described.values())) == 1

    def device(pid: int, index: int) -> Device:
        if index == NOT_RECORDED:
            return Device(index)
        key = translated.get((pid, index))
        if key is None and alike:
            key = next(iter(described))
        if key is None and not environment.remaps_devices:
            key = by_ordinal.get(index)
        return Device(index, *described.get(key, ())) if isinstance(key, int) else Device(index)

    return device


def host(db: Database) -> str | None:
    """The host name where it has a row of its own."""
    for (value,) in db.rows(SYSTEM, ("value",), "name = 'Hostname'"):
        if isinstance(value, str) and re.fullmatch(r"[\w.-]{1,255}", value):
            return value
    return None


def capture_window(export: Export, activities: Activities) -> tuple[int, int] | None:
    """The session from its start to its stop, None where it is not recorded or does not hold the GPU work.

    Start and stop are on another clock; only their difference counts.
    """
    for (duration,) in export.db.rows("ANALYSIS_DETAILS", ("duration",)):
        if isinstance(duration, int) and 0 < duration < LONGEST_NS:
            start, stop = export.base_ns, export.base_ns + duration
            if not len(activities) or (activities.start_ns.min() >= start and activities.end_ns.max() <= stop):
                return start, stop
    return None


def losses(db: Database, processes: Sequence[int]) -> list[Notice]:
    """What nsys itself says about missing records of these processes, as one notice.

    Its other warnings are about what nsys could not do beside: they come with every report, from helper processes most of all.
    """
    found: set[str] = set()
    for severity, text, process in db.rows("DIAGNOSTIC_EVENT", ("severity", "text", "globalPid")):
        if isinstance(severity, int) and severity >= WARNING and (not isinstance(process, int) or process & ~THREAD_BITS in processes):
            found.add(loss_of(text))
    missing = [records for sentence, records in LOSSES.items() if sentence in found]
    missing += ["other records"] if OTHER_LOSS in found else []
    listed = " and ".join(filter(None, (", ".join(missing[:-1]), *missing[-1:])))
    said = [f"{listed} may be missing" if missing else "", "CUDA profiling may not have started correctly" if NOT_STARTED in found else ""]
    return [Notice("nsys-data-loss", f"nsys warns: {'; '.join(filter(None, said))}")] if any(said) else []


def loss_of(text: object) -> str:
    """The known sentence that says the same as a diagnostic about lost records, "" if it is about something else."""
    if not isinstance(text, str):
        return ""
    return text if text in LOSSES or text == NOT_STARTED else OTHER_LOSS if _LOST.search(text) else ""


def unrecorded(
    export: Export, owners: Sequence[tuple[int, int]], calls: CallRows, activities: Activities, gpu_process: IntColumn
) -> list[Notice]:
    """Notices about GPU work that was launched and not recorded: it must not be read as an idle GPU."""
    launches = _called(export, calls, _LAUNCHING)
    launching = processes_of(calls.thread[launches])
    found = []
    if launching and not len(activities):
        found.append(f"{int(launches.sum())} launches and no GPU work are in this capture")
    elif without := sorted(set(launching) - {process for process, _ in owners}):
        found.append(f"{len(without)} process{'es' if len(without) > 1 else ''} launched GPU work without any GPU rows ({_pids(without)})")
    elif without := _without_kernels(export, owners, calls, activities, gpu_process):
        found.append(f"kernels were launched ({_pids(without)}) and none is in this capture")
    notices = [
        Notice("gpu-not-recorded", f"{what}: what ran was not recorded, which does not mean that the GPU was idle") for what in found
    ]
    return notices + _unrecorded_graphs(export, owners, calls, activities, gpu_process)


def _without_kernels(
    export: Export, owners: Sequence[tuple[int, int]], calls: CallRows, activities: Activities, gpu_process: IntColumn
) -> list[int]:
    """Processes that launched kernels and have neither kernels nor whole graphs."""
    working = np.isin(activities.kind, (ActivityKind.KERNEL, ActivityKind.GRAPH))
    with_kernels = set(unique(gpu_process[working]).tolist())
    launching = processes_of(calls.thread[_called(export, calls, _KERNEL_LAUNCH)])
    return sorted({process for process, _ in owners} & set(launching) - with_kernels)


def _unrecorded_graphs(
    export: Export, owners: Sequence[tuple[int, int]], calls: CallRows, activities: Activities, gpu_process: IntColumn
) -> list[Notice]:
    """A notice if graphs were launched whose GPU time is nowhere: exporters before GRAPH_TRACE had no table for graph mode."""
    if export.db.has(GRAPH_TRACE):
        return []
    graph_launch = _called(export, calls, _GRAPH_LAUNCH)
    if not graph_launch.any():
        return []
    total = missing = 0
    for process in {process for process, _ in owners}:
        launched = calls.correlation[graph_launch & (process_of(calls.thread) == process)]
        total += len(launched)
        missing += int((~np.isin(launched, activities.correlation[gpu_process == process])).sum())
    message = f"{missing} of {total} CUDA graph launches have no record of their GPU time, so the idle time is an upper bound"
    return [Notice("graphs-not-recorded", message)] if missing else []


def _pids(processes: Sequence[int]) -> str:
    shown = ", ".join(str(pid_of(process)) for process in processes[:3])
    return f"pid {shown}" + (f" and {len(processes) - 3} more" if len(processes) > 3 else "")
