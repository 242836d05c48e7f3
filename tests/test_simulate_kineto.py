import gzip
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from traceread.simulate import Capture, scenarios, simulate, write_run

REAL = Path(__file__).parents[2] / "shared" / "traces" / "kineto"
SCENARIOS = scenarios()
WHOLE_MICROSECONDS = ("us", "2021")


def text_of(tmp_path: Path, capture: Capture, name: str = "healthy", **changes: int) -> str:
    tick = 1000 if capture.era in WHOLE_MICROSECONDS else 1
    path = write_run(simulate(SCENARIOS[name], tick=tick, **({"steps": 2} | changes)), tmp_path, capture, counterfactuals=False)[0]
    return gzip.decompress(path.read_bytes()).decode() if capture.compress else path.read_text()


def events_of(text: str) -> list[dict]:
    document = json.loads(text)
    return document if isinstance(document, list) else document["traceEvents"]


def fields(events: list[dict]) -> dict[tuple, dict[str, set[str]]]:
    """Types of the fields of every kind of event."""
    found: dict[tuple, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for event in events:
        kind = (event["ph"], event.get("cat") or event["name"])
        if event["name"] == "record_param_comms" or (kind[1] == "kernel" and "nccl" in event["name"]):
            kind = (*kind, "collective")
        for key, value in event.items():
            if key != "args":
                found[kind][key].add(type(value).__name__)
        for key, value in event.get("args", {}).items():
            found[kind]["args." + key].add(type(value).__name__)
    return found


# A kind of event may hold, beyond what the real trace has, what younger writers added (Seq, 2026) or what stands on ops of the
# autograd thread, where the real one was launched from another.
BEYOND = {"args.Seq", "args.Rank", "args.Sequence number", "args.Fwd thread id"}
PAIRS = {
    "b200_eager_8rank_job": Capture(shapes=True, stacks=True),
    "ddp_nccl_metadata": Capture(),
    "dlrm_8rank/rank0": Capture(era="us", shapes=True, collectives=False),
    "torch18_list_form": Capture(era="2021"),
    "mi300_resnet_ddp": Capture(vendor="amd", shapes=True, stacks=True),
    "cuda_sync_multi_stream": Capture(era="us", sync_events=True),
    "resnet_v100_ns_epoch": Capture(era="ns-epoch", collectives=False),
}


@pytest.mark.parametrize("name", PAIRS)
def test_every_field_stands_in_a_real_trace_of_the_kind(name, tmp_path):
    path = REAL / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("the real traces are not here")
    real = fields(events_of(gzip.decompress(path.read_bytes()).decode()))
    mine = fields(events_of(text_of(tmp_path, PAIRS[name])))
    shared = [kind for kind in mine if kind in real]
    assert len(shared) >= 6
    for kind in shared:
        for field, types in mine[kind].items():
            if field in BEYOND:
                continue
            assert field in real[kind], (kind, field)
            known = real[kind][field] | ({"NoneType"} if field == "args.Python parent id" else set())
            assert types <= known, (kind, field, types)


@pytest.mark.parametrize("name", ["b200_eager_8rank_job", "mi300_resnet_ddp", "dlrm_8rank/rank0"])
def test_the_document_has_the_keys_of_a_real_one(name, tmp_path):
    path = REAL / f"{name}.json.gz"
    if not path.exists():
        pytest.skip("the real traces are not here")
    real = json.loads(gzip.decompress(path.read_bytes()))
    mine = json.loads(text_of(tmp_path, PAIRS[name]))
    switches = {"record_shapes", "with_stack"}  # written where they are on
    assert set(mine) - switches == set(real) - switches
    assert set(mine["deviceProperties"][0]) == set(real["deviceProperties"][0])


def test_times_of_today_are_relative_with_three_decimals(tmp_path):
    text = text_of(tmp_path, Capture(compress=False))
    times = re.findall(r'"(?:ts|dur)": (\S+?)[,\n]', text)
    assert all(re.fullmatch(r"\d+\.\d{3}", t) for t in times)
    assert json.loads(text)["baseTimeNanoseconds"] % 7_889_238_000_000_000 == 0


def test_times_of_spring_2024_are_absolute_with_three_decimals(tmp_path):
    text = text_of(tmp_path, Capture(era="ns-epoch", compress=False))
    assert re.search(r'"ts": 17\d{14}\.\d{3},', text)
    assert "baseTimeNanoseconds" not in text
    assert json.loads(text)["displayTimeUnit"] == "ns"


@pytest.mark.parametrize("era", WHOLE_MICROSECONDS)
def test_older_times_are_whole_microseconds_since_the_epoch(era, tmp_path):
    text = text_of(tmp_path, Capture(era=era, compress=False))
    times = re.findall(r'"ts": (\S+?)[,\n]', text)
    assert all(re.fullmatch(r"17\d{14}", t) for t in times)


def test_the_list_form_of_2021(tmp_path):
    events = json.loads(text_of(tmp_path, Capture(era="2021")))
    assert isinstance(events, list)
    categories = {e["cat"] for e in events if e["ph"] == "X"}
    assert categories == {"Operator", "Kernel", "Memcpy", "Memset", "Runtime", "Trace"}
    assert {e["tid"] for e in events if e.get("cat") == "Kernel"} <= {"stream 7", "stream 19"}


def test_amd_traces_link_kernels_through_their_launch(tmp_path):
    events = events_of(text_of(tmp_path, Capture(vendor="amd"), name="pageable-copies"))
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert {e["pid"] for e in kernels} == {2}
    assert all("External id" not in e["args"] for e in kernels)
    assert "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)" in {e["name"] for e in kernels}
    launches = {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime"}
    linked = [launches[e["args"]["correlation"]] for e in kernels if e["args"]["correlation"] in launches]
    assert len(linked) > 100
    assert all("External id" in e["args"] and e["name"].startswith("hip") for e in linked)
    copies = [
        launches[e["args"]["correlation"]]["name"] for e in events if e.get("cat") == "gpu_memcpy" and e["args"]["correlation"] in launches
    ]
    assert set(copies) == {"hipMemcpyWithStream"}


def test_launches_and_activities_share_correlation_ids_that_collide_between_ranks(tmp_path):
    run = simulate(SCENARIOS["healthy"], steps=2)
    paths = write_run(run, tmp_path, Capture(), counterfactuals=False)
    ids = []
    for path in paths:
        events = events_of(gzip.decompress(path.read_bytes()).decode())
        calls = {e["args"]["correlation"] for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver")}
        activities = {e["args"]["correlation"] for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")}
        assert len(calls & activities) > 200
        assert activities - calls  # launched before the capture
        ids.append(calls)
    assert ids[0] & ids[1]


def test_collective_metadata_stands_on_op_and_kernel(tmp_path):
    events = events_of(text_of(tmp_path, Capture(), name="straggler-sync"))
    ops = [e["args"] for e in events if e["name"] == "record_param_comms"]
    kernels = [e["args"] for e in events if e.get("cat") == "kernel" and "nccl" in e["name"] and "External id" in e["args"]]
    assert ops[0]["Collective name"] == "allreduce"
    assert ops[0]["Process Group Ranks"] == "[0, 1, 2, 3]"
    assert [a["Seq"] for a in ops] == sorted({a["Seq"] for a in ops})
    assert {a["External id"] for a in kernels} <= {a["External id"] for a in ops}
    assert kernels[0]["In msg nelems"] == ops[0]["In msg nelems"] == 25_000_000
    bare = events_of(text_of(tmp_path, Capture(collectives=False), name="straggler-sync"))
    assert not any("Collective name" in e.get("args", {}) for e in bare)


def test_frames_are_nested_and_only_there_with_stacks(tmp_path):
    assert "python_function" not in text_of(tmp_path, Capture())
    frames = [e for e in events_of(text_of(tmp_path, Capture(stacks=True), name="item-sync")) if e.get("cat") == "python_function"]
    by_id = {e["args"]["Python id"]: e for e in frames}
    assert "train.py(88): log_loss" in {e["name"] for e in frames}
    for frame in frames:
        parent = by_id.get(frame["args"]["Python parent id"])
        if parent is not None:
            assert parent["ts"] <= frame["ts"] <= parent["ts"] + parent["dur"]


def test_ids_of_two_kinds_of_arrows_collide(tmp_path):
    events = events_of(text_of(tmp_path, Capture(), steps=6))
    arrows = defaultdict(set)
    for e in events:
        if e["ph"] == "s":
            arrows[e["cat"]].add(e["id"])
    assert arrows["ac2g"]
    assert arrows["fwdbwd"]
    assert len(arrows["fwdbwd"]) > 50
