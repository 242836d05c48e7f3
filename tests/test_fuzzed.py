"""Some traces made wrong, always the same ones: what `fuzz/readers_fuzz.py` looks at a million times. Those it found something in stay."""

import random
import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

import kineto_inputs
import nsys_inputs
import readers_fuzz

from traceread.readers import kineto as kineto_reader


@pytest.fixture(scope="module")
def kineto():
    return kineto_inputs.Mutator(kineto_inputs.generated())


@pytest.fixture(scope="module")
def nsys():
    return nsys_inputs.Mutator(nsys_inputs.generated())


@pytest.mark.parametrize("seed", range(4))
def test_traces_made_wrong_are_read_alike_or_refused(kineto, seed, tmp_path):
    path = tmp_path / "a.json"
    outcomes = Counter()
    for number in range(seed * 1000, seed * 1000 + 60):
        rng = random.Random(number)
        path.write_bytes(kineto.make(rng))
        outcomes[readers_fuzz.read_kineto(path, rng, 0).split(":")[0]] += 1
    assert outcomes[""] > 20
    assert len(outcomes) > 1


@pytest.mark.parametrize("seed", range(2))
def test_exports_made_wrong_are_read_alike_or_refused(nsys, seed, tmp_path):
    path = tmp_path / "a.sqlite"
    outcomes = Counter()
    for number in range(seed * 1000, seed * 1000 + 25):
        rng = random.Random(number)
        path.write_bytes(nsys.make(rng))
        outcomes[readers_fuzz.read_nsys(path, rng, 0).split(":")[0]] += 1
    assert outcomes[""] > 5
    assert len(outcomes) > 1


@pytest.mark.parametrize("kind", ["kineto", "nsys"])
def test_reports_of_traces_made_wrong_add_up(kind, kineto, nsys, tmp_path):
    mutator = kineto if kind == "kineto" else nsys
    path = tmp_path / ("a.json" if kind == "kineto" else "a.sqlite")
    done = 0
    for number in range(7000, 7012):
        path.write_bytes(mutator.make(random.Random(number)))
        done += readers_fuzz.analyse(path, number == 7000) == ""
    assert done > 3


def test_a_difference_is_a_finding(kineto, tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_bytes(b"[%s]" % b",".join(kineto.seeds[0].events[:8]))
    assert readers_fuzz.read_kineto(path, random.Random(1), 0) == ""
    real = readers_fuzz.capture_told
    answers = iter([{"names": "a"}, {"names": "b"}])
    monkeypatch.setattr(readers_fuzz, "capture_told", lambda capture: real(capture) | next(answers))
    with pytest.raises(readers_fuzz.Finding, match="names differs"):
        readers_fuzz.read_kineto(path, random.Random(1), 0)


def test_inputs_depend_on_their_number_alone(kineto, nsys):
    for mutator in (kineto, nsys):
        assert mutator.make(random.Random(5)) == mutator.make(random.Random(5))
    assert len({kineto.make(random.Random(n)) for n in range(30)}) > 20


NEST = b'{"a":' * 200 + b"1" + b"}" * 200
OPERATOR = b'{"ph":"X","cat":"cpu_op","pid":1,"tid":1,"ts":%d,"dur":%s%s,"args":{%s"Input Dims":[[8,4],[4,2]]},"name":"aten::mm"}'


@pytest.mark.parametrize(
    ("odd", "count"),
    [
        (OPERATOR % (5, NEST, b"", b""), 30),  # its duration is no time
        (OPERATOR % (5, b"50", b"", b'"External id":' + NEST + b',"External id":1,'), 31),
        (OPERATOR % (5, b"50", b',"Collective name":' + NEST, b""), 31),
        (OPERATOR % (5, b"50", b"", b'"Collective name":' + NEST + b","), 31),
        (OPERATOR % (5, b"50", b',"x":[' + OPERATOR % (6, b"7", b"", b"") + b"]", b""), 31),
    ],
)
def test_what_is_around_an_operator_does_not_hide_it(odd, count, tmp_path):
    path = tmp_path / "a.json"
    events = [OPERATOR % (100 * i, b"50", b"", b"") for i in range(30)]
    path.write_bytes(b"[" + b",".join([*events[:15], odd, *events[15:]]) + b"]")
    for seed in range(8):  # chunks of several lengths
        assert readers_fuzz.read_kineto(path, random.Random(seed), 0) == ""
    [trace] = kineto_reader.read(path)
    assert len(trace.matrix_ops) == count


@pytest.mark.parametrize(
    "odd", [(b"aten::mm", b"aten::m\\u006d"), (b'"args":{', b'"args":{"Collective name":"x",'), (b"aten::mm", b"nccl:x")]
)
def test_single_events_are_looked_at_in_their_order(odd, tmp_path):
    path = tmp_path / "a.json"
    events = [OPERATOR % (1000 - i, b"50", b"", b"") for i in range(40)]
    events[20:30:3] = [event.replace(*odd) for event in events[20:30:3]]
    path.write_bytes(b"[" + b",".join(events) + b"]")
    for seed in range(4):
        assert readers_fuzz.read_kineto(path, random.Random(seed), 0) == ""
