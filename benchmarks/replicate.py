"""A large PyTorch trace out of a small one: the same events again and again, later each time and with ids of their own.

    python benchmarks/replicate.py trace.json.gz big.json --size 400M
    python benchmarks/replicate.py trace.json.gz big.json.gz --size 5G

The text stays as it was written, digit for digit but for the numbers that have to differ: times move by whole microseconds, ids and
step numbers by more than their largest value. So layout, key order, links between rows and the share of each kind of event stay too.
Names repeat, which flatters compression and dictionaries; nothing else about the file is easier than a real one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

TIME = rb'"ts"\s*:\s*"?(\d+)'
ID_KEYS = (
    "correlation", "External id", "external id", "id", "Ev Idx", "Record function id", "Sequence number", "Python id", "Python parent id",
    "wait_on_cuda_event_record_corr_id",
)  # fmt: skip
ID = rb'"(?:' + "|".join(ID_KEYS).encode() + rb')"\s*:\s*(\d{1,15})(?=\s*[,}])'
STEP = rb"ProfilerStep#(\d+)"
NUMBER = re.compile(TIME + b"|" + ID + b"|" + STEP)
DURATION = re.compile(rb'"dur"\s*:\s*"?(\d+)')
SIZES = {"K": 10**3, "M": 10**6, "G": 10**9}


@dataclass(frozen=True)
class Template:
    """A trace taken apart.

    Attributes:
        head, tail: the text before the first event and after the last one.
        texts: what stands between the numbers of the events; one more than there are numbers.
        numbers: for each number its value and which one of `shifts` it moves by.
        shifts: how much a copy is after the one before: times, ids, steps.
    """

    head: bytes
    tail: bytes
    texts: tuple[bytes, ...]
    numbers: tuple[tuple[int, int], ...]
    shifts: tuple[int, int, int]

    @property
    def size(self) -> int:
        """Bytes of one copy of the events."""
        return sum(map(len, self.texts)) + sum(len(str(value)) for value, _ in self.numbers)

    def copies(self, number: int) -> Iterator[bytes]:
        """The text of a trace with so many copies, piece by piece."""
        yield self.head
        for copy in range(number):
            moved = [copy * shift for shift in self.shifts]
            pieces = [b""] * (2 * len(self.texts) - 1)
            pieces[::2] = self.texts
            pieces[1::2] = [b"%d" % (value + moved[kind]) for value, kind in self.numbers]
            if copy:
                yield b",\n"
            yield b"".join(pieces)
        yield self.tail


def take_apart(text: bytes) -> Template:
    """The template of a trace.

    Raises:
        SystemExit: it is no sound trace, or has no events.
    """
    found = re.search(rb'"traceEvents"\s*:\s*(?=\[)', text)
    begin = found.end() if found else 0
    try:
        _, length = json.JSONDecoder().raw_decode(text[begin:].decode("latin-1").lstrip())
    except ValueError as e:
        raise SystemExit(f"the events are not sound JSON: {e}") from e
    while text[begin : begin + 1].isspace():
        begin += 1
    events = text[begin + 1 : begin + length - 1]
    body = events.strip()
    if not body:
        raise SystemExit("the trace holds no events")
    first = events.find(body)
    texts, numbers, at = [], [], 0
    for match in NUMBER.finditer(body):
        kind = match.lastindex - 1
        texts.append(body[at : match.start(kind + 1)])
        numbers.append((int(match[kind + 1]), kind))
        at = match.end()
    texts.append(body[at:])
    values = [[value for value, k in numbers if k == kind] or [0] for kind in range(3)]
    longest = max((int(m[1]) for m in DURATION.finditer(body)), default=0)
    shifts = (max(values[0]) - min(v for v in values[0] if v or not any(values[0])) + longest + 1, max(values[1]) + 1, max(values[2]) + 1)
    head, tail = text[: begin + 1 + first], text[begin + 1 + first + len(body) :]
    return Template(head, tail, tuple(texts), tuple(numbers), shifts)


def unpacked(path: Path) -> bytes:
    """The bytes of a file, gunzipped where it is gzip."""
    from isal import igzip

    stored = path.read_bytes()
    return igzip.decompress(stored) if stored.startswith(b"\x1f\x8b") else stored


def replicate(source: Path, target: Path, size: int) -> int:
    """Writes copies of the events of a trace until the text has about so many bytes, gzipped if the target is called .gz; how many."""
    template = take_apart(unpacked(source))
    number = max(1, round((size - len(template.head) - len(template.tail)) / template.size))
    with _opened(target) as file:
        for piece in template.copies(number):
            file.write(piece)
    return number


def _opened(path: Path) -> AbstractContextManager[IO[bytes]]:
    if path.suffix != ".gz":
        return path.open("wb")
    from isal import igzip_threaded

    opened: AbstractContextManager[IO[bytes]] = igzip_threaded.open(path, "wb", compresslevel=3, threads=1)
    return opened


def parsed_size(text: str) -> int:
    """Bytes of a size such as 400M."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 400M")
    return int(match[1]) * SIZES.get(match[2], 1)


def main() -> int:
    """Writes the file; prints what it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="a PyTorch trace, plain or gzip")
    parser.add_argument("target", type=Path, help="the file to write; .gz is packed")
    parser.add_argument("--size", type=parsed_size, default=400 * 10**6, metavar="SIZE", help="bytes of text, such as 400M or 5G")
    args = parser.parse_args()
    number = replicate(args.source, args.target, args.size)
    print(f"{args.target}: {number} copies of the events of {args.source.name}, {args.target.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
