"""Looks for texts that the compiled scanner reads wrongly, or outside their memory.

    pip install -e . Cython atheris && python fuzz/scanner_fuzz.py --seconds 300

It builds the scanner with AddressSanitizer and the coverage counters of libFuzzer (this needs clang), and lets libFuzzer, which comes
with atheris, make texts for it. What the scanner understands, the typed decoder must understand too and say the same of; what it does
not, is the other's. A text that breaks this, or makes the scanner touch memory that is not its own, is left in the working directory as
crash-*; run with that file as an argument, the script shows it again. Exit code 1 if one was found.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceread.readers.whole_events import WholeEvents

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "traceread" / "readers" / "_scanner.pyx"
CHILD = "TRACEREAD_FUZZ_CHILD"
LONGEST = 4096

TOKENS = [
    '"ph":"X"', '"ph":"M"', '"cat"', '"name"', '"pid"', '"tid"', '"ts"', '"dur"', '"args"', '"device"', '"stream"', '"correlation"',
    '"Correlation"', '"bytes"', '"graph node id"', '"fromDevice"', '"toDevice"', '"wait_on_cuda_event_record_corr_id"', '"labels"',
    '"Input Dims"', '"Input dims"', '"Collective name"', '"thread_name"', '"process_labels"', '"kernel"', '"cpu_op"', '"nccl:',
    '"symm_mem::', '"aten::mm"', '"0x7f"', '"128"', "},{", '":', "null", "true", "false", "1e3", "-0", "0.0005", "4611686018427387.904",
    "[[1,2],[3]]", '"\\\\u0041"', '"\\\\ud800"', '"\\\\n"', "\\xff", "\\xc3\\xa9", " ", "\\x0a",
]  # fmt: skip
SEEDS = [
    b'{"ph": "X", "cat": "kernel", "name": "gemm<float>", "pid": 0, "tid": 7, "ts": 5577.123, "dur": 12.5, "args": {"device": 0, '
    b'"stream": 7, "correlation": 12, "External id": 3, "grid": [1, 2, 3], "est. achieved occupancy %": 12.5, "graph node id": 0}}',
    b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 4000, "tid": 4001, "ts": 1712195495519689.047, "dur": 3, "args": {'
    b'"Input Dims": [[64, 32], [32, 16]], "Input type": ["float", "float"], "Call stack": "train.py(1): <module>;\\n\\u00e9"}}',
    b'{"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":1,"tid":2,"ts":1,"dur":2,"args":{"Collective name":"allreduce","Rank":0}}',
    b'{"name": "thread_name", "ph": "M", "ts": 0, "pid": 4000, "tid": "stream 7", "args": {"name": "thread 1 (pt_main_thread)"}},\n  '
    b'{"ph": "s", "id": 5, "pid": 1, "tid": 2, "ts": 3, "cat": "ac2g", "name": "ac2g"},\n  '
    b'{"ph": "f", "id": 5, "pid": 0, "tid": 7, "ts": 4, "cat": "ac2g", "name": "ac2g", "bp": "e"}',
    b'{"ph": "X", "cat": "cuda_runtime", "name": "hipMemcpyAsync", "pid": 5, "tid": 5, "ts": -1.25, "dur": 0.0005, "args": {'
    b'"bytes": "128", "stream": "0x0", "fromDevice": 0, "toDevice": 1, "wait_on_cuda_event_record_corr_id": -1, "Correlation": 9}}',
    b", ".join(  # one layout
        b'{"ph": "X", "cat": "cpu_op", "name":"aten::mm","pid": 1, "tid": %d, "ts": %d.5, "dur": 3, "args": {"Input Dims": [[%d]], "b":%d}}'
        % (i // 3, i, i, i)
        for i in range(8)
    ),
]  # fmt: skip


def build(directory: Path) -> None:
    """The scanner with AddressSanitizer and coverage counters, as a module in a directory.

    Raises:
        SystemExit: clang or Cython is not there.
    """
    clang = shutil.which("clang") or next((found for n in range(30, 10, -1) if (found := shutil.which(f"clang-{n}"))), None)
    if clang is None:
        raise SystemExit("this needs clang: apt install clang, or its like")
    shutil.copy(SOURCE, directory)
    script = "from setuptools import Extension, setup; from Cython.Build import cythonize; "
    script += "setup(name='fuzzed', ext_modules=cythonize([Extension('_scanner', ['_scanner.pyx'])]))"
    flags = "-O1 -g -fno-omit-frame-pointer -fsanitize=address,fuzzer-no-link"
    env = os.environ | {"CC": clang, "CFLAGS": flags, "LDSHARED": f"{clang} -shared -fsanitize=address,fuzzer-no-link"}
    done = subprocess.run(
        [sys.executable, "-c", script, "-q", "build_ext", "--inplace"], cwd=directory, env=env, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])


def run(directory: Path, seconds: int, inputs: list[str]) -> int:
    """Exit code of libFuzzer after so many seconds."""
    import atheris

    corpus = directory / "corpus"
    corpus.mkdir()
    for i, seed in enumerate(SEEDS):
        (corpus / f"seed-{i}").write_bytes(seed)
    tokens = directory / "tokens"
    tokens.write_text("\n".join('"' + token.replace('"', '\\"') + '"' for token in TOKENS) + "\n", "ascii")
    env = os.environ | {
        CHILD: str(directory),
        "LD_PRELOAD": str(Path(atheris.path()) / "asan_with_fuzzer.so"),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "PYTHONMALLOC": "malloc",  # so that every text ends where its memory does
        "PYTHONPATH": os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]),
    }
    options = [f"-max_total_time={seconds}", f"-max_len={LONGEST}", f"-dict={tokens}", "-print_final_stats=1"]
    return subprocess.run([sys.executable, __file__, *(inputs or [*options, str(corpus)])], env=env).returncode


def taken_out(whole: WholeEvents) -> str:
    """What was taken out of single events beside their columns, comparable."""
    records, groups = whole.collectives.table(lambda process, thread: 0, 0, {}, 0)
    columns = (*records.columns(), *whole.matrices.table(lambda process, thread: 0, 0).columns())
    return repr((groups, [(name, values.tolist()) for name, values in columns]))


def check(text: bytes) -> None:
    """Fails where the scanner makes something else of a text than the typed decoder."""
    from traceread.readers import scanner
    from traceread.readers.event_columns import Columns, decoded_many
    from traceread.readers.whole_events import WholeEvents

    check_file(text)
    scan = scanner.scan(text, 0, len(text), scanner.room_for(scanner.most_rows(len(text))))
    if scan is None:
        return
    ours, theirs = Columns(), Columns()
    batch = ours.scanned(scan)
    if batch is None:
        return
    events = decoded_many(text)
    assert events is not None, "only the scanner understands it"
    expected = theirs.batch(events)
    assert scan.told.objects == len(events), "objects"
    for field in dataclasses.fields(expected):
        assert getattr(batch, field.name).tolist() == getattr(expected, field.name).tolist(), field.name
    for name in ("names", "categories", "tracks", "labels", "events"):
        assert repr(getattr(ours, name)) == repr(getattr(theirs, name)), name
    alone, together = WholeEvents(), WholeEvents()
    for event in scan.told.whole:
        alone.look(event)
    together.look(text, [event.name for event in events])
    assert taken_out(alone) == taken_out(together), "events taken out whole"


def check_file(text: bytes) -> None:
    """Fails where what is scanned of a file is something else than what is scanned of the same text."""
    from traceread.readers import scanner

    descriptor = os.memfd_create("text")
    try:
        os.write(descriptor, text)
        for begin in (0, len(text) // 3):
            for buffer_bytes in (300, 1 << 16):
                room = scanner.room_for(scanner.most_rows(len(text) - begin))
                part = scanner.scan_file(descriptor, begin, max(begin + 1, len(text) - 40), begin == 0, buffer_bytes, room)
                if part is None or not part.scan.told.objects:
                    continue
                same = scanner.scan(text, part.begin, part.end, scanner.room_for(scanner.most_rows(len(text))))
                assert same is not None, "only the scanner of files understands it"
                for name in ("rows", "objects", "events", "categories", "names", "identities", "tracks", "labels", "whole"):
                    assert getattr(part.scan.told, name) == getattr(same.told, name), name
                for name, one, other in zip(same.columns()._fields, part.scan.columns(), same.columns(), strict=True):
                    assert (one == other).all(), name
    finally:
        os.close(descriptor)


def fuzz(directory: str) -> None:
    """Runs libFuzzer in this process; it ends the process."""
    import atheris

    sys.path.insert(0, directory)
    import _scanner

    from traceread.readers import scanner

    scanner._scanner, scanner._HERE = _scanner, True
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


def main() -> int:
    """Builds and runs; exit code 1 if a text was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=120, help="how long (default: 120)")
    parser.add_argument("inputs", nargs="*", metavar="FILE", help="only look at these texts")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scanner-fuzz-") as directory:
        build(Path(directory))
        return 1 if run(Path(directory), args.seconds, args.inputs) else 0


if __name__ == "__main__":
    if CHILD in os.environ:
        fuzz(os.environ[CHILD])
    else:
        sys.exit(main())
