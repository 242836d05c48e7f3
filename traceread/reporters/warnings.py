"""Warnings about the input, each kind once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from traceread.errors import Notice
from traceread.names import number_list


def warning_lines(notices: Iterable[Notice], ranks: int) -> list[str]:
    """One line per kind of warning, with its slug; of a job with several ranks it says which ranks are concerned.

    Where ranks have the same kind of warning with other numbers in it, the line is that of the first.
    """
    by_slug: dict[str, list[Notice]] = {}
    for notice in notices:
        by_slug.setdefault(notice.slug, []).append(notice)
    lines = []
    for slug, same in by_slug.items():
        lines += [f"{n.message} [{slug}]" for n in _distinct([n for n in same if n.rank is None])]
        of_ranks = [n for n in same if n.rank is not None]
        if ranks < 2:
            lines += [f"{n.message} [{slug}]" for n in _distinct(of_ranks)]
        elif of_ranks:
            lines.append(f"{_of_ranks(of_ranks)} [{slug}]")
    return lines


def _distinct(notices: Sequence[Notice]) -> list[Notice]:
    return list({n.message: n for n in notices}.values())


def _of_ranks(notices: Sequence[Notice]) -> str:
    ranks = sorted({n.rank for n in notices if n.rank is not None})
    first = notices[0]
    if len(ranks) == 1:
        return f"rank {first.rank}: {first.message}"
    where = f"on {len(ranks)} ranks ({number_list(ranks)})"
    if all(n.message == first.message for n in notices):
        return f"{where}: {first.message}"
    return f"{where}, such as rank {first.rank}: {first.message}"
