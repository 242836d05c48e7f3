"""A function over the parts of a job: in this process, in several, or on a Dask cluster.

Nothing is scheduled here. A process gets its next part when it has answered the last one, over a pipe that only it writes to: when
it is killed, its part is known and nobody waits. Answers come in the order in which they are ready.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from traceread.errors import ClusterError, TracereadError, WorkerLost
from traceread.records import record

if TYPE_CHECKING:  # one rank is read in this process, which should not pay for starting others
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

P = TypeVar("P")
T = TypeVar("T")

_ALONE = "--jobs 1 reads one rank after the other; --keep-going reports the others without it"
_BUG = "this is a bug in traceread; the same command with --jobs 1 --debug shows where"
_DASK = "pip install 'traceread[cluster]'"
_SAME = "install the version of traceread on them that is installed here"
_CONNECT_S = 20.0
_WORTH_BYTES = 64 << 20
_EACH_BYTES = 4 << 20
"""What a part costs beside its bytes, in bytes: steps to find, rules to run."""
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_MALLOC = {-3: 32 << 20, -1: 128 << 20, -2: 16 << 20, -8: 1}
"""mallopt(3): M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_TOP_PAD in bytes; M_ARENA_MAX, so that a thread uses again what others freed."""
_LOOK_S = 5.0
_PATIENCE_S = 60.0
_NAP_S = 0.02
_GRACE_S = 5.0


@record
class Workers:
    """Who does the work.

    Attributes:
        jobs: processes; 1: this one; 0: as many as there are CPUs, or this one where starting others would take longer.
        cluster: address of a Dask scheduler, such as "tcp://host:8786"; then `jobs` says nothing.
        alone: this process does nothing else, so if it does the work it may settle how it keeps memory.
    """

    jobs: int = 1
    cluster: str | None = None
    alone: bool = False

    def processes(self, parts: int, size: int) -> int:
        """How many processes work on so many parts of so many bytes together; 1: this one does."""
        if not self.jobs and size + parts * _EACH_BYTES < _WORTH_BYTES:
            return 1
        return max(1, min(self.jobs or cpus(), parts))


@record
class Outcome(Generic[T]):
    """What became of one part.

    Attributes:
        position: which part.
        result: the answer, None if there is none.
        error: why there is none, else None.
    """

    position: int
    result: T | None
    error: TracereadError | None = None

    def answer(self) -> T:
        """The answer; raises the error if there is none."""
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result


def meanwhile(prepare: Callable[[], object]) -> None:
    """Does in a thread of its own what will be needed soon, such as imports: while files are scanned the interpreter has time for it."""

    def work() -> None:
        with suppress(Exception):  # who needs it meets the same
            prepare()

    Thread(target=work).start()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """While it lasts, numpy is loaded without threads for linear algebra: nobody needs them, and starting them takes processor time."""
    given = os.environ.get(_BLAS_THREADS)
    os.environ[_BLAS_THREADS] = given or "1"
    try:
        yield
    finally:
        if given is None:
            del os.environ[_BLAS_THREADS]


def keep_freed_memory() -> None:
    """Has the C library of this process keep what is freed for the next that asks, more than it does by itself; only glibc knows how.

    Columns are made and dropped all the time, and to get memory from the system anew takes longer than to fill it.
    """
    from ctypes import CDLL  # numpy has it already

    with suppress(AttributeError, OSError, TypeError):
        mallopt = CDLL(None).mallopt
        for option, value in _MALLOC.items():
            mallopt(option, value)


def cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_parts(
    function: Callable[[P], T], parts: Sequence[P], names: Sequence[str], workers: Workers, size: int = 0
) -> Iterator[Outcome[T]]:
    """The outcome of the function for every part, as they are ready; errors are outcomes too.

    Unless one process does it all, the function must be importable, parts and results must be picklable, and a script must
    start its work under `if __name__ == "__main__"`.

    Args:
        function: what to do; it should raise TracereadError only.
        parts: what to do it to.
        names: how errors call each part, such as "rank 3".
        workers: who does it.
        size: bytes of all parts together.

    Raises:
        ClusterError: the cluster cannot be reached, or has no workers any more.
    """
    if workers.cluster is not None:
        yield from _on_cluster(function, parts, names, workers.cluster)
    elif (count := workers.processes(len(parts), size)) > 1:
        yield from _in_processes(function, parts, names, count)
    else:
        if workers.alone and parts:
            keep_freed_memory()
        for position, part in enumerate(parts):
            yield _attempt(function, position, part, names[position])


def _attempt(function: Callable[[P], T], position: int, part: P, name: str) -> Outcome[T]:
    try:
        return Outcome(position, function(part))
    except TracereadError as error:
        return Outcome(position, None, error)
    except MemoryError:
        return Outcome(position, None, WorkerLost(f"{name}: there is not enough memory", _ALONE))
    except Exception as error:
        failure = TracereadError(f"{name}: unexpected {type(error).__name__}: {error}", _BUG, "internal")
        failure.__cause__ = error
        return Outcome(position, None, failure)


# --- processes of this machine -----------------------------------------------------------------------------------------------


def _in_processes(function: Callable[[P], T], parts: Sequence[P], names: Sequence[str], count: int) -> Iterator[Outcome[T]]:
    import multiprocessing
    from multiprocessing.connection import Connection, wait

    # Forked processes would inherit locks that a thread of this one may hold; started ones inherit nothing.
    context = multiprocessing.get_context("spawn")
    left = deque(range(len(parts)))
    working: dict[Connection, tuple[BaseProcess, int]] = {}
    started: list[BaseProcess] = []

    def start() -> tuple[BaseProcess, Connection]:
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, function), daemon=True)
        started.append(process)
        with suppress(BrokenPipeError), one_blas_thread():  # killed at once, which reading from it will tell
            process.start()
        theirs.close()
        return process, ours

    def give(process: BaseProcess, connection: Connection, position: int) -> None:
        working[connection] = process, position
        with suppress(OSError):  # it has ended already, which reading from it will tell
            connection.send((position, parts[position], names[position]))

    try:
        while left or working:
            while left and len(working) < count:
                give(*start(), left.popleft())
            for connection in wait(list(working)):
                assert isinstance(connection, Connection)
                process, position = working.pop(connection)
                try:
                    outcome: Outcome[T] = connection.recv()
                except (EOFError, OSError):
                    connection.close()
                    outcome = Outcome(position, None, _lost(names[position], _exitcode(process)))
                else:
                    if left:
                        give(process, connection, left.popleft())
                    else:
                        connection.close()
                yield outcome
    finally:
        for process in started:  # those that have nothing to do any more too: they have nothing to finish
            with suppress(AttributeError):  # it never started
                process.kill()
                process.join()


def _exitcode(process: BaseProcess) -> int | None:
    """The exit code of a process that has stopped answering; None if it has not ended all the same, or never began."""
    with suppress(AssertionError):
        process.join(_GRACE_S)
    return process.exitcode


def _serve(connection: Connection, function: Callable[[Any], Any]) -> None:
    """Answers parts until there are no more, or the starting process has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the starting one stops the others
    keep_freed_memory()
    while True:
        try:
            position, part, name = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(_attempt(function, position, part, name))


def _lost(name: str, exitcode: int | None) -> WorkerLost:
    if exitcode is None:
        how = "does not answer any more"
    elif exitcode < 0:
        how = f"was killed by signal {-exitcode}" + (", as the system does when memory runs out" if exitcode == -9 else "")
    else:
        how = f"ended with exit code {exitcode}"
    return WorkerLost(f"{name}: the process that read it {how}", _ALONE)


# --- Dask --------------------------------------------------------------------------------------------------------------------


def _on_cluster(function: Callable[[P], T], parts: Sequence[P], names: Sequence[str], address: str) -> Iterator[Outcome[T]]:
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise ClusterError("--cluster needs Dask, which is not installed", _DASK) from None
    try:
        client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:  # a timeout is an OSError
        raise ClusterError(f"there is no Dask scheduler at {address}: {error}", "dask scheduler") from None
    with client:
        futures = {
            client.submit(_attempt, function, position, part, names[position], pure=False): position for position, part in enumerate(parts)
        }
        ready = distributed.as_completed(futures, loop=client.loop)
        looked = worked = monotonic()
        while futures:
            batch = ready.next_batch(block=False)
            for future in batch:
                position = futures.pop(future)
                yield _outcome_of(future, position, names[position], address)
                future.release()
            now = monotonic()
            if not batch and now - looked > _LOOK_S:
                looked = now
                worked = now if _has_workers(client, address) else worked
                if now - worked > _PATIENCE_S:
                    raise ClusterError(f"the cluster at {address} has no workers", f"dask worker {address}")
            if not batch:
                sleep(_NAP_S)


def _has_workers(client: Any, address: str) -> bool:
    try:
        return bool(client.nthreads())
    except Exception as error:  # whatever it is, the scheduler has not answered
        raise ClusterError(f"the Dask scheduler at {address} does not answer any more: {error}", "dask scheduler") from None


def _outcome_of(future: Any, position: int, name: str, address: str) -> Outcome[Any]:
    from concurrent.futures import CancelledError

    distributed: Any = import_module("distributed")
    try:
        outcome: Outcome[Any] = future.result()
    except CancelledError:
        raise ClusterError(f"the connection to the Dask scheduler at {address} was lost", "dask scheduler") from None
    except distributed.KilledWorker:
        return Outcome(position, None, WorkerLost(f"{name}: the Dask workers that read it ended again and again", _ALONE))
    except Exception as error:  # what the function raises is an outcome, so this is about the workers
        raise ClusterError(f"the workers of {address} cannot run traceread: {type(error).__name__}: {error}", _SAME) from None
    return outcome
