import pytest

from traceread.errors import SelectionError
from traceread.report import StepRange
from traceread.selection import parse_ranks, parse_steps


@pytest.mark.parametrize(
    ("text", "expected"), [("12:17", StepRange(12, 17)), (":3", StepRange(None, 3)), ("4:", StepRange(4)), ("7", StepRange(7, 8))]
)
def test_steps(text, expected):
    assert parse_steps(text) == expected


def test_a_step_range_is_half_open():
    assert [n for n in range(20) if StepRange(12, 15).holds(n)] == [12, 13, 14]
    assert str(StepRange(12, 15)) == "12:15"


@pytest.mark.parametrize("text", ["", ":", "a:b", "5:5", "7:3", "1-3", "1:2:3"])
def test_bad_steps_say_what_to_write(text):
    with pytest.raises(SelectionError) as error:
        parse_steps(text)
    assert "--steps" in error.value.hint or "12:17" in error.value.hint


def test_ranks_include_both_ends():
    assert parse_ranks("0-3,7") == {0, 1, 2, 3, 7}
    assert parse_ranks(" 5 ") == {5}


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,,2", "-1", "1-"])
def test_bad_ranks_say_what_to_write(text):
    with pytest.raises(SelectionError) as error:
        parse_ranks(text)
    assert "--ranks" in error.value.hint
