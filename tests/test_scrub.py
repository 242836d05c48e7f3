"""Copies for others: what was planted in the original is nowhere in the copy, and both say the same."""

import gzip
import io
import json
import os
import re
import sqlite3
import zipfile
from collections import Counter
from pathlib import Path

import pytest
from kineto_builder import Kineto

from traceread.cli import main
from traceread.errors import CorruptTrace, InputError, OutputError, TracereadError
from traceread.model import RangeKind
from traceread.readers import kineto as kineto_reader
from traceread.readers import nsys as nsys_reader
from traceread.readers.nsys_collectives import only_known_fields
from traceread.readers.options import ReadOptions
from traceread.scrub import kineto as scrub_kineto
from traceread.scrub import nsys as scrub_nsys
from traceread.scrub import scrub
from traceread.scrub.texts import Texts
from traceread.simulate import Capture, scenarios, simulate, write_run

TRACES = Path(__file__).parents[2] / "shared" / "traces"
SECRET = "hunter2"  # every planted text holds it


# --- names ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [
        ("aten::mm", "aten::mm"),
        (
            "void at::native::(anonymous namespace)::k<float, (int)4>(a)/(b)",
            "void at::native::(anonymous namespace)::k<float, (int)4>(a)/(b)",
        ),
        ("## Call CompiledFxGraph fabc ##", "## Call CompiledFxGraph fabc ##"),
        ("forward/backward 1 / 2 GB/s 3/4", "forward/backward 1 / 2 GB/s 3/4"),
        ("step 12.5.1", "step 12.5.1"),
        ("<frozen importlib._bootstrap>(241): _call", "<frozen importlib._bootstrap>(241): _call"),
        ("torch/nn/modules/module.py(1501): _call_impl", "torch/nn/modules/module.py(1501): _call_impl"),
        ("/opt/conda/lib/python3.11/site-packages/torch/nn/m.py(1): f", "torch/nn/m.py(1): f"),
        ("/opt/conda/lib/python3.11/site-packages/numpy/a.py(1): f", "site-packages/numpy/a.py(1): f"),
        ("/usr/lib/python3.11/threading.py(9): run", "lib/python3.11/threading.py(9): run"),
        ("/home/hunter2/project/train.py(41): step", "dir-1/train.py(41): step"),
        ("/home/hunter2/my project/train.py(41): step", "dir-1/train.py(41): step"),
        ("C:/Users/hunter2/My Documents/train.py(41): step", "dir-1/train.py(41): step"),
        ("../../hunter2/train.py:41 step", "dir-1/train.py:41 step"),
        ("load /data/hunter2/shard-0001.bin", "load path-1"),
        ("load '/data/hunter2/a b/c.bin', then", "load 'path-1', then"),
        (r"read C:\Users\hunter2\x.bin", "read path-1"),
        (r"read \\hunter2\share\x.bin", "read path-1"),
        ("cc -I/home/hunter2/include -O2", "cc -Ipath-1 -O2"),
        ("open ~hunter2/x and ~/hunter2", "open path-1 and path-b1"),
        ("step 3 of /data/hunter2/7.bin", "step 3 of path-1"),
        ("save s3://hunter2/ckpt and /tmp/hunter2", "save url-1 and path-1"),
        ("dlopen(/home/hunter2/lib/libx.so.1)", "dlopen(dir-1/libx.so.1)"),
        ("mail hunter2@example.com", "mail email-1"),
        ("push 10.11.12.13:8080", "push 10.11.12.13:8080".replace("10.11.12.13", "address-1")),
        ("python -u /home/hunter2/train.py --key hunter2", "command-1"),
        ("torchrun --nproc 8 train.py --key hunter2", "command-1"),
    ],
)
def test_names(name, cleaned):
    assert Texts().clean(name) == cleaned
    assert Texts().clean(cleaned) == cleaned  # a copy of a copy is the same


def test_equal_texts_get_equal_replacements_and_others_never_do():
    texts = Texts()
    said = [texts.clean(t) for t in ("/a/x.py(1): f", "/b/x.py(1): f", "/a/x.py(2): g", "read /a/b", "read /a/c", "read /a/b")]
    assert said == ["dir-1/x.py(1): f", "dir-b1/x.py(1): f", "dir-1/x.py(2): g", "read path-1", "read path-b1", "read path-1"]


def test_texts_that_differ_in_numbers_alone_still_do():
    texts = Texts()
    said = [texts.clean(f"read /a/{i}.bin") for i in range(3)] + [texts.clean(f"read /b/{i}.bin") for i in range(30)]
    assert said[:5] == ["read path-1", "read path-2", "read path-3", "read path-b1", "read path-b2"]
    many = [texts.clean(f"read /c{'x' * i}/y") for i in range(800)]
    assert len({re.sub(r"\d+", "#", name) for name in many}) == 800


def test_hosts_and_accounts_are_replaced_as_words():
    texts = Texts()
    texts.learn(hosts=["gn0042.cluster.example.org", "train"], users=["hunter2", "ab"])
    assert texts.clean("reduce on gn0042, GN0042.cluster.example.org for hunter2_run") == "reduce on host-1, host-1 for user-1_run"
    assert texts.clean("send to gn0043, gn0042") == "send to host-2, host-1"  # other machines of the same kind
    assert texts.clean("train_step ab") == "train_step ab"  # a host called train must not take the word
    assert texts.host("train") == "host-b1"


def test_long_hostile_names_take_no_time():
    for text in ("/" * 50_000, "/a " * 20_000, "python " * 20_000, "a@" * 30_000, "1." * 30_000, "~" * 50_000, "/a/b.py" * 10_000):
        Texts().clean(text)


# --- PyTorch traces -------------------------------------------------------------------------------------------------------------------


def planted_kineto(tmp_path, **options):
    """A simulated trace with secrets wherever JSON has room for one."""
    folder = tmp_path / "in"
    capture = Capture(format="kineto", stacks=True, shapes=True, compress=False, **options)
    [path] = write_run(simulate(scenarios()["data-stall"], ranks=1, steps=3), folder, capture, truth=False)
    document = json.loads(path.read_text())
    events = document if isinstance(document, list) else document["traceEvents"]
    for i, event in enumerate(events):
        args = event.setdefault("args", {})
        args |= {"Call stack": f"/home/{SECRET}/train.py(3): main", f"{SECRET} key": 1, "note": SECRET, "Trace name": SECRET}
        event["odd"] = {"deep": [SECRET]}
        if i % 3 == 0:
            args |= {"Concrete Inputs": ["1", f"/home/{SECRET}", SECRET, "[1, 1]"], "Module Hierarchy": SECRET}
        if i % 5 == 0:
            args |= {"grid": [1, SECRET], "priority": SECRET, "External id": SECRET}
        if event["ph"] == "M" and event["name"] == "process_name":
            args["name"] = f"python train.py --token {SECRET}"
    frames = [e for e in events if e.get("cat") == "python_function"]
    for i, frame in enumerate(frames):
        frame["name"] = f"/home/{SECRET}/my project/{['model', 'train'][i % 2]}.py({i % 7}): run"
    for i, annotation in enumerate([e for e in events if e.get("cat") == "user_annotation" and "#" not in e["name"]]):
        annotation["name"] += f" /data/{SECRET}/shard-{i % 3}.bin on {SECRET}-node7"
    ops = [e for e in events if e.get("cat") in ("cpu_op", "Operator") and e["name"].startswith("aten::")]
    for i, word in enumerate((f"s3://{SECRET}/x", f"{SECRET}@example.com", f"~{SECRET}/x", f"C:\\Users\\{SECRET}\\x")):
        ops[i]["name"] = f"fetch {word}"
    events += [
        {"ph": "X", "cat": SECRET, "name": SECRET, "pid": 1, "tid": 1, "ts": 1, "dur": 1},
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": {SECRET: 1}, "tid": [SECRET], "ts": SECRET, "dur": {"a": SECRET}},
        {"ph": "i", "s": "t", "name": SECRET, "pid": SECRET, "tid": "", "ts": 1},
        {"ph": "C", "name": SECRET, "pid": 1, "ts": 1, "args": {SECRET: 1}},
        {"ph": "M", "name": SECRET, "pid": 1, "args": {"name": SECRET}},
        {"ph": "M", "name": "process_labels", "pid": 1, "tid": 0, "ts": 0, "args": {"labels": SECRET}},
        {"ph": "s", "id": SECRET, "pid": 1, "tid": 1, "ts": 1, "cat": "ac2g", "name": "ac2g", "bp": SECRET},
        {"ph": SECRET, "name": SECRET},
    ]
    if isinstance(document, dict):
        document |= {
            "host_name": f"{SECRET}-node7",
            "username": SECRET,
            "cmdline": f"python train.py --token {SECRET}",
            "environment": {"TOKEN": SECRET},
            "PT_PROFILER_JOB_NAME": SECRET,
            "trace_id": SECRET,
            "traceName": f"/home/{SECRET}/trace.json",
            "displayTimeUnit": SECRET,
            "cupti_version": f"{SECRET} /x",
            "INFO": [SECRET],
            SECRET: 1,
        }
        group = {"pg_name": "0", "pg_desc": f"/home/{SECRET}", "note": SECRET, "ranks": [0]}
        job = {"hostname": SECRET, "backend": f"nccl {SECRET}", "pg_config": [group]}
        document["distributedInfo"] = document.get("distributedInfo", {}) | job
        for device in document.get("deviceProperties", []):
            device |= {"uuid": SECRET, "numSms": device["numSms"], SECRET: 1}
    planted = folder / f"{SECRET}-node7_4000.1733767137045419368.pt.trace.json"
    planted.write_text(json.dumps(document))
    path.unlink()
    return planted


@pytest.mark.parametrize("era", ["ns", "us", "2021"])
def test_no_planted_text_is_in_a_pytorch_copy(tmp_path, era):
    path = planted_kineto(tmp_path, era=era)
    done = scrub(path, tmp_path / "out.json")
    text = (tmp_path / "out.json").read_bytes()
    assert SECRET.encode() not in text
    assert b"my project" not in text
    assert done.differs == ""
    assert done.removed["call stacks"] > 10
    before, after = kineto_reader.read(path)[0], kineto_reader.read(tmp_path / "out.json")[0]
    for table in ("activities", "calls", "ranges", "stream_waits", "matrix_ops"):
        one, other = getattr(before, table), getattr(after, table)
        for (column, values), (_, others) in zip(one.columns(), other.columns(), strict=True):
            if column != "name":
                assert (values == others).all(), (table, column)
    kernels = {before.names[code] for code in before.activities.name.tolist()}
    assert kernels == {after.names[code] for code in after.activities.name.tolist()}
    frames = {after.names[code] for code in after.ranges.name[after.ranges.kind == RangeKind.PYTHON].tolist()}
    assert all(re.fullmatch(r"dir-1/(model|train)\.py\(\d\): run", frame) for frame in frames)


@pytest.mark.parametrize("ending", [".json", ".json.gz", ".zip"])
def test_the_name_says_how_a_copy_is_packed(tmp_path, ending):
    path = planted_kineto(tmp_path)
    out = tmp_path / f"out{ending}"
    scrub(path, out)
    packed = out.read_bytes()
    assert SECRET.encode() not in packed
    if ending == ".zip":
        with zipfile.ZipFile(out) as archive:
            [name] = archive.namelist()
            text = archive.read(name)
    else:
        text = gzip.decompress(packed) if ending == ".json.gz" else packed
    assert packed[3:4] != b"\x08" or ending != ".json.gz"  # no file name in the header
    assert json.loads(text)["traceEvents"]


def test_a_copy_of_a_copy_is_the_same(tmp_path):
    scrub(planted_kineto(tmp_path), tmp_path / "one.json")
    scrub(tmp_path / "one.json", tmp_path / "two.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()


def damaged(path, change):
    path.write_bytes(change(path.read_bytes()))
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: len(text) * 2 // 3],
        lambda text: gzip.compress(text)[:-3000],
        lambda text: text.replace(b'"aten::', b'"at"en::', 40),
        lambda text: text.replace(b'"cudaLaunch', b'"cuda\xffLaunch', 5),
        lambda text: text.replace(b'{"ph"', b',,{"ph"', 3),
        lambda text: b"\xef\xbb\xbf" + text,
    ],
    ids=["cut", "cut gzip", "quotes", "not UTF-8", "commas", "mark"],
)
def test_damaged_traces_say_the_same_in_their_copies(tmp_path, change):
    path = damaged(planted_kineto(tmp_path), change)
    done = scrub(path, tmp_path / "out.json.gz")
    assert done.differs == ""
    assert SECRET.encode() not in gzip.decompress((tmp_path / "out.json.gz").read_bytes())
    truncated = [kineto_reader.read(p)[0].truncated for p in (path, tmp_path / "out.json.gz")]
    assert truncated[0] == truncated[1]


# --- Nsight Systems -------------------------------------------------------------------------------------------------------------------


def planted_nsys(tmp_path, schema="new", **options):
    """A simulated export with secrets wherever the schema has room for one, and in tables and columns of nobody."""
    capture = Capture(format="nsys", schema=schema, **options)
    [path] = write_run(simulate(scenarios()["data-stall"], ranks=1, steps=3), tmp_path / "in", capture, truth=False)
    with sqlite3.connect(path) as db:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        last = db.execute("SELECT max(id) FROM StringIds").fetchone()[0]
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", [(last + i, f"{SECRET} output {i}" * 100) for i in range(1, 40)])
        if "TARGET_INFO_SYSTEM_ENV" in tables:
            db.execute("DELETE FROM TARGET_INFO_SYSTEM_ENV")
            environment = f"TOKEN={SECRET}\nRANK=0\nWORLD_SIZE=1\nUSER={SECRET}\nHOME=/home/{SECRET}\nHOSTNAME={SECRET}-node7"
            for name, value in (("Hostname", f"{SECRET}-node7"), ("DeviceEnvironment", environment), ("OsVersion", SECRET)):
                db.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'x', ?, 1, ?)", (name, value))
        for name, columns, values in (
            ("META_DATA_CAPTURE", "name TEXT, value TEXT", ("COMMAND", f"python train.py --token {SECRET}")),
            ("ProcessStreams", "globalPid INTEGER, filenameId INTEGER, contentId INTEGER", (1, last + 1, last + 2)),
            ("ANALYSIS_FILE", "id INTEGER, filename TEXT, content TEXT", (1, f"/home/{SECRET}", SECRET)),
            ("PROCESSES", "globalPid INTEGER, pid INTEGER, name TEXT", (1 << 30, 64, SECRET)),
            ("OSRT_CALLCHAINS", "id INTEGER, symbol TEXT", (1, SECRET)),
            ("GENERIC_EVENTS", "data TEXT", (SECRET,)),
            (f"TABLE_OF_{SECRET}", "x TEXT", (SECRET,)),
        ):
            db.execute(f'CREATE TABLE IF NOT EXISTS "{name}" ({columns})')
            db.execute(f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(values))})', values)
        db.execute(
            "CREATE TABLE IF NOT EXISTS DIAGNOSTIC_EVENT (timestamp, timestampType, source, severity INTEGER, text TEXT, globalPid INTEGER)"
        )
        db.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (0, 0, 0, 2, ?, NULL)", (f"cannot open /home/{SECRET}",))
        db.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (0, 0, 0, 2, 'Not all CUDA events might have been collected.', NULL)")
        db.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (0, 0, 0, 1, ?, NULL)", (SECRET,))
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "TARGET_INFO_GPU", "TARGET_INFO_SESSION_START_TIME"):
            if table in tables:
                db.execute(f"ALTER TABLE {table} ADD COLUMN remark TEXT DEFAULT '{SECRET} default'")
        if "jsonText" not in {row[1] for row in db.execute("PRAGMA table_info(NVTX_EVENTS)")}:
            db.execute("ALTER TABLE NVTX_EVENTS ADD COLUMN jsonText TEXT")
        db.execute("UPDATE NVTX_EVENTS SET jsonText = ?", (json.dumps({"file": f"/home/{SECRET}"}),))
        db.execute("UPDATE NVTX_EVENTS SET text = text || ? WHERE text NOT LIKE '%step%' AND rowid % 2", (f" /home/{SECRET}/x.bin",))
        db.execute("UPDATE NVTX_EVENTS SET color = ? WHERE rowid % 3 = 0", (SECRET,))
        [(thread, name)] = db.execute("SELECT globalTid, nameId FROM ThreadNames LIMIT 1").fetchall()
        db.execute("UPDATE StringIds SET value = ? WHERE id = ?", (f"worker of {SECRET}", name))
        db.execute("INSERT INTO ThreadNames (nameId, priority, globalTid) VALUES (?, 0, ?)", (last + 5, thread + (1 << 30)))
        db.execute(f"CREATE VIEW v AS SELECT '{SECRET}' AS x")
        db.execute(f"CREATE TRIGGER t AFTER INSERT ON ThreadNames BEGIN SELECT '{SECRET}'; END")
        db.execute(f'CREATE INDEX "{SECRET}" ON StringIds (value)')
        db.execute("CREATE TABLE gone (x TEXT)")
        db.executemany("INSERT INTO gone VALUES (?)", [(f"{SECRET} deleted" * 50,) for _ in range(50)])
        db.execute("DROP TABLE gone")
    db.close()
    return path


@pytest.mark.parametrize("schema", ["old", "middle", "new"])
def test_no_planted_text_is_in_any_page_of_an_export_copy(tmp_path, schema):
    path = planted_nsys(tmp_path, schema)
    assert path.read_bytes().count(SECRET.encode()) > 100
    done = scrub(path, tmp_path / "out.sqlite")
    assert done.differs == ""
    pages = (tmp_path / "out.sqlite").read_bytes()
    for text in (SECRET, SECRET.upper()):
        for encoding in ("utf-8", "utf-16-le"):
            assert text.encode(encoding) not in pages
    assert [p.name for p in tmp_path.iterdir() if p.name not in ("in", "out.sqlite")] == []  # no journal, no -wal
    with sqlite3.connect(tmp_path / "out.sqlite") as db:
        assert db.execute("PRAGMA freelist_count").fetchone() == (0,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE type <> 'table'").fetchone() == (0,)
    db.close()
    before, after = nsys_reader.read(path)[0], nsys_reader.read(tmp_path / "out.sqlite")[0]
    assert (before.rank, before.world_size, before.pid, before.device.name) == (after.rank, after.world_size, after.pid, after.device.name)
    assert after.host == (None if before.host is None else "host-1")
    assert [n.slug for n in before.notices] == [n.slug for n in after.notices]
    for table in ("activities", "calls", "ranges", "stream_waits"):
        one, other = getattr(before, table), getattr(after, table)
        for (column, values), (_, others) in zip(one.columns(), other.columns(), strict=True):
            if column != "name":
                assert (values == others).all(), (table, column)


def test_a_copy_of_an_export_copy_is_the_same(tmp_path):
    scrub(planted_nsys(tmp_path), tmp_path / "one.sqlite")
    scrub(tmp_path / "one.sqlite", tmp_path / "two.sqlite")
    assert (tmp_path / "one.sqlite").read_bytes() == (tmp_path / "two.sqlite").read_bytes()


def test_payloads_keep_the_fields_that_are_read_and_nothing_between_them():
    from nsys_builder import NsysExport  # noqa: F401 - the layout below is that of its payloads

    header = (7).to_bytes(8, "little") + (9).to_bytes(8, "little") + (40).to_bytes(8, "little") + (32).to_bytes(8, "little")
    blob = header + (5).to_bytes(8, "little") + SECRET.encode() + b"\0" + (4096).to_bytes(8, "little") + SECRET.encode() * 3
    fields = {(7, 9): [("NCCL communicator ID", "<Q", 0), ("Secret", "<Q", 8), ("Message size [bytes]", "<Q", 16)]}
    kept = only_known_fields(blob, fields)
    assert SECRET.encode() not in kept
    assert kept[:16] == header[:16]
    assert (kept[32:40], kept[48:56]) == ((5).to_bytes(8, "little"), (4096).to_bytes(8, "little"))
    assert only_known_fields(SECRET, fields) is None
    assert only_known_fields(b"short", fields) is None
    assert only_known_fields(header + b"x", {(7, 9): [("Secret", "<Q", 0)]}) is None


# --- directories ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["kineto", "nsys"])
def test_a_directory_of_ranks(tmp_path, format, capsys):
    run, out = tmp_path / "run", tmp_path / "clean"
    write_run(simulate(scenarios()["two-hosts"], ranks=2, steps=3), run, Capture(format=format))
    traces = sorted(p for p in run.iterdir() if not p.name.endswith("truth.json"))
    (run / "run.json").write_text(
        json.dumps(
            {
                "job": SECRET, "world_size": 2, "parallel": {"dp": 2}, "model": {"parameters": 7e9, "precision": "bf16"},
                "price_per_gpu_hour": 2.5, "stack": {"host": SECRET, "torch": "2.8.0+cu128", "note": SECRET, "driver": f"/home/{SECRET}"},
                "profiler": {"with_stack": False, "path": f"/home/{SECRET}"}, "command": SECRET,
            }
        )
    )  # fmt: skip
    (run / "notes.txt").write_text(SECRET)
    assert main(["scrub", str(run), str(out)]) == 0
    said = capsys.readouterr().out
    assert "checked: the report of the copy says the same" in said
    assert "notes.txt" in said
    endings = ".json.gz" if format == "kineto" else ".sqlite"
    assert sorted(p.name for p in out.iterdir()) == sorted(["run.json", *(f"rank{r}{endings}" for r in range(2))])
    assert len(traces) >= 2
    assert json.loads((out / "run.json").read_text()) == {
        "format": 1, "world_size": 2, "parallel": {"dp": 2}, "model": {"parameters": 7_000_000_000, "precision": "bf16"},
        "price_per_gpu_hour": 2.5, "stack": {"torch": "2.8.0+cu128"}, "profiler": {"with_stack": False},
    }  # fmt: skip
    for path in out.iterdir():
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        assert SECRET.encode() not in content
        for name in ("node-a", "node-b", "node0", "node1"):
            assert name.encode() not in content


def test_hosts_are_the_same_in_all_files(tmp_path):
    for rank, host in enumerate(("gn0042", "gn0043", "gn0042")):
        trace = Kineto(top={"host_name": host, "distributedInfo": {"rank": rank, "world_size": 3}})
        trace.call("cudaLaunchKernel", 0, 10, correlation=5)
        trace.kernel("k", 20, 30, correlation=5)
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / f"{host}_{rank}.{rank}.pt.trace.json").write_bytes(trace.text())
    scrub(tmp_path / "run", tmp_path / "clean")
    hosts = [kineto_reader.read(tmp_path / "clean" / f"rank{rank}.json.gz")[0].host for rank in range(3)]
    assert hosts == ["host-1", "host-2", "host-1"]


# --- what may go wrong ----------------------------------------------------------------------------------------------------------------


def nothing_written(tmp_path, *known):
    return sorted(p.name for p in tmp_path.iterdir()) == sorted(known)


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("a.json", b"", TracereadError),
        ("a.json", b"{}", TracereadError),
        ("a.json", b'{"traceEvents": []}', CorruptTrace),
        ("a.json", b'{"traceEvents": [' + b'{"ph":' * 5000, CorruptTrace),
        ("a.json", b"[" * 100_000, TracereadError),
        ("a.json.gz", gzip.compress(b"x" * 1000, mtime=0), TracereadError),
        ("a.sqlite", b"SQLite format 3\0" + b"\0" * 5000, TracereadError),
        ("a.txt", b"hello", TracereadError),
    ],
)
def test_hostile_input_is_an_error_and_leaves_no_file(tmp_path, name, content, error):
    (tmp_path / name).write_bytes(content)
    ending = ".sqlite" if name.endswith(".sqlite") else ".json"
    with pytest.raises(error) as raised:
        scrub(tmp_path / name, tmp_path / f"out{ending}")
    assert str(tmp_path / name) in raised.value.message or name in raised.value.message
    assert nothing_written(tmp_path, name)


def test_a_cut_export_is_an_error_and_leaves_no_file(tmp_path):
    path = damaged(planted_nsys(tmp_path), lambda text: text[: len(text) // 2])
    with pytest.raises(CorruptTrace):
        scrub(path, tmp_path / "out.sqlite")
    assert nothing_written(tmp_path, "in")


def test_nothing_is_ever_overwritten(tmp_path):
    path = planted_kineto(tmp_path)
    before = path.read_bytes()
    (tmp_path / "taken.json").write_text("mine")
    for target in (path, tmp_path / "taken.json", path.parent):
        with pytest.raises(OutputError, match="exists already"):
            scrub(path, target)
    with pytest.raises(OutputError, match="exists already"):
        scrub(path.parent, path.parent)
    assert path.read_bytes() == before
    assert (tmp_path / "taken.json").read_text() == "mine"


def test_places_that_do_not_fit(tmp_path):
    path = planted_kineto(tmp_path)
    with pytest.raises(OutputError, match="no directory") as raised:
        scrub(path, tmp_path / "no" / "out.json")
    assert raised.value.hint.startswith("mkdir -p")
    with pytest.raises(OutputError, match="PyTorch trace"):
        scrub(path, tmp_path / "out.sqlite")
    with pytest.raises(InputError, match="only files of this machine"):
        scrub("s3://bucket/trace.json", tmp_path / "out.json")
    assert nothing_written(tmp_path, "in")


def test_a_name_that_named_the_steps_is_said(tmp_path, capsys):
    trace = Kineto()
    for i in range(4):
        trace.annotation(f"/data/step/{i}", 1000 * i, 900)
        trace.call("cudaLaunchKernel", 1000 * i + 10, 10, correlation=i + 1)
        trace.kernel("k", 1000 * i + 30, 300, correlation=i + 1)
    path = tmp_path / "in.json"
    path.write_bytes(trace.text())
    assert main(["scrub", str(path), str(tmp_path / "out.json")]) == 1
    said = capsys.readouterr().err
    assert "would differ" in said
    assert "--allow-difference" in said
    assert nothing_written(tmp_path, "in.json")
    assert main(["scrub", str(path), str(tmp_path / "out.json"), "--allow-difference"]) == 0
    assert "differs from that of the original in" in capsys.readouterr().out
    assert b"/data/step" not in (tmp_path / "out.json").read_bytes()


def test_the_summary_counts_and_mentions_a_rank_that_only_the_name_says(tmp_path, capsys):
    path = planted_kineto(tmp_path)
    named = path.rename(path.with_name("rank3.json"))
    assert main(["scrub", str(named), str(tmp_path / "out.json")]) == 0
    said = capsys.readouterr().out
    assert re.search(r"left out: .*call stacks \(\d+\)", said)
    assert re.search(r"replaced in names: .*dir \(1\)", said)
    assert "says 3 and out.json does not" in said
    assert SECRET not in said
    assert main(["-q", "scrub", str(named), str(tmp_path / "rank3.json")]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("format", ["kineto", "nsys"])
def test_real_traces(tmp_path, format):
    if not TRACES.exists():
        pytest.skip("the real traces are not beside this repository")
    small = [p for p in sorted((TRACES / format).iterdir()) if p.is_file() and p.stat().st_size < 500_000 and "aborted" not in p.name]
    texts = Counter()
    for path in small:
        done = scrub(path, tmp_path / path.name)
        assert done.differs == ""
        texts += done.removed
    assert sum(texts.values()) > 50


# --- a secret in the place of every single value --------------------------------------------------------------------------------------

KEPT_TEXTS = {"name", "pid", "tid", "Process Group Name", "Process Group Description", "kernel"}
"""Names."""


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, (*path, key))
    elif isinstance(value, list) and value:
        yield from leaves(value[0], (*path, 0))
    else:
        yield path


def with_leaf(value, path, leaf):
    if not path:
        return leaf
    if isinstance(value, dict):
        return {key: with_leaf(part, path[1:], leaf) if key == path[0] else part for key, part in value.items()}
    return [with_leaf(value[0], path[1:], leaf), *value[1:]]


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_a_secret_in_the_place_of_any_value_of_a_pytorch_trace_is_gone(tmp_path, vendor):
    capture = Capture("kineto", stacks=True, shapes=True, sync_events=True, compress=False, vendor=vendor)
    [path] = write_run(simulate(scenarios()["ddp-allreduce"], ranks=1, steps=3), tmp_path / "in", capture, truth=False)
    document = json.loads(path.read_text())
    examples = {
        (e["ph"], e.get("cat"), e["name"] if e["ph"] == "M" else "", leaf): e for e in document["traceEvents"] for leaf in leaves(e)
    }
    planted = [
        with_leaf(event, leaf, secret)
        for (_, _, _, leaf), event in examples.items()
        if not KEPT_TEXTS & set(leaf)
        for secret in (f"/x {SECRET}", [SECRET], {SECRET: [SECRET]}, f"1 {SECRET}", [f"{SECRET} 1", [SECRET]])
    ]
    assert len(planted) > 300
    document["traceEvents"] += planted
    for secret in ([SECRET], {SECRET: SECRET}, f"12 {SECRET}"):
        heads = [with_leaf(document, leaf, secret) for leaf in leaves({k: v for k, v in document.items() if k != "traceEvents"})]
        for i, head in enumerate(heads if secret == [SECRET] else heads[:: len(heads)]):
            head = head if i == 0 else {**head, "traceEvents": document["traceEvents"][:20]}
            path.write_text(json.dumps(head))
            out, texts = io.BytesIO(), Texts()
            metadata, truncated = scrub_kineto.learn(path, texts)
            scrub_kineto.write(path, out, metadata, truncated, texts, Counter(), ReadOptions())
            assert SECRET not in re.sub(r'"name":"(?:[^"\\]|\\.)*"', "", out.getvalue().decode()), (i, secret)
            json.loads(out.getvalue())


def test_a_secret_in_the_place_of_any_value_of_an_export_is_gone(tmp_path):
    path = planted_nsys(tmp_path)
    with sqlite3.connect(path) as db:
        db.execute("DROP TRIGGER t")
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")]
        for table in tables:
            columns = [(name, kind, key) for _, name, kind, _, _, key in db.execute(f'PRAGMA table_info("{table}")')]
            values = [None if key else SECRET for _, _, key in columns]
            for blob in (False, True):
                row = [value.encode() if blob and value else value for value in values]
                db.execute(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(row))})', row)
        db.execute("DELETE FROM NVTX_EVENTS WHERE text = ?", (SECRET,))  # a name
        db.execute("DELETE FROM TARGET_INFO_GPU WHERE name = ?", (SECRET,))
    db.close()
    scrub_nsys.write(path, tmp_path / "out.sqlite", Texts(), Counter())
    assert SECRET.encode() not in (tmp_path / "out.sqlite").read_bytes().replace(f"worker of {SECRET}".encode(), b"")


# --- faults ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plant", [planted_kineto, planted_nsys])
@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_what_is_interrupted_leaves_nothing(tmp_path, monkeypatch, plant, fault):
    path = plant(tmp_path)
    out = tmp_path / f"out{path.suffix}"

    def fail(*_, **__):
        raise fault

    for module, name in ((scrub_kineto, "_json"), (scrub_nsys, "_integer"), (os, "fsync")):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, fail)
            if (module, plant) in ((scrub_kineto, planted_nsys), (scrub_nsys, planted_kineto)):
                continue
            with pytest.raises((OutputError, KeyboardInterrupt)):
                scrub(path, out)
        assert nothing_written(tmp_path, "in")
    assert scrub(path, out).differs == ""


def test_a_directory_gets_the_permissions_of_new_ones(tmp_path):
    path = planted_kineto(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "clean").mkdir()
    scrub(path.parent, tmp_path / "clean")  # an empty directory is a place too
    scrub(path.parent, tmp_path / "new")
    assert scrub(path.parent, path.parent / "in it").left_out == ()
    assert len({(tmp_path / name).stat().st_mode for name in ("other", "new")}) == 1
    assert [p.name for p in (tmp_path / "clean").iterdir()] == ["trace-1.json.gz"]


def test_a_report_is_exported_and_scrubbed(tmp_path, monkeypatch):
    export = planted_nsys(tmp_path)
    (tmp_path / "bin").mkdir()
    nsys = tmp_path / "bin" / "nsys"
    nsys.write_text(f'#!/bin/sh\ncp "{export}" "$7"\n')  # $7 is the file to write
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", f"{nsys.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
    (tmp_path / "rank0.nsys-rep").write_bytes(b"what only nsys reads")
    assert scrub(tmp_path / "rank0.nsys-rep", tmp_path / "rank0.sqlite").differs == ""
    assert SECRET.encode() not in (tmp_path / "rank0.sqlite").read_bytes()
