"""Parts of a job over this process, others, and Dask: the same answers, and every way of losing a worker told."""

import os
import platform
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from traceread import engine
from traceread.engine import Workers, cpus, map_parts, meanwhile, one_blas_thread
from traceread.errors import ClusterError, CorruptTrace, TracereadError, WorkerLost


def double(part):
    return 2 * part


def process_of(_):
    time.sleep(0.05)
    return os.getpid()


def strange(part):
    if part == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if part == "gone":
        os._exit(3)
    if part == "corrupt":
        raise CorruptTrace("a.json is damaged", "copy it again")
    if part == "memory":
        raise MemoryError
    if part == "bug":
        raise KeyError("step")
    if part == "large":
        return np.arange(1 << 20)
    if part == "killed while it answers":
        return Deadly()
    return part


class Deadly:
    """Kills its process when half of it is on its way."""

    def __reduce__(self):
        return Deadly._made, (bytes(1 << 20), Trap())

    @staticmethod
    def _made(*_):
        return None


class Trap:
    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGKILL)


def outcomes(parts, workers, function=strange):
    found = list(map_parts(function, parts, [f"rank {i}" for i in range(len(parts))], workers))
    assert sorted(o.position for o in found) == list(range(len(parts)))
    return sorted(found, key=lambda o: o.position)


@pytest.mark.parametrize("jobs", [1, 3])
def test_every_part_is_answered_once(jobs):
    assert [o.answer() for o in outcomes(list(range(20)), Workers(jobs), double)] == list(range(0, 40, 2))


def test_nothing_to_do_is_done():
    assert list(map_parts(double, [], [], Workers(4))) == []


def test_processes_are_others_and_are_used_again():
    seen = {o.answer() for o in outcomes([None] * 8, Workers(2), process_of)}
    assert os.getpid() not in seen
    assert len(seen) == 2
    assert {o.answer() for o in outcomes([None] * 3, Workers(1), process_of)} == {os.getpid()}


def test_no_more_processes_than_parts():
    assert Workers(jobs=64).processes(parts=3, size=0) == 3
    assert Workers(jobs=2).processes(parts=0, size=0) == 1


def test_processes_are_started_where_they_pay():
    assert Workers(jobs=0).processes(parts=4, size=1 << 20) == 1
    assert Workers(jobs=0).processes(parts=4, size=1 << 30) == min(cpus(), 4)
    assert Workers(jobs=0).processes(parts=1000, size=0) == min(cpus(), 1000)


@pytest.mark.parametrize("jobs", [1, 2])
def test_errors_are_outcomes_and_the_others_go_on(jobs):
    corrupt, memory, bug, fine = outcomes(["corrupt", "memory", "bug", "fine"], Workers(jobs))
    assert isinstance(corrupt.error, CorruptTrace)
    assert (corrupt.error.message, corrupt.error.hint) == ("a.json is damaged", "copy it again")
    assert isinstance(memory.error, WorkerLost)
    assert memory.error.message == "rank 1: there is not enough memory"
    assert bug.error.slug == "internal"
    assert bug.error.message == "rank 2: unexpected KeyError: 'step'"
    assert fine.answer() == "fine"
    with pytest.raises(CorruptTrace):
        corrupt.answer()


def test_killed_workers_are_named_and_replaced():
    found = outcomes(["killed", "a", "gone", "b", "killed", "c", "large"], Workers(2))
    lost = [(o.position, o.error.message) for o in found if o.error is not None]
    assert lost == [
        (0, "rank 0: the process that read it was killed by signal 9, as the system does when memory runs out"),
        (2, "rank 2: the process that read it ended with exit code 3"),
        (4, "rank 4: the process that read it was killed by signal 9, as the system does when memory runs out"),
    ]
    assert [o.result for o in found if o.error is None][:3] == ["a", "b", "c"]
    assert int(found[6].result.sum()) == (1 << 20) * ((1 << 20) - 1) // 2


def test_all_workers_killed_is_an_end_too():
    assert all(isinstance(o.error, WorkerLost) for o in outcomes(["killed"] * 5, Workers(2)))


def test_an_answer_cut_in_the_middle_is_a_lost_worker():
    cut, fine = outcomes(["killed while it answers", "fine"], Workers(2))
    assert isinstance(cut.error, WorkerLost)
    assert fine.answer() == "fine"


def sleepy(seconds):
    time.sleep(seconds)
    return os.getpid()


def test_giving_up_stops_the_workers():
    answers = map_parts(sleepy, [0.0, 60.0], ["a", "b"], Workers(2))
    next(answers)
    begun = time.monotonic()
    answers.close()
    assert time.monotonic() - begun < 10
    import multiprocessing

    assert multiprocessing.active_children() == []


# Dask


@pytest.fixture(scope="module")
def dask_here():
    """Dask with short patience."""
    distributed = pytest.importorskip("distributed")
    import dask

    with dask.config.set({"distributed.comm.timeouts.connect": "3s", "distributed.scheduler.allowed-failures": 1}):
        yield distributed


@pytest.fixture(scope="module")
def cluster(dask_here):
    with dask_here.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as local:
        yield local


def test_dask_answers_alike(cluster):
    workers = Workers(cluster=cluster.scheduler_address)
    assert [o.answer() for o in outcomes(list(range(20)), workers, double)] == list(range(0, 40, 2))
    assert os.getpid() not in {o.answer() for o in outcomes([None] * 4, workers, process_of)}


def test_errors_travel_over_dask(cluster):
    corrupt, bug, fine = outcomes(["corrupt", "bug", "fine"], Workers(cluster=cluster.scheduler_address))
    assert isinstance(corrupt.error, CorruptTrace)
    assert corrupt.error.hint == "copy it again"
    assert bug.error.slug == "internal"
    assert fine.answer() == "fine"


def test_a_worker_of_dask_that_dies_again_and_again_is_named(cluster):
    killed, fine = outcomes(["gone", "fine"], Workers(cluster=cluster.scheduler_address))
    assert isinstance(killed.error, WorkerLost)
    assert killed.error.message.startswith("rank 0: ")
    assert fine.answer() == "fine"


def test_no_scheduler_is_said_soon(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("traceread.engine._CONNECT_S", 1.0)
    with pytest.raises(ClusterError, match=r"no Dask scheduler at tcp://127\.0\.0\.1:9"):
        outcomes([1], Workers(cluster="tcp://127.0.0.1:9"), double)


def test_a_cluster_without_workers_is_an_error_and_no_hang(dask_here, monkeypatch):
    monkeypatch.setattr("traceread.engine._LOOK_S", 0.1)
    monkeypatch.setattr("traceread.engine._PATIENCE_S", 0.5)
    with (
        dask_here.LocalCluster(n_workers=0, dashboard_address=":0") as empty,
        pytest.raises(ClusterError, match="has no workers"),
    ):
        outcomes([1], Workers(cluster=empty.scheduler_address), double)


def test_a_scheduler_that_goes_away_is_an_error_and_no_hang(dask_here, monkeypatch):
    monkeypatch.setattr("traceread.engine._LOOK_S", 0.1)
    local = dask_here.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
    answers = map_parts(sleepy, [0.0, 600.0], ["a", "b"], Workers(cluster=local.scheduler_address))
    next(answers)
    local.close()
    with pytest.raises(TracereadError, match=r"Dask|cluster|workers"):
        list(answers)


def test_without_dask_the_way_to_get_it_is_said(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ClusterError) as raised:
        outcomes([1], Workers(cluster="tcp://127.0.0.1:9"), double)
    assert raised.value.hint == "pip install 'traceread[cluster]'"


@pytest.mark.parametrize("given", [None, "4"])
def test_numpy_is_loaded_without_threads_of_its_own_unless_they_are_asked_for(monkeypatch, given):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", given)
    with one_blas_thread():
        assert os.environ["OPENBLAS_NUM_THREADS"] == (given or "1")
    assert os.environ.get("OPENBLAS_NUM_THREADS") == given  # programs that are started later have what they had


_DROPPED = """
import sys
import numpy as np
from traceread.engine import keep_freed_memory
if len(sys.argv) > 1:
    keep_freed_memory()
from resource import RUSAGE_SELF, getrusage
before = getrusage(RUSAGE_SELF).ru_minflt
for _ in range(50):
    np.empty(1 << 20, np.uint8).fill(1), np.empty(3 << 20, np.uint8).fill(1)
print(getrusage(RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not platform.libc_ver()[0].startswith("glibc"), reason="only glibc is asked to keep memory")
def test_freed_memory_is_kept():
    asked = {how: int(subprocess.check_output([sys.executable, "-c", _DROPPED, *how])) for how in ((), ("keep",))}
    assert asked["keep",] < 2000, "four MiB are a thousand pages"
    assert asked[()] > asked["keep",]


@pytest.mark.parametrize(("workers", "asks"), [(Workers(), 0), (Workers(alone=True), 1), (Workers(2, alone=True), 0)])
def test_memory_is_kept_by_who_does_the_work(monkeypatch, workers, asks):
    asked = []
    monkeypatch.setattr(engine, "keep_freed_memory", lambda: asked.append(1))
    assert sorted(outcome.answer() for outcome in outcomes([1, 2], workers, double)) == [2, 4]
    assert len(asked) == asks
    assert outcomes([], workers, double) == []
    assert len(asked) == asks, "nothing to do needs no memory"


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_without_glibc_nothing_is_asked(monkeypatch, error):
    def library(name):
        raise error

    monkeypatch.setattr("ctypes.CDLL", library)
    engine.keep_freed_memory()


def test_what_fails_meanwhile_fails_where_it_is_needed():
    done = threading.Event()

    def prepare():
        done.set()
        raise ImportError("no")

    meanwhile(prepare)
    assert done.wait(10)
