import gzip
import json
import sqlite3
from importlib.util import find_spec

import pytest

from traceread.cli import main
from traceread.simulate import Capture, scenarios, simulate, write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for format in ("kineto", "nsys"):
        write_run(simulate(scenarios()["healthy"], ranks=2, steps=3), folder / format, Capture(format=format), truth=False)
    return folder


@pytest.mark.parametrize("format", ["kineto", "nsys"])
def test_perfetto(runs, format, tmp_path, capsys):
    path = tmp_path / "annotated.json.gz"
    assert main(["export", str(runs / format), "-o", str(path)]) == 0
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert {e["args"]["name"] for e in events if e["name"] == "thread_name"} >= {"steps", "class", "idle cause"}
    said = capsys.readouterr()
    assert said.out == ""
    assert f"wrote {path}" in said.err
    assert "ui.perfetto.dev" in said.err


def test_ranks_and_steps_cut(runs, tmp_path, capsys):
    sizes = []
    for more in ([], ["--ranks", "1"], ["--ranks", "1", "--steps", "4"]):
        assert main(["-q", "export", str(runs / "kineto"), "-o", str(tmp_path / "a.json"), *more]) == 0
        document = json.loads((tmp_path / "a.json").read_text())
        sizes.append(len(document["traceEvents"]))
    assert sizes[0] > 1.8 * sizes[1] > 3 * sizes[2]
    assert capsys.readouterr().err == ""


def test_sqlite(runs, tmp_path, capsys):
    path = tmp_path / "tables.sqlite"
    assert main(["export", str(runs / "nsys"), "-o", str(path)]) == 0
    connection = sqlite3.connect(path)
    assert connection.execute("select count(distinct rank) from steps").fetchone() == (2,)
    connection.close()


def test_csv(runs, tmp_path, capsys):
    assert main(["export", str(runs / "kineto"), "-f", "csv", "-o", str(tmp_path / "tables")]) == 0
    assert (tmp_path / "tables" / "steps.csv").read_text().startswith("rank,step,number,")
    assert "7 tables" in capsys.readouterr().err


@pytest.mark.skipif(find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_parquet_without_pyarrow(runs, tmp_path, capsys):
    assert main(["export", str(runs / "kineto"), "-f", "parquet", "-o", str(tmp_path / "tables")]) == 1
    assert "pip install pyarrow" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("output", "more", "said"),
    [
        ("a.foo", [], "names no export"),
        ("none/a.json", [], "there is no directory"),
        (".", ["-f", "sqlite"], "it is a directory"),
        ("file", ["-f", "csv"], "it is a file"),
    ],
)
def test_a_wrong_place_costs_nothing(output, more, said, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("x")
    monkeypatch.chdir(tmp_path)
    assert main(["export", "nothing-here", "-o", output, *more]) == 1
    assert said in capsys.readouterr().err
