"""Files that somebody made to do harm, as small or as large as asked for."""

import gzip
import json
import os
import sqlite3
import zipfile
import zlib

from kineto_builder import two_steps
from nsys_builder import NsysExport

HEAD, FOOT = b'{"schemaVersion":1,"traceEvents":[\n', b"\n]}"
SECRET = "hunter2-wJalrXUtnFEMI"
NASTY = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31m", "\x9b2J", "nul\x00nul", "bell\x07\x08", "line\n::error::line\r\nline", "\u202egnp.exe", "\ud800",
    "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "{{7*7}}", "=1+1", "+1", "-1", "@SUM(1)", "\t=1", "`id` $(id)",
    "]]>&lt;&amp;", "a|b|c", "[x](javascript:alert(1))", '" onmouseover="alert(1)', "'; DROP TABLE kernels; --", "%s%n%x",
    "../../../etc/passwd",
)  # fmt: skip
"""Names made to steer whatever shows them."""


def event(cat, name, ts, dur, pid, tid, args=""):
    """One complete event as text; times in µs, arguments as JSON."""
    more = f',"args":{args}' if args else ""
    return f'{{"ph":"X","cat":"{cat}","name":{json.dumps(name)},"pid":{pid},"tid":{tid},"ts":{ts},"dur":{dur}{more}}}'


def launched(number, name="k", thread=1, stream=7, device=0):
    """A launch and its kernel, in order of number."""
    at = 10 * number
    call = event("cuda_runtime", "cudaLaunchKernel", at, 1, 1, thread, f'{{"correlation":{number + 1}}}')
    place = f'{{"device":{device},"stream":{stream},"correlation":{number + 1}}}'
    return f"{call},\n{event('kernel', name, at + 2, 5, device, stream, place)}"


def trace(path, events):
    """A PyTorch trace of these events, written as they come."""
    with path.open("wb") as file:
        file.write(HEAD + b'{"ph":"M","name":"process_name","pid":1,"tid":0,"ts":0,"args":{"name":"python"}}')
        for one in events:
            file.write(b",\n" + one.encode("utf-8", "surrogatepass"))
        file.write(FOOT)
    return path


def in_a_step(count, one):
    """A step around so many events."""
    yield event("user_annotation", "ProfilerStep#1", 0, 10 * count + 10, 1, 1)
    yield from map(one, range(count))


def streams(path, count):
    """Every kernel on a stream of its own."""
    return trace(path, in_a_step(count, lambda i: launched(i, stream=i)))


def names(path, count):
    """Every kernel with a name of its own."""
    return trace(path, in_a_step(count, lambda i: launched(i, name=f"kernel_{i}<{i}>")))


def threads(path, count):
    """Every launch on a thread of its own."""
    return trace(path, in_a_step(count, lambda i: launched(i, thread=i + 2)))


def gpus(path, count):
    """Every kernel on a GPU of its own."""
    return trace(path, in_a_step(count, lambda i: launched(i, device=i)))


def steps(path, count):
    """Every kernel in a step of its own."""
    steps = (f"{event('user_annotation', f'ProfilerStep#{i}', 10 * i, 10, 1, 1)},\n{launched(i)}" for i in range(count))
    return trace(path, steps)


def groups(path, count):
    """Every collective in a process group of its own."""

    def one(i):
        args = {"Collective name": "allreduce", "Process Group Name": str(i), "Process Group Ranks": "[0, 1]", "Group size": 2}
        args |= {"In msg nelems": 4, "Out msg nelems": 4, "dtype": "Float"}
        return f"{event('cpu_op', 'record_param_comms', 10 * i, 9, 1, 1, json.dumps(args))},\n{launched(i)}"

    return trace(path, in_a_step(count, one))


def overlapping(path, count):
    """Everything at once, nested ever deeper, and negative."""
    rows = [
        f"{event('cpu_op', f'op{i}', -i, 2 * i, 1, 1)},\n{event('kernel', 'k', -i, 3 * count, 0, 7)},\n{event('cpu_op', 'n', i, -i, 1, 1)}"
        for i in range(count)
    ]
    return trace(path, rows)


def deep(path, count):
    """Lists inside lists, in an event and beside the events."""
    nest = "[" * count + "]" * count
    path.write_text(
        f'{{"distributedInfo":{nest},"traceEvents":[{launched(0)},\n{event("cpu_op", "a", 1, 2, 1, 1, nest)},\n{launched(1)}]}}'
    )
    return path


def long_name(path, count):
    """A name of so many characters."""
    return trace(path, [launched(0), event("cpu_op", "a" * count, 1, 2, 1, 1), launched(1)])


def huge_times(path, _=0):
    """Times at and beyond the ends of 64 bits."""
    ends = (2**63 - 1, 2**63, -(2**63), 2**64, 10**400, "1e400", (2**62 - 1) / 1000, -(2**62) / 1000, "NaN", '"9223372036854775807"')
    rows = [event("kernel", "k", ts, dur, 0, 7) for ts in ends for dur in (5, 2**63, -(2**63))]
    return trace(path, [launched(0), *rows, launched(1)])


def bomb(path, count):
    """A gzip file of events that unpacks to so many bytes and is about a thousandth of it."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(HEAD) + packer.flush(zlib.Z_FULL_FLUSH)
    block = (event("kernel", "k", 1, 2, 0, 7) + ",\n").encode() * 20_000
    repeated = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)  # no look back: it may be repeated as it is
    with path.open("wb") as file:
        file.write(packed)
        for _ in range(count // len(block) + 1):
            file.write(repeated)
    return path


def zip_bomb(path, count):
    """The same as a zip."""
    block = (event("kernel", "k", 1, 2, 0, 7) + ",\n").encode() * 20_000
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        archive.open("trace.json", "w", force_zip64=True) as out,
    ):
        out.write(HEAD)
        for _ in range(count // len(block) + 1):
            out.write(block)
    return path


def zip_of_path(path, inside="../../../../tmp/traceread-was-here"):
    """A zip whose file has the name of a place elsewhere."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(zipfile.ZipInfo(inside), two_steps().text())
    return path


def directory(path):
    """A directory with a trace, links in circles and to devices, a pipe, and a file of someone else."""
    path.mkdir()
    two_steps().write(path / "trace.json")
    (path / "circle.json").symlink_to(path / "circle.json")
    (path / "zero.json").symlink_to("/dev/zero")
    (path / "gone.json").symlink_to(path / "nothing")
    (path / "password.json").symlink_to("/etc/passwd")
    (path / "loop").symlink_to(path)
    (path / "run.json").symlink_to("/dev/zero")
    (path / "traceread.toml").symlink_to("/dev/zero")
    os.mkfifo(path / "pipe.json")
    return path


def nasty_trace(path):
    """A trace in which everything that has a name has a nasty one."""
    k = two_steps()
    for i, name in enumerate(NASTY):
        t = 3_000_000 + 40_000 * i
        k.annotation(name, t, 39_000)
        k.op(name, t + 1_000, 20_000)
        k.call("cudaLaunchKernel", t + 2_000, 5_000, correlation=900 + i)
        k.kernel(name, t + 10_000, 20_000, correlation=900 + i)
        k.label("thread_name", 4000, 4000 + i, name=name)
        k.op(name, t + 1_000, 20_000, tid=4000 + i)
    k.annotation("ProfilerStep#7", 2_900_000, 1_000_000)
    k.top["host_name"] = NASTY[0] + NASTY[4]
    k.top["deviceProperties"] = [{"id": 0, "name": NASTY[7] + NASTY[0]}]
    k.top["cuda_runtime_version"] = NASTY[0]
    path.write_bytes(k.text())
    return path


def nasty_export(path):
    """An export in which everything that has a name has a nasty one."""
    x = NsysExport()
    for i, name in enumerate(n for n in NASTY if n.isprintable() or "\ud800" not in n):
        t = 100_000 * i
        x.nvtx(t, t + 90_000, f"step {i}").nvtx(t + 1, t + 50_000, name).launch(t + 10, t + 10_000, t + 60_000, name, correlation=i + 1)
        x.thread_name(name, tid=200 + i).nvtx(t, t + 9, name, tid=200 + i)
    x.gpu(0, name=NASTY[7] + NASTY[0]).system("Hostname", NASTY[0]).diagnostic(NASTY[0])
    return x.write(path)


def secret_export(path):
    """An export that recorded an environment, command lines, paths and program output full of secrets."""
    x = NsysExport()
    for step in range(3):
        t = 1_000_000 * step
        x.nvtx(t, t + 900_000, f"step {step}").launch(t + 10_000, t + 50_000, t + 500_000, correlation=step + 1)
    x.environment(f"AWS_SECRET_ACCESS_KEY={SECRET}", "RANK=1", f"PATH=/{SECRET}", f"WORLD_SIZE={SECRET}", f"CUDA_VISIBLE_DEVICES={SECRET}")
    x.system("EnvironmentVariables", f"TOKEN={SECRET}").system("CommandLine", f"python train.py --key {SECRET}").system("Hostname", "node1")
    x.diagnostic(f"cannot open /home/{SECRET}", severity=3)
    x.add("PROCESSES", globalPid=x.gpid(100), pid=100, name=f"python --key {SECRET}")
    x.write(path)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE PROCESS_STREAMS (globalPid INTEGER, filenameId INTEGER, contentId INTEGER)")
        db.execute("INSERT INTO StringIds VALUES (99999, ?)", [f"stdout of the program: {SECRET}"])
        db.execute("INSERT INTO PROCESS_STREAMS VALUES (1, 99999, 99999)")
        db.execute("CREATE TABLE TARGET_INFO_PROCESS (processId INTEGER, commandLine TEXT)")
        db.execute("INSERT INTO TARGET_INFO_PROCESS VALUES (100, ?)", [f"--key {SECRET}"])
    db.close()
    return path


def odd_database(path, how):
    """An export in which SQL of its own stands in place of tables."""
    NsysExport().launch(0, 10_000, 50_000, correlation=1).nvtx(0, 100_000, "step 1").write(path)
    kernel = "CUPTI_ACTIVITY_KIND_KERNEL"
    endless = "WITH RECURSIVE n(x) AS (VALUES(1) UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
    statements = {
        "view": [f"ALTER TABLE {kernel} RENAME TO k", f"CREATE VIEW {kernel} AS SELECT k.* FROM k, ({endless})"],
        "trigger": [f"CREATE TRIGGER t AFTER INSERT ON {kernel} BEGIN DELETE FROM StringIds; END"],
        "virtual": [f"DROP TABLE {kernel}", f"CREATE VIRTUAL TABLE {kernel} USING fts5(start, end)"],
        "generated": [
            f"ALTER TABLE {kernel} RENAME COLUMN streamId TO other",
            f"ALTER TABLE {kernel} ADD COLUMN streamId INTEGER AS (length(hex(zeroblob(400000)))) VIRTUAL",
        ],
        "index": [f"CREATE INDEX i ON {kernel} (length(hex(zeroblob(1000)) || start))"],
    }[how]
    with sqlite3.connect(path, isolation_level=None) as db:
        for statement in statements:
            db.execute(statement)
    db.close()
    return path


def packed(path, text):
    """The text as gzip."""
    path.write_bytes(gzip.compress(text))
    return path
