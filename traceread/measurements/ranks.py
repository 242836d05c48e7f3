"""The ranks of a job together: who waits for whom, what that costs, which rank is late and why.

Each rank is analysed by itself. What crosses ranks is its table of collectives and, once waiting is known, class times at the
places where that table needs them; so ranks can be spread over processes and only small results come together here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from traceread.errors import Notice
from traceread.measurements.blame import Between, Cause, Charges, charge, previous, time_between
from traceread.measurements.clocks import Clocks, Offset, align_clocks
from traceread.measurements.frontier import Frontier, find_frontier
from traceread.measurements.matching import Matches, Unmatched, match
from traceread.measurements.operations import OperationTime, sum_operations
from traceread.measurements.pipeline import ExpertLoad, Pipeline, expert_load, find_pipelines
from traceread.measurements.rank_facts import RankFacts
from traceread.measurements.steps import WHOLE
from traceread.measurements.stragglers import Straggler, name_straggler
from traceread.measurements.waiting import ExposedSplit, Split, Waiting, find_waiting, split_exposed
from traceread.model import ELEMENT_BYTES, IntColumn, Operation
from traceread.records import record

if TYPE_CHECKING:
    import pandas as pd
    from plotly.graph_objects import Figure

_WORTH_A_WARNING = 50
"""Unmatched operations are worth a warning from one in so many on."""
_APART_NS = 60 * 10**9
_DTYPES = tuple(ELEMENT_BYTES)


@record
class RankLine:
    """One rank beside the others, over its used steps.

    Attributes:
        rank: its number.
        steps: number of its used steps.
        window_ns: their length together.
        wait_ns, transfer_ns, not_split_ns: its exposed communication.
        hidden_ns: communication under compute.
        met, last: operations of whole groups that were compared, and how often it was clearly the last to arrive.
        charged_ns: exposed waiting of other ranks that it is to blame for.
        causes: what it was late with then; they add up to `charged_ns`.
        clock: its clock against the reference.
        comparable: its clock can be compared with that of any other rank.
        lower_bound: its waiting is a lower bound, because ranks it waits for are not loaded.
        unmatched: (why, number) of its operations without a counterpart.
    """

    rank: int
    steps: int
    window_ns: int
    wait_ns: int
    transfer_ns: int
    not_split_ns: int
    hidden_ns: int
    met: int
    last: int
    charged_ns: int
    causes: tuple[tuple[Cause, int], ...]
    clock: Offset
    comparable: bool
    lower_bound: bool
    unmatched: tuple[tuple[Unmatched, int], ...]

    @property
    def own_ns(self) -> int:
        """Length of its steps without waiting for peers."""
        return self.window_ns - self.wait_ns

    def to_dict(self) -> dict[str, Any]:
        """The rank as JSON builtins."""
        return {
            "rank": self.rank,
            "steps": self.steps,
            "window_ns": self.window_ns,
            "own_ns": self.own_ns,
            "exposed_wait_ns": self.wait_ns,
            "exposed_transfer_ns": self.transfer_ns,
            "exposed_not_split_ns": self.not_split_ns,
            "hidden_communication_ns": self.hidden_ns,
            "waiting_is_lower_bound": self.lower_bound,
            "compared": self.met,
            "last": self.last,
            "charged_ns": self.charged_ns,
            "causes": {cause.key: ns for cause, ns in self.causes},
            "clock": {
                "source": str(self.clock.source),
                "comparable": self.comparable,
                "offset_ns": self.clock.offset_ns,
                "drift_ppb": self.clock.drift_ppb,
                "residual_ns": self.clock.residual_ns,
                "p50_ns": self.clock.p50_ns,
                "p95_ns": self.clock.p95_ns,
                "matched": self.clock.matched,
            },
            "unmatched": {reason.name.lower(): count for reason, count in self.unmatched},
        }


@record
class Wait:
    """One operation in which ranks waited long, over all loaded ranks.

    Attributes:
        group, operation: what it was.
        step: label of the step on the rank that came last, "" if it is in none.
        start_ns: when the first rank started, on the reference clock.
        last: rank that came last.
        first, wait_ns: rank that waited longest, and how long.
        total_ns: waiting of all ranks.
        causes: (late rank or None, cause, ns) of the longest wait, the largest first; they add up to `wait_ns`.
    """

    group: str
    operation: Operation
    step: str
    start_ns: int
    last: int
    first: int
    wait_ns: int
    total_ns: int
    causes: tuple[tuple[int | None, Cause, int], ...]

    def to_dict(self, base_ns: int = 0) -> dict[str, Any]:
        """The wait as JSON builtins, its time counted from `base_ns`."""
        return {
            "group": self.group,
            "operation": self.operation.key,
            "step": self.step or None,
            "start_ns": self.start_ns - base_ns,
            "last_rank": self.last,
            "first_rank": self.first,
            "wait_ns": self.wait_ns,
            "total_wait_ns": self.total_ns,
            "causes": [{"rank": rank, "cause": cause.key, "duration_ns": ns} for rank, cause, ns in self.causes],
        }


@record
class CommunicationShare:
    """Communication of all loaded ranks over their used steps, to be set beside that of other world sizes.

    Attributes:
        window_ns: length of the steps.
        exposed_ns, wait_ns: communication that nothing hides, and how much of it is waiting.
        hidden_ns: communication under compute. Exposed and hidden together are all of it.
    """

    window_ns: int
    exposed_ns: int
    wait_ns: int
    hidden_ns: int


@record(eq=False)
class RankTable:
    """The ranks of a job together.

    Attributes:
        lines: one per rank, in order.
        exposed: for each rank its exposed communication per window and collective.
        operations: communication by group and operation, over the used steps of all ranks.
        straggler: the rank that holds the others up, if one does.
        waits: the operations in which somebody waited longest, longest first.
        lost: (late rank or None, cause, ns): all exposed waiting of the used steps by what it is charged to, largest first.
        pipelines, experts: waiting that the layout of the job brings along.
        frontier: the view without clocks.
        matches, clocks, waiting, charges: what all this was made from.
        notices: where the ranks do not fit together.
    """

    lines: tuple[RankLine, ...]
    exposed: tuple[ExposedSplit, ...]
    operations: tuple[OperationTime, ...]
    straggler: Straggler | None
    waits: tuple[Wait, ...]
    lost: tuple[tuple[int | None, Cause, int], ...]
    pipelines: tuple[Pipeline, ...]
    experts: tuple[ExpertLoad, ...]
    frontier: Frontier
    matches: Matches
    clocks: Clocks
    waiting: Waiting
    charges: Charges
    notices: tuple[Notice, ...]
    _windows: tuple[tuple[tuple[str, bool, int], ...], ...]  # for each rank label, used, length of each window

    def __repr__(self) -> str:
        named = f", rank {self.straggler.rank} is late" if self.straggler else ""
        return f"<RankTable {len(self.lines)} ranks, {self.split_count} of {len(self.waiting.split)} collectives split{named}>"

    @property
    def counts_steps(self) -> bool:
        """Whether ranks were divided into steps; else each is one window, the whole capture."""
        return not any(label == WHOLE for windows in self._windows for label, _, _ in windows)

    @property
    def split_count(self) -> int:
        """How many operations are split into waiting and transfer."""
        return int((self.waiting.split == Split.SPLIT).sum())

    @property
    def comparable(self) -> bool:
        """Whether the ranks can be compared: several of them, with clocks that can be aligned, and something was split."""
        return len(self.lines) > 1 and self.clocks.comparable and self.split_count > 0

    @property
    def waiting_ns(self) -> int:
        """Exposed waiting of all ranks over the used steps: what the job loses to it."""
        return sum(line.wait_ns for line in self.lines)

    @property
    def window_ns(self) -> int:
        """Length of the used steps of all ranks."""
        return sum(line.window_ns for line in self.lines)

    @property
    def communication(self) -> CommunicationShare:
        """Communication of all ranks together."""
        exposed = sum(line.wait_ns + line.transfer_ns + line.not_split_ns for line in self.lines)
        return CommunicationShare(self.window_ns, exposed, self.waiting_ns, sum(line.hidden_ns for line in self.lines))

    @property
    def skew(self) -> tuple[int, int]:
        """The longest and the median time a rank takes for its steps without waiting; their quotient is 1 where all are alike."""
        own = sorted(line.own_ns // max(line.steps, 1) for line in self.lines if line.window_ns)
        return (own[-1], own[(len(own) - 1) // 2]) if own else (0, 0)

    def least_waiting(self, rows: Sequence[Collection[int]]) -> int | None:
        """Position of the rank whose exposed waiting over these windows (for each rank) is smallest; None where it cannot be told.

        Of equal ones the rank with the longest windows, then the lowest.
        """
        if not self.comparable:
            return None
        totals = [int(e.wait_ns[list(mine)].sum()) for e, mine in zip(self.exposed, rows, strict=True)]
        if not any(totals):
            return None
        lengths = [sum(w[i][2] for i in mine) for w, mine in zip(self._windows, rows, strict=True)]
        with_windows = [r for r, mine in enumerate(rows) if mine]
        return min(with_windows, key=lambda r: (totals[r], -lengths[r], r))

    def windows(self, rank: int) -> list[tuple[str, bool, int, int, int, int]]:
        """For each window of a rank (by position): label, used, length, exposed waiting, transfer and what is not split."""
        e = self.exposed[rank]
        parts = zip(e.wait_ns.tolist(), e.transfer_ns.tolist(), e.not_split_ns.tolist(), strict=True)
        return [(*window, *part) for window, part in zip(self._windows[rank], parts, strict=True)]

    def to_dict(self, base_ns: int = 0, link_bytes_per_s: float | None = None) -> dict[str, Any]:
        """The comparison as JSON builtins; times count from `base_ns`."""
        longest, middle = self.skew
        return {
            "comparable": self.comparable,
            "ranks": [line.to_dict() for line in self.lines],
            "skew": {"max_over_median": longest / middle if middle else 1.0},
            "straggler": self.straggler.to_dict() if self.straggler else None,
            "lost_ns": self.waiting_ns,
            "lost_share": self.waiting_ns / self.window_ns if self.window_ns else 0.0,
            "lost": [{"rank": rank, "cause": cause.key, "duration_ns": ns} for rank, cause, ns in self.lost],
            "operations": [o.to_dict(link_bytes_per_s) for o in self.operations],
            "waits": [w.to_dict(base_ns) for w in self.waits],
            "pipelines": [p.to_dict() for p in self.pipelines],
            "experts": [e.to_dict() for e in self.experts],
            "frontier": {"leader": self.frontier.leader, "stages": [s.to_dict() for s in self.frontier.stages]},
            "collectives": {
                "count": len(self.waiting.split),
                "split": self.split_count,
                "unmatched": {reason.name.lower(): count for reason, count in self.matches.counts().items() if reason},
                "clock_residual_ns": self.clocks.residual_ns,
            },
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per rank and window: rank, step, used, duration_ns, exposed_wait_ns, exposed_transfer_ns, exposed_not_split_ns."""
        import pandas as pd

        names = ["rank", "step", "used", "duration_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_not_split_ns"]
        rows = [
            (line.rank, label, used, length, *parts) for r, line in enumerate(self.lines) for label, used, length, *parts in self.windows(r)
        ]
        return pd.DataFrame(rows, columns=names)

    def collectives_frame(self) -> pd.DataFrame:
        """One row per rank and collective: what it was, when, how long it waited, for whom; times on the rank's own clock."""
        import pandas as pd

        m, w = self.matches, self.waiting
        numbers = np.array([r.rank for r in m.ranks], np.int64)
        last = np.where(w.last >= 0, numbers[m.rank_of[w.last]], -1) if len(w.last) else w.last
        columns = {name: m.column(name) for name in ("start_ns", "end_ns", "stream", "bytes", "elements_in", "elements_out", "sequence")}
        return pd.DataFrame(
            {
                "rank": numbers[m.rank_of],
                "meeting": m.meeting,
                "group": [m.groups[g].title for g in m.group.tolist()],
                "operation": [Operation(o).key for o in m.column("operation").tolist()],
                "dtype": [_DTYPES[d] for d in m.column("dtype").tolist()],
                **columns,
                "split": [Split(s).name.lower() for s in w.split.tolist()],
                "wait_ns": w.wait_ns,
                "transfer_ns": np.where(w.split == Split.SPLIT, columns["end_ns"] - columns["start_ns"] - w.wait_ns, 0),
                "waited_for_rank": last,
            }
        )

    def plot(self) -> Figure:
        """Ranks and steps, coloured by the share of each step that the rank waited for others."""
        from traceread.figures.ranks import plot_waiting

        return plot_waiting(self)

    def _repr_html_(self) -> str:
        from traceread.reporters.notebook import ranks_html

        return ranks_html(self)


def compare_ranks(facts: Sequence[RankFacts], waits_kept: int = 20) -> RankTable:
    """The ranks of one job side by side; with one rank nothing is split and nobody is blamed."""
    matches = match([f.collectives for f in facts])
    clocks = align_clocks(matches)
    world_size = max((f.world_size for f in facts if f.world_size), default=None)
    waiting = find_waiting(matches, clocks, world_size)
    rows = [slice(a, b) for a, b in zip(matches.first[:-1].tolist(), matches.first[1:].tolist(), strict=True)]
    exposed = tuple(
        split_exposed(f.steps, f.busy, f.collectives.collectives, waiting.split[own], waiting.wait_ns[own])
        for f, own in zip(facts, rows, strict=True)
    )
    before = previous(matches)
    between = _between(facts, matches, before, exposed, rows) if waiting.wait_ns.any() else []
    charges = charge(matches, waiting, clocks, before, between, exposed) if facts else Charges.empty()
    return RankTable(
        lines=_lines(facts, matches, clocks, waiting, charges, exposed),
        exposed=exposed,
        operations=sum_operations(facts, matches, waiting, exposed, world_size),
        straggler=name_straggler(facts, charges) if len(facts) > 1 else None,
        waits=_longest_waits(facts, matches, clocks, waiting, charges, waits_kept),
        lost=_lost(facts, charges),
        pipelines=find_pipelines(facts, matches, exposed),
        experts=expert_load(facts, matches),
        frontier=find_frontier(facts, matches),
        matches=matches,
        clocks=clocks,
        waiting=waiting,
        charges=charges,
        notices=_notices(facts, matches, clocks),
        _windows=tuple(tuple((w.label, used, w.duration_ns) for w, used in zip(f.steps.windows, f.steps.used, strict=True)) for f in facts),
    )


def _between(
    facts: Sequence[RankFacts], matches: Matches, before: IntColumn, exposed: Sequence[ExposedSplit], rows: Sequence[slice]
) -> list[Between]:
    """For each rank what it did from the start of its group's collective before until the start of each of its own."""
    start = matches.column("start_ns")
    since = np.where(before >= 0, start[before], start) if len(start) else start
    return [time_between(f.steps, f.busy, f.idle, e.waits, since[own], start[own]) for f, e, own in zip(facts, exposed, rows, strict=True)]


def _lines(
    facts: Sequence[RankFacts], matches: Matches, clocks: Clocks, waiting: Waiting, charges: Charges, exposed: Sequence[ExposedSplit]
) -> tuple[RankLine, ...]:
    rank = matches.rank_of
    residual = np.array([o.residual_ns for o in clocks.offsets], np.int64)
    clearly = (waiting.lead_ns > 2 * residual[rank]) if len(rank) else np.empty(0, bool)
    used = np.concatenate([f.in_used_windows() for f in facts] or [np.empty(0, bool)])
    met = (waiting.split == Split.SPLIT) & (matches.meeting >= 0) & used
    bound, clearly = used & (waiting.lower_bound == 1), used & clearly
    by_cause = np.zeros((len(facts), len(Cause)), np.int64)
    blamed = charges.blamed >= 0
    np.add.at(by_cause, (charges.blamed[blamed], charges.cause[blamed]), charges.exposed_ns[blamed])
    sets = np.bincount(np.array(clocks.reference, np.int64), minlength=1)
    lines = []
    for r, (f, e) in enumerate(zip(facts, exposed, strict=True)):
        own = slice(matches.first[r], matches.first[r + 1])
        reasons = np.bincount(matches.unmatched[own], minlength=len(Unmatched)).tolist()
        causes = sorted(((Cause(c), ns) for c, ns in enumerate(by_cause[r].tolist()) if ns), key=lambda pair: (-pair[1], pair[0]))
        lines.append(
            RankLine(
                rank=f.rank,
                steps=len(f.used),
                window_ns=f.window_ns,
                wait_ns=int(e.wait_ns[f.used].sum()),
                transfer_ns=int(e.transfer_ns[f.used].sum()),
                not_split_ns=int(e.not_split_ns[f.used].sum()),
                hidden_ns=int(f.partition.hidden_communication_ns[f.used].sum()),
                met=int(met[own].sum()),
                last=int(clearly[own].sum()),
                charged_ns=int(by_cause[r].sum()),
                causes=tuple(causes),
                clock=clocks.offsets[r],
                comparable=bool(sets[clocks.reference[r]] > 1),
                lower_bound=bool(bound[own].any()),
                unmatched=tuple((reason, reasons[reason]) for reason in Unmatched if reason and reasons[reason]),
            )
        )
    return tuple(lines)


def _lost(facts: Sequence[RankFacts], charges: Charges) -> tuple[tuple[int | None, Cause, int], ...]:
    """Exposed waiting by what it is charged to; adds up to all of it."""
    key = (charges.blamed.astype(np.int64) + 1) * len(Cause) + charges.cause
    keys, of = np.unique(key, return_inverse=True)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, of, charges.exposed_ns)
    found = [
        (facts[k // len(Cause) - 1].rank if k >= len(Cause) else None, Cause(k % len(Cause)), ns)
        for k, ns in zip(keys.tolist(), total.tolist(), strict=True)
        if ns
    ]
    return tuple(sorted(found, key=lambda entry: (-entry[2], entry[0] is None, entry[0] or 0, entry[1])))


def _longest_waits(
    facts: Sequence[RankFacts], matches: Matches, clocks: Clocks, waiting: Waiting, charges: Charges, count: int
) -> tuple[Wait, ...]:
    """The meetings of used steps in which somebody waited longest."""
    used = np.concatenate([f.in_used_windows() for f in facts] or [np.empty(0, bool)])
    rows = np.flatnonzero(used & (matches.meeting >= 0) & (waiting.wait_ns > 0))
    if not len(rows):
        return ()
    meetings, of = np.unique(matches.meeting[rows], return_inverse=True)
    total = np.zeros(len(meetings), np.int64)
    np.add.at(total, of, waiting.wait_ns[rows])
    order = np.lexsort((rows, -waiting.wait_ns[rows], of))
    longest = rows[order[np.concatenate(([True], np.diff(of[order]) > 0))]]
    rank, start = matches.rank_of, matches.column("start_ns")
    found = []
    for m in np.argsort(-waiting.wait_ns[longest], kind="stable")[:count].tolist():
        row = int(longest[m])
        last = int(waiting.last[row])
        mine = charges.row == row
        of_row = zip(charges.blamed[mine].tolist(), charges.cause[mine].tolist(), charges.wait_ns[mine].tolist(), strict=True)
        causes = sorted(((facts[b].rank if b >= 0 else None, Cause(c), ns) for b, c, ns in of_row), key=lambda entry: (-entry[2], entry[1]))
        at = int(facts[rank[last]].collectives.collectives.window[last - matches.first[rank[last]]])
        found.append(
            Wait(
                group=matches.groups[matches.group[row]].title,
                operation=Operation(int(matches.column("operation")[row])),
                step=facts[rank[last]].steps.windows[at].label if at >= 0 else "",
                start_ns=int(clocks.aligned(int(rank[row]), start[row : row + 1])[0]),
                last=facts[rank[last]].rank,
                first=facts[rank[row]].rank,
                wait_ns=int(waiting.wait_ns[row]),
                total_ns=int(total[m]),
                causes=tuple(causes),
            )
        )
    return tuple(found)


def _notices(facts: Sequence[RankFacts], matches: Matches, clocks: Clocks) -> tuple[Notice, ...]:
    """Where the ranks do not fit together."""
    notices = []
    for own in matches.ranks:
        foreign = [g for g in own.groups if g.ranks and own.rank not in g.ranks]
        if foreign:
            shown = ", ".join(str(rank) for rank in foreign[0].ranks[:4]) + (", …" if len(foreign[0].ranks) > 4 else "")
            notices.append(
                Notice("foreign-group", f"rank {own.rank} takes part in a group of ranks {shown}: its rank number may be wrong", own.rank)
            )
    if apart := _far_apart(facts):
        notices.append(Notice("captures-apart", apart))
    counts = matches.counts()
    several = sum(len(g.loaded) > 1 for g in matches.groups)
    differing = counts.get(Unmatched.DIFFERENT, 0) + counts.get(Unmatched.OUTSIDE, 0)
    if several and differing * _WORTH_A_WARNING >= len(matches.meeting):
        parts = [f"{counts[reason]} {reason.text}" for reason in (Unmatched.OUTSIDE, Unmatched.DIFFERENT) if reason in counts]
        notices.append(
            Notice("collectives-unmatched", f"{differing} of {len(matches.meeting)} collectives have no counterpart ({'; '.join(parts)})")
        )
    if len(facts) > 1 and not clocks.comparable and (matches.meeting >= 0).any():
        sets: dict[int, list[str]] = {}
        for r, reference in enumerate(clocks.reference):
            sets.setdefault(reference, []).append(str(facts[r].rank))
        listed = "; ".join(", ".join(ranks[:8]) + (", …" if len(ranks) > 8 else "") for ranks in list(sets.values())[:4])
        notices.append(
            Notice(
                "clocks-not-comparable",
                f"the clocks of these sets of ranks cannot be compared with each other: {listed}; who was late is said within each",
            )
        )
    return tuple(notices)


def _far_apart(facts: Sequence[RankFacts]) -> str:
    """What to say where the captures of ranks are more than a minute apart; "" where they are not."""
    spans = sorted(
        (f.steps.windows[0].start_ns, f.steps.windows[-1].end_ns, f.rank) for f in facts if f.steps.windows and f.collectives.epoch
    )
    reach = spans[0][1] if spans else 0
    for i, (start, end, _) in enumerate(spans):
        if start > reach + _APART_NS:
            seconds = (start - reach) // 10**9
            before, after = ([str(rank) for _, _, rank in part] for part in (spans[:i], spans[i:]))
            return (
                f"ranks {', '.join(before[:8])} were captured {seconds} s before ranks {', '.join(after[:8])}: "
                "these look like two captures, and collectives of one cannot meet those of the other"
            )
        reach = max(reach, end)
    return ""
