"""Where an answer goes and in which format. stdout is the answer, stderr everything else."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from traceread.errors import OutputError
from traceread.records import record

if TYPE_CHECKING:
    from traceread.reporters.document import Document
    from traceread.reporters.text import Screen

_NARROWEST, _WIDEST, _USUAL = 60, 140, 100


@record
class Output:
    """The answer's way out.

    Attributes:
        path: the file, None for stdout.
        format: the answer's format.
        plain: no colours and no block characters wanted.
        quiet: do not say where it was written.
    """

    path: Path | None
    format: str
    plain: bool
    quiet: bool

    def document(self, document: Document) -> str:
        """A document in the format asked for, text as the terminal can show it."""
        from traceread.reporters import render_document

        if self.format != "text" or self.path is not None:
            return render_document(document, self.format)
        from traceread.reporters.text import render_text

        return render_text(document, screen(self.plain))

    def write(self, text: str) -> None:
        """Writes the answer.

        Raises:
            OutputError: the file cannot be written; what was there before is kept.
        """
        if self.path is None:
            _to_stdout(text, self.format)
            return
        from traceread.reporters.files import write_text

        write_text(self.path, text)
        if not self.quiet:
            print(f"traceread: wrote {self.path}", file=sys.stderr)


def output_of(args: argparse.Namespace) -> Output:
    """What the options say; asked before the traces are read, so that a wrong one costs nothing.

    Raises:
        OutputError: the extension names no format the command has, or there is no such directory.
    """
    from traceread.reporters import format_of

    path = None if args.output == "-" else Path(args.output)
    if path is None and sys.stdout is None:
        raise OutputError("there is no standard output to write to", "write to a file: -o report.md")
    format = args.output_format or ("text" if path is None else format_of(path))
    if format not in args.formats:
        raise OutputError(f"{args.output}: this command does not write {format}", f"it writes: {', '.join(args.formats)}")
    if path is not None and not path.parent.is_dir():
        raise OutputError(f"cannot write {path}: there is no directory {path.parent}", f"mkdir -p {quote(str(path.parent))}")
    if path is not None and path.is_dir():
        raise OutputError(f"cannot write {path}: it is a directory", f"give a file in it: -o {quote(str(path / 'report.md'))}")
    return Output(path, format, args.no_color, args.quiet)


def screen(plain: bool) -> Screen:
    """What stdout can show."""
    from traceread.reporters.text import Screen

    terminal = sys.stdout.isatty()
    unicode = (sys.stdout.encoding or "ascii").lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig", "utf16", "utf32")
    dull = plain or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    width = min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST) if terminal else _USUAL
    return Screen(width, fancy=terminal and unicode and not dull, unicode=unicode)


def _to_stdout(text: str, format: str) -> None:
    """Text in the terminal's encoding, every other format in UTF-8."""
    encoding = (sys.stdout.encoding or "utf-8") if format == "text" else "utf-8"
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(text)
    else:
        sys.stdout.flush()
        buffer.write(text.encode(encoding, "replace"))
    sys.stdout.flush()
