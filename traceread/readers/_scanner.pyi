import numpy as np
import numpy.typing as npt

INTEGERS: int

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

def scan(
    text: bytes,
    start: int,
    stop: int,
    integers: tuple[npt.NDArray[np.int64], ...],
    codes: npt.NDArray[np.int32],
    timed: npt.NDArray[np.uint8],
) -> Scanned | None: ...
def scan_file(
    descriptor: int,
    begin: int,
    stop: int,
    is_first: bool,
    buffer_bytes: int,
    integers: tuple[npt.NDArray[np.int64], ...],
    codes: npt.NDArray[np.int32],
    timed: npt.NDArray[np.uint8],
) -> tuple[Scanned, int, int, int] | None: ...
