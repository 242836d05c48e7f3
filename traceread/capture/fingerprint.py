"""The software and hardware a rank runs on, for fair comparisons. Nothing of the environment is read or written."""

from __future__ import annotations

import csv
import hashlib
import json
import platform
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from traceread.capture.ranks import device_index

_NOT_HASHED = ("host", "hash")
_SMI_FIELDS = {
    "driver": "driver_version",
    "clocks_max_sm": "clocks.max.sm",
    "clocks_max_memory": "clocks.max.memory",
    "clocks_application_sm": "clocks.applications.graphics",
    "power_limit": "power.limit",
    "ecc": "ecc.mode.current",
    "mig": "mig.mode.current",
}
_SMI_SECONDS = 10


def read_fingerprint() -> dict[str, Any]:
    """Versions, device and its settings on this rank, with their hash; what is not there is left out.

    Starts nvidia-smi if there is a GPU.
    """
    import torch

    found: dict[str, Any] = {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        "nccl": _nccl(),
    }
    index = device_index()
    if index is not None:
        properties = torch.cuda.get_device_properties(index)
        found |= {"gpu": properties.name, "memory_bytes": properties.total_memory, "multiprocessors": properties.multi_processor_count}
        found |= _settings(str(getattr(properties, "uuid", "")))
    known = {name: value for name, value in found.items() if value is not None}
    return {**known, "hash": stack_hash(known)}


def stack_hash(stack: dict[str, Any]) -> str:
    """A short hash of everything but the host: equal on ranks with the same stack."""
    told = {name: value for name, value in stack.items() if name not in _NOT_HASHED}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def ranks_by_hash(hashes: Sequence[str]) -> dict[str, list[int]]:
    """Ranks of each stack hash; more than one key: the ranks do not run the same stack."""
    ranks = defaultdict(list)
    for rank, value in enumerate(hashes):
        ranks[value].append(rank)
    return dict(ranks)


def _nccl() -> str | None:
    import torch

    if not torch.cuda.is_available():
        return None
    try:
        version = torch.cuda.nccl.version()
    except (AttributeError, RuntimeError):  # a build without NCCL
        return None
    return ".".join(map(str, version)) if isinstance(version, tuple) else str(version)


def _settings(uuid: str) -> dict[str, str]:
    """What nvidia-smi says about a device; {} where it says nothing."""
    if not uuid or shutil.which("nvidia-smi") is None:
        return {}
    device = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    command = ["nvidia-smi", "-i", device, f"--query-gpu={','.join(_SMI_FIELDS.values())}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = list(csv.reader(done.stdout.splitlines()))
    if len(rows) != 1 or len(rows[0]) != len(_SMI_FIELDS):
        return {}
    return {name: text.strip() for name, text in zip(_SMI_FIELDS, rows[0], strict=True) if not text.strip().startswith("[")}
