import json

import pytest

from traceread.cli import main


def test_it_writes_a_scenario(tmp_path, capsys):
    assert main(["simulate", "item-sync", "-o", str(tmp_path), "--ranks", "3", "--steps", "2", "--plain"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "3 traces and truth.json" in err
    assert sorted(p.name for p in tmp_path.iterdir()) == [*(f"rank{r}.pt.trace.json" for r in range(3)), "truth.json"]
    assert json.loads((tmp_path / "truth.json").read_text())["without"][1]["faults"] == ["item"]


def test_it_writes_exports(tmp_path):
    assert (
        main(["simulate", "healthy", "-o", str(tmp_path), "--steps", "2", "--format", "nsys", "--schema", "middle", "--files", "job"]) == 0
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.sqlite", "truth.json"]


def test_faults_can_be_removed(tmp_path):
    assert main(["simulate", "item-sync", "-o", str(tmp_path), "--steps", "2", "--without", "all"]) == 0
    truth = json.loads((tmp_path / "truth.json").read_text())
    assert [row["faults"] for row in truth["without"]] == [[]]
    assert not any(i["cause"] == "host_sync" for i in truth["idle"])


def test_some_ranks_can_be_written_without_the_truth(tmp_path):
    assert main(["simulate", "straggler-gc", "-o", str(tmp_path), "--steps", "2", "--write", "0,2-3", "--no-truth"]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"rank{r}.pt.trace.json.gz" for r in (0, 2, 3)]


def test_it_lists_the_scenarios(capsys):
    assert main(["simulate", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("llama7b") and "Faults: data-loader, item, reduce-scatter." in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["no-such"], 1, "no scenario called 'no-such'"),
        (["healthy"], 1, "traceread simulate healthy -o DIR"),
        (["item-sync", "-o", "x", "--without", "nothing"], 1, "no fault called nothing"),
        (["item-sync", "-o", "x", "--write", "0-7"], 1, "not ranks of a job of 2"),
        ([], 2, ""),
    ],
)
def test_what_cannot_be_done_is_said(arguments, code, says, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["simulate", *arguments]) == code
    assert says in capsys.readouterr().err
