"""Rules: each is one file that turns the facts of a rank into findings; its docstring is its manual.

    @rule("data-loading", needs={Capability.LAUNCHES}, effort=Effort.SETTING)
    def data_loading(facts: Facts) -> Iterator[Finding]: ...

Every module of this package that holds a rule is found; further ones come from the entry-point group `traceread.rules`, whose
entries name a rule or a module of rules.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from traceread.errors import Notice, SelectionError
from traceread.findings import Effort, Evidence, Finding, Skipped
from traceread.model import Capability
from traceread.records import record
from traceread.rules.facts import Facts
from traceread.rules.losses import Loss

__all__ = [
    "GENERAL",
    "LAST",
    "SPECIFIC",
    "Capability",
    "Effort",
    "Evidence",
    "Facts",
    "Finding",
    "Loss",
    "Rule",
    "Skipped",
    "find_rule",
    "load_rules",
    "rule",
]

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "traceread.rules"
"""Entry points of further rules."""

SPECIFIC, GENERAL, LAST = 0, 1, 2
"""Turns: rules that know a special case, rules for a kind of cause, rules that take what is left of a class."""

Check = Callable[[Any], Iterator[Finding]]
"""Generators of findings from `Facts`, or from `JobFacts` where ranks are compared."""


@record
class Rule:
    """One rule.

    Attributes:
        id: its name, as in `traceread explain ID`.
        check: yields the findings of one rank, or of the job.
        needs: what the trace must hold for it to look.
        effort: what its fix asks for.
        turn: rules with a smaller one look first; what they find is no longer there for the others.
        manual: what it means, how to confirm it, what to do: the docstring of its module.
        compares_ranks: it is given `JobFacts` once, not `Facts` for every rank.
        beyond_first_step: it does not judge by the first step alone, with everything that happens once.
    """

    id: str
    check: Check
    needs: frozenset[Capability]
    effort: Effort
    turn: int
    manual: str
    compares_ranks: bool = False
    beyond_first_step: bool = False

    @property
    def title(self) -> str:
        """The first line of the manual, without the full stop."""
        return self.manual.strip().splitlines()[0].rstrip(".") if self.manual.strip() else self.id


def rule(
    id: str,
    *,
    needs: Collection[Capability] = (),
    effort: Effort = Effort.CODE,
    turn: int = SPECIFIC,
    compares_ranks: bool = False,
    beyond_first_step: bool = False,
) -> Callable[[Check], Rule]:
    """A decorator that makes a rule of a generator of findings; the manual is the docstring of the module it stands in."""

    def decorate(check: Check) -> Rule:
        manual = sys.modules[check.__module__].__doc__ or check.__doc__ or ""
        return Rule(id, check, frozenset(needs), effort, turn, manual, compares_ranks, beyond_first_step)

    return decorate


@cache
def load_rules() -> tuple[tuple[Rule, ...], tuple[Notice, ...]]:
    """All rules by id, and a notice for each plug-in that could not be loaded. Shipped ones win over plug-ins of the same id."""
    found: dict[str, Rule] = {}
    notices: list[Notice] = []
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        for one in _rules_of(importlib.import_module(module.name)):
            found[one.id] = one
    for entry in sorted(_plug_ins(), key=lambda e: e.name):
        try:
            for one in _rules_of(entry.load()):
                found.setdefault(one.id, one)
        except (Exception, SystemExit) as error:  # whatever a plug-in does, the report goes on
            what = f"the rules of plug-in {_origin(entry)} could not be loaded: {type(error).__name__}: {error}"
            notices.append(Notice("rule-failed", what))
    return tuple(found[id] for id in sorted(found)), tuple(notices)


def _plug_ins() -> Collection[EntryPoint]:
    """The entry points of the group. The library that knows them is imported only where there may be one: it takes 10 ms."""
    if not _may_be_plug_ins():
        return ()
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _may_be_plug_ins() -> bool:
    """Whether a package that is installed may have entry points of the group: False if all that it could be named in was looked at."""
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return True
    for place in map(Path, sys.path):
        if place.is_file():  # a zip
            return True
        for named in place.glob("*-[iI][nN][fF][oO]/entry_points.txt"):  # .dist-info, .egg-info, EGG-INFO
            with suppress(OSError):  # what may not be read names nothing
                if GROUP.encode() in named.read_bytes():
                    return True
    return False


def _rules_of(value: object) -> Iterator[Rule]:
    if isinstance(value, Rule):
        yield value
    elif isinstance(value, ModuleType):
        yield from (one for one in vars(value).values() if isinstance(one, Rule))
    else:
        raise TypeError(f"{value!r} is neither a rule nor a module of rules")


def _origin(entry: EntryPoint) -> str:
    return f"{entry.name} ({entry.dist.name})" if entry.dist is not None else entry.name


def find_rule(id: str) -> Rule:
    """The rule with this id.

    Raises:
        SelectionError: there is none; the message names those that come close, or all.
    """
    from difflib import get_close_matches

    rules = {one.id: one for one in load_rules()[0]}
    if id in rules:
        return rules[id]
    close = get_close_matches(id, rules, n=3) or [one for one in rules if id in one]
    there = f"did you mean {' or '.join(close)}?" if close else "see them all with: traceread explain"
    raise SelectionError(f"there is no rule {id!r}", there)
