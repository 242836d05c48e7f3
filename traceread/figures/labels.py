"""Texts on figures. Plotly reads markup in every label, so recorded names are cleaned and escaped before they get there."""

from __future__ import annotations

import textwrap
from html import escape

from traceread.names import clean, kernel_title, shorten
from traceread.units import duration


def label(text: str, width: int = 60) -> str:
    """A recorded name as a label, at most `width` characters, its middle left out if need be."""
    return escape(shorten(clean(text), width), quote=False)


def kernel_label(name: str, width: int = 60) -> str:
    """A kernel's name as a label, without what all kernels' names have."""
    return escape(shorten(kernel_title(name), width), quote=False)


def wrapped(text: str, width: int, lines: int = 3) -> str:
    """A text as a label over at most so many lines."""
    return "<br>".join(escape(line, quote=False) for line in textwrap.wrap(clean(text), width, max_lines=lines, placeholder=" …"))


def exact(ns: int) -> str:
    """A time as hover texts show it: rounded, and in whole ns."""
    return f"{duration(ns)} ({ns:,} ns)"
