"""The ranks of a job together: critical rank, partial and wrong mixes, real jobs, tables, documents and the command."""

import contextlib
import csv
import gzip
import io
import json
import pickle
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from job import MS, REAL, US, coarse, simulated

import traceread
from traceread.cli import main
from traceread.measurements.blame import Cause
from traceread.measurements.classes import StepClass
from traceread.measurements.ranks import compare_ranks
from traceread.report import LEAST_WAITING, LONGEST_STEP
from traceread.reporters.losses import exposed_split
from traceread.simulate import Capture, Job, phases, scenarios, simulate, write_run

SCHEMAS = Path(__file__).parents[1] / "docs" / "json-schema"
SAMPLES = Path(__file__).parents[1] / "sample_traces"


def analyze(*paths):
    return traceread.analyze(*paths)


@pytest.fixture(scope="module")
def late(tmp_path_factory):
    """The captures of a job whose rank 2 waits for data."""
    directory = tmp_path_factory.mktemp("late")
    write_run(simulate(scenarios()["straggler-data"], ranks=4, steps=4), directory, Capture(), counterfactuals=False, truth=False)
    return directory


@pytest.fixture(scope="module")
def even(tmp_path_factory):
    """The captures of a healthy job of the same kind."""
    directory = tmp_path_factory.mktemp("even")
    write_run(simulate(scenarios()["healthy"], ranks=4, steps=4), directory, Capture(), counterfactuals=False, truth=False)
    return directory


@pytest.fixture(scope="module")
def report(late):
    return analyze(late)


def mixed(to, **files):
    """A directory with these captures: rank0=directory takes rank 0 from there."""
    for rank, of in files.items():
        name = f"{rank}.pt.trace.json.gz"
        shutil.copy(of / name, to / name)
    return to


# --- the critical rank --------------------------------------------------------------------------------------------------


def test_the_critical_rank_waits_least(report):
    summary = report.summary
    assert (summary.critical_rank, summary.critical_by) == (2, LEAST_WAITING)
    waits = {line.rank: line.wait_ns for line in report.rank_table.lines}
    assert min(waits, key=waits.get) == 2
    parts = summary.exposed_wait_ns + summary.exposed_transfer_ns + summary.exposed_not_split_ns
    assert parts == summary.class_ns[StepClass.EXPOSED_COMMUNICATION]


def test_one_rank_is_critical_by_its_steps(late):
    summary = analyze(late / "rank1.pt.trace.json.gz").summary
    assert (summary.critical_rank, summary.critical_by) == (1, LONGEST_STEP)
    assert (summary.exposed_wait_ns, summary.exposed_transfer_ns) == (0, 0)
    assert summary.exposed_not_split_ns == summary.class_ns[StepClass.EXPOSED_COMMUNICATION]


def test_a_partition_does_not_depend_on_which_other_ranks_are_loaded(report, late):
    alone = analyze(late / "rank1.pt.trace.json.gz")
    together = [row for row in report.partition.to_dict() if row["rank"] == 1]
    assert [row["classes"] for row in alone.partition.to_dict()] == [row["classes"] for row in together]
    assert [row["exposed_wait"] for row in alone.partition.to_dict()] == [None] * len(together)
    for row in together:
        assert row["exposed_wait"] + row["exposed_transfer"] + row["exposed_not_split"] == row["classes"]["exposed_communication"]


def test_lost_time_adds_up_to_causes(report):
    table = report.rank_table
    assert sum(ns for *_, ns in table.lost) == table.waiting_ns == sum(line.wait_ns for line in table.lines)
    assert sum(line.charged_ns for line in table.lines) == sum(ns for late, _, ns in table.lost if late is not None)
    assert all(sum(ns for _, ns in line.causes) == line.charged_ns for line in table.lines)


def test_skew_compares_steps_without_waiting(report):
    longest, middle = report.rank_table.skew
    assert longest / middle > 1.3
    assert report.summary.skew[0] / report.summary.skew[1] < 1.01  # with waiting all ranks are alike


# --- size ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("job", "ranks", "nodes", "steps"), [("straggler-compute", 64, 8, 2), ("two-hosts", 8, 8, 6)])
def test_jobs_of_many_ranks(job, ranks, nodes, steps):
    table = simulated(coarse(job), ranks=ranks, nodes=nodes, steps=steps)[0].rank_table
    assert len(table.lines) == ranks
    assert table.comparable
    assert table.notices == ()
    if job == "two-hosts":
        assert table.straggler is None
    else:
        assert (table.straggler.rank, table.straggler.cause) == (2, Cause.COMPUTE)


def test_captures_that_end_within_a_step():
    report, truth = simulated("capture-cut", ranks=4)
    table = report.rank_table
    assert table.split_count >= 0.6 * len(table.waiting.split)
    true = {(row["rank"], row["start_ns"]): row["wait_ns"] for row in truth["collectives"]}
    ranks = np.array([line.rank for line in table.lines])[table.matches.rank_of]
    for rank, start, split, wait in zip(
        ranks.tolist(), table.matches.column("start_ns").tolist(), table.waiting.split, table.waiting.wait_ns.tolist(), strict=True
    ):
        if split == 0:
            assert abs(true[rank, start] - wait) <= table.clocks.residual_ns


def rewritten(path, change):
    """Changes the JSON of a capture in place."""
    value = json.loads(gzip.decompress(path.read_bytes()))
    change(value)
    path.write_bytes(gzip.compress(json.dumps(value).encode()))


def test_captures_of_different_steps(late, report, tmp_path):
    """Rank 1 begins two steps later: what is left is matched, the rest counted, and who is late stays so."""

    def cut(value):
        [begin] = [e["ts"] for e in value["traceEvents"] if e.get("name") == "ProfilerStep#5" and e.get("cat") == "user_annotation"]
        value["traceEvents"] = [e for e in value["traceEvents"] if "ts" not in e or e["ph"] == "M" or e["ts"] >= begin]

    mixed(tmp_path, rank0=late, rank1=late, rank2=late, rank3=late)
    rewritten(tmp_path / "rank1.pt.trace.json.gz", cut)
    table = analyze(tmp_path).rank_table
    assert len(table.matches.ranks[1].collectives) < len(table.matches.ranks[0].collectives)
    whole = report.rank_table
    true = dict(
        zip(zip(whole.matches.rank_of.tolist(), whole.matches.column("start_ns").tolist(), strict=True), whole.matches.meeting, strict=True)
    )
    found = [true[key] for key in zip(table.matches.rank_of.tolist(), table.matches.column("start_ns").tolist(), strict=True)]
    pairs = {(a, b) for a, b in zip(found, table.matches.meeting.tolist(), strict=True)}
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)  # the same operations are one
    assert (table.straggler.rank, table.straggler.cause) == (2, Cause.DATA_WAIT)


# --- wrong mixes --------------------------------------------------------------------------------------------------------


def slugs(report):
    return {notice.slug for notice in report.rank_table.notices}


def test_a_missing_rank_makes_waiting_a_lower_bound(late, tmp_path):
    report = analyze(mixed(tmp_path, rank0=late, rank1=late, rank3=late))
    table = report.rank_table
    assert all(line.lower_bound for line in table.lines)
    assert report.summary.waiting_is_lower_bound
    assert table.straggler is None
    assert "4" in text(["ranks", str(tmp_path)])


def test_ranks_of_two_jobs_are_said_to_be_incomparable(late, even, tmp_path):
    report = analyze(mixed(tmp_path, rank0=late, rank1=late, rank2=even, rank3=even))
    assert "clocks-not-comparable" in slugs(report)
    assert report.summary.critical_by == LONGEST_STEP
    assert report.rank_table.clocks.reference == (0, 0, 2, 2)


def test_one_rank_twice_is_refused_with_the_files(late, tmp_path):
    mixed(tmp_path, rank0=late, rank1=late)
    shutil.copy(late / "rank1.pt.trace.json.gz", tmp_path / "again.pt.trace.json.gz")
    with pytest.raises(traceread.TracereadError, match=r"rank 1.*again"):
        analyze(tmp_path)


def test_captures_of_different_hours_are_said_to_be_apart(late, tmp_path):
    mixed(tmp_path, rank0=late, rank1=late, rank2=late, rank3=late)
    for rank in (2, 3):
        rewritten(
            tmp_path / f"rank{rank}.pt.trace.json.gz", lambda v: v.update(baseTimeNanoseconds=v["baseTimeNanoseconds"] + 3600 * 10**9)
        )
    assert "captures-apart" in slugs(analyze(tmp_path))


# --- real ---------------------------------------------------------------------------------------------------------------


def real(name):
    found = sorted(REAL.glob(f"*/{name}*"))
    if not found:
        pytest.skip("real traces are not here")
    return analyze(found[0])


def test_dlrm():
    report = real("dlrm_8rank")
    table = report.rank_table
    assert (report.summary.critical_rank, report.summary.critical_by) == (7, LEAST_WAITING)
    assert [line.last for line in table.lines] == [0, 0, 0, 0, 1, 2, 0, 5]
    longest = table.waits[0]
    assert (longest.first, longest.last, longest.operation.key) == (1, 7, "all_to_all")
    assert abs(longest.wait_ns - 7_600 * US) < 50 * US
    assert [cause for _, cause, _ in longest.causes] == [Cause.UNEXPLAINED]  # nothing of that group before it is in the capture


@pytest.mark.parametrize(("name", "count", "split"), [("fsdp_2gpu_before", 33, 32), ("fsdp_2gpu_after", 31, 30)])
def test_fsdp_exports_hold_two_ranks_that_meet(name, count, split):
    table = real(name).rank_table
    assert len(table.lines) == 2
    assert len(table.waiting.split) == 2 * count
    assert table.split_count == 2 * split
    assert {o.operation.key for o in table.operations} == {"all_to_all", "send_recv"}


@pytest.mark.parametrize("name", ["mi300_resnet_ddp", "ddp_nccl_metadata", "b200_eager_8rank_job"])
def test_one_rank_of_a_job_says_communication_or_waiting(name, capsys):
    report = real(name)
    table = report.rank_table
    assert (table.straggler, table.waiting_ns, table.comparable) == (None, 0, False)
    assert table.operations
    assert report.summary.exposed_not_split_ns == report.summary.class_ns[StepClass.EXPOSED_COMMUNICATION]
    path = sorted(REAL.glob(f"*/{name}*"))[0]
    assert "whether it moves data or waits for other ranks one rank cannot tell" in " ".join(text(["ranks", str(path)]).split())
    assert "one rank alone cannot tell" in " ".join(text(["report", str(path)]).split())


# --- what comes out -----------------------------------------------------------------------------------------------------


def text(arguments):
    """What the command prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(arguments) == 0
    return out.getvalue()


def test_where_some_is_not_split_causes_stand_in_their_own_table_alone():
    paths = sorted(REAL.glob("*/fsdp_2gpu_before*"))
    if not paths:
        pytest.skip("the real capture is not here")
    shown = text(["ranks", str(paths[0])])
    assert "not split" in shown
    assert "late because of" not in shown
    assert "all-to-all (group not recorded) in whole capture: rank 0 waits" in " ".join(shown.split())
    assert " rank 1  launch-bound " in shown


def test_hardly_any_waiting_is_not_at_least_hardly_any():
    said = " ".join(text(["ranks", str(SAMPLES / "llama7b" / "before-kineto")]).split())
    assert "The 4 ranks spend < 0.1 % of their steps waiting" in said


def test_the_command_names_the_straggler_and_why(late):
    shown = text(["ranks", str(late)])
    assert "rank 2" in shown
    assert "data" in shown
    assert "DataLoader" in shown


def test_json_follows_its_schema(late, even, tmp_path):
    schema = json.loads((SCHEMAS / "ranks.schema.json").read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    report_schema = json.loads((SCHEMAS / "report.schema.json").read_text("utf-8"))
    assert schema["properties"]["profile"] == report_schema["properties"]["profile"]
    one = str(late / "rank0.pt.trace.json.gz")
    for arguments in ([str(late)], [one], [str(late), "--link", "450", "--against", str(even)]):
        value = json.loads(text(["ranks", *arguments, "-f", "json"]))
        assert [f"{list(e.absolute_path)}: {e.message}" for e in validator.iter_errors(value)] == []


def test_json_of_the_late_job(late):
    value = json.loads(text(["ranks", str(late), "-f", "json"]))
    assert value["straggler"]["rank"] == 2
    assert value["straggler"]["cause"] == "data_wait"
    assert value["lost_ns"] == sum(part["duration_ns"] for part in value["lost"])
    assert [line["rank"] for line in value["ranks"]] == [0, 1, 2, 3]


def test_tables_as_csv(late, report):
    rows = list(csv.DictReader(io.StringIO(text(["ranks", str(late), "-f", "csv"]))))
    assert len(rows) == sum(len(report.rank_table.windows(r)) for r in range(4))
    assert sum(int(row["exposed_wait_ns"]) for row in rows if row["used"] in ("True", "true", "1")) == report.rank_table.waiting_ns
    rows = list(csv.DictReader(io.StringIO(text(["ranks", str(late), "-f", "csv", "--collectives"]))))
    assert len(rows) == len(report.rank_table.waiting.split)
    assert {row["waited_for_rank"] for row in rows if int(row["wait_ns"]) > MS} == {"2"}


def test_frames(report):
    frame = report.rank_table.to_frame()
    assert frame[frame.used].exposed_wait_ns.sum() == report.rank_table.waiting_ns
    collectives = report.rank_table.collectives_frame()
    assert (collectives.wait_ns + collectives.transfer_ns == collectives.end_ns - collectives.start_ns)[collectives.split == "split"].all()


def test_other_world_sizes_stand_beside(late, tmp_path):
    smaller = tmp_path / "two"
    write_run(simulate(scenarios()["healthy"], ranks=2, steps=4), smaller, Capture(), counterfactuals=False, truth=False)
    value = json.loads(text(["ranks", str(late), "--against", str(smaller), "-f", "json"]))
    assert [entry["world_size"] for entry in value["against"]] == [4, 2]
    assert value["against"][0]["exposed_ns"] > value["against"][1]["exposed_ns"]


@pytest.mark.parametrize("link", ["0", "fast", "-3"])
def test_a_link_has_a_rate(late, link, capsys):
    assert main(["ranks", str(late), "--link", link]) == 2
    assert "GB per second" in capsys.readouterr().err


@pytest.mark.parametrize("format_", ["markdown", "html"])
def test_documents(late, format_, tmp_path):
    out = tmp_path / "out"
    main(["ranks", str(late), "-f", format_, "-o", str(out)])
    shown = out.read_text("utf-8")
    assert "rank 2" in shown


def test_figures_show_who_waits_and_who_is_late(report):
    from traceread.figures.ranks import plot_arrivals, plot_waiting

    table = report.rank_table
    (heatmap,) = table.plot().data
    waiting = {name: np.mean(row) for name, row in zip(heatmap.y, heatmap.z, strict=True)}
    assert min(waiting, key=waiting.get) == "rank 2"
    assert "rank 2 is late" in plot_waiting(table).layout.title.text
    latest = {trace.name: np.median(trace.y) for trace in plot_arrivals(table, dark=True).data}
    assert max(latest, key=latest.get) == "rank 2"


def test_what_crosses_processes_is_pickled(report):
    facts = [rank.facts for rank in report.ranks]
    again = compare_ranks([pickle.loads(pickle.dumps(f)) for f in facts])
    assert again.to_dict() == report.rank_table.to_dict()
    assert pickle.loads(pickle.dumps(again)).to_dict() == again.to_dict()


def test_no_ranks_and_no_collectives():
    assert compare_ranks([]).to_dict()["ranks"] == []
    table = simulated(Job("silent", "", (phases.Compute(12, 100 * US),), ranks=2, steps=3))[0].rank_table
    assert (table.operations, table.waits, table.straggler) == ((), (), None)


def test_a_job_of_one_rank_waits_for_nobody(tmp_path):
    write_run(simulate(scenarios()["healthy"], ranks=1, steps=3), tmp_path, Capture(), counterfactuals=False, truth=False)
    summary = analyze(tmp_path).summary
    assert (summary.exposed_wait_ns, summary.exposed_not_split_ns) == (0, 0)
    assert summary.exposed_transfer_ns == summary.class_ns[StepClass.EXPOSED_COMMUNICATION] > 0
    assert "waits for no other" in text(["ranks", str(tmp_path)])
    assert exposed_split(summary).endswith("no other rank to wait for")
