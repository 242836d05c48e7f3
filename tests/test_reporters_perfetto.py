"""The annotated capture, parsed back: recorded events as they were, tracks that say what the report says, everything on one clock."""

import gzip
import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import reporter_profiles as profiles

import traceread
from traceread.errors import MissingData
from traceread.measurements.classes import CLASSES, Reason, StepClass
from traceread.reporters.perfetto import export_perfetto
from traceread.reporters.perfetto.document import Clocks
from traceread.simulate import Capture, scenarios, simulate, write_run

MARGIN_NS = 10**9
US = Decimal(1000)


def written(folder, scenario="straggler-data", ranks=3, steps=3, **capture):
    write_run(simulate(scenarios()[scenario], ranks=ranks, steps=steps), folder, Capture(**capture), truth=False)
    return folder


@pytest.fixture(scope="module")
def kineto(tmp_path_factory):
    return written(tmp_path_factory.mktemp("kineto"))


@pytest.fixture(scope="module")
def nsys(tmp_path_factory):
    return written(tmp_path_factory.mktemp("nsys"), format="nsys")


def parsed(path):
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return json.loads(text, parse_float=Decimal)


def exported(folder, path, profile=None, **more):
    report = traceread.analyze(profile if profile is not None else folder)
    return report, parsed(export_perfetto(report, path, profile, **more))["traceEvents"]


def ours(events, pid_name="steps and findings"):
    """Events made here, by rank and track."""
    process = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    track = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found = {}
    for e in events:
        if e.get("cat") == "traceread":
            rank = int(process[e["pid"]].removeprefix("rank ").split(":")[0])
            found.setdefault((rank, track[e["pid"], e["tid"]]), []).append(e)
    return found


def ns(value):
    return int(Decimal(value) * US)


def original(folder, rank):
    return json.loads(gzip.decompress((folder / f"rank{rank}.pt.trace.json.gz").read_bytes()), parse_float=Decimal)


def test_recorded_events_are_copied_with_everything_they_hold(kineto, tmp_path):
    _, events = exported(kineto, tmp_path / "a.json.gz")
    copied = [e for e in events if e.get("cat") != "traceread" and e["ph"] != "M"]
    there = [e for rank in (0, 1, 2) for e in original(kineto, rank)["traceEvents"] if e["ph"] != "M"]
    assert len(copied) == len(there) > 1000
    assert Counter((e["ph"], e["name"], e.get("dur"), str(e.get("args"))) for e in copied) == Counter(
        (e["ph"], e["name"], e.get("dur"), str(e.get("args"))) for e in there
    )


def test_times_are_exact_and_count_from_a_second_before_the_first_row(kineto, tmp_path):
    report, events = exported(kineto, tmp_path / "a.json")
    base = original(kineto, 0)["baseTimeNanoseconds"]
    start = min(r.first_ns for r in report.ranks) - MARGIN_NS
    there = sorted(ns(e["ts"]) + base - start for e in original(kineto, 0)["traceEvents"] if e["ph"] == "X")
    of_rank_0 = [e for e in events if e["ph"] == "X" and e.get("cat") != "traceread"]
    copied = Counter(ns(e["ts"]) for e in of_rank_0)
    assert not Counter(there) - copied


def test_no_process_or_flow_is_shared_by_two_ranks(kineto, tmp_path):
    _, events = exported(kineto, tmp_path / "a.json")
    names = {}
    for e in events:
        if e["name"] == "process_name":
            names.setdefault(e["pid"], set()).add(e["args"]["name"].split(":")[0])
    assert all(len(found) == 1 for found in names.values())
    flows = {(e["id"], e["ph"]): e["pid"] for e in events if e["ph"] in "sf"}
    ranks_of = {pid: next(iter(found)) for pid, found in names.items()}
    for (flow, phase), pid in flows.items():
        if phase == "f" and (flow, "s") in flows:
            assert ranks_of[pid] == ranks_of[flows[flow, "s"]]
    assert {flow.split(".")[0] for flow, _ in flows} == {"0", "1", "2"}


def test_processes_stand_in_order_of_rank(kineto, tmp_path):
    _, events = exported(kineto, tmp_path / "a.json")
    order = {e["pid"]: e["args"]["sort_index"] for e in events if e["name"] == "process_sort_index"}
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    ranks = [int(names[pid].removeprefix("rank ").split(":")[0]) for pid in sorted(order, key=order.get)]
    assert ranks == sorted(ranks)
    assert names[min(order, key=order.get)] == "rank 0: steps and findings"


@pytest.mark.parametrize("source", ["kineto", "nsys"])
def test_classes_of_the_tracks_add_up_to_the_partition(source, request, tmp_path):
    profile = traceread.load(request.getfixturevalue(source))
    report, events = exported(None, tmp_path / "a.json", profile)
    tracks = ours(events)
    for r in report.ranks:
        total = Counter()
        for e in tracks[r.rank, "class"]:
            total[e["name"]] += e["args"]["duration_ns"]
            assert ns(e["dur"]) == e["args"]["duration_ns"]
        wanted = dict(zip((c.title for c in StepClass), r.partition.class_ns.sum(axis=0).tolist(), strict=True))
        assert total == {name: time for name, time in wanted.items() if time}
        idle = Counter()
        for e in tracks[r.rank, "idle cause"]:
            idle[e["args"]["class"]] += e["args"]["duration_ns"]
        assert idle == {c.key: wanted[c.title] for c in StepClass if c > StepClass.EXPOSED_COPY and wanted[c.title]}
        assert [e["name"] for e in tracks[r.rank, "steps"]] == [w.label for w in r.steps.windows]
        first = tracks[r.rank, "steps"][1]["args"]
        assert sum(first["class_ns"].values()) == first["duration_ns"]
        assert set(first["class_ns"]) <= set(CLASSES)


def test_idle_events_say_why(kineto, tmp_path):
    _, events = exported(kineto, tmp_path / "a.json")
    longest = max(ours(events)[2, "idle cause"], key=lambda e: e["args"]["duration_ns"])
    assert longest["name"] == "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    assert longest["args"]["evidence"] == "recorded"
    assert longest["args"]["reason"] == Reason.HOST_BLOCKED.text


def test_every_finding_has_a_track_where_its_evidence_is(kineto, tmp_path):
    report, events = exported(kineto, tmp_path / "a.json")
    tracks = ours(events)
    assert report.findings
    for number, finding in enumerate(report.findings, 1):
        places = [e for (_, name), es in tracks.items() if name == f"fix {number}: {finding.title}" for e in es]
        assert len(places) == len(finding.evidence)
        assert places[0]["args"]["rule"] == finding.rule


@pytest.mark.parametrize("scenario", ["healthy", "item-sync", "first-launch-recorded"])
def test_an_exported_rank_reads_back_as_the_same(scenario, tmp_path):
    folder = written(tmp_path / "in", scenario, ranks=1)
    report, _ = exported(folder, tmp_path / "a.json.gz")
    again = traceread.analyze(tmp_path / "a.json.gz")
    assert again.ranks[0].counts == report.ranks[0].counts
    assert again.ranks[0].partition.class_ns.tolist() == report.ranks[0].partition.class_ns.tolist()
    assert again.ranks[0].kernels == report.ranks[0].kernels


def test_an_exported_nsys_rank_reads_back_as_a_pytorch_trace(tmp_path):
    folder = written(tmp_path / "in", "item-sync", ranks=1, format="nsys")
    profile = traceread.load(folder)
    report, _ = exported(None, tmp_path / "a.json.gz", profile)
    again = traceread.analyze(tmp_path / "a.json.gz")
    assert again.source == "kineto"
    assert again.ranks[0].counts["activities"] == report.ranks[0].counts["activities"]
    assert again.ranks[0].partition.class_ns.tolist() == report.ranks[0].partition.class_ns.tolist()


def test_nsys_events_come_from_the_tables(nsys, tmp_path):
    profile = traceread.load(nsys)
    _, events = exported(None, tmp_path / "a.json", profile)
    recorded = [e for e in events if e["ph"] == "X" and e.get("cat") != "traceread"]
    assert len(recorded) == sum(len(t.activities) + len(t.calls) + len(t.ranges) for t in profile)
    kernel = next(e for e in recorded if e["cat"] == "kernel")
    assert kernel["args"]["correlation"] > 0
    starts, ends = ({e["id"]: e for e in events if e["ph"] == phase} for phase in "sf")
    assert starts.keys() == ends.keys()
    assert all(starts[i]["ts"] <= ends[i]["ts"] for i in starts)
    with pytest.raises(MissingData):
        export_perfetto(traceread.analyze(profile), tmp_path / "b.json")


def test_clocks_of_the_ranks_are_aligned(tmp_path):
    folder = written(tmp_path / "in", "two-hosts", ranks=4)
    report, events = exported(folder, tmp_path / "a.json")
    assert max(abs(line.clock.offset_ns) for line in report.rank_table.lines) > 3_000_000
    clocks = Clocks(report)
    ends = []
    for r in report.ranks:
        used = [w.end_ns for w, keep in zip(r.steps.windows, r.steps.used, strict=True) if keep]
        ends.append(clocks.shifted(r.rank, np.array(used)).tolist())
    assert max(max(times) - min(times) for times in zip(*ends, strict=True)) < 1_000_000
    tracks = ours(events)
    for r, times in zip(report.ranks, ends, strict=True):
        shown = {e["name"]: ns(e["ts"]) + ns(e["dur"]) for e in tracks[r.rank, "steps"]}
        assert [shown[r.steps.windows[i].label] for i in r.used_rows()] == times


def test_an_export_can_be_cut_to_the_used_steps(kineto, tmp_path):
    whole_report, whole = exported(kineto, tmp_path / "a.json")
    number = whole_report.ranks[0].steps.windows[1].number
    report = traceread.analyze(kineto, steps=f"{number}:{number + 1}")
    events = parsed(export_perfetto(report, tmp_path / "b.json", only_used=True))["traceEvents"]
    assert 0.2 < len(events) / len(whole) < 0.7
    tracks = ours(events)
    assert [e["args"]["used"] for e in tracks[0, "steps"]] == [True]
    window = report.ranks[0].steps.windows[1]
    assert sum(e["args"]["duration_ns"] for e in tracks[0, "class"]) == window.duration_ns


def test_damaged_events_and_strange_names_are_copied_as_far_as_they_can_be_read(tmp_path):
    rows = [
        '{"ph":"X","cat":"cpu_op","name":"aten::<script>\\ud800","pid":1,"tid":1,"ts":1000.5,"dur":2}',
        '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1001,"dur":5,"args":{"stream":7,"device":0,"correlation":3}}',
        '{"ph":"X","cat":"cuda_runtime","name":"say "hi"","pid":1,"tid":1,"ts":1000.5,"dur":0.25,"args":{"correlation":3}}',
        '{"ph":"i","name":"Record Window End","pid":"","tid":"","ts":1010,"s":"g"}',
        '{"ph":"i","name":"long before","pid":1,"tid":1,"ts":-9999999,"s":"g"}',
    ]
    (tmp_path / "in.json").write_text('{"traceEvents":[' + ",\n".join(rows) + "]}")
    report = traceread.analyze(tmp_path / "in.json")
    document = parsed(export_perfetto(report, tmp_path / "a.json"))
    names = {e["name"]: e for e in document["traceEvents"]}
    assert ns(names["k"]["ts"]) - ns(names["aten::<script>\ud800"]["ts"]) == 500
    assert names["say "]["args"] if "say " in names else names['say "hi"']["args"]
    assert "Record Window End" in names
    assert document["otherData"]["events_before_the_capture_left_out"] == 1


def test_hostile_reports_are_exported(tmp_path):
    report = profiles.hostile()
    trace = replace(report, source="nsys")
    profile = traceread.Profile("nsys", "x", (profiles.build_rank(0),))
    assert parsed(export_perfetto(trace, tmp_path / "a.json", profile))["traceEvents"]


def test_without_gpu_work_the_recorded_events_remain(tmp_path):
    (tmp_path / "in.json").write_text('{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":5,"dur":2}]}')
    report, events = exported(tmp_path / "in.json", tmp_path / "a.json")
    assert report.summary is None
    assert [e["name"] for e in events if e["ph"] == "X"] == ["aten::mm"]


@pytest.mark.skipif(not (Path(__file__).parents[2] / "shared" / "traces").exists(), reason="the real traces are not here")
@pytest.mark.parametrize("name", ["b200_eager_8rank_job", "h100_qwen", "torch18_list_form", "mi300_resnet_ddp"])
def test_real_traces_read_back_as_the_same(name, tmp_path):
    report, _ = exported(Path(__file__).parents[2] / "shared" / "traces" / "kineto" / f"{name}.json.gz", tmp_path / "a.json.gz")
    again = traceread.analyze(tmp_path / "a.json.gz")
    assert again.ranks[0].partition.class_ns.tolist() == report.ranks[0].partition.class_ns.tolist()
