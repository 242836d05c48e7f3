# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Pages of a SQLite table in, columns out, without the interpreter and without its lock.

SQLite spends nine tenths of a large read on making an object of every number. Its file format is documented and frozen
(https://www.sqlite.org/fileformat2.html), and of it this reads one case: the leaves of an ordinary table, from left to right. It
only reads what it was handed, checks every offset, and gives up whatever it does not understand whole: a row (then SQLite reads that
row) or the table (then SQLite reads on from the last row). So there is one question to ask of every line: can it take something out
of a page that SQLite would not?
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

ctypedef const uint8_t* Bytes

cdef enum:
    DEEPEST = 20  # levels of a table; SQLite's own limit
    MOST_COLUMNS = 64  # that are asked for at once
    MOST_PROBES = 200  # in a table of names; names made to collide must not cost quadratic time
    LEAF = 13
    INTERIOR = 5
    FILE_HEADER = 100
    LOCKED_BYTE = 0x40000000  # the page with it belongs to no table

cdef enum:
    DONE_ = 0
    FULL_ = 1
    PAGE_ = 2
    ROW_ = 3
    TABLE_ = 4

cdef enum:
    NO_TEXT = -1

DONE, FULL, PAGE, ROW, TABLE = DONE_, FULL_, PAGE_, ROW_, TABLE_
"""How a call of `fill` ended: no more rows; no more room; it needs another page; a row, or the table, is not understood."""


cdef struct Wanted:
    int column
    bint text
    bint needs_default  # a row that ends before the column has another value than NULL
    int64_t if_null


cdef struct Level:
    uint8_t* page
    int header  # where its header begins
    int cells
    int following  # the child that comes next


cdef inline uint32_t two(Bytes at) noexcept nogil:
    return (<uint32_t> at[0] << 8) | at[1]


cdef inline uint32_t four(Bytes at) noexcept nogil:
    return (<uint32_t> at[0] << 24) | (<uint32_t> at[1] << 16) | (<uint32_t> at[2] << 8) | at[3]


cdef inline Bytes varint_end(Bytes at, Bytes end, uint64_t* value) noexcept nogil:
    """Behind a number of one to nine bytes, NULL where it does not end before `end`."""
    cdef uint64_t result = 0
    cdef int i
    if at < end and at[0] < 0x80:  # nearly all
        value[0] = at[0]
        return at + 1
    for i in range(8):
        if at + i >= end:
            return NULL
        result = (result << 7) | (at[i] & 0x7F)
        if at[i] < 0x80:
            value[0] = result
            return at + i + 1
    if at + 8 >= end:
        return NULL
    value[0] = (result << 8) | at[8]
    return at + 9


cdef inline int64_t size_of(uint64_t serial) noexcept nogil:
    """How many bytes a value of this serial type takes; -1 for a reserved one."""
    if serial >= 12:
        return <int64_t> ((serial - 12) >> 1)
    if serial <= 4:
        return <int64_t> serial
    if serial == 5:
        return 6
    if serial <= 7:
        return 8
    return 0 if serial <= 9 else -1


cdef inline int64_t integer_at(Bytes at, int size) noexcept nogil:
    """A signed number, highest byte first."""
    cdef uint64_t result = 0
    cdef int i
    for i in range(size):
        result = (result << 8) | at[i]
    if size < 8 and at[0] & 0x80:
        result |= (<uint64_t> 0xFFFFFFFFFFFFFFFF) << (8 * size)
    return <int64_t> result


cdef class Leaves:
    """The rows of one table, from the first to the last.

    Args:
        root: number of its first page.
        page_bytes, usable_bytes: size of a page, and how much of it the table uses.
        pages: how many the file has.
        columns: position in the table of each wanted column, rising.
        texts: for each whether it is wanted as text, which one can be; else as an integer.
        defaults: for each integer what stands for NULL.
        added: for each whether a row that ends before it has another value than NULL.
    """

    cdef Wanted wanted[MOST_COLUMNS]
    cdef int columns, page_bytes, usable, integer_columns, text_columns
    cdef uint32_t pages, page  # of the file; the page that is read or needed
    cdef uint64_t seen
    cdef int64_t last_row
    cdef bint any_row
    cdef Level levels[DEEPEST]
    cdef int depth
    cdef bint in_leaf
    cdef int cell, cells, header

    def __cinit__(self, uint32_t root, int page_bytes, int usable_bytes, uint32_t pages, columns, texts, defaults, added):
        cdef int i
        self.columns = len(columns)
        if not 0 < self.columns <= MOST_COLUMNS or sum(map(bool, texts)) > 1 or not 512 <= page_bytes <= 65536 or not 480 <= usable_bytes <= page_bytes:
            raise ValueError("no such table")
        self.page_bytes, self.usable, self.pages, self.page = page_bytes, usable_bytes, pages, root
        for i in range(self.columns):
            self.wanted[i] = Wanted(columns[i], texts[i], added[i], 0 if texts[i] else defaults[i])
            self.text_columns += bool(texts[i])
        self.integer_columns = self.columns - self.text_columns

    def __dealloc__(self):
        cdef int i
        for i in range(DEEPEST):
            free(self.levels[i].page)

    def fill(
        self, const uint8_t[::1] window, uint32_t first, int64_t[:, ::1] integers, int64_t[::1] ends, uint8_t[::1] text, Py_ssize_t rows,
        Py_ssize_t used
    ):
        """(how it ended, rows, bytes of text, page or row id): goes on filling rows.

        Args:
            window: pages of the file in order.
            first: number of the first of them.
            integers: one row per integer column.
            ends: where the text of each row ends in `text`, NO_TEXT for what is no text.
            text: the texts behind each other.
            rows, used: how many rows and bytes of text are filled already.
        """
        cdef int how
        cdef int64_t number = 0
        if integers.shape[0] < self.integer_columns or (self.text_columns and ends.shape[0] < integers.shape[1]) or rows < 0 or used < 0:
            raise ValueError("the columns do not fit")
        with nogil:
            how = self.filled(window, first, integers, ends, text, &rows, &used, &number)
        return how, rows, used, number

    cdef Bytes page_in(self, const uint8_t[::1] window, uint32_t first) noexcept nogil:
        """The page that is needed, NULL if it is not there."""
        cdef Py_ssize_t at
        if self.page < first:
            return NULL
        at = <Py_ssize_t> (self.page - first) * self.page_bytes
        if at + self.page_bytes > window.shape[0]:
            return NULL
        return &window[at]

    cdef int filled(
        self, const uint8_t[::1] window, uint32_t first, int64_t[:, ::1] integers, int64_t[::1] ends, uint8_t[::1] text,
        Py_ssize_t* rows, Py_ssize_t* used, int64_t* number
    ) noexcept nogil:
        cdef Bytes page
        cdef int how
        while True:
            if self.page == 0 or self.page > self.pages:
                return TABLE_
            page = self.page_in(window, first)
            if page == NULL:
                number[0] = self.page
                return PAGE_
            if not self.in_leaf:
                how = self.entered(page)
                if how != FULL_:
                    return how
                continue
            while self.cell < self.cells:
                if rows[0] >= integers.shape[1]:
                    return FULL_
                how = self.row_taken(page, integers, ends, text, rows[0], used, number)
                if how == FULL_ or how == TABLE_:
                    return how
                self.cell += 1
                self.last_row, self.any_row = number[0], True
                if how != DONE_:
                    return how
                rows[0] += 1
            self.in_leaf = False
            if not self.advanced():
                return DONE_

    cdef int entered(self, Bytes page) noexcept nogil:
        """Begins a page: FULL where the walk goes on, DONE where the table is empty, TABLE where it is not understood."""
        cdef int header = FILE_HEADER if self.page == 1 else 0
        cdef int cells = two(page + header + 3)
        cdef Level* level
        cdef Bytes end
        self.seen += 1
        if self.seen > self.pages or self.page == <uint32_t> (LOCKED_BYTE // self.page_bytes) + 1 or cells > (self.usable - 8) / 6:
            return TABLE_
        if page[header] == LEAF:
            if header + 8 + 2 * cells > self.usable or (cells == 0 and self.depth):
                return TABLE_
            if cells == 0:
                return DONE_
            self.header, self.cells, self.cell, self.in_leaf = header + 8, cells, 0, True
            return FULL_
        if page[header] != INTERIOR or self.depth == DEEPEST or header + 12 + 2 * cells > self.usable or cells == 0:
            return TABLE_
        level = &self.levels[self.depth]
        if level.page == NULL:
            level.page = <uint8_t*> malloc(self.page_bytes)
            if level.page == NULL:
                return TABLE_
        memcpy(level.page, page, self.page_bytes)
        level.header, level.cells, level.following = header, cells, 0
        self.depth += 1
        return FULL_ if self.advanced() else TABLE_

    cdef bint advanced(self) noexcept nogil:
        """Goes to the next child, of the lowest level that has one; false if there is none. The child 0 stands for a damaged page."""
        cdef Level* level
        cdef uint32_t at
        while self.depth:
            level = &self.levels[self.depth - 1]
            if level.following < level.cells:
                at = two(level.page + level.header + 12 + 2 * level.following)
                self.page = 0 if at + 4 > <uint32_t> self.usable else four(level.page + at)
            elif level.following == level.cells:
                self.page = four(level.page + level.header + 8)
            else:
                self.depth -= 1
                continue
            level.following += 1
            return True
        return False

    cdef int row_taken(
        self, Bytes page, int64_t[:, ::1] integers, int64_t[::1] ends, uint8_t[::1] text, Py_ssize_t row, Py_ssize_t* used,
        int64_t* number
    ) noexcept nogil:
        """Reads one cell: DONE; FULL where there is no room for its text; ROW or TABLE where it is not understood."""
        cdef uint32_t at = two(page + self.header + 2 * self.cell)
        cdef Bytes end = page + self.usable
        cdef Bytes types, types_end, value
        cdef uint64_t payload, rowid, size, serial
        cdef int64_t length
        cdef int column = 0, wanted = 0, integer = 0
        cdef Py_ssize_t filled = used[0]
        cdef Wanted* want
        if at < <uint32_t> (self.header + 2 * self.cells) or at + 4 > <uint32_t> self.usable:
            return TABLE_
        value = varint_end(page + at, end, &payload)
        if value != NULL:
            value = varint_end(value, end, &rowid)
        if value == NULL:
            return TABLE_
        if self.any_row and <int64_t> rowid <= self.last_row:
            return TABLE_  # rows out of order: a damaged table, in which none could be looked up
        number[0] = <int64_t> rowid
        if payload > <uint64_t> (self.usable - 35):
            return ROW_  # goes on in other pages
        if payload > <uint64_t> (end - value):
            return TABLE_
        end = value + payload
        types = varint_end(value, end, &size)
        if types == NULL or size > payload or value + size < types:
            return ROW_
        types_end = value + size
        value = types_end
        while wanted < self.columns:
            if types >= types_end:  # the row was written before the column was added
                want = &self.wanted[wanted]
                if want.needs_default:
                    return ROW_
                if want.text:
                    ends[row] = NO_TEXT
                else:
                    integers[integer, row] = want.if_null
                    integer += 1
                wanted += 1
                continue
            types = varint_end(types, types_end, &serial)
            if types == NULL:
                return ROW_
            length = size_of(serial)
            if length < 0 or length > end - value:
                return ROW_
            while wanted < self.columns and self.wanted[wanted].column == column:
                want = &self.wanted[wanted]
                if want.text:
                    if serial >= 13 and serial & 1:
                        if length > text.shape[0] - filled:
                            return FULL_ if filled else ROW_
                        memcpy(&text[0] + filled, value, length)
                        filled += length
                        ends[row] = filled
                    else:
                        ends[row] = NO_TEXT
                elif serial == 0:
                    integers[integer, row] = want.if_null
                    integer += 1
                elif serial <= 6:
                    integers[integer, row] = integer_at(value, <int> length)
                    integer += 1
                elif serial == 8 or serial == 9:
                    integers[integer, row] = <int64_t> serial - 8
                    integer += 1
                else:
                    return ROW_
                wanted += 1
            value += length
            column += 1
        if types == types_end and value != end:
            return ROW_  # the values do not fill the row
        used[0] = filled
        return DONE_


# Names of NVTX ranges.


cdef inline Bytes digits_end(Bytes at, Bytes end) noexcept nogil:
    """Behind the digits at a place; the place itself if there are none."""
    while at < end and c'0' <= at[0] <= c'9':
        at += 1
    return at


cdef inline bint begins(Bytes at, Bytes end, const char* text, Py_ssize_t length) noexcept nogil:
    return end - at >= length and memcmp(at, text, length) == 0


cdef inline bint is_suffix(Bytes at, Bytes end) noexcept nogil:
    """Whether what stands here up to the end is ", seq = N", ", op_id = N" or both, and perhaps sizes and inputs."""
    cdef Bytes after
    if begins(at, end, b", seq = ", 8):
        after = digits_end(at + 8, end)
        if after == at + 8:
            return False
        if begins(after, end, b", op_id = ", 10) and digits_end(after + 10, end) > after + 10:
            if is_rest(digits_end(after + 10, end), end):
                return True
        return is_rest(after, end)
    if begins(at, end, b", op_id = ", 10):
        after = digits_end(at + 10, end)
        return after > at + 10 and is_rest(after, end)
    return False


cdef inline bint is_rest(Bytes at, Bytes end) noexcept nogil:
    return at == end or begins(at, end, b", sizes = ", 10) or begins(at, end, b", input_op_ids = ", 17)


def names(
    const uint8_t[::1] text, const int64_t[::1] starts, const int64_t[::1] ends, int64_t[::1] firsts, int64_t[::1] cuts, uint8_t[::1] kinds,
    int32_t[::1] groups, int32_t[::1] slots
):
    """How many different names there are; the first row of each, where its name ends, its kind, and the group of every row.

    The name of an operator ends before its suffix. Kinds: 0 no text, 1 a name, 2 a name with a suffix, 3 not plain ASCII, or with a
    line break: to be looked at otherwise. Two groups may have one name, one group never has two.

    Args:
        text, starts, ends: the texts; end NO_TEXT for none.
        firsts, cuts, kinds: as many as rows, one per group filled.
        groups: for each row its group.
        slots: zeros, a power of two of them, more than twice as many as rows.
    """
    cdef Py_ssize_t i, length
    cdef int32_t count = 0, group
    cdef uint32_t slot, mask = <uint32_t> slots.shape[0] - 1
    cdef int probes
    cdef Bytes start, end, place
    cdef uint64_t hashed
    cdef uint8_t odd, kind
    if slots.shape[0] <= 2 * starts.shape[0] or slots.shape[0] & (slots.shape[0] - 1):
        raise ValueError("too few slots")
    with nogil:
        for i in range(starts.shape[0]):
            kind = odd = 0
            start = end = place = NULL
            hashed = <uint64_t> 0xCBF29CE484222325
            if ends[i] != NO_TEXT:
                kind = 1
                start, end = &text[0] + starts[i], &text[0] + ends[i]
                place = start
                while place < end:
                    if place[0] == c',' and is_suffix(place, end):
                        kind = 2
                        break
                    odd |= (place[0] & 0x80) | <uint8_t> (place[0] == c'\n')
                    hashed = (hashed ^ <uint64_t> place[0]) * <uint64_t> 0x100000001B3
                    place += 1
                end = place if kind == 2 and not has_odd(place, end) and not odd else end
                if odd or (kind == 2 and end != place):
                    kind, place = 3, end
            hashed = (hashed ^ kind) * <uint64_t> 0x9E3779B97F4A7C15
            slot = <uint32_t> (hashed >> 32) & mask
            group = -1
            for probes in range(MOST_PROBES):
                if slots[slot] == 0:
                    break
                group = slots[slot] - 1
                length = cuts[group] - starts[firsts[group]]
                if kinds[group] == kind and length == place - start and (
                    length == 0 or memcmp(&text[0] + starts[firsts[group]], start, length) == 0
                ):
                    break
                group = -1
                slot = (slot + 1) & mask
            if group < 0:
                group = count
                if slots[slot] == 0:
                    slots[slot] = group + 1
                firsts[group], kinds[group] = i, kind
                cuts[group] = starts[i] + (place - start)
                count += 1
            groups[i] = group
    return count


cdef inline bint has_odd(Bytes at, Bytes end) noexcept nogil:
    """Whether there is anything but plain ASCII, or a line break."""
    while at < end:
        if at[0] & 0x80 or at[0] == c'\n':
            return True
        at += 1
    return False
