"""What the history says about a job: against its own first measurements, not against a level somebody wished for.

The first reports of the same workload are the baseline; their scatter is how much one start of the job differs from the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import sqrt
from statistics import median
from typing import TYPE_CHECKING, Any

from traceread.history.entry import Entry
from traceread.names import clean
from traceread.records import record
from traceread.units import duration, percent, plural

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

BASELINE = 3
"""First reports that make the baseline; fewer where there are not twice as many."""

ALERT = 0.02
"""A change by this share is worth an alert, if it is also outside of what the baseline scatters."""

_SKEW_HEALTHY, _SKEW_SICK = 1.05, 1.15
_SCATTERS = 3.0
_MAD_TO_SIGMA = 1.4826
_TREND_Z = 1.96
_FEWEST_FOR_TREND = 6
_SAME_RANK = 3


@record
class Answer:
    """A question with its answer in words.

    Attributes:
        key: "step", "mfu", "skew" or "clocks".
        question: what was asked.
        text: the answer.
        alert: whether somebody should look.
    """

    key: str
    question: str
    text: str
    alert: bool

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON builtins."""
        return {"key": self.key, "question": self.question, "answer": self.text, "alert": self.alert}


@record
class Trend:
    """How a value changes from report to report.

    Attributes:
        slope: median change per report (Theil and Sen), as a share of the first value.
        steady: more reports rise than fall by more than chance allows (Mann and Kendall, 95 %), or the other way round.
    """

    slope: float
    steady: bool


def trend_of(values: Sequence[float]) -> Trend | None:
    """The trend of values in order of time; None where there are too few to tell."""
    n = len(values)
    if n < _FEWEST_FOR_TREND or not values[0]:
        return None
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    slope = median((values[j] - values[i]) / (j - i) for i, j in pairs)
    score = sum((values[j] > values[i]) - (values[j] < values[i]) for i, j in pairs)
    return Trend(slope / values[0], abs(score) - 1 > _TREND_Z * sqrt(n * (n - 1) * (2 * n + 5) / 18))


@record
class History:
    """The reports of one job in order of time.

    Attributes:
        job: its name.
        entries: the reports; at least one.
        alert: the share of change that is worth an alert.
    """

    job: str
    entries: tuple[Entry, ...]
    alert: float = ALERT

    def __repr__(self) -> str:
        return f"<History {clean(self.job)}, {plural(len(self.entries), 'report')}>"

    @property
    def last(self) -> Entry:
        """The latest report."""
        return self.entries[-1]

    @cached_property
    def alike(self) -> tuple[Entry, ...]:
        """The reports of the latest one's workload."""
        return tuple(e for e in self.entries if e.workload == self.last.workload)

    @cached_property
    def baseline(self) -> tuple[Entry, ...]:
        """The first reports of this workload; empty where the latest is the first."""
        return self.alike[: min(BASELINE, max((len(self.alike)) // 2, 0))]

    @cached_property
    def answers(self) -> tuple[Answer, ...]:
        """The four questions one asks of a job that runs for weeks."""
        return (self._step(), self._mfu(), self._skew(), self._clocks())

    @property
    def alerts(self) -> tuple[Answer, ...]:
        """The answers that somebody should look at."""
        return tuple(a for a in self.answers if a.alert)

    def _step(self) -> Answer:
        question = "slower than its own first measurements?"
        if not self.baseline:
            return Answer("step", question, self._nothing_before(), False)
        first, scatter = _centre([e.median_ns for e in self.baseline])
        change = self.last.median_ns - first
        share = f"{'+' if change > 0 else ''}{percent(round(change), round(first))}"
        of = (
            f"{duration(round(first))}, the median of the first {len(self.baseline)}"
            if len(self.baseline) > 1
            else f"{duration(round(first))} at first"
        )
        text = f"{duration(self.last.median_ns)} a step now, {share} against {of}"
        trend = trend_of([e.median_ns for e in self.alike])
        rising = trend is not None and trend.steady and trend.slope > 0
        if trend is not None and trend.steady:
            text += f"; it {'grows' if rising else 'falls'} by {percent(round(abs(trend.slope) * 1e9), 10**9, 2)} from report to report"
        beyond = change > self.alert * first and change > _SCATTERS * scatter
        total = trend.slope * (len(self.alike) - 1) if trend is not None else 0.0
        alert = beyond or (rising and total > self.alert)
        return Answer("step", question, f"{'Yes' if alert else 'No'}: {text}.", alert)

    def _mfu(self) -> Answer:
        question = "MFU down at equal step time?"
        known = [e for e in self.entries if e.mfu is not None and e.convention == self.last.convention]
        if self.last.mfu is None or len(known) < 2:
            return Answer("mfu", question, "Not known: MFU needs the model and its tokens in run.json, twice.", False)
        first = known[: min(BASELINE, max(len(known) // 2, 1))]
        mfu, step = median(e.mfu or 0.0 for e in first), median(e.median_ns for e in first)
        steps = f"a step takes {duration(self.last.median_ns)}, {duration(round(step))} at first"
        text = f"MFU {_share(self.last.mfu)} now, {_share(mfu)} at first; {steps}"
        down = self.last.mfu < mfu * (1 - self.alert)
        held = abs(self.last.median_ns - step) <= self.alert * step
        if down and held:
            return Answer("mfu", question, f"Yes: {text}. The batch or the sequence changed, or the number of GPUs.", True)
        return Answer("mfu", question, f"{'Down, and the step changed too' if down else 'No'}: {text}.", down)

    def _skew(self) -> Answer:
        question = "skew flat, or one rank?"
        if self.last.ranks < 2:
            return Answer("skew", question, "Not known: one rank was loaded.", False)
        now = self.last.skew
        first = median(e.skew for e in self.baseline) if self.baseline else None
        text = f"the slowest rank takes {now:.3f} × the median one"
        if first is not None:
            text += f", {first:.3f} × at first"
        lately = [e.slowest_rank for e in self.alike[-_SAME_RANK:]]
        same = len(lately) == _SAME_RANK and len(set(lately)) == 1
        alert = now > _SKEW_SICK or (now > _SKEW_HEALTHY and first is not None and now - first > self.alert)
        who = f"rank {self.last.slowest_rank}" + (f" in each of the last {_SAME_RANK} reports: that one is ill" if same else "")
        return Answer("skew", question, f"{f'One rank: {text}; it is {who}' if alert else f'Flat: {text}'}.", alert)

    def _clocks(self) -> Answer:
        question = "clocks and power as before?"
        said, differ = _recorded_clocks(self.baseline[0] if self.baseline else None, self.last)
        kernels = _kernel_pace(self.baseline, self.last)
        slow = kernels is not None and kernels > 1 + self.alert
        if kernels is None:
            pace = ""
        elif abs(kernels - 1) <= self.alert:
            pace = f"matrix products take as long as at first ({_change(kernels)} a launch)"
        else:
            pace = f"matrix products take {_change(kernels)} a launch against the first reports" + (
                ", as they would at a lower clock" if slow else ""
            )
        if not said and not pace:
            return Answer("clocks", question, "Not known: run.json says no clocks, and there is nothing to compare kernels with.", False)
        text = "; ".join(part for part in (said or "clocks are not recorded", pace) if part)
        return Answer("clocks", question, f"{'No' if differ or slow else 'As far as can be seen'}: {text}.", differ or slow)

    def _nothing_before(self) -> str:
        others = len(self.entries) - len(self.alike)
        if others:
            return f"Not known: {plural(others, 'report')} before had another workload ({clean(self.entries[0].workload)})."
        return "Not known: this is the first report."

    def to_dict(self) -> dict[str, Any]:
        """The history as JSON builtins, format 1."""
        from traceread.reporters.history import history_dict

        return history_dict(self)

    def to_frame(self) -> pd.DataFrame:
        """One row per report: at, commit, workload, steps, median_ns, mean_ns, max_ns, tokens_per_s, mfu, skew, and class_ns columns."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "at": e.at,
                    "commit": e.commit,
                    "workload": e.workload,
                    "steps": e.steps,
                    "median_ns": e.median_ns,
                    "mean_ns": e.mean_ns,
                    "max_ns": e.max_ns,
                    "tokens_per_s": e.tokens_per_s,
                    "mfu": e.mfu,
                    "skew": e.skew,
                    **{f"{name}_ns": ns for name, ns in e.class_ns.items()},
                }
                for e in self.entries
            ]
        )

    def plot(self) -> Figure:
        """Step time and MFU from report to report."""
        from traceread.figures.trend import plot_trend

        return plot_trend(self)

    def _repr_html_(self) -> str:
        from traceread.reporters.history import history_html

        return history_html(self)


def _centre(values: Sequence[int]) -> tuple[float, float]:
    """Median of the values and how they scatter; 0 with fewer than three."""
    middle = median(values)
    return middle, _MAD_TO_SIGMA * median(abs(v - middle) for v in values) if len(values) >= BASELINE else 0.0


def _recorded_clocks(first: Entry | None, last: Entry) -> tuple[str, bool]:
    """What is recorded about clocks and power, and whether it changed."""
    names = [name for name in last.stack if "clock" in name.lower() or "power" in name.lower()]
    parts, differ = [], False
    for name in names:
        before = None if first is None else first.stack.get(name)
        changed = before is not None and before != last.stack[name]
        differ |= changed
        parts.append(f"{clean(name)} {clean(str(last.stack[name]))}" + (f", {clean(str(before))} at first" if changed else ""))
    return ", ".join(parts), differ


def _kernel_pace(baseline: Sequence[Entry], last: Entry) -> float | None:
    """Time per launch of the matrix products against the baseline's; None where they are not launched as often as then."""
    if not baseline:
        return None
    found = [[f for f in e.families if (f.category, f.family) == ("compute", "gemm")] for e in (*baseline, last)]
    if not all(found):
        return None
    *before, now = (families[0] for families in found)
    launches = median(f.launches for f in before)
    if not now.launch_ns or abs(now.launches - launches) > 0.01 * launches:
        return None
    usual = median(f.launch_ns for f in before)
    return now.launch_ns / usual if usual else None


def _share(share: float) -> str:
    return percent(round(share * 10**9), 10**9)


def _change(ratio: float) -> str:
    change = percent(round(abs(ratio - 1) * 10**9), 10**9)
    return f"{change} {'longer' if ratio > 1 else 'shorter'}" if ratio != 1 else "exactly as long"
