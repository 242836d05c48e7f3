"""Writes the parts of the documentation that something else already knows: docs/cli.md, docs/known-problems.md and docs/images/report.svg.

    python docs/generate.py

Run it in the repository's root after changing an option, a table in docs/known_problems or what a report looks like; a test says when.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent
SAMPLE = "sample_traces/llama7b/before-kineto"
LINES = 60
"""Of the report, so many lines make a picture that can be read."""

_CLI_HEAD = """\
# The command line

What `traceread --help` and `traceread COMMAND --help` say, in one place. Written by `python docs/generate.py`; edit the options, not
this page. What a report's lines mean is in the [README](../README.md), what every class is in [time-model.md](time-model.md), every
warning and error in [messages.md](messages.md).

The answer goes to standard output and everything else to standard error, so `traceread report run/ --json | jq .summary` works.
Exit codes: 0 done, 1 could not (one line says why and what to do), 2 wrong usage, 3 a gate or an alert you asked for, 130 interrupted.
"""

_PROBLEMS_HEAD = """\
# Known problems

What people have run into with tools that read such traces, and with the traces themselves: what was reported, the kind of trace that
brings it about, what traceread does with one, and the test in `tests/` that shows it. Several reports of one fault share a test. Written by
`python docs/generate.py` from the tables in `docs/known_problems/`; edit those, not this page.
"""

_SVG = """\
<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg" role="img" aria-label="traceread report">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: {char_height}px; \
line-height: {line_height}px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
<rect width="{terminal_width}" height="{terminal_height}" rx="8" fill="#16181d" />
<g transform="translate(12, 10) scale(0.98)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def cli_page() -> str:
    """docs/cli.md: every command with its options."""
    from traceread.cli import _parser

    parser, _ = _parser()
    verbs = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    short = {action.dest: action.help or "" for action in verbs._choices_actions}
    lines = [_CLI_HEAD, "| command | answers |", "|---|---|"]
    lines += [f"| [`traceread {verb}`](#traceread-{verb}) | {_cell(short[verb])} |" for verb in verbs.choices]
    lines += ["", "Before or after every command:", "", *_table(_group(parser, "global options")), ""]
    for verb, subparser in verbs.choices.items():
        arguments = " ".join(_argument(action) for action in subparser._actions if not action.option_strings)
        lines += [f"## traceread {verb}", "", f"    traceread {verb} {arguments} [options]", "", subparser.description or "", ""]
        actions = [a for a in subparser._actions if a.dest != "help" and a not in _group(subparser, "global options")]
        lines += [*_table(actions), ""]
    return "\n".join(lines)


def _group(parser: argparse.ArgumentParser, title: str) -> list[argparse.Action]:
    return next(group._group_actions for group in parser._action_groups if group.title == title)


def _argument(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest)
    return {"+": f"{name}...", "?": f"[{name}]"}.get(str(action.nargs), name)


def _table(actions: list[argparse.Action]) -> Iterator[str]:
    yield from ("| option | |", "|---|---|")
    for action in actions:
        value = "" if action.nargs == 0 else str(action.metavar or "|".join(map(str, action.choices or ())) or action.dest.upper())
        name = f"{', '.join(action.option_strings)} {value}".strip() if action.option_strings else _argument(action)
        yield f"| `{_cell(name)}` | {_cell(action.help or '')} |"


def _cell(text: str) -> str:
    return text.replace("%%", "%").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


class Problem(NamedTuple):
    """One reported problem; a table in docs/known_problems holds these fields.

    `report`: what somebody met, in a line. `shape`: the kind of trace that brings it about. `answer`: what traceread does.
    `tests`: "tests/test_x.py::test_y", what shows it. `differs`: why traceread does something else than was asked for.
    `links`: addresses of public reports.
    """

    id: str
    report: str
    shape: str
    answer: str
    tests: tuple[str, ...]
    differs: str = ""
    links: tuple[str, ...] = ()


def known_problems() -> dict[str, list[Problem]]:
    """The problems of every table, by the table's title, in order of the tables' letters: P, K, N."""
    tables = [tomllib.loads((DOCS / "known_problems" / f"{name}.toml").read_text("utf-8")) for name in ("peers", "kineto", "nsys")]
    return {table["title"]: [Problem(**row) for row in table.get("problem", [])] for table in tables}


def problems_page() -> str:
    """docs/known-problems.md: every reported problem with the test that shows what traceread does."""
    lines = [_PROBLEMS_HEAD]
    for title, problems in known_problems().items():
        lines += [f"## {title}", "", "| | reported | in which traces | what traceread does | shown by |", "|---|---|---|---|---|"]
        lines += [f"| {' | '.join(map(_line, _problem_cells(problem)))} |" for problem in problems]
        lines += [""]
    return "\n".join(lines)


def _problem_cells(problem: Problem) -> Iterator[str]:
    links = [f"[{number}]({link})" for number, link in enumerate(problem.links, 1)]
    yield problem.id
    yield " ".join([problem.report, *links])
    yield problem.shape
    yield " ".join(filter(None, [problem.answer, problem.differs and f"*Different on purpose:* {problem.differs}"]))
    yield " ".join(f"`{test.removeprefix('tests/')}`" for test in problem.tests)


def _line(text: str) -> str:
    """Markdown in a cell of a table: one line, and no bar ends the cell."""
    return " ".join(text.split()).replace("|", "\\|")


def security_page() -> str:
    """docs/security.md with the limits as the code has them."""
    text = (DOCS / "security.md").read_text("utf-8")
    before, begin, rest = text.partition("<!-- limits: written by docs/generate.py -->\n")
    _, end, after = rest.partition("<!-- end of limits -->\n")
    rows = ("| what | at most | lifted by |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in _limits()))
    return before + begin + "\n".join(rows) + "\n" + end + after


def _limits() -> Iterator[tuple[str, str, str]]:
    from traceread import config, run
    from traceread.categories import category
    from traceread.readers import nsys_job
    from traceread.readers.options import UNPACKED_FREELY, ReadOptions

    limits = ReadOptions()
    size, trust = "`--max-uncompressed SIZE`, `--trust`", "`--trust`"
    yield "bytes of one file, unpacked", _bytes(limits.max_uncompressed_bytes), size
    yield f"the same, beyond the first {_bytes(UNPACKED_FREELY)}", f"{limits.max_unpacked_ratio} times the packed file", size
    yield "GPUs in one file", f"{limits.max_gpus:,}", trust
    yield "host threads in one file", f"{limits.max_threads:,}", trust
    yield "GPUs times processes in one Nsight Systems export", f"{nsys_job._MOST_GPUS:,}", "nothing: it is taken for damage"
    yield "one event of a PyTorch trace, one value of an export", _bytes(limits.max_event_bytes), "`ReadOptions(max_event_bytes=…)`"
    yield "`nsys export` of a report", f"{limits.nsys_timeout_s:.0f} s", "`ReadOptions(nsys_timeout_s=…)`"
    yield "rows and text of an export", "what its bytes can hold", "nothing: it is taken for damage"
    yield "characters of a name that patterns see", f"{category._LONGEST:,}", "nothing"
    yield "`traceread.toml`", _bytes(config._LARGEST_FILE), "nothing"
    yield "`run.json`", _bytes(run._LARGEST_FILE), "nothing"


def _bytes(number: int) -> str:
    return next(f"{number >> shift:,} {unit}" for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")) if number >> shift)


def report_picture(root: Path) -> str:
    """docs/images/report.svg: `traceread report` on the sample, as a terminal of 100 columns shows its first lines."""
    from rich.console import Console
    from rich.terminal_theme import SVG_EXPORT_THEME
    from rich.text import Text

    import traceread
    from traceread.reporters.answer import report_document
    from traceread.reporters.text import Screen, render_text

    with contextlib.chdir(root):  # the picture shows the path as one types it
        report = traceread.analyze(SAMPLE)
    shown = _top(render_text(report_document(report), Screen(100, fancy=True)))
    console = Console(width=100, record=True, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    console.print(Text(f"$ traceread report {SAMPLE}", style="bold"))
    console.print(Text.from_ansi(shown))
    return console.export_svg(theme=SVG_EXPORT_THEME, code_format=_SVG, unique_id="report")


def _top(text: str) -> str:
    """The whole sections that fit in LINES lines, and a sign that more follow."""
    lines = text.splitlines()
    ends = [i for i, line in enumerate(lines) if not line.strip() and i <= LINES]
    return text if len(lines) <= LINES else "\n".join([*lines[: ends[-1]], "", "…"])


def main() -> None:
    """Writes them all."""
    (DOCS / "images").mkdir(exist_ok=True)
    (DOCS / "cli.md").write_text(cli_page(), "utf-8")
    (DOCS / "known-problems.md").write_text(problems_page(), "utf-8")
    (DOCS / "security.md").write_text(security_page(), "utf-8")
    (DOCS / "images" / "report.svg").write_text(report_picture(DOCS.parent), "utf-8")


if __name__ == "__main__":
    main()
