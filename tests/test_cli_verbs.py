"""Commands end to end, on a small PyTorch trace written here and on real ones where they are."""

import json
import re
from pathlib import Path

import pytest
from test_cli_main import python

from traceread.cli import main

REAL = Path(__file__).parents[2] / "shared" / "traces"
ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def write_trace(path, rank=0, steps=4, name="ampere_sgemm_128x64_tn"):
    """A PyTorch trace: steps of 10 ms in which the batch takes 2 ms and two kernels 7.5 ms."""
    events = []

    def add(cat, name, ts, dur, pid, tid, **args):
        events.append({"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": args})

    for step in range(steps):
        at = 1000.25 + 10_000 * step
        add("user_annotation", f"ProfilerStep#{5 + step}", at, 9990, 100, 100)
        add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 2000, 100, 100)
        for i, (start, dur) in enumerate([(2100, 4000), (6200, 3500)]):
            correlation = 10 * step + i + 1
            add("cuda_runtime", "cudaLaunchKernel", at + 2050 + 10 * i, 8, 100, 100, correlation=correlation)
            add("kernel", name, at + start, dur, 0, 7, device=0, stream=7, correlation=correlation)
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "Test GPU", "totalGlobalMem": 85 << 30}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2},
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    }
    path.write_text(json.dumps({**head, "traceEvents": events}))
    return path


@pytest.fixture
def trace(tmp_path):
    return write_trace(tmp_path / "trace.json")


@pytest.fixture
def job(tmp_path):
    for rank in range(2):
        write_trace(tmp_path / f"rank{rank}.json", rank)
    (tmp_path / "notes.txt").write_text("nothing")
    return tmp_path


def run(capsys, *arguments):
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_report(trace, capsys):
    code, out, err = run(capsys, "report", trace)
    assert code == 0
    assert err == ""
    assert "rank 0 of 2 · Test GPU · PyTorch trace · 3 steps (ProfilerStep#6–8; #5 left out: first step)" in " ".join(out.split())
    assert re.search(r"the GPU waits for the next batch \((mostly )?DataLoader __next__, recorded\)", out.replace("\n", " "))


def test_json_is_the_same_as_f_json(trace, capsys):
    first = run(capsys, "report", trace, "--json")[1]
    assert run(capsys, "report", trace, "-f", "json")[1] == first
    assert [row["step"] for row in json.loads(first)["partition"]] == [f"ProfilerStep#{n}" for n in (5, 6, 7, 8)]


@pytest.mark.parametrize(
    ("name", "start"), [("a.md", "# "), ("a.json", "{"), ("a.csv", "rank,step,class"), ("a.html", "<!DOCTYPE"), ("a.txt", "/")]
)
def test_output_file(trace, tmp_path, capsys, name, start):
    code, out, err = run(capsys, "report", trace, "-o", tmp_path / name)
    assert (code, out) == (0, "")
    assert err == f"traceread: wrote {tmp_path / name}\n"
    assert (tmp_path / name).read_text().lstrip("….").startswith(start)


def test_quiet_says_nothing(trace, tmp_path, capsys):
    assert run(capsys, "-q", "report", trace, "-o", tmp_path / "a.md") == (0, "", "")


def test_f_wins_over_the_extension(trace, tmp_path, capsys):
    assert run(capsys, "report", trace, "-f", "json", "-o", tmp_path / "answer")[0] == 0
    json.loads((tmp_path / "answer").read_text())


@pytest.mark.parametrize(
    ("where", "message"),
    [("answer.pdf", "names no format"), ("answer", "names no format"), ("no/such/a.md", "there is no directory"), (".", "names no format")],
)
def test_output_that_cannot_be_written(trace, tmp_path, capsys, monkeypatch, where, message):
    monkeypatch.setattr("traceread.load", lambda *_, **__: pytest.fail("the traces were read first"))
    code, out, err = run(capsys, "report", trace, "-o", tmp_path / where)
    assert (code, out) == (1, "")
    assert message in err
    assert "[output]" in err
    assert "hint" in err


def test_a_command_refuses_formats_it_does_not_write(trace, tmp_path, capsys):
    code, _, err = run(capsys, "info", trace, "-o", tmp_path / "a.csv")
    assert code == 1
    assert "does not write csv" in err


def test_info(job, capsys):
    code, out, err = run(capsys, "info", job, "-v")
    assert code == 0
    assert "Good enough to decide on." in out
    assert "3 of 4 steps used (ProfilerStep#6–8) · rank0.json" in out
    assert "To record it: with_stack=True" in " ".join(out.split())
    assert "traceread: skipped" in err
    assert "notes.txt" in err


def test_steps(job, capsys):
    out = run(capsys, "steps", job)[1]
    lines = [line for line in out.splitlines() if "ProfilerStep#" in line and "·" not in line and "(" not in line]
    assert len(lines) == 8
    assert sum("not used, first step" in line for line in lines) == 2


def test_kernels(job, capsys):
    assert "ampere_sgemm_128x64_tn" in run(capsys, "kernels", job)[1]
    by_family = json.loads(run(capsys, "kernels", job, "--by", "family", "--rank", "1", "--json")[1])
    assert by_family["rank"] == 1
    assert [(k["family"], k["count"], k["total_ns"]) for k in by_family["kernels"]] == [("gemm", 6, 22_500_000)]
    assert run(capsys, "kernels", job, "-f", "csv", "--limit", "1")[1].splitlines()[0].startswith("rank,name,category")


def test_a_rank_that_is_not_there(job, capsys):
    code, _, err = run(capsys, "kernels", job, "--rank", "7")
    assert code == 1
    assert "no rank 7" in err
    assert "0, 1" in err
    assert run(capsys, "report", job, "--ranks", "5")[0] == 1


def test_selection(job, capsys):
    value = json.loads(run(capsys, "report", job, "--json", "--ranks", "1", "--steps", "6:8")[1])
    assert [r["rank"] for r in value["profile"]["ranks"]] == [1]
    assert value["steps"]["used"] == ["ProfilerStep#6", "ProfilerStep#7"]
    assert json.loads(run(capsys, "report", job, "--json", "--step-range", "none")[1])["steps"]["source"] == "whole capture"
    code, _, err = run(capsys, "report", job, "--steps", "50:60")
    assert code == 1
    assert "5, 6, 7, 8" in err


def test_config(job, tmp_path, capsys):
    config = tmp_path / "mine.toml"
    config.write_text('[[kernels]]\npattern = "sgemm"\ncategory = "communication"\n')
    value = json.loads(run(capsys, "report", job, "--json", "--config", config)[1])
    assert value["summary"]["class_ns"]["compute"] == 0
    assert value["summary"]["class_ns"]["exposed_communication"] == 7_500_000
    assert run(capsys, "report", job, "--config", tmp_path / "none.toml")[0] == 1


def test_limit_is_lifted_by_the_flag_the_hint_names(trace, capsys):
    code, _, err = run(capsys, "report", trace, "--max-uncompressed", "1K")
    assert code == 1
    assert "--max-uncompressed" in err
    assert run(capsys, "report", trace, "--max-uncompressed", "1M")[0] == 0


def test_host_rows_only_is_no_failure(tmp_path, capsys):
    path = tmp_path / "cpu.json"
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 5, "pid": 1, "tid": 1}]}))
    code, out, _ = run(capsys, "report", path)
    assert code == 0
    assert "no GPU work" in out
    value = json.loads(run(capsys, "report", path, "--json")[1])
    assert (value["partition"], value["summary"]) == ([], None)
    for verb in ("info", "steps", "kernels"):
        assert run(capsys, verb, path)[0] == 0


def test_a_reader_that_stops_early_is_no_failure(trace):
    code = f"""
import os, sys
read, write = os.pipe()
os.close(read)
os.dup2(write, 1)
from traceread.cli import main
sys.exit(main(["report", {str(trace)!r}]))
"""
    done = python(code)
    assert done.returncode == 0
    assert done.stderr == b""


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_stdout_in_other_encodings(trace, encoding):
    done = python(None, "report", str(trace), env={"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"})
    assert done.returncode == 0, done.stderr
    assert "ProfilerStep#6" in done.stdout.decode(encoding)
    assert done.stdout.isascii() == (encoding != "utf-8")
    answer = python(None, "report", str(trace), "--json", env={"PYTHONIOENCODING": encoding})
    json.loads(answer.stdout.decode("utf-8"))


def on_a_terminal(*arguments, **env):
    """Output and exit code of a command whose stdout and stderr are a terminal 90 characters wide."""
    pty = pytest.importorskip("pty")
    import fcntl
    import os
    import struct
    import subprocess
    import sys
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 90, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONIOENCODING": "utf-8", "TERM": "xterm-256color", **env}
    process = subprocess.Popen([sys.executable, "-m", "traceread", *arguments], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    out = b""
    while True:
        try:
            block = os.read(ours, 65536)
        except OSError:  # Linux reports the closed terminal so
            break
        if not block:
            break
        out += block
    os.close(ours)
    return out.decode("utf-8"), process.wait()


def test_a_terminal_gets_colours_blocks_and_its_own_width(trace):
    out, code = on_a_terminal("report", str(trace))
    assert code == 0
    assert "█" in out
    assert "\x1b[" in out
    assert all(len(ANSI.sub("", line)) <= 90 for line in out.splitlines())


@pytest.mark.parametrize("how", ["flag", "NO_COLOR", "dumb"])
def test_a_terminal_without_colours(trace, how):
    arguments = ["report", str(trace)] + (["--no-color"] if how == "flag" else [])
    env = {"NO_COLOR": "1"} if how == "NO_COLOR" else {"TERM": "dumb"} if how == "dumb" else {}
    out, code = on_a_terminal(*arguments, **env)
    assert code == 0
    assert "\x1b" not in out
    assert "█" not in out


@pytest.mark.parametrize(
    "name", ["kineto/torch19_workers0.json.gz", "kineto/dlrm_8rank", "nsys/train_5steps_2025.1.sqlite", "nsys/fsdp_2gpu_before.sqlite"]
)
def test_real_traces(name, capsys):
    path = REAL / name
    if not path.exists():
        pytest.skip(f"no {path}")
    for verb in ("report", "info", "steps", "kernels"):
        code, out, _ = run(capsys, verb, path)
        assert code == 0
        assert all(len(line) <= 100 for line in out.splitlines())
        assert json.loads(run(capsys, verb, path, "--json")[1])["format"] == 1


def test_a_third_of_the_step_is_data_wait(capsys):
    path = REAL / "kineto" / "torch19_workers0.json.gz"
    if not path.exists():
        pytest.skip(f"no {path}")
    out = run(capsys, "report", path)[1].replace("\n", " ")
    assert re.search(r"The largest loss is [\d.]+ ms \(3\d\.\d %\): the GPU waits for the next batch", out)


def test_nothing_of_the_environment_gets_out(capsys):
    path = REAL / "nsys" / "a100_perlmutter_2022.2.sqlite"
    if not path.exists():
        pytest.skip(f"no {path}")
    for verb in ("report", "info", "steps", "kernels"):
        for format in ("text", "json", "markdown", "html"):
            out = run(capsys, verb, path, "-f", format)[1]
            assert not re.search(r"SLURM|HOME=|/global/|LD_LIBRARY", out)
