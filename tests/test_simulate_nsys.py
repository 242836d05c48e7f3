import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from traceread.simulate import Capture, scenarios, simulate, write_run
from traceread.simulate.nsys_schema import SYNC_TYPES, VERSIONS, tables

REAL = Path(__file__).parents[2] / "shared" / "traces" / "nsys"
SCENARIOS = scenarios()
SAME_SCHEMA = {"old": ["old_2021_no_meta.sqlite"], "new": ["fsdp_2gpu_before.sqlite", "fsdp_2gpu_after.sqlite"]}
NO_STREAM = 4_294_967_295


def write(tmp_path: Path, capture: Capture, name: str = "item-sync", **changes: int) -> list[Path]:
    return write_run(simulate(SCENARIOS[name], **({"steps": 2} | changes)), tmp_path, capture, counterfactuals=False)


def query(path: Path, sql: str) -> list[tuple]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        return db.execute(sql).fetchall()


def layout(path: Path) -> dict[str, dict[str, tuple]]:
    """Type, NOT NULL and primary key of every column of every table."""
    names = [n for (n,) in query(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {n: {row[1]: (row[2], row[3], row[5]) for row in query(path, f"PRAGMA table_info({n})")} for n in names}


@pytest.mark.parametrize(("version", "file"), [(v, f) for v, files in SAME_SCHEMA.items() for f in files])
def test_columns_are_those_of_real_exports_of_the_schema(version, file, tmp_path):
    real_path = REAL / file
    if not real_path.exists():
        pytest.skip("the real traces are not here")
    real = layout(real_path)
    mine = layout(write(tmp_path, Capture("nsys", schema=version, files="job"), name="cuda-graph")[0])
    shared = set(mine) & set(real)
    assert len(shared) >= 12
    for table in shared:
        assert mine[table] == real[table], table


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_can_be_written_and_has_its_own_tables(version, tmp_path):
    (path,) = write(tmp_path, Capture("nsys", schema=version, files="job"))
    found = set(layout(path))
    assert found <= set(tables(version))
    assert ("META_DATA_EXPORT" in found) is (version != "old")
    assert ("TARGET_INFO_CUDA_DEVICE" in found) is (version == "new")
    assert ("TARGET_INFO_CUDA_NULL_STREAM" in found) is (version == "old")
    assert "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" not in found  # tables without rows are not made
    kernel = layout(path)["CUPTI_ACTIVITY_KIND_KERNEL"]
    assert ("mangledName" in kernel, "clusterX" in kernel) == {"old": (False, False), "middle": (True, False), "new": (True, True)}[version]


def test_rows_are_the_same_in_every_version(tmp_path):
    sql = 'SELECT start, "end", streamId, correlationId, globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY 1, 3'
    rows = [query(write(tmp_path / v, Capture("nsys", schema=v, files="job"))[0], sql) for v in VERSIONS]
    assert rows[0] == rows[1] == rows[2]
    assert len(rows[0]) > 500


@pytest.mark.parametrize("version", VERSIONS)
def test_sync_types_are_those_of_the_exporter(version, tmp_path):
    (path,) = write(tmp_path, Capture("nsys", schema=version, files="job"))
    names = {"cudaStreamSynchronize": "stream", "cudaStreamWaitEvent": "wait", "cudaDeviceSynchronize": "device"}
    rows = query(
        path,
        "SELECT s.value, y.syncType, y.start - r.start, r.end - y.end, y.streamId FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION y "
        "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = y.correlationId AND r.globalTid / 16777216 = y.globalPid / 16777216 "
        "JOIN StringIds s ON s.id = r.nameId",
    )
    assert {row[0].split("_")[0] for row in rows} == set(names)
    for name, kind, head, tail, stream in rows:
        kind_name = names[name.split("_")[0]]
        assert kind == SYNC_TYPES[version][kind_name]
        assert head > 0
        assert tail > 0  # the row is shorter than the call
        assert (stream == NO_STREAM) is (kind_name == "device")


def test_two_processes_in_one_file(tmp_path):
    (path,) = write(tmp_path, Capture("nsys", files="job"))
    pids = query(path, "SELECT DISTINCT globalPid, deviceId, contextId FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY 1")
    assert [p[1:] for p in pids] == [(0, 1), (1, 2)]
    assert all(p[0] >> 48 == 1 for p in pids)  # the vm byte
    assert all(p[0] & 0xFFFFFF == 0 for p in pids)
    collisions = query(
        path,
        "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME a JOIN CUPTI_ACTIVITY_KIND_RUNTIME b ON a.correlationId = b.correlationId "
        "AND a.globalTid >> 24 < b.globalTid >> 24",
    )
    assert collisions[0][0] > 100
    assert query(path, "SELECT DISTINCT streamId FROM CUPTI_ACTIVITY_KIND_MEMCPY ORDER BY 1") == [(7,), (15,)]


def test_the_autograd_thread_launches(tmp_path):
    (path,) = write(tmp_path, Capture("nsys", files="job"))
    threads = query(
        path,
        "SELECT s.value, count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN ThreadNames t USING (globalTid) "
        "JOIN StringIds s ON s.id = t.nameId GROUP BY 1",
    )
    assert dict(threads)["pt_autograd_0"] > 100


def test_peculiarities_of_real_exports(tmp_path):
    (path,) = write(tmp_path, Capture("nsys", files="job"), name="capture-cut", steps=4)
    domains = query(path, 'SELECT text, start, "end" FROM NVTX_EVENTS WHERE eventType = 75')
    assert all(name == "NCCL" and start < 0 and end is None for name, start, end in domains)
    registered = query(path, "SELECT count(*), sum(text IS NULL), sum(binaryData IS NULL) FROM NVTX_EVENTS WHERE textId IS NOT NULL")
    assert registered[0][0] == registered[0][1] == registered[0][2] > 0
    assert query(path, 'SELECT count(*) FROM NVTX_EVENTS WHERE eventType = 59 AND "end" IS NULL')[0][0] == 2  # ranges still open at the end
    assert query(path, 'SELECT count(*) FROM OSRT_API WHERE eventClass = 31 AND start = "end"')[0][0] == 2
    assert query(path, "SELECT min(start) FROM CUPTI_ACTIVITY_KIND_KERNEL")[0][0] > 100_000_000_000
    assert query(path, "SELECT count(*) FROM PROCESSES")[0][0] > 100
    assert query(path, "SELECT count(*) FROM TARGET_INFO_GPU WHERE id != cuDevice")[0][0] == 2
    assert query(path, "SELECT count(*) FROM PROFILER_OVERHEAD JOIN StringIds ON id = nameId WHERE value LIKE 'dlopen%'")[0][0] == 2
    assert query(path, "SELECT count(*) FROM DIAGNOSTIC_EVENT WHERE severity = 2")[0][0] == 1
    orphans = query(
        path,
        "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL k WHERE NOT EXISTS (SELECT 1 FROM CUPTI_ACTIVITY_KIND_RUNTIME r "
        "WHERE r.correlationId = k.correlationId AND r.globalTid >> 24 = k.globalPid >> 24)",
    )
    assert orphans[0][0] > 0
    assert query(path, "SELECT count(*) FROM NVTX_PAYLOAD_SCHEMAS GROUP BY schemaId") == [(2,)]
    (old,) = write(tmp_path / "old", Capture("nsys", schema="old", files="job"))
    assert query(old, "SELECT DISTINCT uuid FROM TARGET_INFO_GPU") == [("00000000-0000-0000-0000-000000000000",)]


def test_graphs_as_nodes_and_as_one(tmp_path):
    nodes = write(tmp_path / "node", Capture("nsys", graphs="node"), name="cuda-graph")[0]
    count, launches = query(
        nodes, "SELECT count(*), count(DISTINCT correlationId) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NOT NULL"
    )[0]
    assert count > 20 * launches > 0
    assert "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" not in layout(nodes)
    whole = write(tmp_path / "graph", Capture("nsys", graphs="graph"), name="cuda-graph")[0]
    traced = query(whole, 'SELECT correlationId, start, "end" FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE')
    assert query(whole, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NOT NULL")[0][0] == 0
    hull = {
        c: (s, e)
        for c, s, e in query(
            nodes, 'SELECT correlationId, min(start), max("end") FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE graphNodeId IS NOT NULL GROUP BY 1'
        )
    }
    assert {c: (s, e) for c, s, e in traced} == hull


def test_files_per_rank_host_and_job(tmp_path):
    names = {}
    for files in ("rank", "host", "job"):
        names[files] = [p.name for p in write(tmp_path / files, Capture("nsys", files=files), name="two-hosts")]
    assert names["rank"] == [f"report_rank{r}.sqlite" for r in range(4)]
    assert names["host"] == names["job"] == ["report_node-0.sqlite", "report_node-1.sqlite"]  # no export holds two machines


def test_peculiarities_on_request(tmp_path):
    odd = Capture("nsys", oddities=frozenset({"bad-text", "user-columns", "data-loss"}))
    path = write(tmp_path / "odd", odd)[0]
    with pytest.raises(sqlite3.OperationalError, match="UTF-8"):
        query(path, "SELECT value FROM META_DATA_EXPORT")
    assert "myNote" in layout(path)["CUPTI_ACTIVITY_KIND_KERNEL"]
    assert query(path, "SELECT count(*) FROM DIAGNOSTIC_EVENT WHERE text LIKE 'Not all CUDA%'")[0][0] == 1
    aborted = write(tmp_path / "aborted", Capture("nsys", oddities=frozenset({"aborted"})))[0]
    assert set(layout(aborted)) == {"StringIds", "ProcessStreams"}


def test_operators_stand_as_emit_nvtx_writes_them(tmp_path):
    path = write(tmp_path, Capture("nsys"))[0]
    texts = [t for (t,) in query(path, "SELECT text FROM NVTX_EVENTS WHERE domainId = 0 AND text IS NOT NULL")]
    assert any(t.startswith("aten::mm, seq = ") and ", op_id = " in t for t in texts)
    assert any(t.startswith("aten::item, op_id = ") for t in texts)
    assert "ProfilerStep#3" in texts
