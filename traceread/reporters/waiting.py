"""Who waits for whom, as a document: `traceread ranks`, and what `traceread report` says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from traceread.measurements.blame import Cause
from traceread.measurements.clocks import ClockSource
from traceread.measurements.matching import Unmatched
from traceread.measurements.operations import OperationTime
from traceread.measurements.pipeline import ExpertLoad, Pipeline
from traceread.measurements.ranks import CommunicationShare, RankLine, RankTable
from traceread.names import and_more, missing_list, shorten
from traceread.report import Report
from traceread.reporters.document import Block, Column, Document, Listing, Paragraph, Table, Tone
from traceread.reporters.headline import heading
from traceread.reporters.kernels import per_step
from traceread.reporters.stragglers import straggler_sentence
from traceread.reporters.warnings import warning_lines
from traceread.units import at_least, duration, percent, plural, ratio, size, unit_for

RANKS = 16
"""Of more ranks than these only those that cost the others most, and wait most, are shown."""
OPERATIONS = 12
WAITS = 5
_CAUSES = 8

Against = Sequence[tuple[str, int | None, int, CommunicationShare]]
"""Title, world size, loaded ranks and communication of captures to be set side by side."""


def ranks_document(report: Report, link_bytes_per_s: float | None = None, against: Against = ()) -> Document:
    """Everything `traceread ranks` shows."""
    table = report.rank_table
    if report.summary is None:
        return Document(heading(report), (Paragraph("No GPU work was recorded, so there is nothing to compare.", Tone.STRONG),))
    blocks: list[Block | None] = [Paragraph(" ".join(ranks_headline(report)), Tone.STRONG), _rank_table(table)]
    blocks += [_lost_table(table), operation_table(report, link_bytes_per_s), wait_listing(table)]
    blocks += [Paragraph(_pipeline(p)) for p in table.pipelines]
    blocks += [Paragraph(_experts(e)) for e in table.experts]
    blocks += [_against_table(against), Paragraph(" ".join(_basis(report)), Tone.FAINT)]
    warnings = warning_lines(table.notices, len(report.ranks))
    if warnings:
        blocks.append(Listing("warnings", tuple((line,) for line in warnings), tone=Tone.WARNING))
    return Document(heading(report), tuple(block for block in blocks if block is not None))


def rank_blocks(table: RankTable) -> tuple[Block, ...]:
    """The ranks side by side, and what their waiting is charged to."""
    found = [
        Paragraph(straggler_sentence(table.straggler, table.counts_steps), Tone.STRONG) if table.straggler else None,
        _rank_table(table),
        _lost_table(table),
    ]
    return tuple(block for block in found if block is not None)


def ranks_headline(report: Report) -> Iterator[str]:
    """What the ranks lose by waiting for each other, and whether one of them is to blame."""
    table = report.rank_table
    if table.operations and all(o.size == 1 for o in table.operations):
        yield "Every process group has one rank: it waits for no other."
        return
    if len(report.ranks) < 2:
        exposed = table.communication.exposed_ns // max(table.lines[0].steps, 1)
        of = f" of {report.world_size}" if report.world_size else ""
        per = " a step" if table.counts_steps else ""
        yield f"Rank {report.ranks[0].rank}{of} is alone here: {duration(exposed)}{per} of its communication is exposed, but whether it"
        yield "moves data or waits for other ranks one rank cannot tell. Load the other ranks as well."
        return
    if not table.split_count:
        yield "Waiting cannot be told from transfer: no collective of these ranks could be matched."
        return
    bubbles = sum(ns for _, cause, ns in table.lost if cause is Cause.BUBBLE)
    share = percent(table.waiting_ns, table.window_ns)
    least = "at least " if any(line.lower_bound for line in table.lines) and not share.startswith("<") else ""
    of = "steps" if table.counts_steps else "time"
    yield f"The {len(report.ranks)} ranks spend {least}{share} of their {of} waiting for each other with nothing to hide it."
    if table.straggler is not None:
        yield straggler_sentence(table.straggler, table.counts_steps)
    elif table.waiting_ns and 2 * bubbles > table.waiting_ns:
        yield "Most of it is the pipeline's bubble."
    else:
        yield "No rank in particular holds the others up."


# Tables.


def _rank_table(table: RankTable) -> Table | None:
    if len(table.lines) < 2:
        return None
    shown = list(table.lines)
    if len(shown) > RANKS:
        late = sorted(shown, key=lambda line: (-line.charged_ns, line.rank))[: RANKS // 2]
        others = [line for line in shown if line not in late]
        patient = sorted(others, key=lambda line: (-line.wait_ns, line.rank))[: RANKS // 2]
        shown = sorted((*late, *patient), key=lambda line: line.rank)
    unit = unit_for(max(line.window_ns // max(line.steps, 1) for line in shown))
    not_split = any(line.not_split_ns for line in shown)
    columns = [
        Column("rank", right=True),
        Column("step" if table.counts_steps else "capture", right=True),
        Column("without waiting", right=True),
        Column("waits", right=True),
        Column("transfers", right=True),
        *((Column("not split", right=True),) if not_split else ()),
        Column("last", right=True),
        Column("costs others", right=True),
        *(() if not_split else (Column("late because of", grows=True),)),  # there is no room for both; the table below says it too
    ]
    longest, middle = table.skew
    per = "per step; " if table.counts_steps else ""
    note = f"{per}longest/median without waiting: {ratio(longest, middle)} ({_reading(longest, middle)})"
    if len(shown) < len(table.lines):
        note += f"; {plural(len(table.lines) - len(shown), 'more rank')} in --json and csv"
    return Table(tuple(columns), tuple(_rank_row(line, unit, not_split) for line in shown), note=note)


def _rank_row(line: RankLine, unit: tuple[int, str], not_split: bool) -> tuple[str, ...]:
    steps = max(line.steps, 1)

    def mean(ns: int) -> str:
        return duration((2 * ns + steps) // (2 * steps), unit)

    causes = [f"{cause.title} {percent(ns, line.charged_ns)}" for cause, ns in line.causes if 50 * ns >= line.charged_ns]
    late = and_more(causes, 2, " · ") if 200 * line.charged_ns >= line.window_ns else ""
    return (
        f"{line.rank}",
        mean(line.window_ns),
        mean(line.own_ns),
        at_least(mean(line.wait_ns)) if line.lower_bound else mean(line.wait_ns),
        mean(line.transfer_ns),
        *((mean(line.not_split_ns),) if not_split else ()),
        f"{line.last} of {line.met}" if line.met else "n/a",
        mean(line.charged_ns),
        *(() if not_split else (late,)),
    )


def _reading(longest: int, middle: int) -> str:
    if 100 * longest < 103 * middle:
        return "1.00 to 1.03 is healthy"
    return "uneven" if 100 * longest < 115 * middle else "far from even"


def _lost_table(table: RankTable) -> Table | None:
    if not table.waiting_ns or 1000 * table.waiting_ns < table.window_ns:
        return None
    unit = unit_for(table.waiting_ns)
    rows = []
    shown = [entry for entry in table.lost[:_CAUSES] if 200 * entry[2] >= table.waiting_ns]
    for rank, cause, ns in shown:
        who = "nobody" if rank is None else f"rank {rank}"
        rows.append((who, cause.title, duration(ns, unit), percent(ns, table.waiting_ns)))
    left = sum(ns for _, _, ns in table.lost[len(shown) :])
    if left:
        rows.append(("other", "", duration(left, unit), percent(left, table.waiting_ns)))
    columns = (Column("late"), Column("because of"), Column("others wait", right=True), Column("share", right=True))
    total = ("sum", "", duration(table.waiting_ns, unit), percent(table.waiting_ns, table.waiting_ns))
    return Table(
        columns, tuple(rows), title=f"waiting, over the {'used steps' if table.counts_steps else 'captures'} of all ranks", total=total
    )


def operation_table(report: Report, link_bytes_per_s: float | None) -> Table | None:
    """Communication by group and operation, with its bandwidth; None if there is none."""
    table = report.rank_table
    shown = table.operations[:OPERATIONS]
    if not shown:
        return None
    per = max(sum(line.steps for line in table.lines), 1)
    unit = unit_for(max(max(o.exposed_ns, o.hidden_ns) for o in shown) // per)
    bounded = any(o.bandwidth is not None and o.bandwidth[1] for o in shown)
    times = {"hidden": "hidden_ns", "waits": "wait_ns", "transfers": "transfer_ns", "not split": "not_split_ns"}
    times = {title: name for title, name in times.items() if any(getattr(o, name) for o in shown)}
    rows = tuple(_operation_row(o, per, unit, list(times.values()), link_bytes_per_s) for o in shown)
    columns = (
        Column("operation"),
        Column("ranks", right=True),
        Column("×", right=True),
        Column("size", right=True),
        *(Column(title, right=True) for title in times),
        Column("bus", right=True),
        *((Column("of link", right=True),) if link_bytes_per_s else ()),
        Column("group", grows=True),
    )
    notes = [f"per {'step and ' if table.counts_steps else ''}rank; bus: bus bandwidth as in nccl-tests"]
    if bounded:
        notes.append("≥: the time may hold waiting")
    small, sized = sum(o.small for o in table.operations), sum(o.sized for o in table.operations)
    if small:
        notes.append(f"{percent(small, sized)} of the messages are below 1 MiB, where time is latency")
    if len(table.operations) > len(shown):
        notes.append(f"and {plural(len(table.operations) - len(shown), 'more row')} in --json")
    return Table(columns, rows, title="communication", note="; ".join(notes))


def _operation_row(
    o: OperationTime, per: int, unit: tuple[int, str], times: Sequence[str], link_bytes_per_s: float | None
) -> tuple[str, ...]:
    bus, bandwidth = o.bus_bandwidth, o.bandwidth
    bound = at_least if bandwidth is not None and bandwidth[1] else str
    of_link = bound(percent(bus, int(link_bytes_per_s))) if bus is not None and link_bytes_per_s else "n/a"
    return (
        o.operation.title,
        f"{o.ranks} of {o.size}" if o.size > o.ranks else f"{o.ranks}",
        per_step(o.count, per),
        size(o.bytes // o.sized) if o.sized else "n/a",
        *(duration(getattr(o, name) // per, unit) for name in times),
        bound(_rate(bus)) if bus else "n/a",
        *((of_link,) if link_bytes_per_s else ()),
        shorten(o.group.title, 40),
    )


def _rate(bytes_per_s: int) -> str:
    return f"{bytes_per_s / 1e9:.3g} GB/s"


def wait_listing(table: RankTable) -> Listing | None:
    """The operations in which somebody waited longest, with who and what they waited for; None if nobody waited."""
    if not table.waits:
        return None
    entries = []
    for w in (w for w in table.waits[:WAITS] if 100 * w.wait_ns >= table.waits[0].wait_ns):
        where = f" in {shorten(w.step, 40)}" if w.step else ""
        causes = [
            f"{'nobody' if rank is None else f'rank {rank}'}, {cause.title} {percent(ns, w.wait_ns)}"
            for rank, cause, ns in w.causes
            if 50 * ns >= w.wait_ns
        ]
        group = shorten(w.group, 40)
        of = f" ({group})" if group.startswith("group not recorded") else f" of {group}"
        line = f"{w.operation.title}{of}{where}: rank {w.first} waits {duration(w.wait_ns)} for rank {w.last}"
        entries.append((line, f"why: {and_more(causes, 3, ' · ')}; all ranks together wait {duration(w.total_ns)}"))
    return Listing("longest waits", tuple(entries))


def _pipeline(p: Pipeline) -> str:
    part, whole = p.bubble
    over, under = p.ideal
    most, middle = p.imbalance
    text = f"Pipeline of {p.stages} stages ({shorten(p.group.title, 40)}), {per_step(p.sends, p.steps)} microbatches a step: the bubble is "
    text += f"{percent(part, whole)} of the steps; (p-1)/(m+p-1) is {percent(over, under)}."
    if 100 * most >= 105 * middle:
        slowest = p.ranks[p.compute_ns.index(most)]
        text += f" Its stages are uneven: rank {slowest} computes {ratio(most, middle)} × as long as the median stage."
    return text


def _experts(e: ExpertLoad) -> str:
    over, under = e.imbalance
    who = "the largest share" if e.rank is None else f"the rank with most (most often rank {e.rank}, {e.times} of {e.count} times)"
    return f"All-to-alls of {shorten(e.group.title, 40)} are uneven: {who} gets {ratio(over, under)} × the mean."


def _against_table(against: Against) -> Table | None:
    if len(against) < 2:
        return None
    ordered = sorted(against, key=lambda entry: (entry[1] or entry[2], entry[0]))
    rows = tuple(
        (
            f"{world or loaded}",
            percent(c.exposed_ns + c.hidden_ns, c.window_ns),
            percent(c.hidden_ns, c.window_ns),
            percent(c.exposed_ns, c.window_ns),
            percent(c.wait_ns, c.window_ns),
            shorten(title, 40),
        )
        for title, world, loaded, c in ordered
    )
    columns = (
        Column("world size", right=True),
        Column("communication", right=True),
        Column("hidden", right=True),
        Column("exposed", right=True),
        Column("of it waiting", right=True),
        Column("capture", grows=True),
    )
    return Table(columns, rows, title="communication by world size, shares of the steps")


# What it rests on.


def _basis(report: Report) -> Iterator[str]:
    table = report.rank_table
    counts = table.matches.counts()
    total = len(table.waiting.split)
    if len(report.ranks) > 1:
        yield f"{counts.get(Unmatched.MATCHED, 0):,} of {plural(total, 'collective')} matched."
        others = [f"{count:,}: {reason.text}" for reason, count in counts.items() if reason]
        if others:
            yield f"Not matched: {'; '.join(others)}."
        yield from _clocks(table)
        world = report.world_size
        if world and world > len(report.ranks):
            missing = missing_list([r.rank for r in report.ranks], world)
            yield f"Not loaded: ranks {missing}; what is waited for them counts as transfer."
        leader = table.frontier.leader
        if table.straggler is not None and leader is not None and len({s.step for s in table.frontier.stages}) > 1:
            verdict = "it is the same rank" if leader == table.straggler.rank else f"it is rank {leader}"
            yield f"Who is last, counted without clocks from each rank's own step starts: {verdict}."


def _clocks(table: RankTable) -> Iterator[str]:
    if table.clocks.comparable:
        moved = [line for line in table.lines if line.clock.source in (ClockSource.ENDS, ClockSource.BOUNDS)]
        if moved:
            most = max(abs(line.clock.offset_ns) for line in moved)
            yield f"Clocks of {plural(len(moved), 'rank')} were aligned by their collectives (by up to {duration(most)})."
        else:
            yield "Clocks agree."
        yield f"Of the order of ranks nothing shorter than {duration(table.clocks.residual_ns)} is told."
