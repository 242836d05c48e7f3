import pytest
from hypothesis import given
from hypothesis import strategies as st

from traceread import units
from traceread.units import at_least


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 µs"),
        (1_500, "1.50 µs"),
        (999_400, "999 µs"),
        (999_600, "1.00 ms"),
        (12_345_678, "12.3 ms"),
        (2_900_000_000, "2.90 s"),
        (3_599_999_999_999, "3600 s"),
        (-1_500, "-1.50 µs"),
        (9_995, "10.0 µs"),
    ],
)
def test_duration(ns, text):
    assert units.duration(ns) == text


def test_duration_in_a_given_unit_keeps_three_decimals():
    assert units.duration(400_000_000, (10**9, "s")) == "0.400 s"
    assert units.duration(0, (10**9, "s")) == "0.000 s"
    assert units.duration(499_999, (10**9, "s")) == "< 0.001 s"
    assert units.duration(-499_999, (10**9, "s")) == "0.000 s"


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 10, "0 %"),
        (10, 10, "100 %"),
        (1, 3, "33.3 %"),
        (1, 100_000, "< 0.1 %"),
        (99_999, 100_000, "> 99.9 %"),
        (1, 0, "n/a"),
        (-1, 3, "-33.3 %"),
        (15, 10, "150.0 %"),
    ],
)
def test_percent(part, whole, text):
    assert units.percent(part, whole) == text


@given(st.integers(1, 10**15), st.integers(1, 10**15))
def test_0_and_100_percent_only_when_exact(part, whole):
    text = units.percent(part, whole)
    assert text != "0 %"
    assert (text == "100 %") == (part == whole)
    assert not text.startswith("0.0")


@pytest.mark.parametrize(
    ("text", "bound"), [("2.90 s", "≥ 2.90 s"), ("< 0.001 s", "> 0 s"), ("0.000 s", "≥ 0.000 s"), ("< 0.1 %", "> 0 %")]
)
def test_lower_bounds(text, bound):
    assert at_least(text) == bound


def test_the_rest():
    assert units.ratio(1003, 1000) == "1.003"
    assert units.ratio(1, 0) == "n/a"
    assert units.size(85_899_345_920) == "80.0 GiB"
    assert units.size(512) == "512 B"
    assert units.plural(1, "step") == "1 step"
    assert units.plural(1200, "copy", "copies") == "1,200 copies"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (39_175_949_400, "B", "39.2 GB"),
        (989e12, "FLOP/s", "989 TFLOP/s"),
        (989.4e12, "FLOP/s", "989 TFLOP/s"),
        (794.5e12, "FLOP/s", "795 TFLOP/s"),
        (291_244.9, "tokens/s", "291 ktokens/s"),
        (1_048_576, "", "1.05 M"),
        (999_600, "", "1.00 M"),
        (2e15, "FLOP/s", "2 PFLOP/s"),
        (12.0, "", "12"),
        (0.5, "GB", "0.50 GB"),
        (0, "B", "0 B"),
        (-1_500, "B", "-1.50 kB"),
    ],
)
def test_quantity(value, unit, text):
    assert units.quantity(value, unit) == text


@pytest.mark.parametrize(("share", "text"), [(0.43144, "43.1 %"), (0.0, "0 %"), (1.0, "100 %"), (0.99999, "> 99.9 %"), (0.0001, "< 0.1 %")])
def test_part(share, text):
    assert units.part(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(90, "90 s"), (1.5, "1.50 s"), (1156, "19.3 min"), (60_000, "16.7 h"), (462_917, "5.36 days"), (90_000_000, "1,042 days")],
)
def test_long_time(seconds, text):
    assert units.long_time(seconds) == text
