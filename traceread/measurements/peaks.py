"""What a GPU can do at most: dense peaks and memory bandwidth by recorded device, from peaks.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pkgutil import get_data  # importlib.resources takes longer to import than the file to read

from traceread.model import Device
from traceread.records import record

_GIB = 1 << 30
_NAME_CUT = 31
"""nsys of 2022 and 2023 cut device names to so many characters."""


@record
class Gpu:
    """An entry of peaks.toml.

    Attributes:
        key: how we call it.
        names: words that name it, as sequences; `loose` ones only together with memory and multiprocessors.
        memory_gib, multiprocessors: what it has; () where any will do.
        bandwidth: of its memory, bytes/s; None if not known.
        flops: dense peak by precision, FLOP/s.
        matmul: FLOP/s that large bf16 products were measured to reach; None if not known.
        unknown: why it has no peaks, "" if it has.
        note: where the figures are from.
    """

    key: str
    names: tuple[tuple[str, ...], ...]
    loose: tuple[tuple[str, ...], ...]
    memory_gib: tuple[int, ...]
    multiprocessors: tuple[int, ...]
    bandwidth: int | None
    flops: Mapping[str, float]
    matmul: float | None
    unknown: str
    note: str

    def misfit(self, device: Device) -> str:
        """What is recorded about a device that this one does not have; "" if nothing speaks against it."""
        if self.multiprocessors and device.multiprocessors is not None and device.multiprocessors not in self.multiprocessors:
            return f"{device.multiprocessors} multiprocessors are recorded, and it has {_or(self.multiprocessors)}"
        if self.memory_gib and device.memory_bytes is not None and not any(_fits(device.memory_bytes, g) for g in self.memory_gib):
            return f"{device.memory_bytes / _GIB:.0f} GiB are recorded, and it has {_or(self.memory_gib)}"
        return ""


@record
class Found:
    """The GPU behind a recorded device.

    Attributes:
        gpu: it, None where it is not known.
        confirmed: memory and multiprocessors are recorded and fit.
        reason: why there is none, "" if there is.
    """

    gpu: Gpu | None
    confirmed: bool = False
    reason: str = ""


@record
class Peak:
    """A peak in FLOP/s with where it comes from; without one, `source` says why."""

    flops: float | None
    source: str


def find_gpu(device: Device) -> Found:
    """The GPU with the recorded name whose memory and multiprocessors fit."""
    if not device.name:
        return Found(None, reason="the device is not named in the trace")
    words = _words(device.name)
    cut = len(device.name) >= _NAME_CUT - 1
    recorded = device.memory_bytes is not None and device.multiprocessors is not None
    named = [gpu for gpu in load_gpus() if any(_holds(words, name, cut) for name in gpu.names)][:1]
    # A name that leaves several open is settled by what else is recorded.
    hinted = [gpu for gpu in load_gpus() if any(_holds(words, name, False) for name in gpu.loose) and (recorded or gpu.unknown)]
    misfit = ""
    for gpu in named or hinted:
        problem = gpu.misfit(device)
        if not problem:
            return Found(None, reason=f"{device.name}: {gpu.unknown}") if gpu.unknown else Found(gpu, recorded)
        misfit = misfit or f"{device.name}: the name is that of the {gpu.key}, but {problem}"
    return Found(None, reason=misfit or f"{device.name} is not in the table of peaks")


def find_peak(device: Device, precision: str) -> Peak:
    """The dense peak of a recorded device for matrix products of a precision (one of PRECISIONS)."""
    found = find_gpu(device)
    if found.gpu is None:
        return Peak(None, found.reason)
    flops = found.gpu.flops.get(precision)
    if flops is None:
        return Peak(None, f"no {precision} peak is known for the {found.gpu.key}")
    by = "" if found.confirmed else ", by its name alone"
    return Peak(flops, f"{precision} peak of the {found.gpu.key}{by}")


@cache
def load_gpus() -> tuple[Gpu, ...]:
    """The entries of peaks.toml, in their order."""
    text = (get_data("traceread.measurements", "peaks.toml") or b"").decode()
    return tuple(
        Gpu(
            key=entry["key"],
            names=tuple(tuple(name.split()) for name in entry.get("names", ())),
            loose=tuple(tuple(name.split()) for name in entry.get("loose", ())),
            memory_gib=tuple(entry.get("memory_gib", ())),
            multiprocessors=tuple(entry.get("multiprocessors", ())),
            bandwidth=entry["bandwidth_gbs"] * 10**9 if "bandwidth_gbs" in entry else None,
            flops={precision: tera * 1e12 for precision, tera in entry.get("tflops", {}).items()},
            matmul=entry["matmul"] * 1e12 if "matmul" in entry else None,
            unknown=entry.get("unknown", ""),
            note=entry["note"],
        )
        for entry in tomllib.loads(text)["device"]
    )


def _words(name: str) -> tuple[str, ...]:
    return tuple(word for word in re.split(r"[\s_/,()-]+", name.lower()) if word not in ("", "nvidia", "amd"))


def _holds(words: tuple[str, ...], name: Sequence[str], cut: bool) -> bool:
    """Whether the words of a name stand one after the other; in a cut name the last one may have lost its end."""
    wanted = tuple(name)
    for at in range(len(words) - len(wanted) + 1):
        if words[at : at + len(wanted)] == wanted:
            return True
    if not cut or len(wanted) < 2:
        return False
    at = len(words) - len(wanted)
    return at >= 0 and words[at:-1] == wanted[:-1] and wanted[-1].startswith(words[-1])


def _fits(memory: int, gib: int) -> bool:
    """Whether a process can see so many bytes of a nominal size: ECC and the driver keep some."""
    return 90 * gib * _GIB <= 100 * memory <= 104 * gib * _GIB


def _or(numbers: Sequence[int]) -> str:
    return " or ".join(map(str, numbers))
