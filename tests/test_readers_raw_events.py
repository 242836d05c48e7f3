import gzip

import msgspec
import pytest
from kineto_builder import Kineto

from traceread.errors import LimitExceeded, TraceNotFound
from traceread.readers.options import ReadOptions
from traceread.readers.raw_events import base_ns, raw_events


def events_of(path, **options):
    return [{k: bytes(v) for k, v in e.items()} for batch in raw_events(path, ReadOptions(**options)) for e in batch]


def test_fields_stay_as_they_were_written(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'{"traceEvents":[{"ph":"X","ts":1712195495519689.047,"args":{"a":[1,{"b":2}]},"x":null},{"ph":"M"}]}')
    first, second = events_of(path)
    assert first == {"ph": b'"X"', "ts": b"1712195495519689.047", "args": b'{"a":[1,{"b":2}]}', "x": b"null"}
    assert second == {"ph": b'"M"'}


@pytest.mark.parametrize("chunk", [64, 1 << 20])
def test_every_event_comes_once_in_order(tmp_path, chunk):
    path = tmp_path / "a.json.gz"
    rows = [b'{"ph":"X","name":"k%d","ts":%d}' % (i, i) for i in range(500)]
    path.write_bytes(gzip.compress(b"[" + b",\n".join(rows) + b"]"))
    assert [e["name"] for e in events_of(path, chunk_bytes=chunk)] == [b'"k%d"' % i for i in range(500)]


def test_damaged_events_come_as_the_reader_mends_them(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b'{"traceEvents":[{"ph":"X","name":"a\\qb","ts":1.5},{"ph":"X","name":"c","ts":12345678901234.567,"bad":NaN}]}')
    first, second = events_of(path)
    assert msgspec.json.decode(first["name"]) in ("a\\qb", "aqb")
    assert second["ts"] == b"12345678901234.567"


@pytest.mark.parametrize(
    ("text", "base"),
    [
        (b'{"baseTimeNanoseconds": 1712195495000000000,"traceEvents":[]}', 1712195495000000000),
        (b'{"traceEvents":[],"baseTimeNanoseconds":"17"}', 17),
        (b'{"traceEvents":[{"name":"\\"baseTimeNanoseconds\\": 5"}]}', 0),
        (b"[]", 0),
    ],
)
def test_what_times_count_from(tmp_path, text, base):
    path = tmp_path / "a.json"
    path.write_bytes(text)
    assert base_ns(path) == base
    assert base_ns(path, ReadOptions(chunk_bytes=7)) == base


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(TraceNotFound):
        list(raw_events(tmp_path / "none.json"))
    (tmp_path / "a.json").write_bytes(b"[" + b" " * 5000 + b"]")
    with pytest.raises(LimitExceeded):
        base_ns(tmp_path / "a.json", ReadOptions(max_uncompressed_bytes=1000))


def test_bytes_that_are_no_utf8_in_what_readers_skip_cost_no_event(tmp_path):
    trace = Kineto()
    for i in range(20):
        trace.op(f"aten::op{i}", 1000 * i, 500)["note"] = "x"
    path = tmp_path / "a.json"
    path.write_bytes(trace.text().replace(b'"note"', b'"no\xffte"', 1))
    names = [bytes(event["name"]) for batch in raw_events(path) for event in batch if bytes(event["ph"]) == b'"X"']
    assert names == [f'"aten::op{i}"'.encode() for i in range(20)]
