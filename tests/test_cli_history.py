"""`traceread report --db` and `traceread history`."""

import json
import re
from pathlib import Path

import pytest
from test_cli_diff import AFTER, BEFORE, problems

from traceread.cli import COULD_NOT, DONE, GATE, USAGE, main
from traceread.history import jobs_in


@pytest.fixture
def database(tmp_path, monkeypatch):
    for name in ("GITHUB_SHA", "CI_COMMIT_SHA", "GIT_COMMIT", "BUILDKITE_COMMIT"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "runs.db"
    assert main(["report", AFTER, "--db", str(path), "-q"]) == DONE
    assert main(["report", BEFORE, "--db", str(path), "--commit", "abc", "-q"]) == DONE
    return path


def test_reports_are_appended_and_said_to_be(tmp_path, capsys):
    path = tmp_path / "runs.db"
    said = []
    for _ in range(2):
        assert main(["report", AFTER, "--db", str(path)]) == DONE
        said.append(capsys.readouterr().err)
    assert said == [f"traceread: appended to {path}\n", f"traceread: already in {path}\n"]
    assert jobs_in(path) == {"llama7b": 1}


def test_one_job_is_shown_with_its_answers(database, capsys):
    capsys.readouterr()
    assert main(["history", str(database)]) == DONE
    out = capsys.readouterr().out
    assert out.startswith("llama7b · 2 reports ·")
    assert len(re.findall(r"^ - ", out, re.MULTILINE)) == 4
    assert max(len(line) for line in out.splitlines()) <= 100


def test_json_follows_its_schema(database, capsys):
    capsys.readouterr()
    assert main(["history", str(database), "--json"]) == DONE
    value = json.loads(capsys.readouterr().out)
    assert problems(value, "history") == []
    assert len(value["reports"]) == 2
    for one in value["reports"]:
        assert sum(one["class_ns"].values()) == one["step_ns"]["mean"]


def test_several_jobs_get_a_line_each_until_one_is_named(database, capsys):
    main(["report", AFTER, "--db", str(database), "--job", "other", "-q"])
    capsys.readouterr()
    assert main(["history", str(database)]) == DONE
    out = capsys.readouterr().out
    assert "2 jobs" in out
    assert "nothing to look at" in out
    assert main(["history", str(database), "--job", "other", "-f", "csv"]) == DONE
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["history", str(database), "--json"]) == COULD_NOT
    assert "jobs there are: llama7b, other" in capsys.readouterr().err


def test_alerts_fail_where_that_was_asked_for(database, capsys):
    order = [e["step_ns"]["median"] for e in _reports(database, capsys)]
    slower = order[-1] > order[0]  # both captures begin in the same ms of simulated time
    assert main(["history", str(database), "--fail-on-alert", "-q"]) == (GATE if slower else DONE)
    assert main(["history", str(database), "--fail-on-alert", "--alert", "99%", "-q"]) == DONE


def _reports(database, capsys):
    capsys.readouterr()
    main(["history", str(database), "--json"])
    return json.loads(capsys.readouterr().out)["reports"]


def test_prometheus_files(database, tmp_path, capsys):
    metrics, rules = tmp_path / "t.prom", tmp_path / "t.yml"
    assert main(["history", str(database), "--prometheus", str(metrics), "--prometheus-rules", str(rules)]) == DONE
    assert 'traceread_step_seconds{job="llama7b",stat="median"}' in metrics.read_text()
    assert rules.read_text().startswith("# Recording")


@pytest.mark.parametrize("share", ["2", "0%", "much"])
def test_wrong_shares(share, tmp_path, capsys):
    assert main(["history", str(tmp_path / "x.db"), "--alert", share]) == USAGE


def test_a_file_that_is_not_there(tmp_path, capsys):
    assert main(["history", str(tmp_path / "none.db")]) == COULD_NOT
    err = capsys.readouterr().err
    assert "there is no history" in err
    assert "[no-history]" in err
    assert not Path(tmp_path / "none.db").exists()
