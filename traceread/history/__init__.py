"""Reports over time: a SQLite database of them, and what it says about a job."""

from __future__ import annotations

from traceread.history.database import append, jobs_in, read
from traceread.history.entry import Entry, entry_of
from traceread.history.trend import Answer, History

__all__ = ["Answer", "Entry", "History", "append", "entry_of", "jobs_in", "read"]
