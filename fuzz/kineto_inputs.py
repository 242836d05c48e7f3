"""PyTorch traces made wrong: small generated ones and cut-outs of real ones, changed where their structure is."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

LAYOUTS = ("kineto", "compact", "shuffled")
_CUT_OUT = 700_000  # bytes of a real trace from which events are taken
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_KEY = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:')
_VALUE = re.compile(rb'(?<=:)\s*("(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|\[[^\[\]]*\]|\{\})')
_TIME = re.compile(rb'("(?:ts|dur)"\s*:\s*)(-?[\d.]+)')

NUMBERS = [
    b"0", b"-0", b"-1", b"1", b"7", b"1e3", b"1E-7", b"1e400", b"-1e308", b"0.0005", b"0.0004999", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775808", b"18446744073709551615", b"4611686018427387.904", b"-4611686018427387.905",
    b"9223372036854775.807", b"2147483648", b"4294967295", b"NaN", b"Infinity", b"-Infinity", b"1" * 400, b"0." + b"9" * 400, b"01",
    b"1.", b".5", b"--1", b"1e", b"0x10",
]  # fmt: skip
STRINGS = [
    b'""', b'"7"', b'"stream 7"', b'"-7"', b'"0x7f"', b'"1e3"', b'"NaN"', b'"\\u0000"', b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\xff"',
    b'"\xc3\xa9"', b'"\\x"', b'"\\', b'"a\nb"', b'"<script>alert(1)</script>"', b'"\\u001b[2J"', b'"=1+1"', b'"%s%n"', b'"}"', b'"},{"',
    b'"ProfilerStep#1"', b'"ProfilerStep#99999999999999999999"', b'"nccl:all_reduce"', b'"record_param_comms"', b'"aten::mm"',
    b'"kernel"', b'"gpu_memcpy"', b'"cuda_runtime"', b'"cpu_op"', b'"user_annotation"', b'"python_function"', b'"overhead"',
    b'"cuda_sync"', b'"Trace"', b'"Kernel"', b'"Runtime"', b'"X"', b'"M"', b'"B"', b'"E"', b'"i"', b'"XX"', b'"' + b"a" * 3000 + b'"',
    b'"allreduce"', b'"cudaGraphLaunch"', b'"cudaLaunchKernel_v7000"', b'"Memcpy DtoH (Device -> Pageable)"', b'"process_labels"',
    b'"thread_name"', b'"CPU"', b'"[rank1] 7"', b'"enumerate(DataLoader)#x.__next__"', b'"Activity Buffer Request"',
]  # fmt: skip
OTHERS = [
    b"true", b"false", b"null", b"[]", b"{}", b"[[1,2],[3]]", b'{"a":{"b":[1]}}', b"[" * 60 + b"]" * 60, b"[" * 3000,
    b'{"a":' * 200 + b"1" + b"}" * 200,    b"[1,2", b"", b"nul", b"'x'", b'[["float"],[9223372036854775808]]',
]  # fmt: skip
KEYS = [
    b"ph", b"cat", b"name", b"pid", b"tid", b"ts", b"dur", b"args", b"id", b"bp", b"s", b"device", b"stream", b"correlation", b"bytes",
    b"graph node id", b"fromDevice", b"toDevice", b"wait_on_cuda_event_record_corr_id", b"labels", b"Input Dims", b"Input type",
    b"Collective name", b"External id", b"In msg nelems", b"Group size", b"Process Group Ranks", b"dtype", b"traceEvents", b"",
    b"baseTimeNanoseconds", b"distributedInfo", b"deviceProperties", b"c\\u0061t", b"n\\u0061me",
]  # fmt: skip
TOKENS = [
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b" ", b"\n", b"\x00", b"\xff", b"},{", b"}]}", b'"ph":"X",', b'{"ph":"X"}', b"/*x*/",
    b'"traceEvents":[', b"\xef\xbb\xbf", b"\x1f\x8b", b"null", b'\\"', b"]}", b',"name":"', b"\xed\xa0\x80",
]  # fmt: skip
TOPS = [
    b'"baseTimeNanoseconds":', b'"deviceProperties":', b'"distributedInfo":', b'"schemaVersion":', b'"host_name":',
    b'"cuda_runtime_version":', b'"displayTimeUnit":', b'"traceName":',
]  # fmt: skip


@dataclass(frozen=True)
class Seed:
    """A trace taken apart: what stands before its events, the events, what stands after them."""

    name: str
    head: bytes
    events: tuple[bytes, ...]
    foot: bytes


def generated() -> list[Seed]:
    """Traces of the builder that the tests use, in every era and layout, as object and as list."""
    from kineto_builder import two_steps

    seeds = []
    for era in ("base", "epoch", "us"):
        for layout in LAYOUTS:
            for form, metadata in (("object", "first"), ("object", "last"), ("list", "first")):
                text = two_steps(era).text(layout=layout, form=form, metadata=metadata)
                seeds.append(taken_apart(f"{era} {layout} {form} {metadata}", text))
    return seeds


def cut_outs(folder: Path) -> list[Seed]:
    """The first and some middle events of the real traces in a folder; none where there is no such folder."""
    seeds = []
    for path in sorted(folder.glob("**/*.json.gz")):
        with gzip.open(path) as file:
            text = file.read(2 * _CUT_OUT)
        for begin in (0, _CUT_OUT):
            seed = taken_apart(f"{path.name} from {begin}", text[begin : begin + _CUT_OUT], head_of=text)
            if len(seed.events) > 3:
                seeds.append(seed)
    return seeds


def taken_apart(name: str, text: bytes, head_of: bytes | None = None) -> Seed:
    """A text taken apart at its events; of a text that is cut, the whole events it holds, with the head of another."""
    start = _EVENTS.search(text)
    opening = start.end() if start else text.find(b"[") + 1 if text.lstrip()[:1] == b"[" else max(text.find(b'{"ph"'), text.find(b"  {"), 0)
    source = _EVENTS.search(head_of) if head_of is not None else start
    whole = text if head_of is None else head_of
    head = whole[: source.end()] if source else b"["
    decoder = json.JSONDecoder(strict=False)
    string = text.decode("latin-1")
    at = opening
    events: list[bytes] = []
    while (at := string.find("{", at)) >= 0 and len(events) < 4000:
        if "]" in string[at - 40 : at].split("}")[-1] and events:
            at = string.rfind("]", 0, at)
            break
        try:
            _, end = decoder.raw_decode(string, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        if string[at:end].startswith("{") and '"ph"' in string[at:end]:
            events.append(text[at:end])
        at = end
    closing = string.rfind("]") if head_of is None else -1
    foot = text[closing:] if closing > 0 and head_of is None else b"]}" if source else b"]"
    return Seed(name, head[:3000] if len(head) <= 3000 else b'{"schemaVersion":1,"traceEvents":[', tuple(events), foot)


class Mutator:
    """Makes inputs of seeds; the same random numbers make the same input."""

    def __init__(self, seeds: list[Seed]) -> None:
        self.seeds = seeds

    def make(self, rng: random.Random) -> bytes:
        """The bytes of one file."""
        seed = rng.choice(self.seeds)
        count = min(len(seed.events), rng.choice((1, 2, 3, 4, 5, 6, 8, 12)))
        begin = rng.randrange(len(seed.events) - count + 1)
        events = list(seed.events[begin : begin + count])
        for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 5))):
            self._change(events, rng)
        text = self._put_together(seed, events, rng)
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
            text = self._damage(text, rng)
        return self._packed(text, rng)

    def _change(self, events: list[bytes], rng: random.Random) -> None:
        at = rng.randrange(len(events)) if events else 0
        how = rng.randrange(14)
        if not events or how == 0:
            other = rng.choice(self.seeds).events
            events.insert(at, rng.choice(other))
        elif how == 1:
            events.insert(rng.randrange(len(events) + 1), events[at])
        elif how == 2:
            del events[at]
        elif how == 3:
            rng.shuffle(events)
        elif how == 4:
            events[at] = _replaced(_KEY, events[at], b'"' + rng.choice(KEYS) + b'":', rng, whole=True)
        elif how == 5:
            pair = b'"' + rng.choice(KEYS) + b'":' + _value(rng) + b","
            places = [m.end() for m in re.finditer(rb"\{", events[at])]
            where = rng.choice(places) if places else 0
            events[at] = events[at][:where] + pair + events[at][where:]
        elif how == 6:
            events[at] = _TIME.sub(lambda m: m[1] + _near(m[2], rng), events[at])
        else:
            events[at] = _replaced(_VALUE, events[at], _value(rng), rng)

    def _put_together(self, seed: Seed, events: list[bytes], rng: random.Random) -> bytes:
        separator = b",\n  " if rng.random() < 0.9 else rng.choice((b",", b"", b",,", b"\n", b", ,", b"]", b",]", b";"))
        head, foot = seed.head, seed.foot
        if rng.random() < 0.15:
            top = rng.choice(TOPS) + _value(rng)
            head, foot = (b"{" + top + b',"traceEvents":[', b"]}") if rng.random() < 0.5 else (b'{"traceEvents":[', b"]," + top + b"}")
        elif rng.random() < 0.05:
            head, foot = _replaced(_VALUE, head, _value(rng), rng), rng.choice((b"", b"]", b"}", b"]}]}", b"]} x", foot + foot))
        return head + separator.join(events) + foot

    def _damage(self, text: bytes, rng: random.Random) -> bytes:
        a = rng.randrange(len(text) + 1)
        b = min(len(text), a + rng.choice((1, 1, 2, 5, 30, 200)))
        how = rng.randrange(6)
        if how == 0:
            return text[:a]
        if how == 1:
            return text[:a] + text[b:]
        if how == 2:
            return text[:a] + rng.choice(TOKENS) + text[a:]
        if how == 3:
            return text[:a] + bytes([rng.randrange(256)]) + text[a + 1 :]
        if how == 4:
            return text[:b] + text[a:]
        c = rng.randrange(len(text) + 1)
        return text[:c] + text[a:b] + text[c:]

    def _packed(self, text: bytes, rng: random.Random) -> bytes:
        how = rng.random()
        if how > 0.03:
            return text
        if how > 0.015:
            packed = zlib.compress(text, 1, 31)
        else:
            stored = io.BytesIO()
            with zipfile.ZipFile(stored, "w", zipfile.ZIP_DEFLATED) as archive:
                for name in rng.choice((("trace.json",), ("../../etc/passwd",), ("/abs",), ("a", "b"), ("d/",), ("",), ("a\x00b",))):
                    archive.writestr(zipfile.ZipInfo(name), text)
            packed = stored.getvalue()
        return self._damage(packed, rng) if rng.random() < 0.7 else packed


def _value(rng: random.Random) -> bytes:
    how = rng.random()
    return rng.choice(NUMBERS if how < 0.5 else STRINGS if how < 0.85 else OTHERS)


def _near(number: bytes, rng: random.Random) -> bytes:
    """A time near another: the same, moved a little, negative, scaled."""
    how = rng.randrange(6)
    if how == 0:
        return b"-" + number.lstrip(b"-")
    if how == 1:
        return number + rng.choice((b"0", b"9", b"e3", b"e-3"))
    if how == 2:
        return number.split(b".")[0]
    if how == 3:
        return b"%d.%03d" % (rng.randrange(3000), rng.randrange(1000))
    return number


def _replaced(pattern: re.Pattern[bytes], text: bytes, new: bytes, rng: random.Random, whole: bool = False) -> bytes:
    """The text with one match of a pattern, or its group, exchanged."""
    spans = [m.span(0 if whole else 1) for m in pattern.finditer(text)]
    if not spans:
        return text + new
    start, end = rng.choice(spans)
    return text[:start] + new + text[end:]
