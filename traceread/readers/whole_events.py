"""What is taken out of single events beside their columns, from the few that have something to say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from traceread.readers.kineto_collectives import NAMED, RANGES, CollectiveEvents
from traceread.readers.kineto_matrices import SHAPES, MatrixEvents
from traceread.readers.operator_flops import OPERATORS

_texts = msgspec.json.Decoder(list[msgspec.Raw]).decode


class WholeEvents:
    """Collects what single events say. Each is looked at alone: where a chunk of the text ends makes no difference.

    Attributes:
        collectives, matrices: what was collected.
    """

    def __init__(self) -> None:
        self.collectives = CollectiveEvents()
        self.matrices = MatrixEvents()
        self._met: set[str | None] = set()
        self._telling: set[str | None] = set()  # those of them that events worth a look have

    def look(self, text: bytes, names: Sequence[str | None] | None = None) -> None:
        """Keeps what the events of a text say.

        Args:
            text: one event, or several with commas between them.
            names: their names in order; None for one event that is known to be worth a look.

        Raises:
            RecursionError: several events are nested too deeply to be taken apart; nothing was kept.
        """
        for event in (text,) if names is None else self._worth_a_look(text, names):
            self.collectives.look(event)
            self.matrices.look(event)

    def _worth_a_look(self, text: bytes, names: Sequence[str | None]) -> Iterator[bytes]:
        """The texts of those events that may tell of a collective, or of a multiplication with its shapes."""
        here = set(names)
        new = here - self._met
        self._met |= new
        self._telling.update(name for name in new if name and (name.startswith(RANGES) or name in OPERATORS))
        telling = here & self._telling
        if not any(sign in text for sign in SHAPES):
            telling.difference_update(OPERATORS)
        has_named = NAMED in text
        if not telling and not has_named:
            return
        texts = [text] if len(names) == 1 else _texts(b"[" + text + b"]")
        if has_named:
            yield from (event for event, name in zip(map(bytes, texts), names, strict=True) if name in telling or NAMED in event)
        else:
            yield from (bytes(texts[i]) for i, name in enumerate(names) if name in telling)
