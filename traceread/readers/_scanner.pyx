# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The text of many events in, columns out, without the interpreter and without its lock.

It reads what profilers write and nothing else. Whatever it meets that is not plainly so (damage, a time with an exponent, a
number in quotes, a key twice) ends the scan with "not understood", and the caller decodes the same text the tolerant way. So
there is one question to ask of every line here: can it accept a text that the typed decoder of `event_columns` refuses, or
take something else out of it? Being stricter costs time only.

Why it stays inside the text: a `bytes` object ends in a NUL of its own (and so does what is read of a file), which no loop below
steps over, for it is no digit, no white space and not allowed in a string. Only `run_end` and `laid_out_end` load eight bytes at
once, and look first whether they are there.
"""

from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

ctypedef const uint8_t* Text

cdef extern from *:
    """
    /* How many of the next eight bytes stand before the first quote, backslash or control character; 8 if there is none. */
    static inline int plain_bytes(const unsigned char *text) {
    #if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        const unsigned long long ones = 0x0101010101010101ULL, highest = 0x8080808080808080ULL;
        unsigned long long word, quote, backslash, found;
        memcpy(&word, text, 8);
        quote = word ^ (ones * '"');
        backslash = word ^ (ones * '\\\\');
        /* x - 1 borrows from the highest bit where x is 0; the lowest byte found is always right, and only it is asked for. */
        found = (((word - ones * 0x20) & ~word) | ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash)) & highest;
        return found ? __builtin_ctzll(found) >> 3 : 8;
    #else
        int i = 0;
        while (i < 8 && text[i] >= 0x20 && text[i] != '"' && text[i] != '\\\\') i++;
        return i;
    #endif
    }

    /* Whether a text begins otherwise than so many bytes; looks at up to seven more. */
    static inline int differs(const unsigned char *text, const unsigned char *from, int length) {
        unsigned long long one, other;
        for (; length >= 8; length -= 8, text += 8, from += 8) {
            memcpy(&one, text, 8);
            memcpy(&other, from, 8);
            if (one != other) return 1;
        }
    #if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        memcpy(&one, text, 8);
        memcpy(&other, from, 8);
        return length && (one ^ other) << (64 - 8 * length) != 0;
    #else
        return memcmp(text, from, length) != 0;
    #endif
    }

    /* How many of the next sixteen bytes stand before the first that is no digit, and their value. All sixteen must be there. */
    static inline int leading_digits(const unsigned char *text, unsigned long long *value) {
    #if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        static const unsigned long long tens[9] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
        unsigned long long word, other;
        int half, count[2];
        *value = 0;
        for (half = 0; half < 2; half++) {
            memcpy(&word, text + 8 * half, 8);
            word ^= 0x3030303030303030ULL;  /* digits are 0 to 9 now */
            other = ((word + 0x7676767676767676ULL) | word) & 0x8080808080808080ULL;
            count[half] = other ? __builtin_ctzll(other) >> 3 : 8;
            if (count[half]) {
                /* What is no digit goes; the digits before it move to the place of the last ones, with zeros before them. */
                word <<= 64 - 8 * count[half];
                word = (word * 10 + (word >> 8)) & 0x00ff00ff00ff00ffULL;
                word = (word * 100 + (word >> 16)) & 0x0000ffff0000ffffULL;
                word = (word * 10000 + (word >> 32)) & 0xffffffffULL;
                *value = *value * tens[count[half]] + word;
            }
            if (count[half] < 8) return 8 * half + count[half];
        }
        return 16;
    #else
        int i = 0;
        *value = 0;
        while (i < 16 && text[i] >= '0' && text[i] <= '9') *value = 10 * *value + (text[i++] - '0');
        return i;
    #endif
    }
    """
    int plain_bytes(Text text) noexcept nogil
    int leading_digits(Text text, unsigned long long* value) noexcept nogil
    bint differs(Text text, const uint8_t* other, int length) noexcept nogil

cdef extern from *:
    """
    #ifndef _WIN32
    #include <unistd.h>
    #endif
    /* Bytes of a file from a place on; how many were read. */
    static inline Py_ssize_t read_at(int descriptor, void *bytes, size_t count, long long offset) {
    #ifdef _WIN32
        return -1;
    #else
        return pread(descriptor, bytes, count, (off_t) offset);
    #endif
    }
    """
    Py_ssize_t read_at(int descriptor, void* bytes, size_t count, long long offset) noexcept nogil

cdef enum:
    NEARLY_EMPTY = 16384  # bytes; most events are shorter
    LOOKBACK = 256  # bytes in which the end of one event is seen and the comma before the next
    DEEPEST = 60  # nesting of what is skipped; anything deeper is left to the other decoder
    MOST_PROBES = 200  # in a table; names made to collide must not cost quadratic time
    ABSENT = -1

# Columns of integers that `scan` fills. The first two are times, the others arguments.
cdef enum:
    START = 0
    DURATION = 1
    DEVICE = 2
    STREAM = 3
    CORRELATION = 4
    BYTES = 5
    GRAPH_NODE = 6
    FROM_DEVICE = 7
    TO_DEVICE = 8
    EVENT_CORRELATION = 9
    EVENT_STREAM = 10
    FIELDS = 11
    ROW = 8 * FIELDS + 3 * 4 + 1  # bytes: integers, codes of category, name and track, and whether both times are there
    # Seen like fields, and kept otherwise or not at all.
    CORRELATION_CAPITAL = 11
    LABEL = 12
    LABELS = 13
    OTHER = 14

INTEGERS = FIELDS
"""Columns of integers."""
ROW_BYTES = ROW
"""What a row takes in all columns together."""

cdef int64_t LIMIT_NS = 1 << 62


# --- tables -----------------------------------------------------------------------------------------------------------------


cdef struct Texts:
    # Copies of stretches of the text, one behind the other.
    uint8_t* data
    Py_ssize_t used
    Py_ssize_t size
    Py_ssize_t* ends
    uint32_t count
    uint32_t room


cdef struct Strings:
    # Distinct texts, numbered in order of first use.
    Texts texts
    uint64_t* hashes
    uint8_t* marks  # for whoever numbers them
    uint32_t* slots  # number + 1 by hash, 0 where free
    uint32_t mask
    uint32_t room


cdef struct Pairs:
    # Distinct pairs of numbers, numbered in order of first use.
    uint32_t* slots
    uint32_t mask
    uint32_t count
    uint32_t room
    uint64_t* keys


cdef inline uint64_t mixed(uint64_t value) noexcept nogil:
    """A hash of a number: the finaliser of MurmurHash3."""
    value ^= value >> 33
    value *= <uint64_t> 0xff51afd7ed558ccd
    value ^= value >> 33
    value *= <uint64_t> 0xc4ceb9fe1a85ec53
    return value ^ (value >> 33)


cdef inline uint64_t hash_of(Text text, Py_ssize_t length) noexcept nogil:
    cdef uint64_t result = <uint64_t> length * <uint64_t> 0x9e3779b97f4a7c15
    cdef uint64_t word
    while length >= 8:
        memcpy(&word, text, 8)
        result = (result ^ word) * <uint64_t> 0x9fb21c651e98df25
        result ^= result >> 32
        text += 8
        length -= 8
    word = 0
    memcpy(&word, text, length)
    return mixed(result ^ word)


cdef inline Py_ssize_t start_in(Texts* texts, uint32_t number) noexcept nogil:
    return texts.ends[number - 1] if number else 0


cdef bint kept(Texts* texts, Text start, Py_ssize_t length) noexcept nogil:
    """Whether a stretch of the text could be copied behind the others."""
    cdef void* grown
    cdef Py_ssize_t size
    if texts.count == texts.room:
        grown = realloc(texts.ends, (2 * texts.room + 64) * sizeof(Py_ssize_t))
        if grown == NULL:
            return False
        texts.ends, texts.room = <Py_ssize_t*> grown, 2 * texts.room + 64
    if texts.size - texts.used < length:
        size = 2 * texts.size + length + 4096
        grown = realloc(texts.data, size)
        if grown == NULL:
            return False
        texts.data, texts.size = <uint8_t*> grown, size
    memcpy(texts.data + texts.used, start, length)
    texts.used += length
    texts.ends[texts.count] = texts.used
    texts.count += 1
    return True


cdef bint make_room_for_strings(Strings* table) noexcept nogil:
    """Whether there is room for one more string now."""
    cdef uint32_t room = 4 * table.room if table.room else 256
    cdef void* hashes = realloc(table.hashes, room * sizeof(uint64_t))
    cdef void* marks = realloc(table.marks, room)
    cdef uint32_t* slots = <uint32_t*> calloc(2 * room, sizeof(uint32_t))
    cdef uint32_t number, slot
    if hashes != NULL:
        table.hashes = <uint64_t*> hashes
    if marks != NULL:
        table.marks = <uint8_t*> marks
    if hashes == NULL or marks == NULL or slots == NULL:
        free(slots)
        return False
    free(table.slots)
    table.slots, table.mask, table.room = slots, 2 * room - 1, room
    for number in range(table.texts.count):
        slot = <uint32_t> table.hashes[number] & table.mask
        while slots[slot]:
            slot = (slot + 1) & table.mask
        slots[slot] = number + 1
    return True


cdef int32_t number_of_string(Strings* table, Text text, Py_ssize_t length) noexcept nogil:
    """The number of a string, a new one if it is new; -1 if there is no room or too many look alike."""
    cdef uint64_t hashed = hash_of(text, length)
    cdef Texts* texts = &table.texts
    cdef uint32_t slot, number
    cdef Py_ssize_t begin
    cdef int probes
    if texts.count == table.room and not make_room_for_strings(table):
        return -1
    slot = <uint32_t> hashed & table.mask
    for probes in range(MOST_PROBES):
        if table.slots[slot] == 0:
            number = texts.count
            if not kept(texts, text, length):
                return -1
            table.hashes[number], table.marks[number] = hashed, 0
            table.slots[slot] = number + 1
            return <int32_t> number
        number = table.slots[slot] - 1
        if table.hashes[number] == hashed:
            begin = start_in(texts, number)
            if texts.ends[number] - begin == length and memcmp(texts.data + begin, text, length) == 0:
                return <int32_t> number
        slot = (slot + 1) & table.mask
    return -1


cdef bint make_room_for_pairs(Pairs* table) noexcept nogil:
    cdef uint32_t room = 4 * table.room if table.room else 64
    cdef void* keys = realloc(table.keys, room * sizeof(uint64_t))
    cdef uint32_t* slots = <uint32_t*> calloc(2 * room, sizeof(uint32_t))
    cdef uint32_t number, slot
    if keys != NULL:
        table.keys = <uint64_t*> keys
    if keys == NULL or slots == NULL:
        free(slots)
        return False
    free(table.slots)
    table.slots, table.mask, table.room = slots, 2 * room - 1, room
    for number in range(table.count):
        slot = <uint32_t> mixed(table.keys[number]) & table.mask
        while slots[slot]:
            slot = (slot + 1) & table.mask
        slots[slot] = number + 1
    return True


cdef int32_t number_of_pair(Pairs* table, uint64_t key) noexcept nogil:
    """The number of a pair, a new one if it is new; -1 as for strings."""
    cdef uint32_t slot
    cdef int probes
    if table.count == table.room and not make_room_for_pairs(table):
        return -1
    slot = <uint32_t> mixed(key) & table.mask
    for probes in range(MOST_PROBES):
        if table.slots[slot] == 0:
            table.keys[table.count] = key
            table.count += 1
            table.slots[slot] = table.count
            return <int32_t> table.count - 1
        if table.keys[table.slots[slot] - 1] == key:
            return <int32_t> table.slots[slot] - 1
        slot = (slot + 1) & table.mask
    return -1


# --- JSON -------------------------------------------------------------------------------------------------------------------
# Each of these takes where something begins and returns where it ends, NULL where it is not what it should be.


cdef struct Scan:
    Text end  # of the whole text, where its NUL stands
    bint has_shapes
    bint names_collectives


cdef inline Text blank_end(Text at) noexcept nogil:
    while at[0] == c' ' or at[0] == c'\n' or at[0] == c'\r' or at[0] == c'\t':
        at += 1
    return at


cdef inline Text run_end(Text at, Text end) noexcept nogil:
    """The first quote, backslash or control character."""
    cdef int plain
    while end - at >= 8:
        plain = plain_bytes(at)
        at += plain
        if plain < 8:
            return at
    while at[0] >= 0x20 and at[0] != c'"' and at[0] != c'\\':
        at += 1
    return at


cdef inline int hexadecimal(uint8_t character) noexcept nogil:
    if c'0' <= character <= c'9':
        return character - <uint8_t> c'0'
    if c'a' <= (character | 0x20) <= c'f':
        return (character | 0x20) - <uint8_t> c'a' + 10
    return -1


cdef Text escape_end(Text at) noexcept nogil:
    """The end of what a backslash begins; halves of surrogate pairs are left to the other decoder."""
    cdef int i, digit
    cdef int code = 0
    at += 1
    if at[0] == c'"' or at[0] == c'\\' or at[0] == c'/' or at[0] == c'b' or at[0] == c'f' or at[0] == c'n' or at[0] == c'r' or at[0] == c't':
        return at + 1
    if at[0] != c'u':
        return NULL
    for i in range(4):
        at += 1
        digit = hexadecimal(at[0])
        if digit < 0:
            return NULL
        code = 16 * code + digit
    if 0xd800 <= code <= 0xdfff:
        return NULL
    return at + 1


cdef inline Text string_end(Text at, Text end) noexcept nogil:
    """The closing quote of the string whose first character is given."""
    at = run_end(at, end)
    while at[0] == c'\\':
        at = escape_end(at)
        if at == NULL:
            return NULL
        at = run_end(at, end)
    if at[0] != c'"':
        return NULL
    return at


cdef inline Text key_end(Text at, Text end) noexcept nogil:
    """The closing quote of a string without escapes."""
    at = run_end(at, end)
    if at[0] != c'"':
        return NULL
    return at


cdef inline bint is_digit(uint8_t character) noexcept nogil:
    return <uint8_t> (character - <uint8_t> c'0') < 10


cdef Text number_end(Text at) noexcept nogil:
    if at[0] == c'-':
        at += 1
    if at[0] == c'0':
        at += 1
    elif is_digit(at[0]):
        while is_digit(at[0]):
            at += 1
    else:
        return NULL
    if at[0] == c'.':
        at += 1
        if not is_digit(at[0]):
            return NULL
        while is_digit(at[0]):
            at += 1
    if at[0] == c'e' or at[0] == c'E':
        at += 1
        if at[0] == c'+' or at[0] == c'-':
            at += 1
        if not is_digit(at[0]):
            return NULL
        while is_digit(at[0]):
            at += 1
    return at


cdef inline Text scalar_end(Text at, Text end) noexcept nogil:
    if at[0] == c'"':
        at = string_end(at + 1, end)
        if at == NULL:
            return NULL
        return at + 1
    if at[0] == c'n' and at[1] == c'u' and at[2] == c'l' and at[3] == c'l':
        return at + 4
    if at[0] == c't' and at[1] == c'r' and at[2] == c'u' and at[3] == c'e':
        return at + 4
    if at[0] == c'f' and at[1] == c'a' and at[2] == c'l' and at[3] == c's' and at[4] == c'e':
        return at + 5
    return number_end(at)


cdef inline bint is_dimensions(Text key, Py_ssize_t length) noexcept nogil:
    return length == 10 and memcmp(key, b"Input ", 6) == 0 and (key[6] == c'D' or key[6] == c'd') and memcmp(key + 7, b"ims", 3) == 0


cdef inline bint is_collective_name(Text key, Py_ssize_t length) noexcept nogil:
    return length == 15 and memcmp(key, b"Collective name", 15) == 0


cdef inline bint heeded(Text key, Py_ssize_t length, Text value, Scan* scan) noexcept nogil:
    """Notes what an argument says about the trace as a whole; False where it makes its object look like an event."""
    if is_dimensions(key, length) and value[0] == c'[':
        while value[0] == c'[' or value[0] == c']' or value[0] == c',':
            value = blank_end(value + 1)
        if is_digit(value[0]):
            scan.has_shapes = True
    elif is_collective_name(key, length) and value[0] == c'"':
        scan.names_collectives = True
    return length != 2 or key[0] != c'p' or key[1] != c'h'


cdef Text nested_end(Text at, Scan* scan) noexcept nogil:
    """The end of a list or an object."""
    cdef uint64_t objects = 0  # one bit per level, the innermost lowest
    cdef int depth = 0
    cdef Text key
    cdef Py_ssize_t length
    while True:
        # A value is due.
        if at[0] == c'[' or at[0] == c'{':
            depth += 1
            if depth > DEEPEST:
                return NULL
            objects = objects << 1 | (at[0] == c'{')
            at = blank_end(at + 1)
            if at[0] == (c'}' if objects & 1 else c']'):
                # Empty: it ends like any other below.
                pass
            elif objects & 1:
                if at[0] != c'"':
                    return NULL
                key = at + 1
                at = string_end(key, scan.end)
                if at == NULL:
                    return NULL
                length = at - key
                at = blank_end(at + 1)
                if at[0] != c':':
                    return NULL
                at = blank_end(at + 1)
                if not heeded(key, length, at, scan):
                    return NULL
                continue
            else:
                continue
        else:
            at = scalar_end(at, scan.end)
            if at == NULL:
                return NULL
            at = blank_end(at)
        # A value has ended: what it stands in goes on or ends too.
        while at[0] == (c'}' if objects & 1 else c']'):
            at += 1
            depth -= 1
            if depth == 0:
                return at
            objects >>= 1
            at = blank_end(at)
        if at[0] != c',':
            return NULL
        at = blank_end(at + 1)
        if objects & 1:
            if at[0] != c'"':
                return NULL
            key = at + 1
            at = string_end(key, scan.end)
            if at == NULL:
                return NULL
            length = at - key
            at = blank_end(at + 1)
            if at[0] != c':':
                return NULL
            at = blank_end(at + 1)
            if not heeded(key, length, at, scan):
                return NULL


cdef inline Text value_end(Text at, Scan* scan) noexcept nogil:
    if at[0] == c'[' or at[0] == c'{':
        return nested_end(at, scan)
    return scalar_end(at, scan.end)


cdef inline Text integer_end(Text at, int64_t* value) noexcept nogil:
    """The end of an integer of at most 18 digits, and its value; what follows the digits is for the caller to judge."""
    cdef bint negative = at[0] == c'-'
    cdef int64_t result = 0
    cdef Text first
    at += negative
    first = at
    while is_digit(at[0]):
        if at - first == 18:
            return NULL
        result = 10 * result + (at[0] - <uint8_t> c'0')
        at += 1
    if at == first or (first[0] == c'0' and at - first > 1):
        return NULL
    value[0] = -result if negative else result
    return at


cdef inline Text quoted_integer_end(Text at, int64_t* value) noexcept nogil:
    """The end of an integer that may stand in quotes, as AMD writes sizes; an address such as "0x7f00" is none, so it says nothing."""
    if at[0] != c'"':
        return integer_end(at, value)
    at += 1
    if at[0] == c'0' and at[1] == c'x':
        at += 2
        while hexadecimal(at[0]) >= 0:
            at += 1
        value[0] = ABSENT
    else:
        at = integer_end(at, value)
    if at == NULL or at[0] != c'"':
        return NULL
    return at + 1


cdef inline Text microseconds_end(Text at, int64_t* ns) noexcept nogil:
    """The end of a decimal number of µs without exponent, and its ns; decimals beyond them round to the nearest, ties to even."""
    cdef bint negative = at[0] == c'-'
    cdef int64_t result = 0
    cdef int decimals = 0
    cdef int rounding = 0  # the fourth decimal
    cdef bint more = False  # a decimal behind it that is not 0
    cdef Text first
    at += negative
    first = at
    while is_digit(at[0]):
        if at - first == 16:
            return NULL
        result = 10 * result + (at[0] - <uint8_t> c'0')
        at += 1
    if at == first or (first[0] == c'0' and at - first > 1):
        return NULL
    if at[0] == c'.':
        at += 1
        if not is_digit(at[0]):
            return NULL
        while decimals < 3 and is_digit(at[0]):
            result = 10 * result + (at[0] - <uint8_t> c'0')
            decimals += 1
            at += 1
        if is_digit(at[0]):
            rounding = at[0] - <uint8_t> c'0'
            at += 1
            while is_digit(at[0]):
                more |= at[0] != c'0'
                at += 1
    while decimals < 3:
        result *= 10
        decimals += 1
    if rounding > 5 or (rounding == 5 and (more or result & 1)):
        result += 1
    if result >= LIMIT_NS:
        return NULL
    ns[0] = -result if negative else result
    return at


# --- events -----------------------------------------------------------------------------------------------------------------


cdef struct Slice:
    Text start  # NULL: not there
    Py_ssize_t length


cdef enum:
    # What a step of a layout leads to.
    DONE = 0  # nothing more
    NAME = 1
    PROCESS = 2
    THREAD = 3
    TIME = 4
    INTEGER = 5
    NUMBER = 6
    TEXT = 7
    DIMENSIONS = 8
    NESTED = 9

    MOST_STEPS = 32
    MOST_LAYOUTS = 24
    FOLLOWERS = 3
    LONGEST_STEP = 72  # bytes; as many have to be in memory behind any place where a step is tried
    WIDEST = 40  # bytes that have to be in memory behind a number to read its digits at once
    HOPELESS = 1000  # more events than that for which no layout was found than others: not worth it


cdef struct Step:
    # What stands before a value, and what the value is.
    uint8_t text[LONGEST_STEP]
    int length
    int leads_to
    int field  # of a time or an integer


cdef struct Layout:
    # What all events of some kind have in common: everything but the values in between.
    Step steps[MOST_STEPS]
    int count
    uint64_t hashed
    # Phase and category stand inside a step.
    int phase_step
    int phase_at
    int phase_length
    int category_step
    int category_at
    int category_length
    bint has_start
    bint has_duration
    bint names_collective
    bint tells_collective
    bint has_dimensions
    int followers[FOLLOWERS]  # layouts of the events that came after such ones, the last one first; -1: none
    int32_t category  # its number, -1 before it is known
    int32_t name  # number of the last event's, -1 before
    int32_t track  # of the last event, whose ids are known
    uint8_t identities[48]
    int process_length
    int thread_length


cdef struct Layouts:
    Layout* all
    int count
    int next  # the one to be replaced
    int last  # of the event before
    Py_ssize_t found
    Py_ssize_t missed
    Layout draft  # of the event that is read
    Text drafted  # up to here
    bint is_drafting


cdef struct Event:
    Layout* layout  # NULL if it was read without one
    Slice phase
    Slice category
    Slice name
    Slice process  # as written, quotes included
    Slice thread
    bint has_start
    bint has_duration
    bint odd_time
    bint has_args
    bint names_collective
    bint has_dimensions
    int64_t values[CORRELATION_CAPITAL + 1]


cdef struct Sink:
    Py_ssize_t rows
    Py_ssize_t capacity
    Py_ssize_t objects
    Py_ssize_t events
    int64_t* integers[FIELDS]
    int32_t* categories
    int32_t* names
    int32_t* tracks
    uint8_t* timed
    Strings category_table
    Strings name_table
    Strings identity_table
    Pairs track_table
    Texts labels
    Texts whole  # events of which more is wanted than the columns keep
    Layouts layouts


cdef inline int known_argument(Text key, Py_ssize_t length) noexcept nogil:
    if length == 6:
        if memcmp(key, b"device", 6) == 0:
            return DEVICE
        if memcmp(key, b"stream", 6) == 0:
            return STREAM
        if memcmp(key, b"labels", 6) == 0:
            return LABELS
    elif length == 11:
        if memcmp(key + 1, b"orrelation", 10) == 0:
            if key[0] == c'c':
                return CORRELATION
            if key[0] == c'C':
                return CORRELATION_CAPITAL
    elif length == 5:
        if memcmp(key, b"bytes", 5) == 0:
            return BYTES
    elif length == 4:
        if memcmp(key, b"name", 4) == 0:
            return LABEL
    elif length == 13:
        if memcmp(key, b"graph node id", 13) == 0:
            return GRAPH_NODE
    elif length == 10:
        if memcmp(key, b"fromDevice", 10) == 0:
            return FROM_DEVICE
    elif length == 8:
        if memcmp(key, b"toDevice", 8) == 0:
            return TO_DEVICE
    elif length == 14:
        if memcmp(key, b"wait_on_stream", 14) == 0:
            return EVENT_STREAM
    elif length == 33:
        if memcmp(key, b"wait_on_cuda_event_record_corr_id", 33) == 0:
            return EVENT_CORRELATION
    return OTHER


cdef inline bint is_plain(Slice* text) noexcept nogil:
    """Whether a text needs no decoding: ASCII without escapes, or not there."""
    cdef Py_ssize_t i
    for i in range(text.length):
        if text.start[i] >= 0x80 or text.start[i] == c'\\':
            return False
    return True


cdef inline bint is_disguised(Slice* text) noexcept nogil:
    """Whether escapes stand for letters in a text, so that it may begin otherwise than it seems to."""
    cdef Text end = text.start + text.length
    cdef Text at = text.start
    while at != end:
        at = <Text> memchr(at, c'\\', end - at)
        if at == NULL:
            return False
        if at[1] == c'u':
            return True
        at += 2
    return False


cdef inline Text label_end(Text at, Text end) noexcept nogil:
    """The end of an argument that the other decoder decodes whatever it is: a text that needs no decoding, or an integer."""
    cdef int64_t ignored
    cdef Slice text
    if at[0] != c'"':
        return integer_end(at, &ignored)
    text.start = at + 1
    at = key_end(text.start, end)
    if at == NULL:
        return NULL
    text.length = at - text.start
    if not is_plain(&text):
        return NULL
    return at + 1


cdef inline void drafted(Layouts* layouts, Text value, Text end, int leads_to, int field) noexcept nogil:
    """Adds a step to the layout of the event that is read; its value stands between two places of the text."""
    cdef Layout* draft = &layouts.draft
    cdef Step* step
    cdef Py_ssize_t length = value - layouts.drafted
    if not layouts.is_drafting:
        return
    if draft.count == MOST_STEPS or length > LONGEST_STEP:
        layouts.is_drafting = False
        return
    step = &draft.steps[draft.count]
    memcpy(step.text, layouts.drafted, length)
    memset(step.text + length, 0, LONGEST_STEP - length)
    step.length, step.leads_to, step.field = <int> length, leads_to, field
    draft.count += 1
    layouts.drafted = end


cdef inline void drafted_value(Layouts* layouts, Text value, Text end, bint is_dimensions) noexcept nogil:
    """Adds a step for a value that is only passed; words are no values here, but what stands before the next one."""
    if value[0] == c'"':
        drafted(layouts, value + 1, end - 1, TEXT, 0)
    elif value[0] == c'[' or value[0] == c'{':
        drafted(layouts, value, end, DIMENSIONS if is_dimensions else NESTED, 0)
    elif value[0] == c'-' or is_digit(value[0]):
        drafted(layouts, value, end, NUMBER, 0)


cdef Text args_end(Text at, Scan* scan, Event* event, Layouts* layouts) noexcept nogil:
    cdef Text key
    cdef Text value
    cdef bint dimensions
    cdef Py_ssize_t length
    cdef int which
    if at[0] != c'{':
        return NULL
    at = blank_end(at + 1)
    if at[0] == c'}':
        return at + 1
    while True:
        if at[0] != c'"':
            return NULL
        key = at + 1
        at = key_end(key, scan.end)
        if at == NULL:
            return NULL
        length = at - key
        at = blank_end(at + 1)
        if at[0] != c':':
            return NULL
        at = blank_end(at + 1)
        value = at
        which = known_argument(key, length)
        if which == OTHER:
            dimensions = is_dimensions(key, length)
            if is_collective_name(key, length):
                event.names_collective = True
                layouts.draft.names_collective = True
                layouts.draft.tells_collective = value[0] == c'"'
            elif dimensions:
                event.has_dimensions = True
                layouts.draft.has_dimensions = True
            if not heeded(key, length, at, scan):
                return NULL
            at = value_end(at, scan)
            if at != NULL:
                drafted_value(layouts, value, at, dimensions)
        elif which <= CORRELATION_CAPITAL:
            at = quoted_integer_end(at, &event.values[which])  # of a key twice the last one counts, as everywhere
            drafted(layouts, value, at, INTEGER, which)
            if value[0] == c'"':
                layouts.is_drafting = False
        else:
            at = label_end(at, scan.end)
            layouts.is_drafting = False
        if at == NULL:
            return NULL
        at = blank_end(at)
        if at[0] == c'}':
            return at + 1
        if at[0] != c',':
            return NULL
        at = blank_end(at + 1)


cdef inline Text text_end(Text at, Text end, Slice* text) noexcept nogil:
    """The end of a string value, and its characters."""
    if text.start != NULL or at[0] != c'"':
        return NULL
    text.start = at + 1
    at = string_end(text.start, end)
    if at == NULL:
        return NULL
    text.length = at - text.start
    return at + 1


cdef inline Text identity_end(Text at, Text end, Slice* identity) noexcept nogil:
    """The end of a process or thread id, a string or an integer, and its text as written."""
    cdef int64_t ignored
    if identity.start != NULL:
        return NULL
    identity.start = at
    at = scalar_end(at, end) if at[0] == c'"' else integer_end(at, &ignored)
    if at == NULL:
        return NULL
    identity.length = at - identity.start
    return at


cdef inline Text time_end(Text at, Scan* scan, Event* event, int field, bint* there) noexcept nogil:
    if there[0]:
        return NULL
    there[0] = True
    if at[0] == c'-' or is_digit(at[0]):
        return microseconds_end(at, &event.values[field])
    event.odd_time = True
    return value_end(at, scan)


cdef inline void clear(Event* event) noexcept nogil:
    # Field by field: memset takes longer.
    cdef int field
    event.layout = NULL
    event.phase.start = event.category.start = event.name.start = event.process.start = event.thread.start = NULL
    event.phase.length = event.category.length = event.name.length = event.process.length = event.thread.length = 0
    event.has_start = event.has_duration = event.odd_time = event.has_args = event.names_collective = event.has_dimensions = False
    event.values[START] = event.values[DURATION] = 0
    for field in range(DEVICE, CORRELATION_CAPITAL + 1):
        event.values[field] = ABSENT


cdef Text event_end(Text at, Scan* scan, Event* event, Layouts* layouts) noexcept nogil:
    """The end of an event, and what it says; its layout is drafted if that was asked for."""
    cdef Text key
    cdef Text value
    cdef Py_ssize_t length
    clear(event)
    if at[0] != c'{':
        return NULL
    at = blank_end(at + 1)
    if at[0] == c'}':
        return at + 1
    while True:
        if at[0] != c'"':
            return NULL
        key = at + 1
        at = key_end(key, scan.end)
        if at == NULL:
            return NULL
        length = at - key
        at = blank_end(at + 1)
        if at[0] != c':':
            return NULL
        at = blank_end(at + 1)
        value = at
        if length == 2 and key[0] == c'p' and key[1] == c'h':
            at = text_end(at, scan.end, &event.phase)
            layouts.draft.phase_step, layouts.draft.phase_at = layouts.draft.count, <int> (value + 1 - layouts.drafted)
        elif length == 2 and key[0] == c't' and key[1] == c's':
            at = time_end(at, scan, event, START, &event.has_start)
            drafted(layouts, value, at, TIME, START)
        elif length == 3 and key[0] == c'd' and key[1] == c'u' and key[2] == c'r':
            at = time_end(at, scan, event, DURATION, &event.has_duration)
            drafted(layouts, value, at, TIME, DURATION)
        elif length == 3 and key[0] == c'p' and key[1] == c'i' and key[2] == c'd':
            at = identity_end(at, scan.end, &event.process)
            drafted(layouts, value, at, PROCESS, 0)
        elif length == 3 and key[0] == c't' and key[1] == c'i' and key[2] == c'd':
            at = identity_end(at, scan.end, &event.thread)
            drafted(layouts, value, at, THREAD, 0)
        elif length == 3 and key[0] == c'c' and key[1] == c'a' and key[2] == c't':
            at = text_end(at, scan.end, &event.category)
            layouts.draft.category_step, layouts.draft.category_at = layouts.draft.count, <int> (value + 1 - layouts.drafted)
        elif length == 4 and memcmp(key, b"name", 4) == 0:
            at = text_end(at, scan.end, &event.name)
            drafted(layouts, value + 1, at - 1, NAME, 0)
        elif length == 4 and memcmp(key, b"args", 4) == 0:
            if event.has_args:
                return NULL
            event.has_args = True
            at = args_end(at, scan, event, layouts)
        else:
            if is_dimensions(key, length) or is_collective_name(key, length):
                layouts.is_drafting = False
            heeded(key, length, at, scan)
            at = value_end(at, scan)
            if at != NULL:
                drafted_value(layouts, value, at, False)
        if at == NULL:
            return NULL
        at = blank_end(at)
        if at[0] == c'}':
            return at + 1
        if at[0] != c',':
            return NULL
        at = blank_end(at + 1)


# --- events with the layout of others --------------------------------------------------------------------------------------
# Profilers write event after event with the same keys in the same order. So what stands between two values is compared as a whole, and
# only the values are read, each as `event_end` reads it.


cdef inline Text list_end(Text at, Scan* scan) noexcept nogil:
    """The end of a list or an object."""
    return nested_end(at, scan) if at[0] == c'[' or at[0] == c'{' else NULL


# Three that do for plain numbers, many digits at once, what `integer_end`, `microseconds_end` and `number_end` do for all.


cdef inline Text plain_integer_end(Text at, Text end, int64_t* value) noexcept nogil:
    cdef unsigned long long found
    cdef int digits
    if end - at < WIDEST:
        return integer_end(at, value)
    digits = leading_digits(at, &found)
    if digits == 0 or digits == 16 or (at[0] == c'0' and digits > 1):
        return integer_end(at, value)
    value[0] = <int64_t> found
    return at + digits


cdef inline Text plain_microseconds_end(Text at, Text end, int64_t* ns) noexcept nogil:
    cdef unsigned long long whole
    cdef unsigned long long decimals = 0
    cdef int digits
    cdef int after = 0
    if end - at < WIDEST:
        return microseconds_end(at, ns)
    digits = leading_digits(at, &whole)
    if digits == 0 or (at[0] == c'0' and digits > 1) or (digits == 16 and is_digit(at[16])):
        return microseconds_end(at, ns)
    if at[digits] == c'.':
        after = leading_digits(at + digits + 1, &decimals)
        if not 1 <= after <= 3:
            return microseconds_end(at, ns)
        decimals *= 100 if after == 1 else 10 if after == 2 else 1
    whole = 1000 * whole + decimals
    if whole >= <unsigned long long> LIMIT_NS:
        return NULL
    ns[0] = <int64_t> whole
    return at + digits + (after + 1 if after else 0)


cdef inline Text plain_number_end(Text at, Text end) noexcept nogil:
    cdef unsigned long long ignored
    cdef int digits
    cdef uint8_t following
    if end - at < WIDEST:
        return number_end(at)
    digits = leading_digits(at, &ignored)
    following = at[digits]
    if digits == 0 or digits == 16 or (at[0] == c'0' and digits > 1) or following == c'.' or following | 0x20 == c'e':
        return number_end(at)
    return at + digits


cdef Text laid_out_end(Text at, Scan* scan, Event* event, Layout* layout) noexcept nogil:
    """The end of an event and what it says, NULL if it has not this layout."""
    cdef Step* step
    cdef int i
    for i in range(layout.count):
        step = &layout.steps[i]
        if scan.end - at < LONGEST_STEP or differs(at, step.text, step.length):
            return NULL
        if i == 0:
            clear(event)
        if i == layout.phase_step:
            event.phase.start, event.phase.length = at + layout.phase_at, layout.phase_length
        if i == layout.category_step:
            event.category.start, event.category.length = at + layout.category_at, layout.category_length
        at += step.length
        if step.leads_to == INTEGER:
            at = plain_integer_end(at, scan.end, &event.values[step.field])
        elif step.leads_to == NUMBER:
            at = plain_number_end(at, scan.end)
        elif step.leads_to == TEXT:
            at = string_end(at, scan.end)
        elif step.leads_to == TIME:
            at = plain_microseconds_end(at, scan.end, &event.values[step.field])
        elif step.leads_to == NAME:
            event.name.start = at
            at = string_end(at, scan.end)
            event.name.length = at - event.name.start
        elif step.leads_to == PROCESS:
            at = identity_end(at, scan.end, &event.process)
        elif step.leads_to == THREAD:
            at = identity_end(at, scan.end, &event.thread)
        elif step.leads_to == DIMENSIONS:
            heeded(<Text> <const char*> b"Input Dims", 10, at, scan)
            at = list_end(at, scan)
        elif step.leads_to == NESTED:
            at = list_end(at, scan)
        if at == NULL:
            return NULL
    event.layout = layout
    event.has_start, event.has_duration = layout.has_start, layout.has_duration
    event.names_collective, event.has_dimensions = layout.names_collective, layout.has_dimensions
    scan.names_collectives |= layout.tells_collective
    return at


cdef void begin_draft(Layouts* layouts, Text at) noexcept nogil:
    cdef Layout* draft = &layouts.draft
    draft.count = 0
    draft.phase_step = draft.category_step = -1
    draft.names_collective = draft.tells_collective = draft.has_dimensions = False
    layouts.drafted, layouts.is_drafting = at, True


cdef bint is_same(Layout* one, Layout* other) noexcept nogil:
    cdef int i
    if one.hashed != other.hashed or one.count != other.count:
        return False
    for i in range(one.count):
        if memcmp(&one.steps[i], &other.steps[i], sizeof(Step)) != 0:
            return False
    return True


cdef int kept_draft(Layouts* layouts, Event* event) noexcept nogil:
    """The position of the layout that was drafted, which may be known or not; -1 if there is no room for any."""
    cdef Layout* draft = &layouts.draft
    cdef Step* step
    cdef int i, position
    draft.hashed = 0
    for i in range(draft.count):
        step = &draft.steps[i]
        draft.hashed = mixed(draft.hashed ^ hash_of(step.text, step.length) ^ <uint64_t> (16 * step.field + step.leads_to))
    for position in range(layouts.count):
        if is_same(&layouts.all[position], draft):
            return position
    if layouts.all == NULL:
        layouts.all = <Layout*> malloc(MOST_LAYOUTS * sizeof(Layout))
        if layouts.all == NULL:
            return -1
    if layouts.count < MOST_LAYOUTS:
        position = layouts.count
        layouts.count += 1
    else:
        position = layouts.next
        layouts.next = (layouts.next + 1) % MOST_LAYOUTS
    draft.phase_length, draft.category_length = <int> event.phase.length, <int> event.category.length
    draft.has_start, draft.has_duration = event.has_start, event.has_duration
    draft.category = draft.name = draft.track = -1
    for i in range(FOLLOWERS):
        draft.followers[i] = -1
    layouts.all[position] = draft[0]
    return position


cdef void followed(Layouts* layouts, int position) noexcept nogil:
    """Notes the layout of an event behind the last one."""
    cdef int* followers
    cdef int i, moving = position, next_one
    if layouts.last >= 0 and layouts.last < layouts.count and layouts.all[layouts.last].followers[0] != position:
        followers = layouts.all[layouts.last].followers
        for i in range(FOLLOWERS):
            next_one = followers[i]
            followers[i] = moving
            moving = next_one
            if moving == position or moving < 0:
                break
    layouts.last = position


cdef Text end_of_event(Text at, Scan* scan, Event* event, Layouts* layouts) noexcept nogil:
    """The end of an event, and what it says: by the layout of one before it, if that fits."""
    cdef Text end
    cdef int i, position
    if layouts.missed > layouts.found + HOPELESS:
        layouts.is_drafting = False
        return event_end(at, scan, event, layouts)
    if layouts.count and layouts.last >= 0:
        for i in range(FOLLOWERS):
            position = layouts.all[layouts.last].followers[i]
            if position < 0:
                break
            end = laid_out_end(at, scan, event, &layouts.all[position])
            if end != NULL:
                layouts.found += 1
                followed(layouts, position)
                return end
    layouts.missed += 1
    begin_draft(layouts, at)
    end = event_end(at, scan, event, layouts)
    if end == NULL:
        return NULL
    drafted(layouts, end, end, DONE, 0)
    position = -1
    if layouts.is_drafting and not event.odd_time:
        position = kept_draft(layouts, event)
    if position >= 0:
        followed(layouts, position)
    return end


cdef inline bint is_word(Slice* text, const char* word, Py_ssize_t length) noexcept nogil:
    return text.length == length and memcmp(text.start, word, length) == 0


# What a name says about the events that have it.
cdef enum:
    LOOKED_AT = 1
    TELLS = 2  # of a collective
    MULTIPLIES = 4


cdef bint tells_of_collective(Slice* name) noexcept nogil:
    """Whether an event of this name may be about a collective: it is called after it, perhaps in disguise."""
    if is_disguised(name):
        return True
    if name.length < 5:
        return False
    if memcmp(name.start + 1, b"ccl:", 4) == 0:
        return name.start[0] == c'n' or name.start[0] == c'r' or name.start[0] == c'x'
    return name.length >= 10 and memcmp(name.start, b"symm_mem::", 10) == 0


cdef bint may_multiply(Slice* name) noexcept nogil:
    """Whether this may be an operator that multiplies matrices; who reads its events decides."""
    cdef Py_ssize_t i
    cdef Text text = name.start
    if name.length < 8 or (memcmp(text, b"aten::", 6) != 0 and memcmp(text, b"flash_", 6) != 0):
        return False
    for i in range(6, name.length - 1):
        if text[i] == c'm' and (text[i + 1] == c'm' or text[i + 1] == c'v'):
            return True
        if i + 3 < name.length and (memcmp(text + i, b"conv", 4) == 0 or memcmp(text + i, b"att", 3) == 0):
            return True
    return False


cdef inline bint is_wanted_whole(Event* event, uint8_t* marks) noexcept nogil:
    """Whether more is wanted of an event than its columns. What the name says is noted, for the same few come again and again."""
    if not marks[0]:
        marks[0] = LOOKED_AT | (TELLS if tells_of_collective(&event.name) else 0) | (MULTIPLIES if may_multiply(&event.name) else 0)
    return event.names_collective or marks[0] & TELLS or (event.has_dimensions and marks[0] & MULTIPLIES)


cdef inline int32_t number_of_slice(Strings* table, Slice* text, Text instead) noexcept nogil:
    """The number of a text; one that is not there counts as empty."""
    return number_of_string(table, instead if text.start == NULL else text.start, text.length)


cdef inline int32_t number_of_name(Event* event, Strings* table, Text instead) noexcept nogil:
    """The same of the name of an event; often it is that of the last event of this layout."""
    cdef Layout* layout = event.layout
    cdef Py_ssize_t begin
    if layout == NULL:
        return number_of_slice(table, &event.name, instead)
    if layout.name >= 0:
        begin = start_in(&table.texts, layout.name)
        if (
            table.texts.ends[layout.name] - begin == event.name.length
            and memcmp(table.texts.data + begin, event.name.start, event.name.length) == 0
        ):
            return layout.name
    layout.name = number_of_slice(table, &event.name, instead)
    return layout.name


cdef inline int32_t known_category(Event* event) noexcept nogil:
    """The number of the category, which is a part of the layout; -1 if it is not known."""
    return -1 if event.layout == NULL else event.layout.category


cdef inline int32_t known_track(Event* event) noexcept nogil:
    """The number of the track if it is that of the last event of this layout, else -1."""
    cdef Layout* layout = event.layout
    if (
        layout == NULL or layout.track < 0
        or event.process.length != layout.process_length or event.thread.length != layout.thread_length
        or memcmp(event.process.start, layout.identities, layout.process_length) != 0
        or memcmp(event.thread.start, layout.identities + layout.process_length, layout.thread_length) != 0
    ):
        return -1
    return layout.track


cdef inline void remember_codes(Event* event, int32_t category, int32_t track) noexcept nogil:
    cdef Layout* layout = event.layout
    if layout == NULL:
        return
    layout.category = category
    if layout.track != track and event.process.length + event.thread.length <= <Py_ssize_t> sizeof(layout.identities):
        layout.process_length, layout.thread_length = <int> event.process.length, <int> event.thread.length
        memcpy(layout.identities, event.process.start, layout.process_length)
        memcpy(layout.identities + layout.process_length, event.thread.start, layout.thread_length)
        layout.track = track


cdef inline uint32_t kept_of(Slice* category) noexcept nogil:
    """One bit for each integer that is kept of events of a category, as `event_columns._KEPT_OF` says."""
    if (
        (category.length == 6 and memcmp(category.start, b"cpu_op", 6) == 0)
        or (category.length == 15 and memcmp(category.start, b"user_annotation", 15) == 0)
        or (category.length == 15 and memcmp(category.start, b"python_function", 15) == 0)
    ):
        return 1 << START | 1 << DURATION
    if (
        (category.length == 12 and memcmp(category.start, b"cuda_runtime", 12) == 0)
        or (category.length == 11 and memcmp(category.start, b"cuda_driver", 11) == 0)
    ):
        return 1 << START | 1 << DURATION | 1 << CORRELATION
    return (1 << FIELDS) - 1


cdef bint row_kept(Event* event, Text start, Text end, Sink* sink) noexcept nogil:
    """Whether a complete event could be made a row."""
    cdef Py_ssize_t row = sink.rows
    cdef uint32_t kept_fields
    cdef int32_t category, name, process, thread, track
    cdef int field
    if row == sink.capacity or event.odd_time:
        return False
    name = number_of_name(event, &sink.name_table, start)
    category, track = known_category(event), known_track(event)
    if category < 0:
        if is_disguised(&event.category):
            return False
        category = number_of_slice(&sink.category_table, &event.category, start)
    if track < 0:
        process = number_of_slice(&sink.identity_table, &event.process, start)
        thread = number_of_slice(&sink.identity_table, &event.thread, start)
        if process < 0 or thread < 0:
            return False
        track = number_of_pair(&sink.track_table, <uint64_t> process << 32 | <uint64_t> thread)
    if category < 0 or name < 0 or track < 0:
        return False
    remember_codes(event, category, track)
    sink.categories[row], sink.names[row], sink.tracks[row] = category, name, track
    if event.values[CORRELATION] == ABSENT:
        event.values[CORRELATION] = event.values[CORRELATION_CAPITAL]
    kept_fields = kept_of(&event.category)
    for field in range(FIELDS):
        sink.integers[field][row] = event.values[field] if kept_fields >> field & 1 else ABSENT
    sink.timed[row] = event.has_start and event.has_duration
    sink.rows += 1
    return not is_wanted_whole(event, &sink.name_table.marks[name]) or kept(&sink.whole, start, end - start)


cdef bint skipped(Event* event, Text start, Text end, Sink* sink) noexcept nogil:
    """Whether an event that is no row is sound in what the other decoder would decode of it; keeps labels."""
    if not is_plain(&event.category) or not is_plain(&event.name) or not is_plain(&event.process) or not is_plain(&event.thread):
        return False
    if is_word(&event.phase, b"M", 1) and (is_word(&event.name, b"thread_name", 11) or is_word(&event.name, b"process_labels", 14)):
        return kept(&sink.labels, start, end - start)
    return True


cdef inline bint taken(Event* event, Text start, Text end, Sink* sink) noexcept nogil:
    """Whether all of an event was understood; what it says is in the sink then."""
    if not is_plain(&event.phase):
        return False
    sink.objects += 1
    sink.events += event.phase.start != NULL
    if is_word(&event.phase, b"X", 1):
        return row_kept(event, start, end, sink)
    return skipped(event, start, end, sink)


cdef inline Text next_event(Text at) noexcept nogil:
    """Where the next event begins, one comma between; NULL if it does not follow."""
    at = blank_end(at)
    return NULL if at[0] != c',' else blank_end(at + 1)


cdef bint scanned(Text at, Text stop, Scan* scan, Sink* sink) noexcept nogil:
    """Whether a text is nothing but events with one comma between them, all of them understood."""
    cdef Event event
    cdef Text start
    while at != NULL:
        start = at
        at = end_of_event(at, scan, &event, &sink.layouts)
        if at == NULL or at > stop or not taken(&event, start, at, sink):
            return False
        if at == stop:
            return True
        at = next_event(at)
    return False


# --- events of a file -------------------------------------------------------------------------------------------------------


cdef struct File:
    # Some of the file in memory, a NUL behind it.
    int descriptor
    int64_t offset  # in the file, where the memory begins
    uint8_t* data
    Py_ssize_t length
    Py_ssize_t room  # without the NUL


cdef bint moved(File* file, Py_ssize_t done) noexcept nogil:
    """Whether there is more of the file in memory now; what was `done` is dropped."""
    cdef Py_ssize_t rest = file.length - done
    cdef Py_ssize_t count
    memmove(file.data, file.data + done, rest)
    file.offset += done
    count = read_at(file.descriptor, file.data + rest, file.room - rest, file.offset + rest)
    file.length = rest + (count if count > 0 else 0)
    file.data[file.length] = 0
    return count > 0


cdef inline bint is_event_key(Text key, Text end) noexcept nogil:
    """Whether an object that begins with this quoted key may be an event; few others do."""
    if end - key < 7 or key[0] != c'"':
        return False
    key += 1
    return (
        memcmp(key, b'ph"', 3) == 0 or memcmp(key, b'ts"', 3) == 0 or memcmp(key, b'cat"', 4) == 0 or memcmp(key, b'pid"', 4) == 0
        or memcmp(key, b'tid"', 4) == 0 or memcmp(key, b'dur"', 4) == 0 or memcmp(key, b'name"', 5) == 0 or memcmp(key, b'args"', 5) == 0
    )


cdef Text first_event(Text at, Text end) noexcept nogil:
    """Where an event seems to begin: a brace and a key of events behind another brace and a comma. NULL if none does."""
    cdef Text start
    while True:
        at = <Text> memchr(at, c'}', end - at)
        if at == NULL:
            return NULL
        at += 1
        start = next_event(at)
        if start != NULL and start[0] == c'{' and is_event_key(blank_end(start + 1), end):
            return start


cdef struct Part:
    # Places in the file.
    int64_t begin  # where the first event begins
    int64_t end  # where the last one ends
    int64_t following  # where the next one begins


cdef bint scanned_part(File* file, Part* part, int64_t stop, bint is_first, Scan* scan, Sink* sink) noexcept nogil:
    """Whether all events were understood that begin between two places of the file; another one must follow them."""
    cdef Event event
    cdef Text start
    cdef Text end
    cdef Text at
    if not moved(file, 0):
        return False
    scan.end = file.data + file.length
    at = file.data
    if not is_first:
        at = first_event(at, scan.end)
        while at != NULL and file.offset + (at - file.data) < part.begin:
            at = first_event(at, scan.end)
        if at == NULL:
            return False
    part.begin = part.end = part.following = file.offset + (at - file.data)
    while part.following < stop:
        if scan.end - at < NEARLY_EMPTY:
            moved(file, at - file.data)
            scan.end, at = file.data + file.length, file.data
        start = at
        end = end_of_event(start, scan, &event, &sink.layouts)
        if end == NULL:
            # The end of what is in memory may have cut it.
            if (start == file.data and file.length == file.room) or not moved(file, start - file.data):
                return False
            scan.end, start = file.data + file.length, file.data
            end = end_of_event(start, scan, &event, &sink.layouts)
            if end == NULL:
                return False
        if not taken(&event, start, end, sink):
            return False
        part.end = file.offset + (end - file.data)
        at = next_event(end)
        if at == NULL or at[0] != c'{':
            if not moved(file, end - file.data):
                return False
            scan.end = file.data + file.length
            at = next_event(file.data)
            if at == NULL or at[0] != c'{':
                return False
        part.following = file.offset + (at - file.data)
    return True


# --- the way out ------------------------------------------------------------------------------------------------------------


cdef class Scanned:
    """What a text of events holds.

    Attributes:
        rows, objects, events: how many complete events, objects and events of any phase it has.
        categories, names: texts of the codes in the columns, as written between the quotes, in order of first use.
        identities: process and thread ids as written, quotes included, empty for none.
        tracks: positions of process and thread in `identities` for each code.
        labels: the texts of the events that name threads or processes.
        whole: the texts of the events that may be about collectives, or multiply matrices, in their order.
        has_shapes, names_collectives: whether some argument has input dimensions, and the name of a collective.
    """

    cdef readonly Py_ssize_t rows, objects, events
    cdef readonly list categories, names, identities, tracks, labels, whole
    cdef readonly bint has_shapes, names_collectives


cdef list texts_in(Texts* texts):
    cdef uint32_t i
    cdef Py_ssize_t begin = 0
    cdef list result = []
    for i in range(texts.count):
        result.append(PyBytes_FromStringAndSize(<const char*> texts.data + begin, texts.ends[i] - begin))
        begin = texts.ends[i]
    return result


cdef void release_texts(Texts* texts) noexcept:
    free(texts.data)
    free(texts.ends)


cdef void release_strings(Strings* table) noexcept:
    release_texts(&table.texts)
    free(table.hashes)
    free(table.marks)
    free(table.slots)


cdef void release(Sink* sink) noexcept:
    release_strings(&sink.category_table)
    release_strings(&sink.name_table)
    release_strings(&sink.identity_table)
    free(sink.track_table.slots)
    free(sink.track_table.keys)
    release_texts(&sink.labels)
    release_texts(&sink.whole)
    free(sink.layouts.all)


cdef Scanned told(Scan* scan, Sink* sink):
    cdef Scanned result = Scanned.__new__(Scanned)
    result.rows, result.objects, result.events = sink.rows, sink.objects, sink.events
    result.has_shapes, result.names_collectives = scan.has_shapes, scan.names_collectives
    result.categories, result.names = texts_in(&sink.category_table.texts), texts_in(&sink.name_table.texts)
    result.identities = texts_in(&sink.identity_table.texts)
    result.tracks = [(sink.track_table.keys[i] >> 32, sink.track_table.keys[i] & 0xffffffff) for i in range(sink.track_table.count)]
    result.labels, result.whole = texts_in(&sink.labels), texts_in(&sink.whole)
    return result


def room_for(Py_ssize_t rows) -> bytearray:
    """Memory for the columns of so many rows; what is in it is not said, which is why it takes no time."""
    return PyByteArray_FromStringAndSize(NULL, rows * ROW)


cdef void prepare(Scan* scan, Sink* sink, uint8_t[::1] room) except *:
    cdef Py_ssize_t rows = room.shape[0] // ROW
    cdef uint8_t* memory
    cdef int field
    if rows == 0 or rows * ROW != room.shape[0]:
        raise ValueError("memory for whole rows was expected")
    memset(scan, 0, sizeof(Scan))
    memset(sink, 0, sizeof(Sink))
    sink.layouts.last = -1
    sink.capacity = rows
    memory = &room[0]  # as malloc gives it, so columns of the widest first are all aligned
    for field in range(FIELDS):
        sink.integers[field] = <int64_t*> memory + field * rows
    memory += FIELDS * rows * sizeof(int64_t)
    sink.categories, sink.names, sink.tracks = <int32_t*> memory, <int32_t*> memory + rows, <int32_t*> memory + 2 * rows
    sink.timed = memory + 3 * rows * sizeof(int32_t)


def scan(
    bytes text not None,
    Py_ssize_t start,
    Py_ssize_t stop,
    uint8_t[::1] room not None,
):
    """What the events from `start` to `stop` of a text hold; None if not all of that is understood.

    Args:
        text, start, stop: from the brace that opens an event to behind the one that closes another.
        room: takes the columns, one behind the other, as long as there is room for rows: of int64 ts and dur in ns, then the arguments in
            the order of `event_columns.EventBatch`, -1: not there; of int32 the codes of category, name and track; of one byte whether
            both times are there. If there are more complete events, they are not understood.
    """
    cdef Scan state
    cdef Sink sink
    cdef Text begin = <Text> PyBytes_AS_STRING(text)
    cdef bint understood
    if not 0 <= start < stop <= PyBytes_GET_SIZE(text) or stop - start > 1 << 30:
        return None
    prepare(&state, &sink, room)
    state.end = begin + PyBytes_GET_SIZE(text)
    try:
        with nogil:
            understood = scanned(begin + start, begin + stop, &state, &sink)
        return told(&state, &sink) if understood else None
    finally:
        release(&sink)


def scan_file(
    int descriptor,
    int64_t begin,
    int64_t stop,
    bint is_first,
    Py_ssize_t buffer_bytes,
    uint8_t[::1] room not None,
):
    """What the events that begin in a part of an open file hold; None if not all of that is understood, or if no event follows them.

    Args:
        descriptor: of the file.
        begin, stop: between these places the events begin.
        is_first: one begins at `begin`; else they are looked for from there on, and whether one really begins is for the caller to judge.
        buffer_bytes: how much of the file is in memory at once; a longer event is not understood.
        room: as for `scan`.

    Returns:
        What was found, and the places where the first event begins, where the last one ends, and where the next one begins.
    """
    cdef Scan state
    cdef Sink sink
    cdef File file
    cdef Part part
    cdef bint understood
    if not 0 <= begin < stop or not LOOKBACK < buffer_bytes <= 1 << 30:
        return None
    prepare(&state, &sink, room)
    part.begin = begin
    file.descriptor, file.length, file.room = descriptor, 0, buffer_bytes
    file.offset = begin if is_first else max(0, begin - LOOKBACK)
    file.data = <uint8_t*> malloc(buffer_bytes + 1)
    if file.data == NULL:
        return None
    try:
        with nogil:
            understood = scanned_part(&file, &part, stop, is_first, &state, &sink)
        return (told(&state, &sink), part.begin, part.end, part.following) if understood else None
    finally:
        free(file.data)
        release(&sink)
