"""A PyTorch trace in, the same trace out with nothing in it but what is listed here.

Events keep their kind, name, track, times and the arguments that say what was launched, moved and multiplied. Everything else, call
stacks and whatever a future profiler may add, is left out because it is not listed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import msgspec

from traceread.model import ELEMENT_BYTES, Operation
from traceread.readers.json_events import EventReader
from traceread.readers.kineto import CATEGORIES
from traceread.readers.operation_names import operation_named
from traceread.readers.options import DEFAULTS, ReadOptions
from traceread.readers.raw_events import RawEvent, decoded_events
from traceread.readers.unpacking import Unpacked
from traceread.scrub.texts import Texts

_VERSIONS = (
    "cupti_version", "cuda_runtime_version", "cuda_driver_version", "hip_runtime_version", "hip_driver_version", "roctracer_version",
    "rocprofiler-sdk_version",
)  # fmt: skip
_SWITCHES = ("schemaVersion", "record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules")
_METADATA = ("baseTimeNanoseconds", "displayTimeUnit", "deviceProperties", "distributedInfo", "host_name", *_SWITCHES, *_VERSIONS)
_DEVICE = (
    "id", "totalGlobalMem", "computeMajor", "computeMinor", "maxThreadsPerBlock", "maxThreadsPerMultiprocessor", "regsPerBlock",
    "regsPerMultiprocessor", "warpSize", "sharedMemPerBlock", "sharedMemPerMultiprocessor", "numSms", "sharedMemPerBlockOptin",
)  # fmt: skip
_JOB = ("rank", "world_size", "pg_count")

# What arguments may be: a number, a list of numbers (as JSON or as its text), a name, a word or type that is known, a plain value.
_NUMBERS = frozenset((
    "device", "stream", "correlation", "Correlation", "context", "bytes", "graph id", "graph node id", "fromDevice", "inDevice", "toDevice",
    "fromContext", "inContext", "toContext", "External id", "external id", "Record function id", "Ev Idx", "Sequence number",
    "Fwd thread id", "queued", "registers per thread", "shared memory", "blocks per SM", "warps per SM", "est. achieved occupancy %",
    "priority", "memory bandwidth (GB/s)", "cbid", "cid", "Python id", "Python parent id", "Python module id", "wait_on_stream",
    "wait_on_cuda_event_record_corr_id", "wait_on_cuda_event_id", "Seq", "Comms Id", "Group size", "In msg nelems", "Out msg nelems",
    "Rank", "Src Rank", "Dst Rank", "Global rank start", "Global rank stride", "Op count", "sort_index",
))  # fmt: skip
_LISTS = frozenset((
    "grid", "block", "Input Dims", "Input dims", "Input Strides", "In split size", "Out split size", "Process Group Ranks", "ranks",
))  # fmt: skip
_NAMES = frozenset(("Process Group Name", "Process Group Description", "kernel"))

_NUMBER = re.compile(
    rb'-?\d{1,400}(?:\.\d{0,400})?(?:[eE][+-]?\d{1,9})?|"\s*[+-]?\d{0,400}(?:\.\d{0,400})?(?:[eE][+-]?\d{1,9})?\s*"|true|false|null'
)
_LIST = re.compile(rb"\[[\[\]\d,.\s-]*\]")
_LIST_TEXT = re.compile(rb'"[\[\]\d,. -]*"')
_TYPES = frozenset((
    "", "float", "double", "int", "long int", "long", "short", "signed char", "unsigned char", "bool", "unsigned int", "unsigned short",
    "unsigned long", "c10::complex<float>", "c10::complex<double>", "Tensor", "TensorList", "Scalar", "ScalarList", "GenericList", "None",
    "nullptr (uninitialized)", *ELEMENT_BYTES, *(f"c10::{name}" for name in ELEMENT_BYTES),
))  # fmt: skip
_BACKEND = re.compile(r"(?:(?:(?:cpu|cuda|hip|xpu|mtia):)?(?:nccl|rccl|xccl|hccl|gloo|mpi|ucc)(?:,|$)){1,4}")
_VERSION = re.compile(r"\d[\w.+-]{0,39}|unknown")
_PLAIN_VALUE = re.compile(r"(?:None|True|False|[-+\d.eE]{1,40}|inf|nan|\[(?:(?:True|False|[-+\d.eE]{1,40})(?:, ?|(?=\])))*\]|)")
_ID = re.compile(rb'"?(?:0x)?[0-9a-fA-F]{1,20}"?')
_PHASE_FIELDS = {b'"s"': ("id", "bp"), b'"t"': ("id", "bp"), b'"f"': ("id", "bp")}
_FLOWS = frozenset(("ac2g", "fwdbwd", "async_cpu_to_gpu", "forward_backward", "async", "launch", ""))
_LABELS = frozenset(("process_name", "process_labels", "process_sort_index", "thread_name", "thread_sort_index"))
_PROCESS = re.compile(r"python[\d.]{0,6}|pt_main_thread|GPU \d{1,4}|CPU|")
_PROCESS_LABEL = re.compile(r"CPU|(?:GPU|stream) \d{1,4}|")
_HOST_IN_NAME = re.compile(r"([A-Za-z][\w.-]*?)_\d+\.\d+\.pt\.trace\.json")


def learn(path: Path, texts: Texts, options: ReadOptions = DEFAULTS) -> tuple[dict[str, Any], bool]:
    """The metadata of a trace that is kept, and whether its list of events was cut off; `texts` learns its hosts and accounts.

    Raises:
        TraceNotFound, InputError, LimitExceeded: it cannot be read.
    """
    with closing(Unpacked(path, options).blocks()) as blocks:
        reader = EventReader(blocks, options)
        for _ in reader:
            pass
    metadata = reader.metadata((*_METADATA, "username"))
    texts.learn(
        hosts=[m[1] for m in [_HOST_IN_NAME.match(path.name)] if m] + _strings(metadata.get("host_name")),
        users=_strings(metadata.get("username")),
    )
    texts.learn_from(reader.names)
    texts.learn_from(reader.labels.values())
    return _kept_metadata(metadata, texts), reader.damage.truncated


def write(
    path: Path, out: IO[bytes], metadata: Mapping[str, Any], truncated: bool, texts: Texts, removed: Counter[str], options: ReadOptions
) -> None:
    """Writes the trace anew, some thousand events at a time; counts by kind what was left out.

    Args:
        path: the trace.
        out: where to.
        metadata: what is kept of what stands beside the events.
        truncated: the list of events was cut off.
        texts: replaces what names should not say.
        removed: counts.
        options: limits and progress of reading.

    Raises:
        InputError, LimitExceeded: the trace cannot be read.
    """
    shown: list[bytes] = []
    events = _Events(texts, removed)
    is_first = True
    with closing(Unpacked(path, options).blocks()) as blocks:
        reader = EventReader(blocks, replace(options, compiled=False), lambda text, _: shown.append(text))
        batches = _batches(reader, shown)
        batch = next(batches, [])
        is_list = reader.form == "list"
        out.write(b"[" if is_list else msgspec.json.encode(metadata)[:-1] + (b"," if metadata else b"") + b'"traceEvents":[')
        while batch:
            text = b",\n".join(events.kept(batch))
            if text:
                out.write((b"\n" if is_first else b",\n") + text)
                is_first = False
            batch = next(batches, [])
    if not truncated:  # else the copy ends as the original does: its last step is partial
        out.write(b"\n]" if is_list else b"\n]}\n")


def _batches(reader: EventReader, shown: list[bytes]) -> Iterator[list[RawEvent]]:
    for _ in reader:
        texts, shown[:] = shown[:], []
        yield [event for text in texts for event in decoded_events(text)]
    rest = [event for text in shown for event in decoded_events(text)]
    if rest:
        yield rest


class _Events:
    """Events as they are kept."""

    def __init__(self, texts: Texts, removed: Counter[str]) -> None:
        self._texts = texts
        self._removed = removed
        self._names: dict[bytes, bytes] = {}
        self._kinds: dict[bytes, str | None] = {}
        self._values: dict[tuple[str, bytes], bytes | None] = {}

    def kept(self, batch: Iterable[RawEvent]) -> Iterator[bytes]:
        """The text of each event that is kept."""
        for event in batch:
            phase = bytes(event.get("ph", b""))
            if phase == b'"X"':
                text = self._complete(event)
            elif phase == b'"M"':
                text = self._label(event)
            elif phase in _PHASE_FIELDS and self._kind(event) in _FLOWS:
                text = self._text(phase, event, ())
            else:
                text = None
            if text is None:
                self._removed["events that are not read"] += 1
            else:
                yield text

    def _complete(self, event: RawEvent) -> bytes | None:
        if self._kind(event) not in CATEGORIES:
            return None
        return self._text(b'"X"', event, self._arguments(event))

    def _label(self, event: RawEvent) -> bytes | None:
        what = _string(event.get("name"))
        if what not in _LABELS:
            return None
        args = _object(event.get("args"))
        found = []
        if what.endswith("sort_index"):
            found = [b'"sort_index":' + value for value in [self._value("sort_index", args.get("sort_index"))] if value is not None]
        elif what == "process_labels":
            label = _string(args.get("labels"))
            found = [b'"labels":' + _json(label)] if label is not None and _PROCESS_LABEL.fullmatch(label) else []
        elif (name := _string(args.get("name"))) is not None:
            if what == "process_name" and not _PROCESS.fullmatch(name):
                self._removed["process names"] += 1
                name = "process"
            found = [b'"name":' + _json(self._texts.clean(name))]
        return self._text(b'"M"', event, found)

    def _text(self, phase: bytes, event: RawEvent, args: Iterable[bytes]) -> bytes:
        parts = [b'{"ph":' + phase]
        kind = self._kind(event)
        if kind:
            parts.append(b'"cat":' + _json(kind))
        if "name" in event:
            parts.append(b'"name":' + self._name(bytes(event["name"])))
        parts += [b'"%s":%s' % (key.encode(), self._track(bytes(event[key]))) for key in ("pid", "tid") if key in event]
        for key in ("ts", "dur"):
            if key in event:
                value = bytes(event[key])
                parts.append(b'"%s":%s' % (key.encode(), value if _NUMBER.fullmatch(value) else b"null"))
        for key in _PHASE_FIELDS.get(phase, ()):
            if key in event and _ID.fullmatch(value := bytes(event[key])):
                parts.append(b'"%s":%s' % (key.encode(), value))
        arguments = b",".join(args)
        if arguments or "args" in event:
            parts.append(b'"args":{' + arguments + b"}")
        return b",".join(parts) + b"}"

    def _arguments(self, event: RawEvent) -> list[bytes]:
        found = []
        for key, value in _object(event.get("args")).items():
            text = self._value(key, value)
            if text is None:
                self._removed["call stacks" if key == "Call stack" else "arguments"] += 1
            else:
                found.append(_json(key) + b":" + text)
        return found

    def _value(self, key: str, value: msgspec.Raw | None) -> bytes | None:
        """An argument as it is kept, None if it is not."""
        if value is None:
            return None
        text = bytes(value)
        if key in _NUMBERS:
            return text if _NUMBER.fullmatch(text) else None
        if key in _LISTS:
            return b"".join(text.split()) if _LIST.fullmatch(text) else text if _LIST_TEXT.fullmatch(text) else None
        known = (key, text)
        if known not in self._values:
            if len(self._values) > 1 << 16:
                self._values.clear()
            self._values[known] = self._told(key, text)
        return self._values[known]

    def _told(self, key: str, text: bytes) -> bytes | None:
        """An argument that is no number, as it is kept."""
        if key == "dtype":
            return text if _string(text) in ELEMENT_BYTES else None
        if key == "Collective name":
            name = _string(text)
            return None if name is None else _json("unknown" if operation_named(name) is Operation.UNKNOWN else name)
        if key in _NAMES:
            name = _string(text)
            return text if name is None and _NUMBER.fullmatch(text) else None if name is None else _json(self._texts.clean(name))
        if key in ("Input type", "Concrete Inputs"):
            values = _decoded(text)
            if not isinstance(values, list):
                return None
            fit = _TYPES.__contains__ if key == "Input type" else _PLAIN_VALUE.fullmatch
            kept = [value if isinstance(value, str) and fit(value) else "" for value in values]
            self._removed["values of inputs"] += sum(value != there for value, there in zip(values, kept, strict=True))
            return _json(kept)
        return None

    def _kind(self, event: RawEvent) -> str | None:
        """The category of an event; "" if it has none."""
        text = bytes(event.get("cat", b'""'))
        if text not in self._kinds:
            if len(self._kinds) > 1 << 12:
                self._kinds.clear()
            self._kinds[text] = _string(text)
        return self._kinds[text]

    def _name(self, text: bytes) -> bytes:
        if text not in self._names:
            if len(self._names) > 1 << 16:
                self._names.clear()
            name = _string(text)
            self._names[text] = b"null" if name is None else _json(self._texts.clean(name))
        return self._names[text]

    def _track(self, text: bytes) -> bytes:
        """A process or thread: ids stay, names are cleaned."""
        if _NUMBER.fullmatch(text):
            return text
        name = _string(text)
        return b"null" if name is None else _json(self._texts.clean(name))


def _kept_metadata(metadata: Mapping[str, Any], texts: Texts) -> dict[str, Any]:
    kept: dict[str, Any] = {key: metadata[key] for key in (*_SWITCHES, "baseTimeNanoseconds") if _is_number(metadata.get(key))}
    kept |= {key: metadata[key] for key in _VERSIONS if key in metadata and _VERSION.fullmatch(str(metadata[key]))}
    if metadata.get("displayTimeUnit") in ("ms", "ns"):
        kept["displayTimeUnit"] = metadata["displayTimeUnit"]
    if isinstance(properties := metadata.get("deviceProperties"), list):
        kept["deviceProperties"] = [_kept_device(device, texts) for device in properties if isinstance(device, dict)]
    if isinstance(job := metadata.get("distributedInfo"), dict):
        kept["distributedInfo"] = _kept_job(job, texts)
    for host in _strings(metadata.get("host_name")):
        kept["host_name"] = texts.host(host)
    return kept


def _kept_device(device: Mapping[str, Any], texts: Texts) -> dict[str, Any]:
    kept: dict[str, Any] = {key: device[key] for key in _DEVICE if _is_number(device.get(key))}
    for name in _strings(device.get("name")):
        kept["name"] = texts.clean(name)
    return kept


def _kept_job(job: Mapping[str, Any], texts: Texts) -> dict[str, Any]:
    kept: dict[str, Any] = {key: job[key] for key in _JOB if _is_number(job.get(key))}
    for key, form in (("backend", _BACKEND), ("nccl_version", _VERSION)):
        if isinstance(word := job.get(key), str) and form.fullmatch(word):
            kept[key] = word
    if isinstance(groups := job.get("pg_config"), list):
        kept["pg_config"] = [_kept_group(group, texts) for group in groups if isinstance(group, dict)]
    return kept


def _kept_group(group: Mapping[str, Any], texts: Texts) -> dict[str, Any]:
    kept: dict[str, Any] = {key: texts.clean(name) for key in ("pg_name", "pg_desc") for name in _strings(group.get(key))}
    kept |= {key: group[key] for key in ("pg_name", "pg_size") if _is_number(group.get(key))}
    ranks = group.get("ranks")
    text = json.dumps(ranks).encode()
    if _LIST.fullmatch(text) or _LIST_TEXT.fullmatch(text):
        kept["ranks"] = ranks
    return kept


def _is_number(value: Any) -> bool:
    """Whether a value is an integer, or the text of one."""
    return isinstance(value, int) or (isinstance(value, str) and re.fullmatch(r"-?\d{1,30}", value) is not None)


def _strings(value: Any) -> list[str]:
    """The value if it is a text with something in it, in a list."""
    return [value.encode("utf-8", "replace").decode()] if isinstance(value, str) and value else []


_raw_object: Callable[[bytes], dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def _object(value: msgspec.Raw | None) -> dict[str, msgspec.Raw]:
    """The parts of an object; none where it is none."""
    if value is None:
        return {}
    try:
        return _raw_object(bytes(value))
    except _REFUSED:
        values = _decoded(bytes(value))
        return {k: msgspec.Raw(json.dumps(v).encode()) for k, v in values.items()} if isinstance(values, dict) else {}


def _string(text: bytes | msgspec.Raw | None) -> str | None:
    """What a JSON text says if it is a string, None if it is not; bytes that are no UTF-8 are replaced."""
    if text is None:
        return None
    value = _decoded(bytes(text))
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _decoded(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except _REFUSED:
        pass
    try:
        return json.loads(text.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)
