import json

import numpy as np
import pytest
from kineto_builder import BASE_NS, HOST_PID, MAIN, Kineto

from traceread.model import ELEMENT_BYTES, MatrixKind
from traceread.readers import kineto, kineto_matrices, scanner
from traceread.readers.operator_flops import OPERATORS
from traceread.readers.options import ReadOptions
from traceread.readers.whole_events import WholeEvents

BF16 = list(ELEMENT_BYTES).index("BFloat16")
TYPES = {"Input type": ["c10::BFloat16", "c10::BFloat16"]}
STRIDES = ["", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]


def capture():
    k = Kineto()
    k.op("aten::linear", 1_000, 9_000, **{"Input Dims": [[64, 32], [16, 32], []], **TYPES})
    k.op("aten::mm", 2_000, 4_000, **{"Input Dims": [[64, 32], [32, 16]], **TYPES})
    k.op("aten::add", 7_000, 1_000, **{"Input Dims": [[64, 32], [64, 32]], **TYPES})
    convolution = {"Input Dims": [[1, 2, 4, 4], [3, 2, 1, 1], [], [], [], [], [], [], []], "Concrete Inputs": STRIDES}
    k.op("aten::convolution", 20_000, 9_000, tid=MAIN + 1, **convolution)
    k.op("aten::bmm", 40_000, 1_000, **TYPES)  # no shapes
    k.annotation('a range that speaks of "aten::mm"', 50_000, 1_000)
    k.kernel("gemm", 60_000, 5_000)
    return k


def rows(table):
    return [
        (int(table.start_ns[i]) - BASE_NS, int(table.end_ns[i]) - BASE_NS, int(table.kind[i]), int(table.dtype[i]), int(table.flops[i]))
        for i in range(len(table))
    ]


EXPECTED = [
    (2_000, 6_000, MatrixKind.GEMM, BF16, 2 * 64 * 32 * 16),
    (20_000, 29_000, MatrixKind.CONVOLUTION, 0, 2 * 16 * 6),
]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("chunk", [200, 1 << 20])
def test_operators_with_shapes_are_kept(tmp_path, compiled, chunk):
    path = capture().write(tmp_path / "trace.json")
    [trace] = kineto.read(path, ReadOptions(chunk_bytes=chunk, compiled=compiled))
    assert rows(trace.matrix_ops) == EXPECTED
    assert [trace.threads[t].tid for t in trace.matrix_ops.thread.tolist()] == [MAIN, MAIN + 1]


@pytest.mark.parametrize("compiled", [True, False])
def test_an_argument_that_is_not_sound_is_not_recorded(tmp_path, compiled):
    path = capture().write(tmp_path / "trace.json")
    path.write_bytes(path.read_bytes().replace(b'"c10::BFloat16"', b'"c10::BF\xffloat16"'))
    [trace] = kineto.read(path, ReadOptions(compiled=compiled))
    assert [row[2:4] for row in rows(trace.matrix_ops)] == [(MatrixKind.GEMM, 0), (MatrixKind.CONVOLUTION, 0)]


def test_without_shapes_there_are_none(tmp_path):
    k = Kineto()
    k.op("aten::mm", 2_000, 4_000)
    k.kernel("gemm", 60_000, 5_000)
    [trace] = kineto.read(k.write(tmp_path / "trace.json"))
    assert len(trace.matrix_ops) == 0


def event(name="aten::mm", **change):
    values = {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": HOST_PID,
        "tid": MAIN,
        "ts": 2.5,
        "dur": 1.25,
        "args": {"Input Dims": [[8, 4], [4, 2]], "Input type": ["float", "float"]},
    }
    return json.dumps(values | change).encode()


def table_of(*texts):
    events = WholeEvents()
    for text in texts:
        events.look(text)
    return events.matrices.table(lambda process, thread: 0 if (process, thread) == (HOST_PID, MAIN) else -1, 1_000)


def test_a_text_of_one_event_or_of_many():
    alone = table_of(event(), event())
    assert (alone.start_ns.tolist(), alone.end_ns.tolist(), alone.flops.tolist()) == ([3_500] * 2, [4_750] * 2, [128] * 2)
    several = WholeEvents()
    several.look(event() + b", " + event(name="aten::add") + b"," + event(), ["aten::mm", "aten::add", "aten::mm"])
    together = several.matrices.table(lambda process, thread: 0, 1_000)
    for (name, one), (_, other) in zip(alone.columns(), together.columns(), strict=True):
        assert np.array_equal(one, other), name


def test_shapes_that_come_later_are_seen_though_the_name_was_met_before():
    whole = WholeEvents()
    bare, named = event(args={"Call stack": "x"}), event()
    for texts in ([bare, bare], [bare, event("aten::add")], [named, bare, named]):
        whole.look(b",".join(texts), [json.loads(text)["name"] for text in texts])
    assert len(whole.matrices.table(lambda p, t: 0, 0)) == 2


def test_more_rows_than_are_held_as_objects(monkeypatch):
    monkeypatch.setattr(kineto_matrices, "_ROWS", 3)
    table = table_of(*(event(ts=i) for i in reversed(range(10))))
    assert table.start_ns.tolist() == [1_000 + 1_000 * i for i in range(10)]


def test_more_shapes_than_are_remembered(monkeypatch):
    monkeypatch.setattr(kineto_matrices, "_SHAPES_KEPT", 2)
    shapes = [{"Input Dims": [[m, 4], [4, 2]]} for m in (1, 2, 3, 1)]
    assert sorted(table_of(*(event(args=args) for args in shapes)).flops.tolist()) == [16, 16, 32, 48]


@pytest.mark.parametrize(
    "change",
    [
        {"ts": "soon"},
        {"ts": 1e300},
        {"ph": "B"},
        {"cat": "kernel"},
        {"tid": MAIN + 1},
        {"args": {"Input Dims": "many"}},
        {"args": {"Input Dims": [[8, 4]]}},
        {"args": [1]},
    ],
)
def test_events_that_cannot_be_used_are_left_out(change):
    assert len(table_of(event(**change), event())) == 1


def test_a_cut_event_is_left_out():
    assert len(table_of(event()[:-3], event())) == 1


def test_captures_of_one_process_keep_their_operators(tmp_path):
    from traceread.readers.windows import joined

    one, two = capture(), Kineto(base_ns=BASE_NS + 1_000_000)
    two.op("aten::mm", 2_000, 4_000, tid=MAIN + 1, **{"Input Dims": [[64, 32], [32, 16]], **TYPES})
    two.kernel("gemm", 60_000, 5_000)
    traces = [kineto.read(k.write(tmp_path / f"{i}.json"))[0] for i, k in enumerate((one, two))]
    trace = joined(traces)
    assert rows(trace.matrix_ops) == [*EXPECTED, (1_002_000, 1_006_000, MatrixKind.GEMM, BF16, 2 * 64 * 32 * 16)]
    assert [trace.threads[t].tid for t in trace.matrix_ops.thread.tolist()] == [MAIN, MAIN + 1, MAIN + 1]


@pytest.mark.skipif(not scanner.is_available(), reason=f"reads with: {scanner.in_use()}")
@pytest.mark.parametrize("name", OPERATORS)
def test_the_compiled_scanner_hands_over_every_operator(name):
    text = event(name) + b"," + event(name, args={"Call stack": name}) + b"," + event("aten::add")
    assert scanner.scan(text, 0, len(text), scanner.room_for(scanner.most_rows(len(text)))).told.whole == [event(name)]
