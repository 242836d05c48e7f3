import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass, field
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

import numpy as np
import pytest

from traceread.records import record

T = TypeVar("T")


def pair(decorate, compared):
    """The same class, once by each decorator."""

    @decorate
    class Interval:
        """Documented."""

        start: int
        end: int = 7
        names: list[str] = field(default_factory=list, compare=False)
        hidden: object = field(default=None, repr=False)
        kinds: ClassVar[int] = 3

    @compared
    class Named(Interval):
        name: str = "none"

    return Interval, Named


STANDARD = pair(dataclass(frozen=True), dataclass(frozen=True, eq=False))
OURS = pair(record, record(eq=False))
BOTH = pytest.mark.parametrize("made", [STANDARD, OURS], ids=["standard", "ours"])
"""What holds for records has to hold for what they stand in for."""


@record
class Point:
    x: int
    y: int = 0


@record
class Empty:
    pass


COUNT = """
import sys
from dataclasses import dataclass
from traceread.records import record

compiled = []
sys.addaudithook(lambda event, _: compiled.append(event) if event == "compile" else None)

@DECORATOR
class Interval:
    "Half-open."
    start: int
    end: int = 7

print(len(compiled))
"""


@pytest.mark.parametrize(("decorator", "compiles"), [("record", False), ("dataclass(frozen=True)", True)])
def test_a_record_has_nothing_compiled(decorator, compiles):
    """What it is for: a report makes 170 such classes before it begins."""
    done = subprocess.run([sys.executable, "-c", COUNT.replace("DECORATOR", decorator)], check=True, capture_output=True, text=True)
    assert (int(done.stdout) > 0) is compiles


@BOTH
@pytest.mark.parametrize(
    ("args", "named"),
    [((1,), {}), ((1, 2), {}), ((), {"start": 1}), ((1,), {"end": 3}), ((1, 2, ["a"], 4), {}), ((), {"hidden": 1, "end": 3, "start": 2})],
)
def test_arguments(made, args, named):
    for cls in made:
        one = cls(*args, **named)
        given = (
            {"start": 1, "end": 7, "names": [], "hidden": None} | dict(zip(("start", "end", "names", "hidden"), args, strict=False)) | named
        )
        assert {name: getattr(one, name) for name in given} == given
        assert list(vars(one))[:4] == ["start", "end", "names", "hidden"]


@BOTH
@pytest.mark.parametrize(
    ("args", "named", "says"),
    [
        ((), {}, "start"),
        ((), {"end": 1}, "start"),
        ((1, 2, [], None, "a", 6), {}, "were given|given more"),
        ((1,), {"start": 2}, "start"),
        ((1, 2), {"end": 2, "names": []}, "end"),
        ((1,), {"stop": 2}, "stop"),
        ((), {"start": 1, "self": 2}, "self"),
    ],
)
def test_arguments_that_do_not_fit(made, args, named, says):
    for cls in made:
        with pytest.raises(TypeError, match=says):
            cls(*args, **named)


@BOTH
def test_every_object_has_its_own_default(made):
    cls, _ = made
    assert cls(1).names is not cls(1).names


@BOTH
def test_nothing_is_set_or_deleted(made):
    for cls in made:
        one = cls(1)
        with pytest.raises(FrozenInstanceError, match="start"):
            one.start = 2
        with pytest.raises(FrozenInstanceError, match="end"):
            del one.end
        assert (one.start, one.end) == (1, 7)


@BOTH
def test_equal_are_objects_of_one_class_whose_compared_fields_are(made):
    cls, named = made
    assert cls(1, names=["a"]) == cls(1, names=["b"])
    assert cls(1) != cls(2)
    assert cls(1) != cls(1, hidden=3)
    assert cls(1) != 1
    assert cls(1) != named(1)
    assert hash(cls(1, names=["a"])) == hash(cls(1)) == hash((1, 7, None))
    assert len({cls(1), cls(1), cls(2)}) == 2


@BOTH
def test_without_comparison_objects_are_themselves(made):
    @dataclass(frozen=True, eq=False)
    class Standard:
        column: np.ndarray

    @record(eq=False)
    class Ours:
        column: np.ndarray

    for cls in (Standard, Ours):
        one, other = cls(np.zeros(2)), cls(np.zeros(2))
        assert one == one
        assert one != other
        assert len({one, other}) == 2


def test_one_field_and_none_compare_as_tuples():
    @record
    class One:
        column: object

    nan = float("nan")
    assert One(nan) == One(nan)  # as (nan,) == (nan,)
    assert hash(One(5)) == hash((5,))
    assert Empty() == Empty()
    assert hash(Empty()) == hash(())


def test_text():
    standard, ours = (cls(1, names=["a"]) for cls in (STANDARD[0], OURS[0]))
    assert repr(ours) == repr(standard) == "pair.<locals>.Interval(start=1, end=7, names=['a'])"
    assert repr(Empty()) == "Empty()"
    held = []
    one = OURS[0](1, 2, held)
    held.append(one)
    assert repr(one).endswith("names=[...])")


def test_the_standard_library_knows_records():
    standard, ours = STANDARD[1], OURS[1]
    assert dataclasses.is_dataclass(ours)
    assert [(f.name, f.type, f.default) for f in dataclasses.fields(ours)] == [
        (f.name, f.type, f.default) for f in dataclasses.fields(standard)
    ]
    assert ours.__match_args__ == standard.__match_args__
    assert dataclasses.asdict(ours(1)) == dataclasses.asdict(standard(1))
    assert dataclasses.replace(Point(1), y=4) == Point(1, 4)
    with pytest.raises(TypeError, match="z"):
        dataclasses.replace(Point(1), z=4)
    assert OURS[0].__doc__ == "Documented."


def test_copies_and_pickles():
    one = Point(1, 2)
    assert copy.copy(one) == copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one


def test_a_property_may_be_kept():
    @record
    class Kept:
        x: int

        @cached_property
        def double(self):
            return [2 * self.x]

    one = Kept(3)
    assert one.double is one.double
    assert one == Kept(3)


def test_what_a_class_defines_itself_stays():
    @record
    class Own:
        x: int

        def __post_init__(self):
            object.__setattr__(self, "x", self.x + 1)

        def __repr__(self):
            return "own"

        def __eq__(self, other):
            return self.x // 10 == other.x // 10

    assert repr(Own(1)) == "own"
    assert Own(10) == Own(12)
    assert Own(1).x == 2
    assert hash(Own(1)) == hash((2,))  # as of the standard library


def test_of_a_type():
    @record
    class Box(Generic[T]):
        content: T

    assert Box[int](3) == Box(3)


def test_signature():
    assert str(inspect.signature(Point)) == "(x: int, y: int = 0)"
    assert list(inspect.signature(OURS[1]).parameters) == ["start", "end", "names", "hidden", "name"]
    assert inspect.signature(OURS[0]).parameters["names"].default is ...
    assert inspect.signature(OURS[0]).parameters["start"].default is inspect.Parameter.empty
