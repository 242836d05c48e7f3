import dataclasses
import json
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_builder import two_steps

from traceread.readers.json_events import Damage, EventReader
from traceread.readers.options import ReadOptions

CHUNKS = [1, 100, 1024, 5000, 1 << 20]
SOUND = Damage()


def read(text, chunk=1 << 20, **options):
    """Everything an EventReader says about a text, comparable."""
    blocks = [text[i : i + chunk] for i in range(0, len(text), chunk)]
    reader = EventReader(blocks, ReadOptions(chunk_bytes=chunk, **options))
    batches = list(reader)
    columns = {}
    if batches:
        for f in dataclasses.fields(batches[0]):
            columns[f.name] = np.concatenate([getattr(b, f.name) for b in batches]).tolist()
    return {
        "columns": columns,
        "form": reader.form,
        "objects": reader.objects,
        "events": reader.events,
        "damage": reader.damage,
        "marks": reader.marks,
        "labels": reader.labels,
        "names": list(reader.names),
        "categories": list(reader.categories),
        "tracks": list(reader.tracks),
        "metadata": reader.metadata(["baseTimeNanoseconds", "distributedInfo", "deviceProperties", "host_name"]),
    }


def names(result):
    return [result["names"][code] for code in result["columns"].get("name", [])]


def complete_events(text):
    """The same events by the standard library."""
    whole = json.loads(text, parse_float=str)
    return [e for e in (whole if isinstance(whole, list) else whole["traceEvents"]) if e["ph"] == "X"]


TEXT = two_steps().text()
EVENTS = two_steps().events
X_NAMES = [e["name"] for e in complete_events(TEXT)]


@pytest.mark.parametrize("layout", ["kineto", "compact", "indent", "shuffled"])
@pytest.mark.parametrize("form", ["object", "list"])
@pytest.mark.parametrize("metadata", ["first", "last"])
def test_columns_hold_what_the_events_say(layout, form, metadata):
    text = two_steps().text(layout=layout, form=form, metadata=metadata)
    result = read(text)
    expected = complete_events(text)
    columns = result["columns"]
    assert result["damage"] == SOUND
    assert result["form"] == form
    assert result["events"] == result["objects"] == len(EVENTS)
    assert names(result) == [e["name"] for e in expected]
    assert [result["categories"][c] for c in columns["category"]] == [e["cat"] for e in expected]
    assert [result["tracks"][t] for t in columns["track"]] == [(e["pid"], e["tid"]) for e in expected]
    assert columns["start_ns"] == [int(e["ts"].replace(".", "")) for e in expected]
    assert columns["dur_ns"] == [int(e["dur"].replace(".", "")) for e in expected]
    assert all(columns["timed"])
    for column in ("device", "stream", "correlation", "bytes"):
        assert columns[column] == [e.get("args", {}).get(column, -1) for e in expected]
    assert [c for c in columns["event_correlation"] if c != -1] == [1, 11]


@pytest.mark.parametrize("metadata", ["first", "last"])
def test_metadata_is_found_before_and_after_the_events(metadata):
    result = read(two_steps().text(metadata=metadata))["metadata"]
    assert result["distributedInfo"]["rank"] == 3
    assert result["baseTimeNanoseconds"] == 1_767_189_312_000_000_000
    assert result["deviceProperties"][0]["numSms"] == 132


def test_labels_and_marks():
    result = read(TEXT)
    assert result["labels"]["process_labels", 4000, 0] == "CPU"
    assert result["labels"]["thread_name", 4000, 4000] == "thread 4000 (pt_main_thread)"
    assert result["marks"] == {"shapes", "collectives"}


def test_dimensions_without_numbers_are_no_shapes():
    text = TEXT.replace(b"[[64, 32], [32, 16]]", b"[[], []]")
    assert text != TEXT
    assert read(text)["marks"] == {"collectives"}


DAMAGES = {
    "nothing": lambda t: t,
    "raw control characters": lambda t: t.replace(b"aten::mm", b"aten\n\x01::mm"),
    "control characters in a field nobody reads": lambda t: t.replace(b'"Input Dims"', b'"Input\x02 Dims"'),
    "quotes in names": lambda t: t.replace(b'\\"f32\\"', b'"f32"'),
    "quotes in arguments": lambda t: t.replace(b'"allreduce"', b'"all"re"duce"'),
    "backslashes": lambda t: t.replace(b"train.py", b"C:\\Work\\main.py"),
    "a backslash before the closing quote": lambda t: t.replace(b"): main", b"): main\\"),
    "bytes that are not UTF-8": lambda t: t.replace(b"aten::mm", b"aten\xff\xfe::mm"),
    "a lone surrogate": lambda t: t.replace(b"aten::mm", b"aten\\ud800::mm"),
    "NaN": lambda t: t.replace(b'"bytes": 4096', b'"bytes": 4096, "memory bandwidth (GB/s)": NaN'),
    "Infinity": lambda t: t.replace(b'"bytes": 4096', b'"bytes": 4096, "memory bandwidth (GB/s)": -Infinity'),
    "missing commas between events": lambda t: re.sub(rb"},(\s+{\s+\"(?:ph|name)\")", rb"}\1", t),
    "doubled commas between events": lambda t: re.sub(rb"},(\s+{\s+\"(?:ph|name)\")", rb"},,\1", t),
    "a comma after the last event": lambda t: t.replace(b"\n  }\n  ]", b"\n  },\n  ]"),
    "missing commas inside events": lambda t: t.replace(b'"X",', b'"X"'),
    "doubled commas inside events": lambda t: t.replace(b'"X",', b'"X",,'),
    "stray values between events": lambda t: t.replace(b"},\n  {", b'}, null, 3, "x",\n  {', 3),
    "an early end of the list": lambda t: t.replace(b"},\n  {", b"}],\n  {", 1),
    "an opening brace lost": lambda t: t.replace(b'\n  {\n    "ph"', b'\n  \n    "ph"', 3),
    "a closing brace lost": lambda t: t.replace(b"\n  },\n  {", b"\n  ,\n  {", 3),
    "a bracket lost": lambda t: t.replace(b"[[64, 32]", b"[[64, 32", 1),
    "a bracket of the wrong kind": lambda t: t.replace(b"[[64, 32]", b"[[64, 32}", 1),
    "a hole": lambda t: t[: len(t) // 2] + t[len(t) // 2 + 700 :],
    "zeros from a crashed copy": lambda t: t[: len(t) // 2] + bytes(600) + t[len(t) // 2 + 600 :],
    "garbage after the end": lambda t: t + b"\n*** saved ***\n",
    "a cut": lambda t: t[: len(t) * 2 // 3],
    "a second file behind it": lambda t: t + t,
    "a byte order mark": lambda t: b"\xef\xbb\xbf" + t,
    "numbers as strings": lambda t: re.sub(rb'("(?:ts|dur|correlation|stream)"): ([0-9.]+)', rb'\1: "\2"', t),
    "names that are numbers": lambda t: t.replace(b'"name": "aten::mm"', b'"name": 7'),
    "arguments that are no object": lambda t: t.replace(b'"cat": "Trace"', b'"cat": "Trace", "args": []').replace(b'{"Op count": 0}', b"5"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("layout", ["kineto", "shuffled"])
def test_what_is_read_never_depends_on_where_chunks_end(damage, layout):
    text = DAMAGES[damage](two_steps().text(layout=layout))
    whole = read(text)
    for chunk in CHUNKS:
        assert read(text, chunk) == whole, chunk


@pytest.mark.parametrize(
    ("damage", "mended", "dropped", "separators", "lost"),
    [
        ("nothing", 0, 0, 0, 0),
        ("raw control characters", 2, 0, 0, 0),
        ("control characters in a field nobody reads", 2, 0, 0, 0),
        ("quotes in names", 2, 0, 0, 0),
        ("quotes in arguments", 2, 0, 0, 0),
        ("backslashes", 2, 0, 0, 0),
        ("a backslash before the closing quote", 2, 0, 0, 0),
        ("bytes that are not UTF-8", 2, 0, 0, 0),
        ("a lone surrogate", 2, 0, 0, 0),
        ("NaN", 2, 0, 0, 0),
        ("Infinity", 2, 0, 0, 0),
        ("missing commas between events", 0, 0, len(EVENTS) - 1, 0),
        ("doubled commas between events", 0, 0, len(EVENTS) - 1, 0),
        ("a comma after the last event", 0, 0, 1, 0),
        ("missing commas inside events", len(X_NAMES), 0, 0, 0),
        ("doubled commas inside events", len(X_NAMES), 0, 0, 0),
        ("stray values between events", 0, 0, 3, 0),
        ("an early end of the list", 0, 0, 1, 0),
        ("an opening brace lost", 0, 0, 1, 3),  # three events without become one stretch of stray text
        ("a closing brace lost", 1, 2, 0, 2),  # it may have lost a digit too; where arguments follow it has not
        ("a bracket lost", 1, 0, 0, 0),
        ("a bracket of the wrong kind", 1, 0, 0, 0),
        ("a byte order mark", 0, 0, 0, 0),
        ("numbers as strings", 0, 0, 0, 0),
        ("names that are numbers", 0, 0, 0, 0),
        ("arguments that are no object", 0, 0, 0, 0),
    ],
)
def test_damage_costs_no_more_than_it_touches_and_is_counted(damage, mended, dropped, separators, lost):
    text = DAMAGES[damage](TEXT)
    assert text != TEXT or damage == "nothing"
    result = read(text)
    assert result["damage"] == Damage(mended, dropped, separators)
    assert result["objects"] == len(EVENTS) - lost


def test_mended_events_keep_their_values():
    text = DAMAGES["quotes in names"](DAMAGES["backslashes"](DAMAGES["quotes in arguments"](TEXT)))
    sound, result = read(TEXT), read(text)
    assert result["damage"].mended == 6
    assert result["columns"] == sound["columns"]
    assert [n.replace("C:\\Work\\main.py", "train.py") for n in names(result)] == X_NAMES


def test_the_last_resort_keeps_the_event_and_its_whole_arguments():
    text = TEXT.replace(b'"correlation": 11', b'"correlation": 11, "broken": [1, {"x"')
    assert read(text)["columns"]["correlation"] == read(TEXT)["columns"]["correlation"]
    assert read(text)["damage"].mended == 2  # the call and its kernel


def test_arguments_of_an_event_cut_short_are_never_those_of_the_next():
    launch = TEXT.index(b'"correlation": 1}')
    kernel = TEXT.index(b'"ts"', TEXT.index(b"ampere_sgemm"))
    text = TEXT[:launch] + TEXT[kernel:]  # the launch runs into its kernel; the flow between them is gone
    result = read(text)
    assert result["damage"].mended + result["damage"].dropped == 1
    mended = [c for n, c in zip(names(result), result["columns"]["correlation"], strict=True) if n == "cudaLaunchKernel"]
    assert mended[0] == -1


@pytest.mark.parametrize("layout", ["kineto", "compact"])
def test_a_cut_keeps_every_whole_event_and_no_part_of_another(layout):
    text = two_steps().text(layout=layout)
    ends = [m.end() for m in re.finditer(rb"\n  }" if layout == "kineto" else rb'}(?=,\{"(?:ph|name)"|],)', text)]
    start, last = text.index(b'"traceEvents"'), text.rindex(b"]")
    for cut in random.Random(1).sample(range(start + 20, last), 150):
        result = read(text[:cut], 300)
        assert result["objects"] == sum(e <= cut for e in ends if e > start), cut
        assert result["damage"] == Damage(truncated=True, metadata=result["damage"].metadata), cut
    assert read(text[: last + 1], 300)["damage"] == Damage(metadata=True)


def test_metadata_survives_damage_to_its_neighbours():
    text = two_steps().text(metadata="last").replace(b'"node17"', b'"no"de17"')
    result = read(text)
    assert result["damage"] == Damage(metadata=True)
    assert result["metadata"]["baseTimeNanoseconds"] == 1_767_189_312_000_000_000
    assert result["metadata"]["distributedInfo"]["rank"] == 3


def test_objects_inside_an_event_are_not_events():
    inner = b'"nested": [{"ph": "X", "name": "inner", "ts": 1, "dur": 1}, {"ph": "X", "name": "inner"}, {"name": "inner"}]'
    text = TEXT.replace(b'"correlation": 11', inner + b', "correlation": 11')
    for chunk in CHUNKS:
        result = read(text, chunk)
        assert result["damage"] == SOUND
        assert names(result) == X_NAMES


def test_strings_that_look_like_json_are_strings():
    text = TEXT.replace(b"aten::mm", rb"}, {\"ph\": \"X\", \"name\": \"inner\"}, ]} \\")
    for chunk in CHUNKS:
        result = read(text, chunk)
        assert result["damage"] == SOUND
        assert names(result).count('}, {"ph": "X", "name": "inner"}, ]} \\') == 2


def test_deep_nesting_is_damage_not_a_crash():
    deep = b'{"ph": "X", "name": "deep", "args": {"x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}}"
    text = TEXT.replace(b'"traceEvents": [', b'"traceEvents": [' + deep + b",")
    result = read(text)
    assert result["damage"].mended + result["damage"].dropped == 1
    assert names(result)[-len(X_NAMES) :] == X_NAMES


def test_deep_metadata_is_damage_not_a_crash():
    text = TEXT.replace(b'"schemaVersion": 1', b'"schemaVersion": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000)
    result = read(text)
    assert result["damage"] == Damage(metadata=True)
    assert result["metadata"]["distributedInfo"]["rank"] == 3


def test_an_event_beyond_the_limit_is_dropped_without_being_held():
    huge = b'{"ph": "X", "name": "' + b"x" * 3_000_000 + b'"},'
    text = TEXT.replace(b'"traceEvents": [', b'"traceEvents": [' + huge)
    result = read(text, 1000, max_event_bytes=100_000)
    assert result["damage"].dropped + result["damage"].separators >= 1
    assert names(result) == X_NAMES


def test_long_integers_are_no_trouble():
    text = TEXT.replace(b"10159970886766084423", b"9" * 5000).replace(b'"correlation": 2,', b'"correlation": 18446744073709551615,')
    result = read(text)
    assert result["damage"].dropped == 0
    assert names(result) == X_NAMES
    assert -1 in result["columns"]["correlation"]


def test_times_that_are_none_are_marked():
    text = TEXT.replace(b'"dur": 300.000', b'"dur": null', 1).replace(b'"dur": 300.000', b'"duration": 300.000', 1)
    result = read(text)
    assert [n for n, ok in zip(names(result), result["columns"]["timed"], strict=True) if not ok] == [
        'ampere_sgemm<"f32"> {lambda(float)#1}'
    ] * 2


@pytest.mark.parametrize(
    "text", [b"", b"  \n ", b"hello", b"7", b'"traceEvents"', b"\xff\xfe{\x00", b'{"a": 1}', b'{"traceEvents": {"a": 1}}']
)
def test_what_holds_no_list_of_events_has_no_form(text):
    result = read(text)
    assert (result["form"], result["columns"], result["objects"]) == ("", {}, 0)


def test_layouts_that_start_events_with_other_keys_are_read_in_chunks_too():
    k = two_steps()
    k.events = [{"zzz": 0, **e} for e in k.events]
    text = k.text()
    for chunk in CHUNKS:
        assert read(text, chunk)["columns"] == read(TEXT)["columns"]


def test_a_time_that_holds_a_line_end_is_none():
    odd, sound = (b'{"ph":"X","name":"\\ud800","ts":%s,"dur":1}' % ts for ts in (b'"1\\n2"', b"5"))  # half a pair: read patiently
    assert read(b"[" + b",".join([sound, odd, sound]) + b"]")["columns"]["timed"] == [True, False, True]


BREAKING = [
    b"",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\n",
    b"\0",
    b"\xff",
    b"1",
    b"-",
    b"NaN",
    b'"}',
    b'}, {"ph": "X"',
    b'{"ph":',
    b"]}",
]
edits = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 40), st.sampled_from(BREAKING)), min_size=1, max_size=6)


def edited(text, changes):
    for where, removed, added in changes:
        at = int(where * len(text))
        text = text[:at] + added + text[at + removed :]
    return text


@given(edits, st.sampled_from(["kineto", "compact", "shuffled"]))
@settings(derandomize=True, deadline=None, max_examples=150)
def test_no_edit_makes_reading_fail_or_depend_on_chunks(changes, layout):
    text = edited(two_steps().text(layout=layout), changes)
    whole = read(text)
    assert read(text, 1000) == whole
    assert read(text, 37) == whole


@given(edits)
@settings(derandomize=True, deadline=None, max_examples=150)
def test_an_edit_among_the_events_costs_the_events_it_touches(changes):
    start, end = TEXT.index(b'"traceEvents"') + 20, TEXT.rindex(b"]")
    text = TEXT[:start] + edited(TEXT[start:end], changes) + TEXT[end:]
    # 40 removed bytes reach over the joint of two events, and a swallowed end costs the next event as well.
    assert read(text)["objects"] >= len(EVENTS) - 3 * len(changes)


@given(st.binary(max_size=300))
@settings(derandomize=True, deadline=None)
def test_any_bytes_can_be_read(text):
    assert read(text, 7) == read(text)
    among = TEXT.replace(b'"traceEvents": [', b'"traceEvents": [' + text, 1)
    assert read(among, 1000) == read(among)
