"""What is read about collective operations: arguments of kernels, record_param_comms, annotations, NCCL's ranges and payloads."""

import sqlite3
import struct
from collections import Counter
from pathlib import Path

import pytest
from kineto_builder import MAIN, Kineto, two_steps
from nsys_builder import MIDDLE, NEW, OLD, NsysExport

from traceread.model import ELEMENT_BYTES, Capability, Operation, ProcessGroup
from traceread.readers import kineto, nsys
from traceread.readers.operation_names import operation_named, operation_of_range, peers_of_range
from traceread.readers.options import ReadOptions
from traceread.readers.windows import joined

REAL = Path(__file__).parents[2] / "shared" / "traces"
DTYPES = list(ELEMENT_BYTES)
DEFAULT = {"Process Group Name": "0", "Process Group Description": "default_pg", "Group size": 4, "Process Group Ranks": "[0, 1, 2, 3]"}


def capture(rank=1, **more):
    k = two_steps()
    k.top |= {"distributedInfo": {"rank": rank, "world_size": 4, **more}}
    return k


def arguments(name, **more):
    return DEFAULT | {"Collective name": name, "dtype": "BFloat16", "In msg nelems": 1024, "Out msg nelems": 1024} | more


def read(k, tmp_path, **how):
    (trace,) = kineto.read(k.write(tmp_path / "trace.json", **how), ReadOptions())
    return trace


def rows(trace):
    """The records as dicts, columns that are not recorded left out."""
    table = trace.collective_records
    columns = {name: values.tolist() for name, values in table.columns()}
    found = [{name: values[i] for name, values in columns.items() if values[i] != -1} for i in range(len(table))]
    for row in found:
        row["operation"] = Operation(row["operation"])
        row["dtype"] = DTYPES[row["dtype"]]
    return found


def row(trace, operation):
    (found,) = [r for r in rows(trace) if r["operation"] is operation]
    return found


# --- PyTorch ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["kineto", "compact", "indent", "shuffled"])
def test_kernels_and_host_events_carry_arguments(tmp_path, layout):
    k = capture()
    told = arguments("_allgather_base", **{"Out msg nelems": 4096, "Seq": 7})
    k.op("record_param_comms", 600_000, 9_000, **told)
    k.kernel("ncclDevKernel_AllGather_RING_LL(...)", 650_000, 40_000, correlation=77, stream=20, **told)
    trace = read(k, tmp_path, layout=layout)
    shared = {"operation": Operation.ALL_GATHER, "group": 0, "sequence": 7, "dtype": "BFloat16", "elements_in": 1024, "elements_out": 4096}
    t = k.base_ns
    host, kernel = [r for r in rows(trace) if r["operation"] is Operation.ALL_GATHER]
    assert host == shared | {"start_ns": t + 600_000, "end_ns": t + 609_000, "thread": host["thread"]}
    assert trace.threads[host["thread"]].tid == MAIN
    assert kernel == shared | {"start_ns": t + 650_000, "end_ns": t + 690_000, "correlation": 77}
    assert trace.groups[0] == ProcessGroup("0", "default_pg", (0, 1, 2, 3), 4)
    assert Capability.COLLECTIVES in trace.recorded


@pytest.mark.parametrize("compiled", [True, False])
def test_an_operator_that_names_a_collective_counts_once(compiled, tmp_path):
    k = capture()
    k.op("aten::mm", 600_000, 9_000, **arguments("allreduce"), **{"Input Dims": [[64, 32], [32, 16]], "Input type": ["float", "float"]})
    k.op("aten::add", 700_000, 1_000)  # the last event is not read by the scanner
    (trace,) = kineto.read(k.write(tmp_path / "trace.json"), ReadOptions(compiled=compiled))
    assert [r["start_ns"] - k.base_ns for r in rows(trace) if r.get("elements_in") == 1024] == [600_000]
    assert (trace.matrix_ops.start_ns - k.base_ns).tolist().count(600_000) == 1


def test_a_wait_moves_nothing(tmp_path):
    k = capture()
    k.op("record_param_comms", 600_000, 9_000, **arguments("wait"))
    assert [r["operation"] for r in rows(read(k, tmp_path))] == [Operation.ALL_REDUCE] * 2  # those of the builder


@pytest.mark.parametrize("name", ["nccl:all_reduce", "rccl:all_reduce", "xccl:all_reduce"])
def test_annotations_name_the_operation_where_nothing_else_does(tmp_path, name):
    k = Kineto()
    k.labels()
    k.complete("user_annotation", name, 600_000, 9_000, pid=4000, tid=MAIN, **{"Input Dims": [[3, 5]], "Input type": ["float"]})
    (found,) = rows(read(k, tmp_path))
    assert (found["operation"], found["elements_in"], found["dtype"]) == (Operation.ALL_REDUCE, 15, "Float")
    assert "group" not in found


def test_annotations_are_left_out_where_arguments_say_more(tmp_path):
    k = capture()
    k.annotation("nccl:all_to_all", 590_000, 30_000)
    k.op("record_param_comms", 600_000, 9_000, **arguments("all_to_all"))
    assert "elements_in" in row(read(k, tmp_path), Operation.ALL_TO_ALL)


def test_operations_on_symmetric_memory_are_named_by_their_op(tmp_path):
    k = capture()
    k.op("symm_mem::one_shot_all_reduce", 600_000, 9_000)
    assert sum(r["operation"] is Operation.ALL_REDUCE for r in rows(read(k, tmp_path))) == 3


def test_a_group_whose_list_is_cut_is_known_from_start_and_stride(tmp_path):
    k = capture()
    cut = {"Process Group Name": "5", "Process Group Ranks": "[1, 9, 17, ..., 249]", "Group size": 32}
    k.op("record_param_comms", 600_000, 9_000, **arguments("broadcast", **cut, **{"Global rank start": 1, "Global rank stride": 8}))
    k.op("record_param_comms", 620_000, 9_000, **arguments("reduce", **cut | {"Process Group Name": "6"}))
    trace = read(k, tmp_path)
    by_name = {g.name: g for g in trace.groups}
    assert by_name["5"].ranks == tuple(range(1, 257, 8))
    assert (by_name["6"].ranks, by_name["6"].size) == ((), 32)


def test_ranks_of_a_group_are_taken_from_the_configuration_where_the_event_has_none(tmp_path):
    k = capture(pg_config=[{"pg_name": "3", "pg_desc": "mesh_tp", "ranks": [1, 3]}])
    k.op("record_param_comms", 600_000, 9_000, **{"Collective name": "broadcast", "Process Group Name": "3", "Group size": 2})
    trace = read(k, tmp_path)
    assert trace.groups[row(trace, Operation.BROADCAST)["group"]].ranks == (1, 3)


@pytest.mark.parametrize(("ranks", "root"), [("[0, 1, 2, 3]", 2), ("[4, 6, 8, 10]", 8), ("", 2)])
def test_the_root_is_a_position_in_the_group(tmp_path, ranks, root):
    k = capture()
    k.op("record_param_comms", 600_000, 9_000, **arguments("broadcast", Rank=2, **{"Process Group Ranks": ranks, "Group size": 4}))
    assert row(read(k, tmp_path), Operation.BROADCAST)["root"] == root


def test_an_operation_without_root_has_none(tmp_path):
    k = capture()
    k.op("record_param_comms", 600_000, 9_000, **arguments("_allgather_base", Rank=2))
    assert "root" not in row(read(k, tmp_path), Operation.ALL_GATHER)


def test_sends_and_receives_know_both_ends(tmp_path):
    k = capture(rank=2)
    k.op("record_param_comms", 600_000, 9_000, **arguments("send", **{"Dst Rank": 3}))
    k.op("record_param_comms", 620_000, 9_000, **arguments("recv", **{"Src Rank": 1}))
    trace = read(k, tmp_path)
    assert [(row(trace, o)["source"], row(trace, o)["destination"]) for o in (Operation.SEND, Operation.RECV)] == [(2, 3), (1, 2)]


def test_annotations_of_sends_name_positions_in_the_group(tmp_path):
    k = capture()
    k.op("record_param_comms", 600_000, 9_000, **arguments("send"))
    assert "destination" not in row(read(k, tmp_path), Operation.SEND)
    k = Kineto()
    k.labels()
    k.annotation("nccl:send 0->1", 600_000, 9_000)
    k.annotation("nccl:recv 0<-1", 620_000, 9_000)
    trace = read(k, tmp_path)
    assert [(row(trace, o)["source"], row(trace, o)["destination"]) for o in (Operation.SEND, Operation.RECV)] == [(0, 1), (1, 0)]


def test_uneven_splits_are_kept_as_the_largest(tmp_path):
    k = capture()
    told = {"In split size": "[10, 20, 5, 1]", "Out split size": "[]"}
    k.op("record_param_comms", 600_000, 9_000, **arguments("all_to_allv", **told))
    found = row(read(k, tmp_path), Operation.ALL_TO_ALL)
    assert found["largest_in"] == 20
    assert "largest_out" not in found


@pytest.mark.parametrize(
    "told",
    [
        {"In msg nelems": "many"},
        {"In msg nelems": -3},
        {"In msg nelems": True},
        {"In msg nelems": 1 << 70},
        {"In msg nelems": [1]},
        {"dtype": 7, "In msg nelems": None},
        {"Process Group Ranks": {"a": 1}, "In msg nelems": None, "Group size": "x"},
        {"Seq": "seven", "In msg nelems": {}},
    ],
)
def test_nonsense_is_not_recorded(tmp_path, told):
    k = capture()
    k.op("record_param_comms", 600_000, 9_000, **arguments("broadcast", **told))
    found = row(read(k, tmp_path), Operation.BROADCAST)
    assert "elements_in" not in found
    assert found.get("sequence") is None


def test_a_name_in_another_event_is_no_collective(tmp_path):
    k = capture()
    k.python('train.py(3): "Collective name"', 600_000, 5_000)
    k.call('"nccl:all_gather"', 610_000, 5_000)
    assert [r["operation"] for r in rows(read(k, tmp_path))] == [Operation.ALL_REDUCE] * 2


def test_joined_captures_keep_their_groups_and_kernels(tmp_path):
    first, second = capture(), capture()
    second.base_ns += 10_000_000
    for k, group in ((first, "1"), (second, "2")):
        told = arguments("broadcast", **{"Process Group Name": group})
        k.kernel("ncclDevKernel_Broadcast_RING_LL(...)", 650_000, 40_000, correlation=77, stream=20, **told)
    traces = [kineto.read(k.write(tmp_path / f"{i}.json"), ReadOptions())[0] for i, k in enumerate((first, second))]
    both = joined(traces)
    found = [r for r in rows(both) if r["operation"] is Operation.BROADCAST]
    assert [both.groups[r["group"]].name for r in found] == ["1", "2"]
    assert found[0]["correlation"] != found[1]["correlation"]
    kernels = both.activities
    for record in found:
        assert record["correlation"] in kernels.correlation[kernels.start_ns == record["start_ns"]].tolist()


# --- names --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("allreduce", Operation.ALL_REDUCE),
        ("allreduce_coalesced", Operation.ALL_REDUCE),
        ("_allgather_base", Operation.ALL_GATHER),
        ("all_gather_into_tensor_coalesced", Operation.ALL_GATHER),
        ("_reduce_scatter_base", Operation.REDUCE_SCATTER),
        ("reduce_scatter", Operation.REDUCE_SCATTER),
        ("reduce", Operation.REDUCE),
        ("all_to_allv", Operation.ALL_TO_ALL),
        ("broadcast_oop", Operation.BROADCAST),
        ("gather", Operation.GATHER),
        ("scatter", Operation.SCATTER),
        ("barrier", Operation.BARRIER),
        ("all_reduce_barrier", Operation.BARRIER),
        ("send", Operation.SEND),
        ("recvAnySource", Operation.RECV),
        ("wait", Operation.UNKNOWN),
        ("init", Operation.UNKNOWN),
        ("", Operation.UNKNOWN),
    ],
)
def test_collective_names(name, operation):
    assert operation_named(name) is operation


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("ncclAllReduce", Operation.ALL_REDUCE),
        ("ncclAlltoAll", Operation.ALL_TO_ALL),
        ("ncclBcast", Operation.BROADCAST),
        ("ncclGroupStart", Operation.UNKNOWN),
        ("ncclCommInitRank", Operation.UNKNOWN),
        ("AllReduce", Operation.ALL_REDUCE),
        ("Reduce", Operation.UNKNOWN),
        ("nccl:_all_gather_base", Operation.ALL_GATHER),
        ("nccl:send 0->1", Operation.SEND),
        ("nccl:coalesced", Operation.UNKNOWN),
        ("all_reduce", Operation.UNKNOWN),
        ("my ncclAllReduce", Operation.UNKNOWN),
    ],
)
def test_range_names(name, operation):
    assert operation_of_range(name) is operation


def test_peers_in_names():
    assert peers_of_range("nccl:send 0->13") == (0, 13)
    assert peers_of_range("nccl:recv 0<-13") == (13, 0)
    assert peers_of_range("nccl:all_reduce") is None


# --- Nsight Systems -----------------------------------------------------------------------------------------------------

COMMUNICATOR = 0xDEAD_BEEF_0000_0001
SCHEMAS = {  # as NCCL registers them: field, entry type, offset
    1: (("NCCL communicator ID", 18, 0), ("No. of ranks", 5, 8), ("Rank", 5, 12)),
    2: (("NCCL communicator ID", 18, 0), ("Message size [bytes]", 22, 8)),
    3: (("NCCL communicator ID", 18, 0), ("Message size [bytes]", 22, 8), ("Root", 5, 16)),
    4: (("NCCL communicator ID", 18, 0), ("Message size [bytes]", 22, 8), ("Peer rank", 5, 16)),
}
FORMS = {5: "<i", 18: "<Q", 22: "<Q"}


def nsys_trace(tmp_path, ranges, schema=NEW):
    """An export with NCCL ranges (start, end, name, payload schema or 0, values) on one thread, read."""
    export = NsysExport().launch(0, 10_000, 90_000, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", correlation=1, stream=20)
    for start, end, name, _, _ in ranges:
        export.nvtx(start, end, name, domain=3)
    path = export.write(tmp_path / "a.sqlite", schema)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId INTEGER, type INTEGER, name TEXT, offset INTEGER)")
        entries = [(3, number, kind, name, offset) for number, fields in SCHEMAS.items() for name, kind, offset in fields]
        db.executemany("INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (?, ?, ?, ?, ?)", entries)
        for start, _, _, number, values in ranges:
            if number:
                db.execute("UPDATE NVTX_EVENTS SET binaryData = ? WHERE start = ?", (blob(number, values), start))
    db.close()
    (trace,) = nsys.read(path)
    return trace


def blob(number, values):
    body = b"".join(struct.pack(FORMS[kind], v) for (_, kind, _), v in zip(SCHEMAS[number], values, strict=True))
    return struct.pack("<4Q", 3, number, len(body), 32) + body


def test_nccl_ranges_with_payloads(tmp_path):
    trace = nsys_trace(
        tmp_path,
        [
            (100, 900, "ncclCommInitRank", 1, (COMMUNICATOR, 8, 2)),
            (1_000, 2_000, "ncclAllReduce", 2, (COMMUNICATOR, 4096)),
            (3_000, 4_000, "ncclBroadcast", 3, (COMMUNICATOR, 512, 5)),
            (5_000, 6_000, "ncclSend", 4, (COMMUNICATOR, 64, 7)),
            (7_000, 8_000, "ncclRecv", 4, (COMMUNICATOR, 32, 1)),
        ],
    )
    assert [(r["operation"].key, r["bytes"], r["group"]) for r in rows(trace)] == [
        ("all_reduce", 4096, 0),
        ("broadcast", 512, 0),
        ("send", 64, 0),
        ("recv", 32, 0),
    ]
    assert row(trace, Operation.BROADCAST)["root"] == 5
    assert row(trace, Operation.SEND)["destination"] == 7
    assert row(trace, Operation.RECV)["source"] == 1
    assert trace.groups == (ProcessGroup(f"{COMMUNICATOR:#018x}", size=8),)
    assert Capability.COLLECTIVES in trace.recorded


@pytest.mark.parametrize("schema", [OLD, MIDDLE, NEW])
def test_ranges_without_payloads_name_the_operation_alone(tmp_path, schema):
    export = NsysExport().launch(0, 10_000, 90_000, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", correlation=1, stream=20)
    export.nvtx(1_000, 2_000, "ncclAllReduce", domain=3).nvtx(3_000, 4_000, "step")
    (trace,) = nsys.read(export.write(tmp_path / "a.sqlite", schema))
    (found,) = rows(trace)
    assert found["operation"] is Operation.ALL_REDUCE
    assert not found.keys() & {"bytes", "group"}
    assert Capability.COLLECTIVES not in trace.recorded


@pytest.mark.parametrize("data", [b"", b"short", struct.pack("<4Q", 3, 2, 16, 32), struct.pack("<4Q", 9, 9, 16, 32) + bytes(16), "text"])
def test_damaged_payloads_are_not_recorded(tmp_path, data):
    export = NsysExport().launch(0, 10_000, 90_000, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", correlation=1, stream=20)
    path = export.nvtx(1_000, 2_000, "ncclAllReduce", domain=3).write(tmp_path / "a.sqlite", NEW)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId INTEGER, type INTEGER, name TEXT, offset INTEGER)")
        db.execute("INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (3, 2, 22, 'Message size [bytes]', 8)")
        db.execute("UPDATE NVTX_EVENTS SET binaryData = ?", (data,))
    db.close()
    (trace,) = nsys.read(path)
    (found,) = rows(trace)
    assert "bytes" not in found


# --- real ---------------------------------------------------------------------------------------------------------------


def real(name):
    found = sorted((REAL / "kineto").glob(f"{name}*"))
    if not found:
        pytest.skip("real traces are not here")
    return kineto.read(found[0], ReadOptions())[0]


@pytest.mark.parametrize(
    ("name", "counts", "dtypes", "group", "on_kernels"),
    [
        ("ddp_nccl_metadata", {"all_reduce": 30, "broadcast": 12}, {"Float", "Long"}, ("0", "default_pg", 2), 21),
        ("mi300_resnet_ddp", {"all_reduce": 12, "broadcast": 12}, {"BFloat16", "Long"}, ("0", "default_pg", 8), 12),
        ("b200_eager_8rank_job", {"all_reduce": 73, "all_gather": 2}, {"BFloat16"}, ("3", "", 8), 1),
    ],
)
def test_real_arguments(name, counts, dtypes, group, on_kernels):
    trace = real(name)
    found = rows(trace)
    assert Counter(r["operation"].key for r in found) == counts
    assert {r["dtype"] for r in found} <= dtypes
    assert all(r["elements_in"] > 0 for r in found)
    assert sum("correlation" in r for r in found) == on_kernels
    assert [(g.name, g.description, g.size, g.ranks) for g in trace.groups] == [(*group, tuple(range(group[2])))]
