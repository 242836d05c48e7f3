"""Matrix products that a rank executes, by recorded shapes: FLOPs, the time they take, and the rate they reach.

An operator's kernels are those launched inside it. Of operators inside one another the outer one counts. What is launched without such an
operator around it (compiled code, extensions, CUDA graphs) is not known, so the FLOPs are a lower bound; coverage says of how much.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from traceread import intervals
from traceread.categories import FAMILIES
from traceread.measurements.launches import Launches
from traceread.measurements.precision import format_of_kernel
from traceread.measurements.steps import Steps
from traceread.model import ELEMENT_BYTES, ActivityKind, Category, IntColumn, MatrixKind, MatrixOps, Trace
from traceread.records import record

_DTYPES = tuple(ELEMENT_BYTES)
_FORMATS = {"BFloat16": "bf16", "Half": "fp16", "Char": "int8"} | dict.fromkeys((d for d in ELEMENT_BYTES if d.startswith("Float8")), "fp8")
_SECOND = 10**9


@record
class KindWork:
    """Operators of one kind over the used steps of a rank.

    Attributes:
        kind: gemm, attention or convolution.
        operators: how many.
        flops: theirs, by number format ("" where that is not known).
        bytes: least bytes of memory they move.
        ns: time of the kernels they launch.
        kernel_ns: time of all kernels of the family, whoever launches them.
        known_ns: of that, under such operators.
    """

    kind: MatrixKind
    operators: int
    flops: Mapping[str, int]
    bytes: int
    ns: int
    kernel_ns: int
    known_ns: int

    @property
    def total_flops(self) -> int:
        """FLOPs of all formats."""
        return sum(self.flops.values())

    @property
    def rate(self) -> float | None:
        """FLOP/s while its kernels run."""
        return self.total_flops * _SECOND / self.ns if self.ns else None

    @property
    def intensity(self) -> float | None:
        """FLOPs for each byte of memory."""
        return self.total_flops / self.bytes if self.bytes else None

    def peak_share(self, peaks: Mapping[str, float]) -> float | None:
        """The time its FLOPs take at the peaks of their formats over the time they took; None where a peak is not known."""
        if not self.ns or not self.flops or any(precision not in peaks for precision in self.flops):
            return None
        return sum(flops / peaks[precision] for precision, flops in self.flops.items()) * _SECOND / self.ns


@record
class MatrixWork:
    """Matrix products over the used steps of a rank.

    Attributes:
        kinds: those there are, the most FLOPs first.
        steps: number of used steps.
    """

    kinds: tuple[KindWork, ...] = ()
    steps: int = 0

    @property
    def flops(self) -> int:
        """Executed FLOPs of a step, a lower bound."""
        return self._mean(sum(k.total_flops for k in self.kinds))

    @property
    def coverage(self) -> float:
        """The share of the time of kernels that multiply matrices whose operator is known."""
        whole = sum(k.kernel_ns for k in self.kinds)
        return sum(k.known_ns for k in self.kinds) / whole if whole else 0.0

    @property
    def precision(self) -> str | None:
        """The number format of nine tenths of the FLOPs, None if there is none."""
        by_format: dict[str, int] = {}
        for kind in self.kinds:
            for precision, flops in kind.flops.items():
                by_format[precision] = by_format.get(precision, 0) + flops
        most = max(by_format, key=lambda p: (by_format[p], p), default="")
        return most if most and 10 * by_format[most] >= 9 * sum(by_format.values()) else None

    def to_dict(self, peaks: Mapping[str, float]) -> dict[str, Any] | None:
        """The work of a step as JSON builtins; None where no shapes are recorded."""
        if not any(k.operators for k in self.kinds):
            return None
        return {
            "flops": self.flops,
            "coverage": self.coverage,
            "kinds": [
                {
                    "kind": k.kind.key,
                    "operators": self._mean(k.operators),
                    "flops": {precision or "unknown": self._mean(flops) for precision, flops in k.flops.items()},
                    "bytes": self._mean(k.bytes),
                    "ns": self._mean(k.ns),
                    "kernel_ns": self._mean(k.kernel_ns),
                    "known_ns": self._mean(k.known_ns),
                    "flops_per_s": k.rate,
                    "intensity": k.intensity,
                    "peak_share": k.peak_share(peaks),
                }
                for k in self.kinds
            ],
        }

    def _mean(self, total: int) -> int:
        return (2 * total + self.steps) // (2 * self.steps) if self.steps else 0


def find_matrix_work(trace: Trace, launches: Launches, steps: Steps) -> MatrixWork:
    """The matrix products of one rank in its used steps."""
    a = trace.activities
    used = np.array([*steps.used, False], bool)
    count = int(used.sum())
    if not count or len(steps.window_of) != len(a):
        return MatrixWork()
    ops = _outermost(trace.matrix_ops)
    mine = np.flatnonzero((a.category == Category.COMPUTE) & (a.kind == ActivityKind.KERNEL) & used[steps.window_of])
    op = _holding(ops, launches.thread[mine], launches.start_ns[mine], launches.known[mine])
    length = a.end_ns[mine] - a.start_ns[mine]
    working = intervals.unique(op[op >= 0])
    formats = _formats(trace, ops, working, op, mine)
    kinds = []
    for kind in MatrixKind:
        family = a.family[mine] == FAMILIES.index(kind.key)
        own = working[ops.kind[working] == kind]
        under = np.isin(op, own)
        if not family.any() and not len(own):
            continue
        flops: dict[str, int] = {}
        for precision, i in zip(formats[ops.kind[working] == kind].tolist(), own.tolist(), strict=True):
            flops[precision] = flops.get(precision, 0) + int(ops.flops[i])
        kinds.append(
            KindWork(
                kind=kind,
                operators=len(own),
                flops=flops,
                bytes=int(ops.bytes[own].sum()),
                ns=int(length[under].sum()),
                kernel_ns=int(length[family].sum()),
                known_ns=int(length[family & (op >= 0)].sum()),
            )
        )
    return MatrixWork(tuple(sorted(kinds, key=lambda k: (-k.total_flops, k.kind))), count)


def _outermost(ops: MatrixOps) -> MatrixOps:
    """The operators that stand in no other, in order of thread and start."""
    ops = ops.take(np.lexsort((-ops.end_ns, ops.start_ns, ops.thread)))
    if not len(ops):
        return ops
    thread = ops.thread.astype(np.int64)
    reach = intervals.reach_per_group(ops.start_ns, ops.end_ns, np.unique(thread, return_inverse=True)[1])
    first = np.concatenate(([True], thread[1:] != thread[:-1]))
    return ops.take(first | (ops.start_ns >= reach))


def _holding(ops: MatrixOps, thread: npt.NDArray[np.int32], at: IntColumn, known: npt.NDArray[np.bool_]) -> IntColumn:
    """For each launch the position of the operator it stands in, -1 if none."""
    result = np.full(len(at), -1)
    for t in intervals.unique(ops.thread).tolist():
        rows = np.flatnonzero(ops.thread == t)
        asked = np.flatnonzero(known & (thread == t))
        before = np.searchsorted(ops.start_ns[rows], at[asked], side="right") - 1
        held = (before >= 0) & (at[asked] < ops.end_ns[rows][np.maximum(before, 0)])
        result[asked[held]] = rows[before[held]]
    return result


def _formats(trace: Trace, ops: MatrixOps, working: IntColumn, op: IntColumn, kernels: IntColumn) -> npt.NDArray[np.str_]:
    """For each working operator its number format: by dtype, for Float by the names of its kernels: TF32 is not recorded otherwise."""
    names = np.array([_FORMATS.get(_DTYPES[d], "") for d in range(len(_DTYPES))])
    formats = names[ops.dtype[working]].astype("<U8")
    single = np.flatnonzero(ops.dtype[working] == _DTYPES.index("Float"))
    if len(single):
        formats[single] = "fp32"
        asked = np.isin(op, working[single])
        codes, name = intervals.distinct(trace.activities.name[kernels[asked]])
        with_tf32 = np.array([format_of_kernel(trace.names[code]) == "tf32" for code in codes.tolist()], bool)
        formats[single[np.isin(working[single], op[asked][with_tf32[name]])]] = "tf32"
    return formats
