"""Every exception and warning of traceread, each with a slug and a hint.

A message says what happened, in which file, and what was seen; the hint is the next command to type. Each slug has a
paragraph in docs/messages.md (a test reads both).
"""

from __future__ import annotations

from traceread.records import record


class TracereadError(Exception):
    """What went wrong, with the next thing to do.

    Attributes:
        message: what happened and where, one sentence.
        hint: what to do next, ends with a command where there is one; may be empty.
        slug: the name of the paragraph in docs/messages.md.
    """

    slug = "error"

    def __init__(self, message: str, hint: str = "", slug: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if slug is not None:
            self.slug = slug

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.message, self.hint, self.slug))


class InputError(TracereadError):
    """The input cannot be used."""

    slug = "input"


class TraceNotFound(InputError):
    """No such file, or nothing in the directory that traceread reads."""

    slug = "trace-not-found"


class UnknownFormat(InputError):
    """A file that is neither a PyTorch trace nor an Nsight Systems export."""

    slug = "unknown-format"


class UnsupportedSchema(InputError):
    """An Nsight Systems export whose schema this version does not know."""

    slug = "unsupported-schema"


class CorruptTrace(InputError):
    """A trace so damaged that nothing usable is left."""

    slug = "corrupt-trace"


class LimitExceeded(InputError):
    """A limit that protects against hostile files was reached; the hint names the flag that lifts it."""

    slug = "limit-exceeded"


class SelectionError(TracereadError):
    """A rank, step or name that the profile does not hold; the message lists what is valid."""

    slug = "selection"


class MissingData(TracereadError):
    """The question needs something that was not recorded."""

    slug = "missing-data"


class ConfigError(TracereadError):
    """traceread.toml or run.json says something that cannot be understood."""

    slug = "config"


class OutputError(TracereadError):
    """The answer could not be written."""

    slug = "output"


class ComparisonError(TracereadError):
    """Two sides that cannot be compared, or a question about them that cannot be understood."""

    slug = "comparison"


class WorkerLost(TracereadError):
    """The process that read a rank ended without an answer."""

    slug = "worker-lost"


class ClusterError(TracereadError):
    """The Dask cluster cannot be used."""

    slug = "cluster"


@record
class Notice:
    """A warning about the input, kept on the profile and shown once.

    Attributes:
        slug: the name of the paragraph in docs/messages.md.
        message: what was seen, with its number.
        rank: the rank it concerns, None for the whole profile.
    """

    slug: str
    message: str
    rank: int | None = None

    def to_dict(self) -> dict[str, object]:
        """The notice as JSON builtins: slug, message, rank."""
        return {"slug": self.slug, "message": self.message, "rank": self.rank}
