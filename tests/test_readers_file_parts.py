"""Parts of a file scanned at once, against the same file read as one text."""

import os
import random
import sys
from contextlib import ExitStack

import pytest
from kineto_builder import two_steps
from test_readers_scanner import traced

from traceread.readers import file_parts, scanner
from traceread.readers.event_columns import Columns, decoded_many
from traceread.readers.file_parts import scanned_parts

pytestmark = pytest.mark.skipif(not scanner.is_available(), reason="the compiled scanner was not built")

NAMES = ["kernel", "},{", '},{\\"ph\\":\\"X\\"', "}, {", "aten::mm", "é", "}" * 40, "x" * 3000]


def event(number, name, inner=b'{"a":1},{"b":2}'):
    return b'{"ph":"X","cat":"kernel","name":"%s","pid":0,"tid":7,"ts":%d.5,"dur":2,"args":{"stream":7,"list":[%s]}}' % (
        name.encode(),
        number,
        inner,
    )


def scanned(path, begin, stop, **options):
    """Events and names of the parts of a file, and where each part ends."""
    descriptor = os.open(path, os.O_RDONLY)
    options = {"threads": 1, "least_bytes": 100, "most_bytes": 100, "max_event_bytes": 1 << 20} | options
    try:
        columns, starts, ends = Columns(), [], []
        for part in scanned_parts(descriptor, begin, stop, **options):
            starts += columns.scanned(part.scan).start_ns.tolist()
            ends.append(part.end)
        return starts, ends
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("separator", [b",", b", ", b",\n  ", b"\n,\n" + b" " * 200])
def test_parts_are_read_as_the_whole_is(tmp_path, threads, separator):
    events = [event(i, random.Random(i).choice(NAMES)) for i in range(1, 200)]
    text = b"[" + separator.join(events) + b"]"
    path = tmp_path / "a.json"
    path.write_bytes(text)
    expected = Columns().batch(decoded_many(text[1:-1])).start_ns.tolist()
    for length in (50, 333, 5000, 1 << 20):
        starts, ends = scanned(path, 1, len(text) - 1 - len(events[-1]), threads=threads, least_bytes=length, most_bytes=length)
        assert starts == expected[:-1]
        assert text[ends[-1] :].strip(b", \n") == events[-1] + b"]"


@pytest.mark.parametrize("inner", [b'{"a":1},{"name":"in"}', b'{"a":{}}, {"ph":1}', b'"},{\\"ph\\":1"', b'{"a":1},{"ts":2,"dur":"3"}'])
def test_what_looks_like_an_event_at_most_ends_the_parts(tmp_path, inner):
    path = tmp_path / "a.json"
    text = b"[" + b",".join(event(i, "kernel", inner) for i in range(1, 60)) + b"]"
    path.write_bytes(text)
    for length in range(20, 400, 7):
        starts, ends = scanned(path, 1, len(text) - 200, least_bytes=length, most_bytes=length)
        assert starts == [1000 * i + 500 for i in range(1, len(starts) + 1)]
        assert not ends or text[ends[-1] :].startswith(b',{"ph":"X"')


def test_a_long_event_ends_the_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(file_parts, "_BUFFER_BYTES", 2000)
    path = tmp_path / "a.json"
    text = b"[" + b",".join(event(i, "x" * (1500 if i == 5 else 2500 if i == 9 else 10)) for i in range(1, 30)) + b"]"
    path.write_bytes(text)
    starts, _ = scanned(path, 1, len(text) - 10)
    assert starts == [1500, 2500, 3500, 4500, 5500, 6500, 7500, 8500]


def test_a_file_that_became_shorter(tmp_path):
    path = tmp_path / "a.json"
    text = b"[" + b",".join(event(i, "kernel") for i in range(1, 100)) + b"]"
    path.write_bytes(text[: len(text) // 2])
    starts, ends = scanned(path, 1, len(text))
    assert 0 < len(starts) < 99
    assert ends[-1] < len(text) // 2


@pytest.mark.parametrize("layout", ["kineto", "compact", "indent", "shuffled"])
@pytest.mark.parametrize("threads", [1, 3])
def test_traces_are_read_alike(tmp_path, layout, threads):
    path = tmp_path / "a.json"
    text = two_steps().text(layout=layout)
    assert len(text) > 3000
    for i in range(40):
        chance = random.Random(i)
        damaged = bytearray(text)
        if i:
            at = chance.randrange(len(text))
            damaged[at : at + chance.choice((0, 1, 5))] = chance.choice((b"", b",", b'"', b"}", b"},{", b"]", b'},{"ph":"X"'))
        path.write_bytes(damaged)
        assert traced(path, chunk_bytes=chance.choice((64, 300, 1000)), threads=threads) == traced(path, compiled=False), i


def test_threads_leave_the_interpreter_as_it_was(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"[" + b",".join(event(i, "kernel") for i in range(1, 50)) + b"]")
    before = sys.getswitchinterval()
    with ExitStack() as files:
        at_once = []
        for _ in range(2):  # two who read at the same time, the first of whom ends first
            descriptor = os.open(path, os.O_RDONLY)
            files.callback(os.close, descriptor)
            size = path.stat().st_size
            parts = scanned_parts(descriptor, 1, size - 200, threads=2, least_bytes=100, most_bytes=100, max_event_bytes=size)
            at_once.append(parts)
            next(parts)
        assert sys.getswitchinterval() < before
        for parts in at_once:
            parts.close()
    assert sys.getswitchinterval() == before
