"""When warnings speak: never about a sound capture, and on real ones exactly those that tests/gold/real_warnings.json gives a reason for.

The captures are not part of the repository; without them those tests are skipped.
"""

import argparse
import ast
import json
import re
from pathlib import Path

import pytest

import traceread
from traceread.cli import _parser
from traceread.errors import TracereadError
from traceread.simulate import Capture, scenarios, simulate, write_run

ROOT = Path(__file__).parents[1]
TRACES = ROOT.parent / "shared" / "traces"
REAL = json.loads(Path(__file__).with_name("gold").joinpath("real_warnings.json").read_text("utf-8"))

# Of all scenarios only these are captures with a fault; the others are whole, whatever is wrong with the job in them.
FAULTY = {"capture-cut": {"launches-without-kernels"}, "cuda-graph-partial": {"graph-nodes-not-recorded"}}

RECORDERS = {
    "torch": Capture("kineto"),
    "torch, whole µs": Capture("kineto", era="us"),
    "torch 1.9": Capture("kineto", era="2021"),
    "torch on AMD": Capture("kineto", vendor="amd"),
    "torch with everything": Capture("kineto", stacks=True, shapes=True, sync_events=True),
    "nsys": Capture("nsys"),
    "nsys of 2021": Capture("nsys", schema="old"),
    "nsys of 2023": Capture("nsys", schema="middle"),
    "nsys, graphs whole": Capture("nsys", graphs="graph"),
}


def warnings_of(path):
    try:
        return {notice.slug for notice in traceread.analyze(path).all_notices}
    except TracereadError as error:
        return {error.slug}


def write(job, folder, capture, ranks=None):
    tick = 1000 if capture.format == "kineto" and capture.era in ("us", "2021") else 1
    write_run(simulate(job, ranks=ranks, steps=3, tick=tick), folder, capture, truth=False)
    return folder


@pytest.mark.parametrize("recorder", RECORDERS)
def test_nothing_is_said_about_a_healthy_job_however_it_was_recorded(tmp_path, recorder):
    assert warnings_of(write(scenarios()["healthy"], tmp_path, RECORDERS[recorder], ranks=2)) == set()


def test_one_export_of_several_ranks_does_not_say_which_is_which(tmp_path):
    """The one thing that is said about a healthy job: nsys records ranks only where they are in the environment of a file."""
    assert warnings_of(write(scenarios()["healthy"], tmp_path, Capture("nsys", files="job"), ranks=2)) == {"rank-order"}


@pytest.mark.parametrize("name", sorted(set(scenarios()) - {"llama7b"}))
def test_what_is_wrong_with_a_job_is_no_warning_about_its_capture(tmp_path, name):
    for format in ("kineto", "nsys"):
        assert warnings_of(write(scenarios()[name], tmp_path / format, Capture(format))) == FAULTY.get(name, set()), format


@pytest.mark.parametrize("name", REAL)
def test_real_captures_get_the_warnings_that_were_found_right(name):
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"the real trace {name} is not beside this repository")
    assert warnings_of(path) == set(REAL[name])


def test_every_real_capture_was_looked_at():
    if not TRACES.exists():
        pytest.skip("the real traces are not beside this repository")
    there = {str(path.relative_to(TRACES)) for path in TRACES.rglob("*") if path.is_file() and path.suffix != ".tsv"}
    ranks_of = "kineto/dlrm_8rank"
    assert {ranks_of if name.startswith(ranks_of) else name for name in there} == set(REAL)


# --- what messages tell the user to type -------------------------------------------------------------------------------------------------

PLACES = {"PATH": "run/", "BEFORE": "a/", "AFTER": "b/", "FILE": "file", "SIZE": "200G", "DIR": "run/", "REGEX": "step", "LIST": "0-3"}
_COMMAND = re.compile(r"(?<![\w-])traceread ([a-z]+)((?: (?:[^\s`|;,()]+))*)")


def commands_in_docs():
    for page in ("messages.md", "sharing.md"):
        text = (ROOT / "docs" / page).read_text("utf-8")
        for quoted in re.findall(r"`(traceread [^`]+)`|^    (traceread [^|\n]+?)(?:  .*)?$", text.replace("\n--", " --"), re.MULTILINE):
            yield from _COMMAND.findall(" ".join("".join(quoted).split()))


def commands_in_source():
    """The commands in texts of the program; what is filled in when it runs is taken for a word."""
    verbs = "|".join(verb for verb in _parser()[1])
    for path in (ROOT / "traceread").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                text = "".join(part.value if isinstance(part, ast.Constant) else "1" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            for found in re.finditer(rf"(?<![\w-])traceread ({verbs})((?: (?:-{{1,2}}[\w-]+|[A-Z]+))+)", text):
                yield found[1], found[2]


def is_understood(verb, rest):
    """Whether the command line takes it; words that stand for something are filled in."""
    parser, verbs = _parser()
    words = [PLACES.get(word, word.strip("'\"")) for word in rest.split() if word != "…"]
    known = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction)).choices[verb]._option_string_actions
    flags = [word.partition("=")[0] for word in words if word.startswith("-")]
    return verb in verbs and all(flag in known or re.fullmatch(r"-\d+", flag) for flag in flags)


def test_the_commands_in_the_docs_are_understood():
    commands = set(commands_in_docs())
    assert len(commands) > 25
    assert [command for command in sorted(commands) if not is_understood(*command)] == []


def test_the_commands_in_hints_are_understood():
    commands = set(commands_in_source())
    assert len(commands) > 10
    assert [command for command in sorted(commands) if not is_understood(*command)] == []


def test_the_check_of_commands_notices():
    assert is_understood("report", " PATH --steps 1:2")
    assert not is_understood("report", " PATH --stepps 1:2")


def test_paths_in_hints_can_be_typed():
    """Paths are quoted for the shell: a hint is there to be copied."""
    wild = re.compile(r"\b(?:ls|mkdir|head|traceread|unzip)\b[^\n]*$")
    for path in (ROOT / "traceread").rglob("*.py"):
        for call in (n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Call)):
            name = getattr(call.func, "id", "")
            hints = [arg for arg in call.args[1:2] if isinstance(arg, ast.JoinedStr)] if name[:1].isupper() else []
            for hint in hints:
                before = ""
                for part in hint.values:
                    if isinstance(part, ast.FormattedValue) and re.search(r"\bpath\b|\bfolder\b|title", ast.unparse(part.value)):
                        assert not wild.search(before) or "quote(" in ast.unparse(part.value), f"{path.name}: {ast.unparse(hint)}"
                    before += part.value if isinstance(part, ast.Constant) else ""
