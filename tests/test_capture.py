"""Captures of a real training loop on the CPU, read back by traceread."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import traceread
from traceread import capture
from traceread.capture import ranges
from traceread.capture.fingerprint import ranks_by_hash, stack_hash
from traceread.capture.nsys_recorder import nsys_command
from traceread.capture.profile import DESCRIBED
from traceread.capture.schedule import Action, Schedule
from traceread.run import Run, read_run

ROOT = Path(__file__).parents[1]

LOOP = """
import os, sys, time
import torch
from traceread import capture

class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 10_000
    def __getitem__(self, index):
        return torch.full((16,), float(index))

def train(directory, steps=12, ddp=False, **options):
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    if ddp:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    loader = torch.utils.data.DataLoader(Words(), batch_size=4, num_workers=options.pop("workers", 2))
    pause = options.pop("pause", 0)
    with capture.annotate(model), capture.profile(directory, **{"wait": 4, "warmup": 1, "steps": 3, **options}) as p:
        for step, batch in enumerate(capture.data(loader)):
            with capture.phase("forward"):
                loss = model(batch).mean()
            with capture.phase("backward"):
                loss.backward()
            with capture.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            p.step()
            time.sleep(pause)
            if step + 1 == steps:
                break
    return p
"""


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[capture]'")


@pytest.fixture(scope="module")
def train(torch):
    names = {"__name__": "loop"}
    exec(LOOP, names)
    return names["train"]


def script(tmp_path, code):
    """Runs the loop with this code in a process of its own: workers and ranks are made by a file that can be imported."""
    path = tmp_path / "train.py"
    path.write_text(LOOP + '\nif __name__ == "__main__":\n' + "\n".join(f"    {line}" for line in code.splitlines()), "utf-8")
    return path


def run(tmp_path, code, **options):
    path = script(tmp_path, code)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **options}
    return subprocess.run([sys.executable, str(path)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)


# --- the schedule --------------------------------------------------------------------------------------------------------------


def test_schedule_of_one_window():
    plan = Schedule(wait=3, warmup=2, steps=2)
    nothing, warm, record, last = Action.NOTHING, Action.WARM_UP, Action.RECORD, Action.RECORD_LAST
    assert [plan.action(n) for n in range(9)] == [nothing] * 3 + [warm] * 2 + [record, last] + [nothing] * 2
    assert plan.untraced == (1, 3)


def test_schedule_again_and_again():
    plan = Schedule(wait=1, warmup=1, steps=1, every=4)
    assert [n for n in range(12) if plan.action(n) is Action.RECORD_LAST] == [2, 6, 10]
    assert [plan.window_of(n) for n in (2, 6, 10)] == [2, 6, 10]
    assert Schedule(wait=0, warmup=0, steps=3, every=5).window_of(7) == 5


def test_nothing_is_timed_where_there_is_no_step_before():
    first, end = Schedule(wait=0).untraced
    assert first == end


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"wait": -1}, {"every": 7, "warmup": 3, "steps": 5}])
def test_schedules_that_cannot_be(wrong):
    with pytest.raises(ValueError, match="steps"):
        Schedule(**wrong)


def test_described_fields_are_those_of_run_json():
    measured = {"format", "world_size", "untraced_step_ns", "stack", "profiler"}
    known_afterwards = {"goodput", "cost_per_evaluation"}
    assert set(DESCRIBED) | measured | known_afterwards == set(Run.__struct_fields__)


def test_a_field_that_run_json_has_not_is_refused_at_once(tmp_path):
    with pytest.raises(TypeError, match="modell"):
        capture.profile(tmp_path, modell={})
    with pytest.raises(ValueError, match="vtune"):
        capture.profile(tmp_path, backend="vtune")


# --- ranges --------------------------------------------------------------------------------------------------------------------


class Notes:
    """A sink that remembers."""

    def __init__(self):
        self.seen = []

    def push(self, name):
        self.seen.append(f"+{name}")
        return name

    def pop(self, begun):
        self.seen.append(f"-{begun}")


@contextmanager
def notes():
    sink = Notes()
    ranges.record_to((sink,))
    try:
        yield sink.seen
    finally:
        ranges.record_to(())


def test_ranges_go_nowhere_unless_something_records():
    with notes() as seen:
        pass
    with capture.range("a"), capture.phase("forward"):
        assert list(capture.data([1, 2])) == [1, 2]
    assert seen == []


def test_ranges_and_waits_for_data():
    with notes() as seen, capture.range("a"):
        assert list(capture.data(iter([7]))) == [7]
    assert seen == ["+a", "+data wait", "-data wait", "+data wait", "-data wait", "-a"]


def test_a_range_ends_where_it_began_even_if_recording_stops_within():
    with notes() as seen, capture.range("a"):
        ranges.record_to(())
    assert seen == ["+a", "-a"]


def test_unknown_phase():
    with pytest.raises(ValueError, match="forward, backward"):
        capture.phase("forwards")


def test_nvtx_gets_the_same_ranges(monkeypatch):
    nvtx = pytest.importorskip("nvtx", reason="nvtx is not installed: pip install -e '.[capture]'")
    from traceread.capture.sinks import nvtx_sinks

    seen = []
    monkeypatch.setattr(nvtx, "push_range", lambda name: seen.append(name))
    monkeypatch.setattr(nvtx, "pop_range", lambda: seen.append("end"))
    ranges.record_to(nvtx_sinks())
    try:
        with capture.range("outer"), capture.range("inner"):
            pass
    finally:
        ranges.record_to(())
    assert seen == ["outer", "inner", "end", "end"]


def test_an_nvtx_that_hears_nothing_of_nsys_is_not_used(monkeypatch, torch, caplog):
    """nvtx 0.2.12 and later send nothing under nsys 2022.4: what torch has of NVTX does, and without it there is a warning."""
    from types import SimpleNamespace

    from traceread.capture.sinks import nvtx_sinks

    class DummyDomain:
        pass

    sent = []
    deaf = SimpleNamespace(get_domain=lambda name: DummyDomain(), push_range=lambda name: sent.append(name), pop_range=lambda: None)
    monkeypatch.setitem(sys.modules, "nvtx", deaf)
    monkeypatch.delenv("NSYS_PROFILING_SESSION_ID", raising=False)
    [sink] = nvtx_sinks()  # without nsys nobody is to hear it
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with caplog.at_level(logging.WARNING, "traceread.capture"):
        assert nvtx_sinks() == ()
    assert "nvtx<0.2.12" in caplog.text
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda name: sent.append(f"torch {name}"))
    [sink] = nvtx_sinks()
    sink.push("step 1")
    assert sent == ["torch step 1"]


def test_modules_are_named_and_closed_even_when_one_fails(torch):
    class Fails(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError("no")

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(Fails()))
    with capture.annotate(model), notes() as seen, pytest.raises(RuntimeError, match="no"):
        model(torch.ones(1, 2))
    assert seen == ["+0", "-0", "+1", "+1.0", "-1.0", "-1"]
    with notes() as seen, pytest.raises(RuntimeError, match="no"):
        model(torch.ones(1, 2))
    assert seen == []
    with capture.annotate(model, depth=1), notes() as seen, pytest.raises(RuntimeError, match="no"):
        model(torch.ones(1, 2))
    assert "+1.0" not in seen
    assert "+1" in seen


# --- captures ------------------------------------------------------------------------------------------------------------------


def names_of(trace):
    return {trace.names[code] for code in trace.ranges.name.tolist()}


def test_one_process(train, tmp_path):
    done = run(tmp_path, f"train({str(tmp_path / 'run')!r}, job='tiny', model={{'parameters': 289}}, tokens_per_step=4)")
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["rank0.pt.trace.json.gz", "run.json"]
    profile = traceread.load(tmp_path / "run")
    [trace] = profile.traces
    assert trace.rank == 0
    names = names_of(trace)
    assert {"ProfilerStep#5", "ProfilerStep#6", "ProfilerStep#7", "data wait", "forward", "backward", "optimizer", "0", "2"} <= names
    assert not {"ProfilerStep#4", "ProfilerStep#8"} & names
    described = read_run(tmp_path / "run" / "run.json")
    assert described.notices == ()
    assert (described.run.job, described.run.world_size, described.run.model.parameters) == ("tiny", 1, 289)
    assert described.run.tokens_per_step.valid == 4
    assert 0 < described.run.untraced_step_ns < 10**10
    assert described.run.stack["torch"]
    assert described.run.profiler["write_ns"] > 0
    [notice] = [n for n in traceread.analyze(tmp_path / "run").all_notices if n.slug == "no-gpu-work"]
    assert "nothing about whether" in notice.message


def test_two_processes(train, tmp_path):
    code = f"""
import torch.distributed as dist
dist.init_process_group("gloo")
train({str(tmp_path / "run")!r}, ddp=True, workers=0)
dist.destroy_process_group()
"""
    path = script(tmp_path, code)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(path)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-2000:]
    profile = traceread.load(tmp_path / "run")
    assert [trace.rank for trace in profile.traces] == [0, 1]
    for trace in profile.traces:
        assert {"ProfilerStep#5", "ProfilerStep#6", "ProfilerStep#7", "forward", "data wait"} <= names_of(trace)
    described = read_run(tmp_path / "run" / "run.json").run
    assert described.world_size == 2
    assert "ranks_by_hash" not in described.stack  # one machine, one stack


def test_only_some_ranks_record(train, tmp_path):
    p = train(tmp_path / "run", ranks=[1], workers=0)
    assert p.paths == ()
    assert [f.name for f in (tmp_path / "run").iterdir()] == ["run.json"]
    assert read_run(tmp_path / "run" / "run.json").run.untraced_step_ns


def test_windows_again_and_again(train, tmp_path):
    train(tmp_path, steps=16, wait=1, warmup=1, every=6, workers=0)
    assert {p.name for p in tmp_path.glob("*.gz")} == {f"rank0.step{n}.pt.trace.json.gz" for n in (2, 8, 14)}


def test_leaving_early_writes_what_there_is(train, tmp_path):
    train(tmp_path, steps=7, workers=0)
    [trace] = traceread.load(tmp_path).traces
    assert "ProfilerStep#5" in names_of(trace)


def test_no_secret_is_written(train, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "s3cr3t-value")
    monkeypatch.setattr(sys, "argv", ["train.py", "--token", "s3cr3t-value"])
    train(tmp_path, workers=0)
    import gzip

    for path in tmp_path.iterdir():
        data = path.read_bytes()
        assert b"s3cr3t" not in (gzip.decompress(data) if path.suffix == ".gz" else data), path.name


def test_a_process_with_a_rank_of_its_own_describes_itself(train, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    train(tmp_path, workers=0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rank3.pt.trace.json.gz", "run.rank3.json"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
@pytest.mark.parametrize("steps", [6, 9])
def test_killed_in_the_middle(train, tmp_path, steps):
    """Killed within the window, and right after it: what is there can be read."""
    kill = f"import os, signal\n_real = capture.Profiling.step\ndef step(p):\n    _real(p)\n    if p._step == {steps}:\n"
    kill += "        os.kill(os.getpid(), signal.SIGKILL)\ncapture.Profiling.step = step\n"
    done = run(tmp_path, f"{kill}train({str(tmp_path / 'run')!r}, workers=0)")
    assert done.returncode == -signal.SIGKILL
    assert read_run(tmp_path / "run" / "run.json").run.untraced_step_ns
    if steps == 9:
        [trace] = traceread.load(tmp_path / "run").traces
        assert "ProfilerStep#7" in names_of(trace)


def test_a_full_disk_does_not_break_training(train, tmp_path, caplog):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    (tmp_path / "rank0.pt.trace.json").symlink_to(full)
    (tmp_path / "run.json.tmp").symlink_to(full)
    with caplog.at_level(logging.WARNING, "traceread.capture"):
        p = train(tmp_path, workers=0)
    assert p._step == 12
    assert "run.json" in caplog.text


def test_a_profiler_that_does_not_start_does_not_break_training(train, tmp_path, monkeypatch, caplog):
    def refuse(recorder):
        raise RuntimeError("CUPTI is taken")

    monkeypatch.setattr("traceread.capture.torch_recorder.TorchRecorder.start", refuse)
    p = train(tmp_path, workers=0)
    assert p._step == 12
    assert "CUPTI is taken; training goes on" in caplog.text
    assert [f.name for f in tmp_path.iterdir()] == ["run.json"]


def test_a_directory_that_cannot_be_made_does_not_break_training(train, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    p = train(tmp_path / "file" / "run", workers=0)
    assert p._step == 12
    assert "training goes on" in caplog.text


# --- nsys ----------------------------------------------------------------------------------------------------------------------


def test_command_of_nsys():
    one = nsys_command(Path("my run"), Schedule(), gpu=True, environment={}, arguments=["train.py", "--lr", "1 e"])
    assert one == (
        "nsys profile -t cuda,nvtx,osrt --sample=none --cpuctxsw=none --capture-range=cudaProfilerApi --capture-range-end=stop "
        "-o 'my run'/rank0 python train.py --lr '1 e'"
    )
    many = nsys_command(Path("run"), Schedule(every=50), gpu=False, environment={"SLURM_PROCID": "1"}, arguments=["t.py"])
    assert many == "nsys profile -t nvtx,osrt --sample=none --cpuctxsw=none -o run/rank%q{SLURM_PROCID} python t.py"


def test_nsys_backend_names_steps_and_switches_the_recording(train, tmp_path, monkeypatch, torch):
    from traceread.capture import nsys_recorder, sinks

    seen = Notes()
    monkeypatch.setattr(sinks, "nvtx_sinks", lambda: (seen,))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    switched = []
    real = nsys_recorder.NsysRecorder._switch
    monkeypatch.setattr(nsys_recorder.NsysRecorder, "_switch", lambda r, on: (switched.append((on, len(seen.seen))), real(r, on=on)))
    seen.pop = lambda begun: seen.seen.append("-")
    train(tmp_path, backend="nsys", workers=0)
    assert [s for s in seen.seen if s.startswith("+step")] == ["+step 5", "+step 6", "+step 7"]
    assert seen.seen.count("-") == sum(s.startswith("+") for s in seen.seen)
    (on, before), (off, after) = switched
    assert (on, off) == (True, False)
    assert before <= seen.seen.index("+step 5")
    assert after > seen.seen.index("+step 7")
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]
    assert json.loads((tmp_path / "run.json").read_text())["profiler"]["backend"] == "nsys"


def test_a_capture_by_nsys_itself(torch, tmp_path):
    """The command that the capture prints, where there is an nsys: steps and ranges are in its report."""
    nsys = shutil.which("nsys")
    if nsys is None:
        pytest.skip("nsys is not installed")
    pytest.importorskip("nvtx", reason="nvtx is not installed: pip install -e '.[capture]'")
    train = script(tmp_path, "train('run', backend='nsys', workers=0)")
    command = nsys_command(Path("run"), Schedule(4, 1, 3), gpu=torch.cuda.is_available(), environment={}, arguments=[str(train)])
    (tmp_path / "run").mkdir()
    path = {
        name: os.pathsep.join([here, os.environ.get(name, "")]) for name, here in (("PYTHONPATH", str(ROOT)), ("PATH", sys.prefix + "/bin"))
    }
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=os.environ | path, capture_output=True, text=True, timeout=180)
    if "nvtx<0.2.12" in done.stderr + done.stdout:
        pytest.skip("this nsys is too old for this nvtx")
    report = tmp_path / "run" / "rank0.nsys-rep"
    if not report.exists():
        pytest.skip("this nsys has no importer and wrote no report")
    [trace] = traceread.load(report).traces
    assert {"step 5", "step 6", "step 7", "data wait", "forward"} <= names_of(trace)
    assert not {"step 4", "step 8"} & names_of(trace)


# --- the fingerprint -----------------------------------------------------------------------------------------------------------


def test_hash_knows_everything_but_the_host():
    stack = {"host": "a", "torch": "2.13.0"}
    assert stack_hash(stack) == stack_hash({**stack, "host": "b"})
    assert stack_hash(stack) != stack_hash({**stack, "torch": "2.12.0"})
    assert ranks_by_hash(["x", "y", "x"]) == {"x": [0, 2], "y": [1]}


def test_importing_capture_does_not_import_torch():
    code = "import sys, traceread.capture\nprint([m for m in ('torch', 'nvtx') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
