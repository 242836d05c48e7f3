"""Sidecar telemetry: what nvidia-smi or dcgmi dmon logged about GPUs, and GPUs that only look busy."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from shlex import quote
from statistics import median
from typing import Any

from traceread.errors import InputError, UnknownFormat
from traceread.records import record

BUSY_SHARE = 0.9
"""Utilisation from which a GPU counts as busy by nvidia-smi: a kernel runs, however little it does."""
LEAST_SM_ACTIVE = 0.1
LEAST_POWER = 0.5
"""Share of the others' median power below which a busy GPU is stalled."""
LEAST_POWER_OF_LIMIT = 0.3

_LONGEST = 1 << 28
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_FIELDS = {
    "index": ("index", "gpu", "entity", "gpu_id"),
    "utilisation": ("utilization.gpu", "gputl", "gpu_util", "dcgm_fi_dev_gpu_util"),
    "power_w": ("power.draw", "power.draw.instant", "power.draw.average", "power", "powinst", "dcgm_fi_dev_power_usage"),
    "limit_w": ("power.limit", "enforced.power.limit"),
    "clock_mhz": ("clocks.sm", "clocks.current.sm", "clocks.gr", "clocks.current.graphics", "smclk", "dcgm_fi_dev_sm_clock"),
    "sm_active": ("smact", "sm_active", "dcgm_fi_prof_sm_active"),
}


@record
class GpuTelemetry:
    """A GPU over the log: medians; what was not logged is None.

    Attributes:
        index: its number.
        samples: rows.
        utilisation: share of the time with any kernel, 0 to 1.
        power_w, limit_w, clock_mhz: power, its limit, clock of the multiprocessors.
        sm_active: share of multiprocessors with work, 0 to 1.
        stalled: why it does nothing although it is busy, "" if it does.
    """

    index: int
    samples: int
    utilisation: float | None = None
    power_w: float | None = None
    limit_w: float | None = None
    clock_mhz: float | None = None
    sm_active: float | None = None
    stalled: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The GPU as JSON builtins."""
        return dict(vars(self))


def read_telemetry(path: Path) -> list[GpuTelemetry]:
    """The GPUs of a log of `nvidia-smi --query-gpu=… --format=csv` or `dcgmi dmon -e …`, by index.

    Raises:
        InputError: it cannot be read.
        UnknownFormat: it is neither.
    """
    try:
        if path.stat().st_size > _LONGEST:
            raise InputError(
                f"{path} is larger than {_LONGEST >> 20} MiB", f"give a part of it: head -n 100000 {quote(str(path))} > part.csv"
            )
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", f"ls -l {quote(str(path))}") from error
    values: dict[int, dict[str, list[float]]] = {}
    samples: dict[int, int] = {}
    for index, row in _rows(lines):
        samples[index] = samples.get(index, 0) + 1
        for name, value in row.items():
            values.setdefault(index, {}).setdefault(name, []).append(value)
    if not samples:
        raise UnknownFormat(
            f"{path} is no log of nvidia-smi or dcgmi dmon",
            "nvidia-smi --query-gpu=timestamp,index,utilization.gpu,power.draw,clocks.sm --format=csv -l 5 > gpus.csv",
        )
    gpus = []
    for index, count in sorted(samples.items()):
        medians: dict[str, Any] = {name: median(of) for name, of in values[index].items()}
        gpus.append(GpuTelemetry(index, count, **medians))
    return [_judged(gpu, gpus) for gpu in gpus]


def _judged(gpu: GpuTelemetry, gpus: Iterable[GpuTelemetry]) -> GpuTelemetry:
    if gpu.utilisation is None or gpu.utilisation < BUSY_SHARE:
        return gpu
    reasons = []
    others = [g.power_w for g in gpus if g.index != gpu.index and g.power_w is not None]
    if gpu.sm_active is not None and gpu.sm_active < LEAST_SM_ACTIVE:
        reasons.append(f"its multiprocessors are active {gpu.sm_active:.3f} of the time")
    if gpu.power_w is not None:
        low_for_others = bool(others) and gpu.power_w < LEAST_POWER * median(others)
        low_for_limit = gpu.limit_w is not None and gpu.power_w < LEAST_POWER_OF_LIMIT * gpu.limit_w
        if low_for_others or low_for_limit:
            at = "" if gpu.clock_mhz is None else f" at {gpu.clock_mhz:.0f} MHz"
            beside = f", the others {median(others):.2f} W" if low_for_others else f" of {gpu.limit_w:.0f} W"
            reasons.append(f"it draws {gpu.power_w:.2f} W{at}{beside}")
    return GpuTelemetry(**{**vars(gpu), "stalled": "; ".join(reasons)})


def _rows(lines: list[str]) -> Iterator[tuple[int, dict[str, float]]]:
    """The rows with their GPU, by the heading above them."""
    columns: dict[int, str] = {}
    shares = False
    by_comma = False
    for line in lines:
        by_comma = "," in line
        cells = next(csv.reader([line], skipinitialspace=True), []) if by_comma else _dcgm_cells(line)
        heading = {at: name for at, cell in enumerate(cells) if (name := _field(cell))}
        if "index" in heading.values() and len(heading) > 1:
            columns, shares = heading, by_comma
            continue
        found = {name: float(n[0]) for at, name in columns.items() if at < len(cells) and (n := _NUMBER.search(cells[at]))}
        index = found.pop("index", None)
        if index is None or not found or index < 0 or index != int(index):
            continue
        if "utilisation" in found:
            found["utilisation"] /= 100
        if shares and found.get("sm_active", 0) > 1:
            found["sm_active"] /= 100  # in percent, as some exporters write it
        yield int(index), found


def _dcgm_cells(line: str) -> list[str]:
    """Cells of dcgmi dmon: "GPU 0" is one of them."""
    return re.sub(r"^\s*(GPU|GPU-I)\s+(\d)", r"\2", line.replace("#", " ")).split()


def _field(heading: str) -> str | None:
    word = heading.split("[")[0].strip().lower().lstrip("#")
    return next((name for name, words in _FIELDS.items() if word in words), None)
