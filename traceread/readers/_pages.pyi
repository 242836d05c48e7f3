from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

DONE: int
FULL: int
PAGE: int
ROW: int
TABLE: int

class Leaves:
    def __init__(
        self,
        root: int,
        page_bytes: int,
        usable_bytes: int,
        pages: int,
        columns: Sequence[int],
        texts: Sequence[bool],
        defaults: Sequence[int],
        added: Sequence[bool],
    ) -> None: ...
    def fill(
        self,
        window: npt.NDArray[np.uint8],
        first: int,
        integers: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        text: npt.NDArray[np.uint8],
        rows: int,
        used: int,
    ) -> tuple[int, int, int, int]: ...

def names(
    text: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    firsts: npt.NDArray[np.int64],
    cuts: npt.NDArray[np.int64],
    kinds: npt.NDArray[np.uint8],
    groups: npt.NDArray[np.int32],
    slots: npt.NDArray[np.int32],
) -> int: ...
