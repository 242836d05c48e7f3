"""Stretches of time that an export is cut to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from traceread.model import IntColumn
from traceread.report import RankReport


class Spans(NamedTuple):
    """Stretches `[start, end)` on one rank's own clock."""

    start: IntColumn
    end: IntColumn

    def touched_by(self, start: IntColumn, end: IntColumn) -> npt.NDArray[np.bool_]:
        """Which intervals begin in, end in or cover one of them."""
        result = np.zeros(len(start), bool)
        for low, high in zip(self.start.tolist(), self.end.tolist(), strict=True):
            result |= (end >= low) & (start < high)
        return result


def spans_of(ranks: Sequence[RankReport], only_used: bool) -> Spans | None:
    """Host and GPU time of the used steps; None where everything is kept."""
    if not only_used:
        return None
    used = [r.steps.windows[i] for r in ranks for i in r.used_rows()]
    start = [min(w.start_ns, w.host_start_ns) if w.host_start_ns > 0 else w.start_ns for w in used]
    return Spans(np.array(start, np.int64), np.array([w.end_ns for w in used], np.int64))


def kept(start: IntColumn, end: IntColumn, spans: Spans | None) -> npt.NDArray[np.bool_]:
    """Which intervals an export keeps."""
    return np.ones(len(start), bool) if spans is None else spans.touched_by(start, end)
