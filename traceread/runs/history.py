"""Runs as they went: segments in order, what was done twice after a resume marked, another recipe as a run of its own."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from traceread.errors import Notice
from traceread.records import record
from traceread.steplog import Entry, Segment


@record
class Stretch:
    """One segment of a run.

    Attributes:
        segment: its lines.
        kept_to: the step after which its work was done again by a later segment; None: all of it counts.
    """

    segment: Segment
    kept_to: int | None = None

    def keeps(self, entry: Entry) -> bool:
        """Whether an interval counts: it ended before the work that was done again."""
        return self.kept_to is None or entry.step <= self.kept_to

    @property
    def kept(self) -> list[Entry]:
        """Intervals that count."""
        return [e for e in self.segment.intervals if self.keeps(e)]

    @property
    def repeated(self) -> list[Entry]:
        """Intervals whose steps a later segment did again."""
        return [e for e in self.segment.intervals if not self.keeps(e)]

    @property
    def lost_steps(self) -> int:
        """Logged steps that were done again."""
        last = max((e.step for e in self.segment.entries), default=0)
        return 0 if self.kept_to is None else max(last - self.kept_to, 0)


@record
class RunHistory:
    """A run.

    Attributes:
        name: of the run; with its recipe's hash where it is a child that kept its parent's name.
        parent: the run that it goes on from, "" for none.
        recipe: hash of its recipe, "" if not logged.
        stretches: its segments in their order.
    """

    name: str
    parent: str
    recipe: str
    stretches: tuple[Stretch, ...]

    @property
    def entries(self) -> list[Entry]:
        """All lines in the order of segments."""
        return [e for s in self.stretches for e in s.segment.entries]

    @property
    def kept(self) -> list[Entry]:
        """The intervals that count, steps rising."""
        return [e for s in self.stretches for e in s.kept]

    @property
    def tokens(self) -> int:
        """Tokens that the run trained on and kept."""
        kept = self.kept
        return max(kept[-1].tokens - self.stretches[0].segment.start.tokens, 0) if kept else 0

    @property
    def ended(self) -> str:
        """Why it ended; "" where no end is logged: it runs, or was killed."""
        last = self.entries[-1]
        return (last.reason or "done") if last.kind == "end" else ""

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What was odd about its logs."""
        return tuple(n for s in self.stretches for n in s.segment.notices)


def order_runs(segments: Iterable[Segment]) -> list[RunHistory]:
    """Runs by name; segments of a name with another recipe are a child of the one before."""
    by_name: dict[str, list[Segment]] = {}
    for segment in segments:
        by_name.setdefault(segment.start.run, []).append(segment)
    runs: list[RunHistory] = []
    for name, mine in sorted(by_name.items()):
        mine.sort(key=lambda s: (s.start.segment, s.start.t))
        parts: list[list[Segment]] = []
        for segment in mine:
            if parts and (segment.start.recipe or "") == (parts[-1][0].start.recipe or ""):
                parts[-1].append(segment)
            else:
                parts.append([segment])
        above = ""
        for part in parts:
            recipe = part[0].start.recipe or ""
            title = f"{name} ({recipe[:8] or 'no recipe'})" if above else name
            runs.append(RunHistory(title, above or part[0].start.parent or "", recipe, _stretches(part)))
            above = title
    return runs


def between_ns(run: RunHistory) -> int:
    """Time from the last line of a segment to the start of the next, summed over the run's segments."""
    ends = [(s.segment.entries[-1].t, s.segment.start.t) for s in run.stretches]
    return sum(max(start - end, 0) for (end, _), (_, start) in pairwise(ends))


def _stretches(segments: list[Segment]) -> tuple[Stretch, ...]:
    found: list[Stretch] = []
    kept_to: int | None = None
    for segment in reversed(segments):
        found.append(Stretch(segment, kept_to))
        start = segment.start.step
        kept_to = start if kept_to is None else min(kept_to, start)
    return tuple(reversed(found))
