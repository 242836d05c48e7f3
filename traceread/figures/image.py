"""Figures as pictures in files."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from traceread.errors import OutputError

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_FORMATS = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".webp")
_NEEDS = 'pip install kaleido, and have Chrome or Chromium installed; or save as .html: figure.write_html("figure.html")'


def save_image(figure: Figure, path: str | Path, width: int = 900, scale: float = 2) -> Path:
    """Writes a figure as PNG, SVG, PDF, JPEG or WebP, by the extension, and returns the path.

    Raises:
        OutputError: the extension names none of these, kaleido or a browser is missing, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in _FORMATS:
        raise OutputError(f"{path}: the extension {path.suffix or '(none)'} names no kind of picture", f"use one of {', '.join(_FORMATS)}")
    if find_spec("kaleido") is None:
        raise OutputError(f"cannot write {path}: pictures of figures need kaleido, which is not installed", _NEEDS)
    try:
        figure.write_image(path, width=width, scale=scale)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}", "choose another place") from None
    except Exception as error:  # what kaleido raises where it finds no browser differs from version to version
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise OutputError(f"cannot write {path}: {said}", _NEEDS) from None
    return path
