"""The documentation says what is so: its commands and examples run, its links lead somewhere, its generated parts are up to date."""

import contextlib
import html
import importlib.util
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import traceread
from traceread.cli import _parser, main
from traceread.config import load_config
from traceread.simulate import Capture, scenarios, simulate, write_run

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
README = (ROOT / "README.md").read_text("utf-8")
SAMPLE = ROOT / "sample_traces" / "llama7b" / "before-kineto"

NEEDS_A_GPU = {"capture.md"}
"""Pages whose Python is part of a training script; it must compile."""


def blocks(text, language):
    """The fenced code blocks of a language ("" for those that name none)."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(text, language=""):
    """The lines of the blocks, comments cut off."""
    return [line.split("  #")[0].strip() for block in blocks(text, language) for line in block.splitlines() if line.strip()]


def try_it():
    """The README's two commands: the one that does the main job, the one that runs the tests."""
    return commands(README.split("## Try it")[1].split("\n## ")[0])


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A directory like a clone, with a `traceread` in its virtual environment and the traces that the examples name."""
    copy = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "sample_traces", copy / "sample_traces")
    (copy / "run").mkdir()
    for path in SAMPLE.glob("*.gz"):
        shutil.copy(path, copy / "run")
        shutil.copy(path, copy / "trace.json.gz")
    [export] = write_run(simulate(scenarios()["healthy"], ranks=1, steps=3), copy / "nsys", Capture(format="nsys"))
    export.rename(copy / "rank0.sqlite")
    command = copy / ".venv" / "bin" / "traceread"
    command.parent.mkdir(parents=True)
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m traceread "$@"\n')
    command.chmod(0o755)
    return copy


def run(command, folder):
    return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)


def test_two_commands_do_all_the_set_up():
    job, tests = try_it()
    assert job.startswith("python3 -m venv .venv && .venv/bin/pip install -q -e . && ")
    assert tests.startswith('python3 -m venv .venv && .venv/bin/pip install -q -e ".[test]" && ')


def test_the_first_command_does_the_main_job(copy):
    done = run(try_it()[0].split(" && ")[-1], copy)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("sample_traces/llama7b/before-kineto · 4 of 32 ranks")
    assert "exposed communication" in done.stdout


def test_continuous_integration_runs_the_second_command():
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    *set_up, tests = try_it()[1].split(" && ")
    assert f"\n{' && '.join(set_up)}\n" in script
    assert script.splitlines()[-1] == tests


@pytest.mark.parametrize("command", [c for c in commands(README) if c.startswith(".venv/bin/traceread")])
def test_commands_of_the_readme_run(command, copy):
    done = run(command, copy)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) > 10


def commands_of(*pages):
    return [(page, c) for page in pages for c in commands((ROOT / "docs" / page).read_text("utf-8")) if c.startswith("traceread ")]


@pytest.mark.parametrize(("page", "command"), commands_of("tutorial.md", "pictures.md"))
def test_commands_of_the_pages_run(page, command, copy):
    done = run(f'PATH="$PWD/.venv/bin:$PATH" {command}', copy)
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr
    written = re.search(r" -o (\S+)", command)
    assert len(done.stdout.splitlines()) > 5 if written is None else (copy / written[1]).exists()


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p.read_text("utf-8"), "python")], ids=lambda p: p.name)
def test_python_of_the_pages_runs(page, copy, monkeypatch):
    """Line by line as it stands, and what a comment says it prints is printed."""
    text = page.read_text("utf-8")
    if page.name in NEEDS_A_GPU:
        for block in blocks(text, "python"):
            compile(block, page.name, "exec")
        return
    monkeypatch.chdir(copy)
    for block in blocks(text, "toml"):
        Path("traceread.toml").write_text(block, "utf-8")
    names = {}
    for block in blocks(text, "python"):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block, page.name, "exec"), names)
        for said in re.findall(r"# (<.*>)$", block, re.MULTILINE):
            assert said in printed.getvalue().splitlines()


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p.read_text("utf-8"), "toml")], ids=lambda p: p.name)
def test_configuration_of_the_pages_is_understood(page, tmp_path):
    for block in blocks(page.read_text("utf-8"), "toml"):
        (tmp_path / "traceread.toml").write_text(block, "utf-8")
        config = load_config(tmp_path / "traceread.toml")
        assert config.kernels
        assert config.ranges
        assert config.step_pattern


# --- links -------------------------------------------------------------------------------------------------------------------


def texts():
    """Every page of text, notebooks included, with its path."""
    return [(path, path.read_text("utf-8")) for path in [*PAGES, *ROOT.glob("notebooks/*.ipynb")]]


def anchors(page):
    """What a page's headings can be linked by."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(path, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        if not there.exists() or (anchor and anchor not in anchors(there)):
            yield target


@pytest.mark.parametrize(("path", "text"), texts(), ids=lambda value: value.name if isinstance(value, Path) else "")
def test_links_lead_somewhere(path, text):
    assert list(dead_links(path, text)) == []


def test_dead_links_are_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One heading\n")
    text = "[a](page.md) [b](none.md) [c](page.md#one-heading) [d](#two) [e](https://example.com)"
    assert list(dead_links(page, text)) == ["none.md", "#two"]


def test_index_lists_every_page():
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages == set(re.findall(r"^\| \[[^]]+\]\(([^)]+\.md)\)", index, re.MULTILINE))


# --- what a page lists ---------------------------------------------------------------------------------------------------------


def test_readme_lists_every_command():
    assert sorted(re.findall(r"^\| `traceread (\w+)` \|", README, re.MULTILINE)) == sorted(_parser()[1])


def test_layout_lists_every_part_of_the_package():
    [layout] = [block for block in blocks(README, "") if block.startswith("traceread/\n")]
    listed = {name.rstrip("/") for name in re.findall(r"^  (\S+)", layout, re.MULTILINE)}
    package = ROOT / "traceread"
    modules = {path.name for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/*.py")}
    assert listed - modules == set()
    assert modules - listed - {"__main__.py"} == set()
    for name in re.findall(r"^(\S+)", layout, re.MULTILINE):
        assert (ROOT / name).exists(), name


def test_changelog_has_this_version():
    assert f"\n## {traceread.__version__}" in (ROOT / "CHANGELOG.md").read_text("utf-8")


# --- generated parts -------------------------------------------------------------------------------------------------------------


def generator():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words(picture):
    """What an SVG says, without its markup: libraries may change that."""
    return html.unescape(re.sub(r"<[^>]*>", "", picture[picture.index("</defs>") :])).replace("\xa0", " ").split()


def test_command_line_page_is_up_to_date():
    assert (ROOT / "docs" / "cli.md").read_text("utf-8") == generator().cli_page(), "python docs/generate.py"


def test_command_line_page_has_every_option(capsys):
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    for verb in _parser()[1]:
        main([verb, "--help"])
        options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
        section = page.split(f"\n## traceread {verb}\n")[1].split("\n## ")[0]
        before = page.split("\n## ")[0]
        assert {option for option in options if f"{option} " not in section + before and f"{option}`" not in section + before} == set()


def test_limits_are_those_of_the_code():
    text = generator().security_page()
    assert (ROOT / "docs" / "security.md").read_text("utf-8") == text, "python docs/generate.py"
    assert "| 64 GiB | `--max-uncompressed SIZE`, `--trust` |" in text


def test_what_shows_a_hostile_file_or_a_fault_is_there():
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    shown = re.findall(r"`((?:pytest|python fuzz)[^`]*)`", text)
    assert len(shown) > 30
    cases = re.findall(r'^        "([\w-]+)": Case', (ROOT / "fuzz" / "hostile.py").read_text("utf-8"), re.MULTILINE)
    cases += [f"sql-{how}" for how in ("view", "virtual", "trigger", "generated", "index")]
    for command in shown:
        program, *words_ = command.split()
        if program == "python":
            assert (ROOT / words_[0]).is_file(), command
            assert words_[0] != "fuzz/hostile.py" or set(words_[1:]) <= set(cases), command
            continue
        *files, option, pattern = words_ if "-k" in words_ else (*words_, "-k", "")
        assert option == "-k"
        for file in files:
            names = re.findall(r"def (test_\w+)", (ROOT / file).read_text("utf-8"))
            assert any(pattern in name for name in names), command


def test_picture_is_up_to_date():
    picture = (ROOT / "docs" / "images" / "report.svg").read_text("utf-8")
    assert words(picture) == words(generator().report_picture(ROOT)), "python docs/generate.py"


# --- what must not be in the repository --------------------------------------------------------------------------------------------


MACHINE = re.compile(r"/wor[k]/|/roo[t]/|/op[t]/wheels|/tm[p]/venv")
REGISTRY = re.compile(r"pyp[i]\.org|pythonhoste[d]\.org|npmj[s]\.(?:org|com)|deb\.debia[n]\.org|anacond[a]\.org|pull\.docke[r]")


def shipped_texts():
    """The text files of the repository; without git, all but what lies in hidden directories."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True)
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    for path in paths or [p for p in ROOT.rglob("*") if not any(part.startswith(".") for part in p.relative_to(ROOT).parts)]:
        if path.is_file() and path.suffix in (".py", ".md", ".toml", ".json", ".ipynb", ".svg", ".html", ".txt", ""):
            yield path, path.read_text("utf-8", "replace")


@pytest.mark.parametrize("pattern", [MACHINE, REGISTRY], ids=["machine", "registry"])
def test_nothing_names_the_machine_it_was_made_on(pattern):
    found = [f"{path.relative_to(ROOT)}: {hit[0]}" for path, text in shipped_texts() for hit in [pattern.search(text)] if hit]
    assert found == []


@pytest.mark.parametrize("text", ["cd @work/main", "@root/.cache", "@opt/wheels/x.whl"])
def test_machine_paths_are_noticed(text):
    assert MACHINE.search(text.replace("@", "/"))
