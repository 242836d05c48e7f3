"""The history loses nothing, whoever writes at once and whoever is killed; and says what happened to a job."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from comparing import RUN, kernel, merged, report, side, side_of_dict
from step_logs import S, Writer

from traceread.cli import main
from traceread.errors import ComparisonError, InputError, MissingData, SelectionError
from traceread.history import append, entry_of, jobs_in, read
from traceread.history.database import COLUMNS, SCHEMA
from traceread.history.prometheus import RULES, exposition
from traceread.history.trend import trend_of
from traceread.reporters.history import history_document, render_history
from traceread.runs.summary import read_runs

MS = 1_000_000
DAY = 86_400 * 10**9
START = 1_700_000_000 * 10**9
NOW = datetime(2024, 1, 1, tzinfo=UTC)
HERE = Path(__file__).parent


def at(day, step=100 * MS, *, ranks=4, mfu=None, gemm=1_000_000, run=RUN, **more):
    """A report of that day whose steps take `step` ns."""
    efficiency = {"run": run, "mfu": mfu, "convention": "6N"} if mfu else {"run": run}
    profile = {"base_ns": str(START + day * DAY)}
    value = report([step, step + MS // 10, step - MS // 10], ranks=ranks, profile=profile, efficiency=efficiency)
    value["families"] = [kernel("gemm", count=30, total=30 * gemm)]
    return side_of_dict(merged(value, more))


def history(tmp_path, *sides, job="toy"):
    path = tmp_path / "runs.db"
    for i, one in enumerate(sides):
        assert append(path, entry_of(one, job, f"c{i}", NOW))
    return read(path, job)


def answer(found, key):
    return next(a for a in found.answers if a.key == key)


# --- what is kept ------------------------------------------------------------------------------------------------------------------


def test_a_report_comes_back_as_it_was(tmp_path):
    entry = entry_of(at(0, mfu=0.4), "toy", "abc", NOW)
    assert append(tmp_path / "runs.db", entry)
    assert read(tmp_path / "runs.db").entries == (entry,)
    assert entry.captured_at == "2023-11-14T22:13:20.000Z"
    assert entry.appended_at == "2024-01-01T00:00:00.000Z"
    assert (entry.median_ns, entry.mean_ns, entry.max_ns, entry.steps) == (100 * MS, 100 * MS, 100 * MS + MS // 10, 3)
    assert sum(entry.class_ns.values()) == entry.mean_ns
    assert entry.workload == "4 × NVIDIA H100 80GB HBM3 · batch 64 · sequence 2048 · bf16 · 1,000,000,000 parameters"


def test_the_same_report_is_kept_once(tmp_path):
    path = tmp_path / "runs.db"
    assert append(path, entry_of(at(0), "toy", "abc", NOW))
    assert not append(path, entry_of(at(0), "toy", "abc", datetime(2025, 1, 1, tzinfo=UTC)))
    assert append(path, entry_of(at(0), "toy", "abd", NOW))
    assert jobs_in(path) == {"toy": 2}


def test_the_job_and_the_commit_are_known_without_being_told(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_SHA", "f00d")
    entry = entry_of(at(0))
    assert (entry.job, entry.commit) == ("toy", "f00d")
    assert entry_of(side([5, 5], title="run/")).job == "run/"


def test_a_capture_without_a_clock_of_the_day_is_dated_by_its_appending():
    entry = entry_of(side([5, 5]), now=NOW)
    assert entry.captured_at is None
    assert entry.at == "2024-01-01T00:00:00.000Z"


def test_a_report_without_gpu_work_is_not_kept():
    with pytest.raises(ComparisonError, match="holds no GPU work"):
        entry_of(side([], summary=None))


def test_hosts_are_not_kept():
    entry = entry_of(at(0, run={**RUN, "stack": {"host": "secret-node", "torch": "2.9"}}))
    assert "secret-node" not in json.dumps(entry.stack)
    assert entry.stack["torch"] == "2.9"


def test_reports_are_in_order_of_their_capture(tmp_path):
    found = history(tmp_path, at(3), at(1), at(2))
    assert [e.commit for e in found.entries] == ["c1", "c2", "c0"]


def test_schema_is_the_documented_one(tmp_path):
    append(tmp_path / "runs.db", entry_of(at(0)))
    with closing(sqlite3.connect(tmp_path / "runs.db")) as db:
        assert [row[1] for row in db.execute("pragma table_info(reports)")] == list(COLUMNS)
        assert db.execute("pragma user_version").fetchone() == (SCHEMA,)
        views = {row[0] for row in db.execute("select name from sqlite_master where type = 'view'")}
        for view in views:
            db.execute(f"select * from {view}").fetchall()
    documented = (HERE.parent / "docs" / "history.md").read_text("utf-8")
    for name in (*COLUMNS, *views):
        assert f"`{name}`" in documented, name


def test_views_take_the_json_apart(tmp_path):
    history(tmp_path, at(0))
    with closing(sqlite3.connect(tmp_path / "runs.db")) as db:
        assert db.execute("select mean_ns from classes where class = 'compute'").fetchall() == [(100 * MS,)]
        assert db.execute("select count(*), min(rank), max(rank) from rank_steps").fetchall() == [(4, 0, 3)]
        assert db.execute("select family, launches from kernel_families").fetchall() == [("gemm", 10.0)]


@pytest.mark.parametrize("content", [b"", b"not a database, but long enough to be looked at" * 30])
def test_what_is_no_database_is_refused(tmp_path, content):
    path = tmp_path / "runs.db"
    path.write_bytes(content)
    with pytest.raises(InputError) as raised:
        jobs_in(path)
    assert raised.value.slug == "no-history"


def test_a_database_of_something_else_is_not_written_to(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table mine (x)")
    with pytest.raises(InputError, match="a database of something else: it holds mine"):
        append(path, entry_of(at(0)))


def test_a_newer_database_is_refused(tmp_path):
    path = tmp_path / "runs.db"
    append(path, entry_of(at(0)))
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"pragma user_version = {SCHEMA + 1}")
    with pytest.raises(InputError, match="newer traceread"):
        append(path, entry_of(at(1)))


def test_a_job_has_to_be_named_where_there_are_several(tmp_path):
    history(tmp_path, at(0), job="a")
    history(tmp_path, at(0), job="b")
    with pytest.raises(SelectionError) as raised:
        read(tmp_path / "runs.db")
    assert raised.value.hint == "jobs there are: a, b"
    with pytest.raises(InputError, match="there is no history"):
        read(tmp_path / "none.db")


# --- many writers --------------------------------------------------------------------------------------------------------------------

WRITER = """
import sys
sys.path[:0] = [{tests!r}, {root!r}]
from comparing import side
from pathlib import Path
from traceread.history import append, entry_of
writer, count = int(sys.argv[2]), int(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
for i in range(count):
    append(Path(sys.argv[1]), entry_of(side([100 + writer, 101 + i]), f"job {{writer}}", str(i)))
    print(i, flush=True)
"""


def writer(path, number, count):
    code = WRITER.format(tests=str(HERE), root=str(HERE.parent))
    return subprocess.Popen(
        [sys.executable, "-c", code, str(path), str(number), str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def begin(writers):
    """Starts all writers at once."""
    for w in writers:
        assert w.stdout.readline() == "ready\n"
    for w in writers:
        w.stdin.write("go\n")
        w.stdin.flush()


def sound(path):
    with closing(sqlite3.connect(path)) as db:
        return db.execute("pragma integrity_check").fetchall() == [("ok",)]


def test_eight_processes_at_once_lose_nothing(tmp_path):
    path = tmp_path / "runs.db"
    writers = [writer(path, n, 12) for n in range(8)]
    begin(writers)
    for w in writers:
        w.communicate(timeout=100)
    assert [w.returncode for w in writers] == [0] * 8
    assert jobs_in(path) == {f"job {n}": 12 for n in range(8)}
    assert sound(path)


def test_killed_writers_leave_it_intact(tmp_path):
    path = tmp_path / "runs.db"
    numbers = random.Random(3)
    writers = [writer(path, n, 100_000) for n in range(4)]
    begin(writers)
    done = {}
    for n, w in enumerate(writers):
        w.stdout.readline()
        time.sleep(numbers.uniform(0.02, 0.1))
        os.kill(w.pid, signal.SIGKILL)
        done[n] = 1 + w.stdout.read().count("\n")
        assert w.wait(60) == -signal.SIGKILL
        w.stdin.close()
        w.stdout.close()
    assert sound(path)
    found = jobs_in(path)
    for n, count in done.items():
        assert count <= found[f"job {n}"] <= count + 1  # killed after the row was written and before it said so
    assert append(path, entry_of(at(0)))
    assert len(read(path, "toy").entries) == 1
    for n in range(4):
        assert [e.commit for e in read(path, f"job {n}").entries] == [str(i) for i in range(found[f"job {n}"])]


# --- the four questions ----------------------------------------------------------------------------------------------------------------


def test_the_first_report_answers_nothing(tmp_path):
    found = history(tmp_path, at(0))
    assert found.baseline == ()
    assert found.alerts == ()
    assert answer(found, "step").text == "Not known: this is the first report."


def test_slower_than_its_own_first_measurements(tmp_path):
    found = history(tmp_path, *(at(d) for d in range(4)), *(at(d, 104 * MS) for d in (4, 5)))
    assert len(found.baseline) == 3
    assert answer(found, "step").alert
    assert answer(found, "step").text.startswith("Yes: 104 ms a step now, +4.0 % against 100 ms, the median of the first 3")


def test_not_slower_within_what_the_first_ones_scatter(tmp_path):
    found = history(tmp_path, at(0, 100 * MS), at(1, 106 * MS), at(2, 112 * MS), *(at(d, 112 * MS) for d in range(3, 6)))
    assert not answer(found, "step").alert  # the median of the first is 106, and they scatter by as much


def test_a_steady_rise_is_seen_before_it_is_large(tmp_path):
    found = history(tmp_path, *(at(d, 100 * MS + d * MS // 4) for d in range(12)))
    assert found.last.median_ns < 103 * MS
    assert answer(found, "step").alert
    assert "it grows by 0.25 % from report to report" in answer(found, "step").text


def test_a_job_that_scatters_around_its_level_raises_nothing(tmp_path):
    numbers = random.Random(1)
    found = history(tmp_path, *(at(d, 100 * MS + numbers.randint(-MS, MS)) for d in range(12)))
    assert found.alerts == ()


def test_another_workload_begins_anew(tmp_path):
    larger = merged({**RUN}, {"global_batch_sequences": 128})
    found = history(tmp_path, *(at(d) for d in range(4)), at(5, 200 * MS, run=larger))
    assert found.baseline == ()
    assert "4 reports before had another workload" in answer(found, "step").text


def test_mfu_down_at_equal_step_time(tmp_path):
    smaller = merged({**RUN}, {"global_batch_sequences": 32})
    found = history(tmp_path, *(at(d, mfu=0.40) for d in range(4)), at(5, mfu=0.20, run=smaller))
    assert answer(found, "mfu").alert
    assert answer(found, "mfu").text == (
        "Yes: MFU 20.0 % now, 40.0 % at first; a step takes 100 ms, 100 ms at first."
        " The batch or the sequence changed, or the number of GPUs."
    )


def test_mfu_down_because_the_step_grew(tmp_path):
    found = history(tmp_path, *(at(d, mfu=0.40) for d in range(4)), at(5, 120 * MS, mfu=0.33))
    assert answer(found, "mfu").alert
    assert answer(found, "mfu").text.startswith("Down, and the step changed too")
    assert "Not known" in answer(history(tmp_path, at(0), job="other"), "mfu").text


def slow_rank(day, rank, length):
    """Four ranks of which one takes longer itself; the others wait for it."""
    value = report([length, length], ranks=4, profile={"base_ns": str(START + day * DAY)}, efficiency={"run": RUN})
    for w in value["partition"]:
        if w["rank"] != rank:
            wait = length - 100 * MS
            w["classes"] |= {"compute": 100 * MS, "exposed_communication": wait}
            w["exposed_wait"] = wait
    return side_of_dict(value)


def test_one_rank_is_named_although_all_steps_are_equally_long(tmp_path):
    found = history(tmp_path, *(slow_rank(d, 2, 101 * MS) for d in range(4)), *(slow_rank(d, 2, 130 * MS) for d in range(4, 7)))
    skew = answer(found, "skew")
    assert skew.alert
    assert skew.text.startswith(
        "One rank: the slowest rank takes 1.300 × the median one, 1.010 × at first; it is rank 2 in each of the last 3"
    )
    assert found.last.rank_ns == {0: 100 * MS, 1: 100 * MS, 2: 130 * MS, 3: 100 * MS}


def test_flat_ranks(tmp_path):
    assert answer(history(tmp_path, at(0), at(1)), "skew").text == (
        "Flat: the slowest rank takes 1.000 × the median one, 1.000 × at first."
    )
    assert "one rank was loaded" in answer(history(tmp_path, at(0, ranks=1), job="single"), "skew").text


def test_recorded_clocks(tmp_path):
    runs = [{**RUN, "stack": {"sm_clock_mhz": 1980, "power_limit_w": 700}}] * 3 + [
        {**RUN, "stack": {"sm_clock_mhz": 1410, "power_limit_w": 700}}
    ]
    found = answer(history(tmp_path, *(at(d, run=r) for d, r in enumerate(runs))), "clocks")
    assert found.alert
    assert "sm_clock_mhz 1410, 1980 at first" in found.text
    assert "power_limit_w 700," in found.text


def test_kernels_tell_of_clocks_that_were_not_recorded(tmp_path):
    found = answer(history(tmp_path, *(at(d) for d in range(4)), at(5, gemm=1_080_000)), "clocks")
    assert found.alert
    assert "matrix products take 8.0 % longer a launch against the first reports, as they would at a lower clock" in found.text
    held = answer(history(tmp_path, *(at(d) for d in range(4)), job="held"), "clocks")
    assert not held.alert
    assert "clocks are not recorded; matrix products take as long as at first" in held.text


@pytest.mark.parametrize(
    ("values", "slope", "steady"),
    [
        ([100, 101, 102, 103, 104, 105], 0.01, True),
        ([105, 104, 103, 102, 101, 100], -1 / 105, True),
        ([100, 104, 99, 103, 98, 102], None, False),
        ([100] * 8, 0.0, False),
        ([100, 101, 102, 103, 104, 500], None, True),  # one outlier moves no median of slopes
    ],
)
def test_trends(values, slope, steady):
    found = trend_of(values)
    assert found.steady is steady
    if slope is not None:
        assert found.slope == pytest.approx(slope)
    assert abs(found.slope) < 0.02


def test_few_reports_are_no_trend():
    assert trend_of([1, 2, 3, 4, 5]) is None


# --- how it is shown -------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def slower(tmp_path):
    return history(tmp_path, *(at(d, mfu=0.4) for d in range(4)), at(5, 110 * MS, mfu=0.36))


def test_a_history_shows_itself(slower):
    assert repr(slower) == "<History toy, 5 reports>"
    assert list(slower.to_frame()["median_ns"])[-1] == 110 * MS
    assert "Look at the step time and MFU" in slower._repr_html_()
    json.dumps(slower.to_dict())
    assert len(slower.plot().data) == 3


@pytest.mark.parametrize("format_", ["text", "markdown", "html"])
def test_questions_are_answered_in_every_format(slower, format_):
    text = render_history(slower, format_)
    for a in slower.answers:
        assert a.text.split(":")[0] in text
    assert "baseline" in text


def test_csv_has_a_row_per_report(slower):
    assert len(render_history(slower, "csv").splitlines()) == 6


def test_long_histories_are_cut(tmp_path):
    found = history(tmp_path, *(at(d) for d in range(25)))
    table = history_document(found).blocks[-1]
    assert len(table.rows) == 20
    assert table.note == "and 5 earlier reports: --json has them"


def test_prometheus_reads_the_latest_report(slower):
    text = exposition([slower])
    lines = text.splitlines()
    assert text.endswith("\n")
    assert 'traceread_step_seconds{job="toy",stat="median"} 0.11' in lines
    assert 'traceread_step_first_seconds{job="toy"} 0.1' in lines
    assert 'traceread_mfu_ratio{job="toy"} 0.36' in lines
    assert 'traceread_alert{job="toy",question="step"} 1.0' in lines
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    for line in lines:
        if not line.startswith("#"):
            assert line.split("{")[0] in names
            float(line.rsplit(" ", 1)[1])


def test_job_names_cannot_break_a_line(tmp_path):
    found = history(tmp_path, at(0), job='a"b\nc\\')
    assert r'{job="a\"b\nc\\",stat="median"}' in exposition([found])


def test_rules_are_about_metrics_that_are_written(slower):
    import re

    written = {line.split("{")[0] for line in exposition([slower]).splitlines() if not line.startswith("#")}
    asked = set(re.findall(r"(?<![\w:])traceread_\w+", RULES))
    assert asked <= written
    recorded = set(re.findall(r"record: (\S+)", RULES))
    assert set(re.findall(r"job:traceread_\w+:\w+", RULES)) == recorded
    assert {"job:traceread_mfu:ratio_to_first", "job:traceread_skew:ratio_to_first"} <= recorded


# --- trackers ----------------------------------------------------------------------------------------------------------------------------


def simulated():
    import traceread

    return traceread.analyze(HERE.parent / "sample_traces" / "llama7b" / "after-nsys")


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    """The real client, with a store of files that belongs to the test alone."""
    mlflow = pytest.importorskip("mlflow", reason="mlflow is not installed: pip install -e '.[test]'")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    yield mlflow
    mlflow.set_tracking_uri(before)


def test_mlflow_keeps_a_report_in_a_local_store(mlflow, tmp_path):
    from traceread.history.mlflow import log_report

    found = simulated()
    run = mlflow.MlflowClient().get_run(log_report(found, step=7))
    assert run.data.metrics["traceread/step_median_ms"] == found.summary.median_ns / 1e6
    assert run.data.tags["traceread.gpu"] == "NVIDIA H100 80GB HBM3"
    assert run.info.status == "FINISHED"
    [line] = (tmp_path / "mlruns" / "0" / run.info.run_id / "metrics" / "traceread" / "step_median_ms").read_text().splitlines()
    assert (float(line.split()[1]), line.split()[2]) == (found.summary.median_ns / 1e6, "7")
    [saved] = tmp_path.rglob("report.json")
    assert json.loads(saved.read_text("utf-8"))["summary"]["step_ns"]["median"] == found.summary.median_ns
    with mlflow.start_run() as active:
        assert log_report(found) == active.info.run_id


def whole_run(directory):
    log = Writer(directory, run="seven", gpus=8).start(described={"price_per_gpu_hour": 2.0}).interval(10, 1_000, S, loss=3.0)
    log.interval(10, 1_000, S, loss=2.5, grad_norm="nan").interval(10, 1_000, 2 * S, loss=2.0).aside("eval", S, metrics={"loss": 2.0})
    [run] = read_runs([directory]).runs
    return run


def test_mlflow_keeps_a_whole_run_with_tokens_as_the_step(mlflow, tmp_path):
    from traceread.history.mlflow import log_run

    run = whole_run(tmp_path / "run")
    client = mlflow.MlflowClient()
    kept = client.get_run(log_run(run))
    assert kept.info.run_name == "seven"
    assert kept.data.metrics["traceread/run/goodput"] == pytest.approx(4 / 5)
    assert kept.data.metrics["traceread/run/cost_per_evaluation"] == pytest.approx(5 * 8 / 3600 * 2)
    assert "traceread/run/mfu" not in kept.data.metrics, "not known, not zero"
    loss = client.get_metric_history(kept.info.run_id, "traceread/interval/loss")
    assert [(m.step, m.value) for m in loss] == [(1_000, 3.0), (2_000, 2.5), (3_000, 2.0)]
    rates = client.get_metric_history(kept.info.run_id, "traceread/interval/tokens_per_s")
    assert [(m.step, m.value) for m in rates] == [(2_000, 125.0), (3_000, 62.5)], "the first interval is warm-up"
    assert client.get_metric_history(kept.info.run_id, "traceread/interval/grad_norm")[0].value != 0
    with mlflow.start_run() as active:
        assert log_run(run) == active.info.run_id


def test_the_command_logs_runs(mlflow, tmp_path, capsys):
    whole_run(tmp_path / "run")
    assert main(["runs", str(tmp_path / "run"), "--log-to", "mlflow"]) == 0
    [run] = mlflow.search_runs(output_format="list")
    assert run.data.tags["traceread.run"] == "seven"
    assert "seven" in capsys.readouterr().out


def test_a_tracker_that_cannot_be_reached_says_so(tmp_path, monkeypatch, capsys):
    def refuse(run):
        raise ConnectionError("connection refused")

    monkeypatch.setattr("traceread.history.mlflow.log_run", refuse)
    whole_run(tmp_path)
    assert main(["runs", str(tmp_path), "--log-to", "mlflow"]) == 1
    assert "mlflow did not take the runs: connection refused" in capsys.readouterr().err


class Wandb:
    """As much of wandb as is used."""

    run = None

    class Html:
        def __init__(self, text):
            self.text = text


class Run:
    def __init__(self):
        self.logged, self.axes = [], {}
        self.config, self.summary = self, Summary()

    def log(self, values, step=None):
        self.logged.append((step, values))

    def update(self, values, allow_val_change):
        assert allow_val_change
        self.values = values

    def define_metric(self, name, step_metric=None):
        self.axes[name] = step_metric


class Summary(dict):
    pass


def test_wandb_gets_numbers_texts_and_the_page(monkeypatch):
    from traceread.history.wandb import log_report

    monkeypatch.setitem(sys.modules, "wandb", Wandb)
    with pytest.raises(MissingData, match="no W&B run is active"):
        log_report(simulated())
    run = Run()
    log_report(simulated(), run, step=3)
    [(step, values)] = run.logged
    assert step == 3
    assert values["traceread/class/compute_ms"] > 2800
    assert "<html" in values["traceread/report"].text
    assert run.values["traceread.source"] == "nsys"


def test_wandb_gets_a_whole_run_over_its_tokens(monkeypatch, tmp_path):
    from traceread.history.wandb import log_run

    monkeypatch.setitem(sys.modules, "wandb", Wandb)
    run = Run()
    log_run(whole_run(tmp_path), run)
    assert run.axes["traceread/interval/*"] == "traceread/tokens"
    assert [(v["traceread/tokens"], v.get("traceread/interval/tokens_per_s")) for _, v in run.logged] == [
        (1_000, None),
        (2_000, 125.0),
        (3_000, 62.5),
    ]
    assert run.summary["traceread/run/goodput"] == pytest.approx(4 / 5)
    assert run.values["traceread.run"] == "seven"


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_tracker_that_is_not_installed_says_what_to_install(name, monkeypatch):
    from importlib import import_module

    log_report = import_module(f"traceread.history.{name}").log_report
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingData) as raised:
        log_report(simulated())
    assert raised.value.hint == f'pip install "traceread[{name}]"'
