from decimal import ROUND_HALF_EVEN, Context, Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceread.readers.microseconds import LIMIT_NS, nanoseconds

EXACT = Context(prec=400, rounding=ROUND_HALF_EVEN, Emin=-999999, Emax=999999)


def by_decimal(text):
    """The same by the standard library's exact decimals."""
    ns = int(EXACT.multiply(Decimal(text), Decimal(1000)).to_integral_value(ROUND_HALF_EVEN))
    return ns if abs(ns) < LIMIT_NS else None


def read(*texts):
    ns, readable = nanoseconds([t.encode() for t in texts])
    return [n if ok else None for n, ok in zip(ns.tolist(), readable.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1712195495519689.047", 1712195495519689047),  # as a double it is 113 ns off
        ("1623142623460016", 1623142623460016000),
        ("0", 0),
        ("-0", 0),
        ("12.7", 12_700),
        ("-5.5", -5_500),
        ("1e3", 1_000_000),
        ("1.5E-2", 15),
        ('"1712195495519689.047"', 1712195495519689047),
        ('" 7 "', 7_000),
        ("0.0005", 0),  # half a nanosecond: to the even neighbour
        ("0.0015", 2),
        ("0.00050000001", 1),
        ("4611686018427387.903", LIMIT_NS - 1),
        ("4611686018427387.904", None),
        ("-4611686018427387.904", None),
        ("9999999999999999.999", None),
        ("1e30", None),
        ("1e999999999", None),
        ("1e-999999999", 0),
        ("0" * 5000 + "1." + "0" * 5000 + "1", 1_000),
        ("", None),
        ("null", None),
        ("true", None),
        ('"12 us"', None),
        ("1.2.3", None),
        (".", None),
        ("-", None),
        ("{}", None),
        ("1_000", None),
        ("١٢", None),  # digits, but not of JSON
    ],
)
def test_time_texts(text, ns):
    assert read(text) == [ns]


numbers = st.builds(
    lambda sign, whole, decimals, exponent: f"{sign}{whole}{decimals}{exponent}",
    st.sampled_from(["", "-"]),
    st.integers(0, 10**19).map(str),
    st.one_of(st.just(""), st.text("0123456789", min_size=1, max_size=12).map(".".__add__)),
    st.one_of(st.just(""), st.integers(-25, 25).map("e{}".format)),
)


@given(st.lists(numbers, min_size=1, max_size=20))
@settings(derandomize=True, deadline=None)
def test_times_agree_with_exact_decimals_whatever_stands_beside_them(texts):
    assert read(*texts) == [by_decimal(t) for t in texts]


@given(st.integers(-(LIMIT_NS - 1), LIMIT_NS - 1))
@settings(derandomize=True, deadline=None)
def test_a_time_written_with_three_decimals_comes_back_unchanged(ns):
    sign, size = ("-", -ns) if ns < 0 else ("", ns)
    assert read(f"{sign}{size // 1000}.{size % 1000:03d}") == [ns]


@given(st.lists(st.binary(max_size=40), max_size=10))
@settings(derandomize=True, deadline=None)
def test_any_bytes_are_a_time_or_none(texts):
    ns, readable = nanoseconds(texts)
    assert len(ns) == len(readable) == len(texts)
    assert not ns[~readable].any()


def test_no_times_at_all():
    ns, readable = nanoseconds([])
    assert len(ns) == len(readable) == 0
