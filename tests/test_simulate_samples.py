import gzip
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import traceread
from traceread.cli import main

SAMPLES = Path(__file__).parents[1] / "sample_traces"
COMMANDS = [
    shlex.split(line)[1:] for line in (SAMPLES / "README.md").read_text().splitlines() if line.startswith("traceread simulate llama7b ")
]
COMMANDS += [
    shlex.split(line)[1:] for line in (SAMPLES / "README.md").read_text().splitlines() if re.match("traceread simulate (?!llama7b|-)", line)
]


def target(command: list[str]) -> Path:
    return Path(command[command.index("-o") + 1])


def test_the_readme_says_how_every_sample_was_made():
    made = {SAMPLES.parent / target(command) for command in COMMANDS}
    assert made == {path.parent for path in SAMPLES.rglob("*") if path.suffix in (".gz", ".sqlite")}
    assert len(COMMANDS) == len(made)


def content(path: Path) -> object:
    """What a file holds: the bytes of an archive or database depend on the library that wrote it."""
    if path.suffix == ".sqlite":
        with closing(sqlite3.connect(path)) as db:
            return list(db.iterdump())
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if target(c).name in ("item-sync", "cuda-graph", "after-kineto")], ids=lambda c: target(c).name
)
def test_the_commands_make_the_samples(command, tmp_path):
    where = command.index("-o") + 1
    assert main([*command[:where], str(tmp_path), *command[where + 1 :]]) == 0
    kept = SAMPLES.parent / target(command)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in kept.iterdir())
    for path in tmp_path.iterdir():
        assert content(path) == content(kept / path.name), path.name


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: str(target(c)).removeprefix("sample_traces/"))
def test_every_sample_can_be_analysed(command):
    report = traceread.analyze(traceread.load(SAMPLES.parent / target(command)))
    assert report.summary is not None
    assert len(report.summary.steps) >= 1


def test_the_first_command_of_the_readme_runs(monkeypatch, capsys):
    monkeypatch.chdir(SAMPLES.parent)
    first = next(line for line in (SAMPLES / "README.md").read_text().splitlines() if line.startswith("traceread "))
    assert main(shlex.split(first)[1:]) == 0
    assert "3.60 s" in capsys.readouterr().out


def test_the_samples_stay_small():
    assert sum(p.stat().st_size for p in SAMPLES.rglob("*") if p.is_file()) < 10_000_000
