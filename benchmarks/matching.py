"""How long it takes to match the collectives of many ranks, to align their clocks, and to find who waits.

    python benchmarks/matching.py [--ranks 1000] [--collectives 1000]

Every rank takes part in all-reduces of the whole job and in reduce-scatters of its node of eight. Four variants: numbered as PyTorch
records it since 2026; without numbers; without numbers and with captures that start and end anywhere; and the same with a record
missing here and there.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from traceread.measurements.clocks import align_clocks
from traceread.measurements.collectives import Collectives, Evidence, Peers, RankCollectives
from traceread.measurements.matching import Unmatched, match
from traceread.measurements.waiting import find_waiting
from traceread.model import Operation, ProcessGroup

NODE = 8
APART_NS = 1_000_000


def job(ranks, collectives, *, numbered, cut, lossy, seed=0):
    """The collectives of all ranks, with clocks up to 50 ms apart."""
    random = np.random.default_rng(seed)
    world = ProcessGroup("0", "default_pg", tuple(range(ranks)), ranks)
    at = np.arange(collectives, dtype=np.int64) * APART_NS
    local = np.arange(collectives) % 3 == 1
    elements = np.where(local, 1 << 20, 1 << 16) + np.arange(collectives) % 50
    late = random.integers(0, 100_000, (ranks, collectives))
    latest = late.max(axis=0)
    result = []
    for rank in range(ranks):
        node = tuple(range(rank // NODE * NODE, min(rank // NODE * NODE + NODE, ranks)))
        in_node = late[list(node)].max(axis=0)
        offset = int(random.integers(-50_000_000, 50_000_000))
        start = at + late[rank] + offset
        end = at + np.where(local, in_node, latest) + 50_000 + random.integers(0, 2_000, collectives) + offset
        keep = np.ones(collectives, bool)
        if cut:
            keep[: random.integers(0, collectives // 5)] = False
            keep[collectives - random.integers(0, collectives // 5) :] = False
        if lossy and rank % 10 == 3:
            keep[random.integers(collectives // 4, collectives // 2)] = False
        nothing = np.full(collectives, -1)
        table = Collectives(
            activity=np.arange(collectives),
            start_ns=start,
            end_ns=end,
            launch_ns=start - 10_000,
            stream=np.where(local, 20, 24),
            window=nothing,
            step=nothing,
            operation=np.where(local, Operation.REDUCE_SCATTER, Operation.ALL_REDUCE),
            evidence=np.full(collectives, Evidence.RECORD),
            group=local.astype(np.int32),
            sequence=np.where(local, np.cumsum(local), np.cumsum(~local)) if numbered else nothing,
            dtype=np.full(collectives, 11),
            elements_in=elements,
            elements_out=np.where(local, elements // NODE, elements),
            bytes=2 * elements,
            source=nothing,
            destination=nothing,
            root=nothing,
            largest_in=nothing,
            largest_out=nothing,
            parts=np.ones(collectives),
            sends=np.zeros(collectives),
            receives=np.zeros(collectives),
        ).take(keep)
        groups = (world, ProcessGroup(f"{1 + rank // NODE}", "mesh_tp", node, len(node)))
        result.append(RankCollectives(rank, f"node{rank // NODE}", "", True, groups, table, Peers.empty()))
    return result


def timed(function, *arguments):
    begin = time.perf_counter()
    value = function(*arguments)
    return value, time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--collectives", type=int, default=1000)
    args = parser.parse_args()
    print(f"{args.ranks} ranks × {args.collectives} collectives")
    print(f"{'':<34}{'match':>9}{'clocks':>9}{'waiting':>9}  unmatched")
    variants = {
        "numbered": {"numbered": True, "cut": False, "lossy": False},
        "in order": {"numbered": False, "cut": False, "lossy": False},
        "captures start and end anywhere": {"numbered": False, "cut": True, "lossy": False},
        "and records are missing": {"numbered": False, "cut": True, "lossy": True},
    }
    for title, variant in variants.items():
        ranks = job(args.ranks, args.collectives, **variant)
        matches, matching_s = timed(match, ranks)
        clocks, clocks_s = timed(align_clocks, matches)
        _, waiting_s = timed(find_waiting, matches, clocks)
        left = {reason.name.lower(): count for reason, count in matches.counts().items() if reason is not Unmatched.MATCHED}
        print(f"{title:<34}{matching_s:>7.2f} s{clocks_s:>7.2f} s{waiting_s:>7.2f} s  {left or ''}")


if __name__ == "__main__":
    main()
