INTEGERS: int
ROW_BYTES: int

class Scanned:
    rows: int
    objects: int
    events: int
    categories: list[bytes]
    names: list[bytes]
    identities: list[bytes]
    tracks: list[tuple[int, int]]
    labels: list[bytes]
    whole: list[bytes]
    has_shapes: bool
    names_collectives: bool

def room_for(rows: int) -> bytearray: ...
def scan(text: bytes, start: int, stop: int, room: bytearray) -> Scanned | None: ...
def scan_file(
    descriptor: int, begin: int, stop: int, is_first: bool, buffer_bytes: int, room: bytearray
) -> tuple[Scanned, int, int, int] | None: ...
