"""What the user asks for as text: `12:17` for steps, `0-3,7` for ranks."""

from __future__ import annotations

import re

from traceread.errors import SelectionError
from traceread.records import record


@record
class StepRange:
    """A half-open selection of steps by their own numbers, `first <= number < stop`; None is open."""

    first: int | None = None
    stop: int | None = None

    def holds(self, number: int) -> bool:
        """Whether the selection holds this step number."""
        return (self.first is None or number >= self.first) and (self.stop is None or number < self.stop)

    def __str__(self) -> str:
        return f"{'' if self.first is None else self.first}:{'' if self.stop is None else self.stop}"


def parse_steps(text: str) -> StepRange:
    """The steps "12:17" (half-open), ":17", "12:" or "12" name.

    Raises:
        SelectionError: the text is none of these, or the range is empty.
    """
    found = re.fullmatch(r"\s*(\d*)\s*(:?)\s*(\d*)\s*", text)
    if not found or not (found[1] or found[3]) or (found[3] and not found[2]):
        raise SelectionError(f"--steps {text!r} is not a range of steps", "write first:stop, such as --steps 12:17 (17 not included)")
    first = int(found[1]) if found[1] else None
    stop = int(found[3]) if found[3] else None
    if not found[2] and first is not None:
        stop = first + 1
    if first is not None and stop is not None and stop <= first:
        raise SelectionError(
            f"--steps {text!r} is empty: the second number is not included", f"write --steps {first}:{first + 1} for one step"
        )
    return StepRange(first, stop)


def parse_ranks(text: str) -> frozenset[int]:
    """The ranks "0-3,7" names, both ends included.

    Raises:
        SelectionError: the text is no list of ranks.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,7})\s*(?:-\s*(\d{1,7})\s*)?", part)
        if not found:
            raise SelectionError(f"--ranks {text!r} is not a list of ranks", "write numbers and ranges, such as --ranks 0-3,7")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise SelectionError(f"--ranks {text!r}: {part.strip()} runs backwards", f"write --ranks {last}-{first}")
        ranks.update(range(first, last + 1))
    return frozenset(ranks)
