"""The compiled scanner beside the typed decoder: the same tables and warnings from both, on everything."""

import dataclasses
import gzip
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_builder import two_steps
from test_readers_json_events import BREAKING, DAMAGES, edited, edits
from test_readers_kineto import content, table_rows

from traceread.cli import main
from traceread.errors import TracereadError
from traceread.readers import kineto, scanner
from traceread.readers.event_columns import Columns, decoded_many
from traceread.readers.json_events import EventReader
from traceread.readers.options import ReadOptions
from traceread.readers.whole_events import WholeEvents

TRACES = Path(__file__).parents[2] / "shared" / "traces" / "kineto"

pytestmark = pytest.mark.skipif(not scanner.is_available(), reason=f"reads with: {scanner.in_use()}")


def said(text, chunk=1 << 20, **options):
    """Everything an EventReader says about a text, and what it shows to whoever looks for collectives, comparable."""
    whole = WholeEvents()
    blocks = [text[i : i + chunk] for i in range(0, len(text), chunk)]
    reader = EventReader(blocks, ReadOptions(chunk_bytes=chunk, **options), whole.look)
    batches = list(reader)
    fields = [f.name for f in dataclasses.fields(batches[0])] if batches else []
    return {
        "columns": {name: np.concatenate([getattr(batch, name) for batch in batches]).tolist() for name in fields},
        "dtypes": {name: {getattr(batch, name).dtype for batch in batches} for name in fields},
        "collectives": whole.collectives.__dict__,
        "form": reader.form,
        "objects": reader.objects,
        "events": reader.events,
        "damage": reader.damage,
        "marks": reader.marks,
        "labels": list(reader.labels.items()),
        "names": list(reader.names),
        "categories": list(reader.categories),
        "tracks": list(reader.tracks),
        "metadata": reader.metadata(["baseTimeNanoseconds", "distributedInfo", "deviceProperties", "host_name"]),
    }


def traced(path, **options):
    """Everything a trace says, or why it says nothing."""
    try:
        return [
            content(trace) | {"names": list(trace.names), "groups": trace.groups, "work": table_rows(trace, "matrix_ops")}
            for trace in kineto.read(path, ReadOptions(**options))
        ]
    except TracereadError as error:
        return type(error), error.message


def understood(text):
    """What the scanner alone makes of events with commas between them, None if it leaves them to the other decoder."""
    scan = scanner.scan(text, 0, len(text), scanner.room_for(scanner.most_rows(len(text) + 4096)))
    if scan is None:
        return None
    columns = Columns()
    batch = columns.scanned(scan)
    return None if batch is None else (columns, batch, scan)


def taken_out(whole):
    """What was taken out of single events beside their columns, comparable."""
    records, groups = whole.collectives.table(lambda process, thread: 0, 0, {}, 0)
    columns = (*records.columns(), *whole.matrices.table(lambda process, thread: 0, 0).columns())
    return repr((groups, [(name, values.tolist()) for name, values in columns]))


def same_as_decoded(text):
    """Whether the scanner understands a text; fails where it makes of it something else than the typed decoder does."""
    found = understood(text)
    if found is None:
        return False
    columns, batch, scan = found
    events = decoded_many(text)
    assert events is not None, text
    other = Columns()
    expected = other.batch(events)
    assert scan.told.objects == len(events), text
    for field in dataclasses.fields(expected):
        ours, theirs = getattr(batch, field.name), getattr(expected, field.name)
        assert ours.dtype == theirs.dtype
        assert ours.tolist() == theirs.tolist(), (field.name, text)
    alone, together = WholeEvents(), WholeEvents()
    for event in scan.told.whole:
        alone.look(event)
    together.look(text, [event.name for event in events])
    assert taken_out(alone) == taken_out(together), text
    for name in ("names", "categories", "tracks", "labels", "events"):
        assert repr(getattr(columns, name)) == repr(getattr(other, name)), (name, text)
    return True


TEXT = two_steps().text()


@pytest.mark.parametrize("layout", ["kineto", "compact", "indent", "shuffled"])
def test_what_profilers_write_is_understood(layout):
    text = two_steps().text(layout=layout)
    start, end = text.index(b"{", text.index(b'"traceEvents"')), text.rindex(b"}", 0, text.rindex(b"]")) + 1
    assert same_as_decoded(text[start:end])


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("layout", ["kineto", "compact", "indent", "shuffled"])
def test_damage_is_read_alike(damage, layout):
    text = DAMAGES[damage](two_steps().text(layout=layout))
    expected = said(text, compiled=False)
    for chunk in (1, 300, 4000, 1 << 20):
        for threads in (1, 3):
            assert said(text, chunk, threads=threads) == expected, (chunk, threads)


# --- one event, every value ---------------------------------------------------------------------------------------------

STRINGS = [
    b'"X"', b'"M"', b'"name"', b'"thread_name"', b'"7"', b'"stream 7"', b'"-3"', b'" 7"', b'"1_0"', b'"0x7f"', b'"0x"', b'"07"', b'"1.5"',
    b'""',    b'"nccl:all_reduce"', b'"aten::mm"',
    b'"\\u00e9"', b'"\\ud83d\\ude00"', b'"\\ud800"', b'"\\udc00"', b'"\\n"', b'"\\q"', b'"\\u12"',
    b'"a\x01"', b'"a\xff"', b'"\xc3\xa9"', b'"\xed\xa0\x80"', b'"open',
]  # fmt: skip
NUMBERS = [
    b"0", b"-0", b"7", b"-1", b"007", b"1.", b".5", b"1.5", b"-1.25", b"1e3", b"1E+2", b"-", b"+1", b"NaN",
    b"1712195495519689.047",
    b"0.0005", b"0.00050000", b"0.0015", b"0.00051", b"5.0004999", b"4611686018427387.903", b"4611686018427387.904",
    b"99999999999999999", b"999999999999999999", b"9223372036854775808", b"18446744073709551615", b"1" * 5000,
]  # fmt: skip
OTHERS = [
    b"", b"null", b"true", b"nul", b"tru", b"[]", b"{}", b'[1, [2, {}], {"a": [3]}]', b"[[64, 32], [32, 16]]",
    b'{"name": "deep"}', b"[1,]", b"[,1]", b'{"a" 1}',
    b"[" * 70 + b"]" * 70, b"[" * 50 + b"]" * 50, b'{"ph": "X", "cat": "kernel", "args": {"Collective name": "x"}}',
]  # fmt: skip
VALUES = [*STRINGS, *NUMBERS, *OTHERS]
KEYS = [b"ph", b"cat", b"name", b"pid", b"tid", b"ts", b"dur", b"args", b"id", b"p\\u0068", b"d\\\\ur"]
ARGUMENTS = [
    b"device", b"stream", b"correlation", b"Correlation", b"bytes", b"graph node id", b"fromDevice", b"toDevice", b"name", b"labels",
    b"wait_on_cuda_event_record_corr_id", b"wait_on_stream", b"Input Dims", b"Collective name", b"stre\\u0061m", b"other",
]  # fmt: skip
WHOLE = {
    b"ph": b'"X"', b"cat": b'"kernel"', b"name": b'"gemm"', b"pid": b"0", b"tid": b"7", b"ts": b"1.5", b"dur": b"2",
    b"args": b'{"device": 0}',
}  # fmt: skip


def event(fields):
    return b"{" + b", ".join(b'"' + key + b'": ' + value for key, value in fields) + b"}"


@pytest.mark.parametrize("phase", [b'"X"', b'"M"', b'"s"'])
@pytest.mark.parametrize("key", KEYS)
def test_every_value_of_every_field(phase, key):
    understood = [same_as_decoded(event((WHOLE | {b"ph": phase, key: value}).items())) for value in VALUES]
    assert any(understood) != (b"\\u" in key)
    assert not all(understood)


@pytest.mark.parametrize("phase", [b'"X"', b'"M"', b'"s"'])
@pytest.mark.parametrize("key", ARGUMENTS)
def test_every_value_of_every_argument(phase, key):
    for value in VALUES:
        args = b"{" + b'"cbid": 1, "' + key + b'": ' + value + b"}"
        same_as_decoded(event((WHOLE | {b"ph": phase, b"name": b'"thread_name"', b"args": args}).items()))


@pytest.mark.parametrize("missing", [*WHOLE, None])
def test_fields_may_be_missing(missing):
    assert same_as_decoded(event([field for field in WHOLE.items() if field[0] != missing]))


def test_a_field_twice_is_left_to_the_other_decoder():
    for field in WHOLE.items():
        assert understood(event([*WHOLE.items(), field])) is None


@given(st.decimals(0, 10**15, allow_nan=False), st.booleans())
@settings(derandomize=True, deadline=None)
def test_times_are_rounded_alike(time, negative):
    text = (b"-" if negative else b"") + f"{time:f}".encode()
    assert same_as_decoded(event((WHOLE | {b"ts": text, b"dur": text}).items()))


pieces = st.lists(st.sampled_from([*VALUES, b",", b":", b"{", b"}", b"[", b"]", b" ", b"\n", b'"ts"', b'"args"', b'"device"']), max_size=12)


@given(st.lists(st.tuples(st.sampled_from([*KEYS, *ARGUMENTS]), st.sampled_from(VALUES)), max_size=8), pieces)
@settings(derandomize=True, deadline=None, max_examples=300)
def test_any_event_is_read_as_by_the_typed_decoder_or_not_at_all(fields, stray):
    same_as_decoded(event(fields))
    same_as_decoded(event(WHOLE.items()) + b"".join(stray))
    same_as_decoded(event((WHOLE | {b"args": event(fields)}).items()))
    same_as_decoded(b", ".join([event(WHOLE.items()), event(fields), event(WHOLE.items())]))


# --- whole texts ----------------------------------------------------------------------------------------------------------


@given(edits, st.sampled_from(["kineto", "compact", "shuffled"]), st.sampled_from([1, 37, 1000, 1 << 20]), st.sampled_from([1, 2, 4]))
@settings(derandomize=True, deadline=None, max_examples=200)
def test_edited_texts_are_read_alike(changes, layout, chunk, threads):
    text = edited(two_steps().text(layout=layout), changes)
    assert said(text, chunk, threads=threads) == said(text, compiled=False)


@given(st.binary(max_size=300), st.sampled_from(BREAKING))
@settings(derandomize=True, deadline=None)
def test_any_bytes_are_read_alike(junk, more):
    text = TEXT.replace(b'"traceEvents": [', b'"traceEvents": [' + junk + more, 1)
    assert said(text, 500, threads=2) == said(text, compiled=False)


def test_more_short_events_than_there_is_room_for():
    events = b",".join([b'{"ph":"X"}'] * 5000)
    assert scanner.scan(events, 0, len(events), scanner.room_for(scanner.most_rows(len(events)))) is None
    assert said(b"[" + events + b"]", 1000) == said(b"[" + events + b"]", compiled=False)


def test_names_that_are_all_different():
    names = [json.dumps(f"é {i}" if i % 3 else f"\\{i}", ensure_ascii=i % 2 == 0) for i in range(5000)]
    text = (
        b"["
        + ",".join(f'{{"ph":"X","cat":"c{i % 7}","name":{name},"pid":{i % 50},"tid":"t{i}"}}' for i, name in enumerate(names)).encode()
        + b"]"
    )
    assert said(text, 20_000, threads=2) == said(text, compiled=False)


def test_only_events_that_are_read_whole_are_shown():
    shown = []
    list(EventReader([TEXT], ReadOptions(), lambda text, names: shown.append(text)))
    events = [json.loads(text) for text in shown[:-1]]  # the last chunk goes to the other decoder
    assert {event["name"] for event in events} == {"record_param_comms", "aten::mm"}


@pytest.mark.parametrize(
    "name", [rb"aten::m\u006d", rb"\u006eccl:all_reduce", rb"symm\u005fmem::x", rb"\\\"aten::\u006dm", rb"\\nccl:all_reduce"]
)
def test_escapes_do_not_hide_what_an_event_is(name):
    text = b'{"ph":"X","cat":"cpu_op","name":"%s","pid":1,"tid":1,"ts":1,"dur":1,"args":{"Input Dims":[[8,4],[4,2]]}}' % name
    assert same_as_decoded(text + b',{"ph":"X","name":"other","pid":1,"tid":1}')


@pytest.mark.parametrize("path", sorted(TRACES.rglob("*.json.gz")), ids=lambda path: path.name)
def test_real_traces_are_read_alike(path, tmp_path):
    expected = traced(path, compiled=False)
    assert traced(path) == expected
    text = gzip.decompress(path.read_bytes())
    if len(text) < 16 << 20:
        plain = tmp_path / "trace.json"
        plain.write_bytes(text)
        assert traced(plain, chunk_bytes=50_000, threads=3) == expected


@pytest.mark.skipif(not TRACES.exists(), reason="the real traces are not here")
@pytest.mark.parametrize("name", ["ddp_nccl_metadata", "mi300_resnet_ddp", "torch18_list_form", "h100_qwen"])
def test_damaged_real_traces_are_read_alike(name, tmp_path):
    text = gzip.decompress((TRACES / f"{name}.json.gz").read_bytes())[: 3 << 20]
    chance = random.Random(name)
    for _ in range(3):
        broken = edited(text, [(chance.random(), chance.randrange(40), chance.choice(BREAKING)) for _ in range(chance.randrange(1, 8))])
        path = tmp_path / "trace.json"
        path.write_bytes(broken)
        assert traced(path, chunk_bytes=200_000, threads=2) == traced(path, compiled=False)


@pytest.mark.parametrize(
    "how", [[], ["--stacks", "--shapes"], ["--era", "us", "--vendor", "amd"], ["--era", "2021"], ["--era", "ns-epoch", "--sync-events"]]
)
def test_simulated_traces_are_read_alike(how, tmp_path):
    assert main(["simulate", "healthy", "-o", str(tmp_path), "--ranks", "1", "--steps", "2", *how]) == 0
    [path] = [path for path in tmp_path.iterdir() if path.name != "truth.json"]
    expected = traced(path, compiled=False)
    assert expected[0]["activities"]
    assert traced(path, chunk_bytes=10_000, threads=3) == expected


# --- which one reads --------------------------------------------------------------------------------------------------------


def test_it_is_in_use(monkeypatch):
    assert scanner.in_use() == "compiled scanner"
    monkeypatch.setenv(scanner.PURE_PYTHON, "1")
    assert scanner.in_use() == "pure Python (TRACEREAD_PURE_PYTHON is set)"
    assert not scanner.is_available()
    monkeypatch.setattr(scanner, "_HERE", False)
    assert "was not built" in scanner.in_use()


def test_info_says_which_one_reads(tmp_path, capsys, monkeypatch):
    path = two_steps().write(tmp_path / "trace.json")
    assert main(["info", str(path)]) == 0
    assert "read with: compiled scanner" in capsys.readouterr().out
    monkeypatch.setenv(scanner.PURE_PYTHON, "1")
    assert main(["info", str(path)]) == 0
    assert "read with: pure Python (TRACEREAD_PURE_PYTHON is set)" in capsys.readouterr().out


def test_memory_for_no_whole_rows_is_refused():
    room = scanner.room_for(20)
    for other in (room[:-1], room + b"0", bytearray()):
        with pytest.raises(ValueError, match="whole rows"):
            scanner.scan(TEXT, 0, 10, other)
    for start, stop in ((5, 5), (-1, 10), (0, len(TEXT) + 1), (10, 5)):
        assert scanner.scan(TEXT, start, stop, room) is None


ROW = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":2}'


def test_rows_that_have_no_room_are_not_understood():
    text = b",".join([ROW] * 3)
    assert scanner.scan(text, 0, len(text), scanner.room_for(3)).told.rows == 3
    assert scanner.scan(text, 0, len(text), scanner.room_for(2)) is None


def test_memory_is_used_again_when_nobody_looks_at_it():
    rooms = scanner.Rooms()
    room = rooms.room_for(100)
    first = id(room)
    second = id(rooms.room_for(100))
    assert second != first
    told = scanner.scan(ROW, 0, len(ROW), room).told
    looks = (
        lambda room: room,
        lambda room: scanner.Scan(told, room),
        lambda room: scanner.Scan(told, room).columns().integers[3][:1],
        lambda room: scanner.Scan(told, room).columns().codes[1],
        lambda room: scanner.Scan(told, room).columns().timed.view(np.uint8),
    )
    for look in looks:
        seen = look(room)
        del room
        assert id(rooms.room_for(100)) == second
        del seen
        room = rooms.room_for(100)
        assert id(room) == first


def test_more_memory_is_made_anew():
    rooms = scanner.Rooms()
    assert scanner.rows_in(rooms.room_for(100)) == 100
    assert scanner.rows_in(rooms.room_for(101)) == 101
    assert scanner.rows_in(rooms.room_for(100)) == 100


ARGUMENTS = {"device": 1, "stream": 2, "correlation": 3, "bytes": 4, "graph node id": 5, "fromDevice": 6, "toDevice": 7,
             "wait_on_cuda_event_record_corr_id": 8, "wait_on_stream": 9}  # fmt: skip
KEPT = {"kernel": 9, "gpu_memcpy": 9, "cuda_sync": 9, "Runtime": 9, "": 9, "cuda_runtime": 1, "cuda_driver": 1,
        "cpu_op": 0, "user_annotation": 0, "python_function": 0}  # fmt: skip


@pytest.mark.parametrize("capital", [False, True])
@pytest.mark.parametrize("category", KEPT)
def test_arguments_are_kept_where_somebody_asks_for_them(category, capital):
    args = {key.replace("corr", "Corr", capital and key == "correlation"): value for key, value in ARGUMENTS.items()}
    event = json.dumps({"ph": "X", "cat": category, "name": "n", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": args}).encode()
    other = event.replace(b'"cat": "%s"' % category.encode(), b'"cat": "other"')
    text = b",".join([event, other, event])
    assert same_as_decoded(text)
    _, batch, _ = understood(text)
    names = ("device", "stream", "correlation", "bytes", "graph_node", "from_device", "to_device", "event_correlation", "event_stream")
    columns = [getattr(batch, name).tolist() for name in names]
    assert [row[1] for row in columns] == list(ARGUMENTS.values())
    kept = {9: list(ARGUMENTS.values()), 1: [-1, -1, 3, -1, -1, -1, -1, -1, -1], 0: [-1] * 9}[KEPT[category]]
    assert [row[0] for row in columns] == [row[2] for row in columns] == kept


@pytest.mark.parametrize("category", [rb"cpu\u005fop", rb"\u0063uda_runtime", rb"k\u0065rnel"])
def test_escapes_do_not_hide_a_category(category):
    event = b'{"ph":"X","cat":"%s","name":"n","pid":1,"tid":1,"ts":1,"dur":2,"args":{"stream":7,"correlation":5}}' % category
    assert not same_as_decoded(event + b"," + event)
    text = b'{"traceEvents":[%s]}' % b",".join([event] * 9)
    assert said(text, 100) == said(text, compiled=False)


PLAIN = re.compile(rb"0|-?[1-9]\d{0,14}")


@pytest.mark.parametrize(
    "number",
    [b"0", b"7", b"-7", b"00", b"12345678", b"123456789012345", b"1234567890123456", b"12345678901234567", b"999999999999999999",
     b"1234567890123456.5", b"1.2", b"1.23", b"1.234", b"1.2345", b"1.2355", b"12.", b"4611686018427387.903", b"4611686018427387.904",
     b"1e3", b"1E3", b"1.5e3", b"0.0005", b"0.5", b"01.5", b"9", b"99999999.999", b'"5"', b"null", b"12:", b"12/", b"1 2"],
)  # fmt: skip
@pytest.mark.parametrize("field", [b"ts", b"dur", b"stream", b"other"])
def test_numbers_in_events_of_one_layout(number, field):
    def event(i, odd=False):
        values = {b"ts": b"%d.25" % i, b"dur": b"3", b"stream": b"7", b"other": b"%d" % (10**i)}
        if odd:
            values[field] = number
        return (
            b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%(ts)s,"dur":%(dur)s,"args":{"stream":%(stream)s,"o":%(other)s,"z":1}}'
            % values
        )

    before, after = [event(i) for i in range(1, 12)], [event(i) for i in range(12, 20)]
    understood = same_as_decoded(b",".join([*before, event(0, odd=True), *after]))
    assert understood or not PLAIN.fullmatch(number)
