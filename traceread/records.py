"""Records: classes as `dataclass(frozen=True)` makes them, made several times faster.

For every class the standard library writes the text of six methods and has it compiled; for the 170 classes that a report imports that was
a third of the time until it began. Here only the fields are the standard library's (`fields`, `replace` and `asdict` work, and type
checkers know the classes), the methods are functions that know the names of the fields. Making an object takes up to twice as long, of
which a report notices nothing: it makes some thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from inspect import Parameter, Signature
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform, overload

_Class = TypeVar("_Class", bound=type)
_Method = Callable[..., Any]

_store = object.__setattr__
"""Sets what the records' own `__setattr__` refuses to."""


@overload
def record(cls: _Class, /) -> _Class: ...
@overload
def record(*, eq: bool = True) -> Callable[[_Class], _Class]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: _Class | None = None, /, *, eq: bool = True) -> _Class | Callable[[_Class], _Class]:
    """The class with what `dataclass(frozen=True, eq=eq)` gives it: a decorator, with or without arguments. Every field is an argument."""

    def decorate(cls: _Class) -> _Class:
        dataclass(init=False, repr=False, eq=False)(cls)
        methods = {"__init__": _init(cls), "__repr__": _repr, "__setattr__": _set, "__delattr__": _delete}
        if eq:
            methods |= _comparison(cls)
        for name, method in methods.items():
            if vars(cls).get(name) is None:  # what the class defines itself stays; where it is __eq__, Python has set __hash__ to None
                setattr(cls, name, method)
        cls.__signature__ = _SIGNATURE  # type: ignore[attr-defined]
        return cls

    return decorate if cls is None else decorate(cls)


def _init(cls: type) -> _Method:
    arguments = tuple((f.name, f.default, None if f.default_factory is MISSING else f.default_factory) for f in fields(cls))
    names = tuple(name for name, *_ in arguments)
    checks = hasattr(cls, "__post_init__")

    def init(self: Any, /, *args: Any, **named: Any) -> None:
        for name, value in zip(names, args, strict=False):
            _store(self, name, value)
        for name, default, factory in arguments[len(args) :]:
            value = named.pop(name, default)
            if value is MISSING and factory is not None:
                value = factory()
            if value is MISSING:
                raise TypeError(f"{cls.__qualname__}() needs {name!r}")
            _store(self, name, value)
        if named or len(args) > len(names):
            further = ", ".join(named) or "more"
            raise TypeError(f"{cls.__qualname__}() takes each of {', '.join(names)} once, and was also given {further}")
        if checks:
            self.__post_init__()

    return init


def _comparison(cls: type) -> dict[str, _Method]:
    names = [f.name for f in fields(cls) if f.compare]
    values: _Method = attrgetter(*names) if len(names) > 1 else lambda self: tuple(getattr(self, name) for name in names)

    def equals(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": equals, "__hash__": hashed}


@recursive_repr()
def _repr(self: Any) -> str:
    return f"{self.__class__.__qualname__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in fields(self) if f.repr)})"


def _set(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


class _Arguments:
    """The signature of a record, for documentation; made when somebody looks."""

    def __get__(self, instance: object, cls: type) -> Signature:
        return Signature([Parameter(f.name, Parameter.POSITIONAL_OR_KEYWORD, default=_shown(f), annotation=f.type) for f in fields(cls)])


def _shown(f: Field[Any]) -> object:
    if f.default_factory is not MISSING:
        return ...
    return Parameter.empty if f.default is MISSING else f.default


_SIGNATURE = _Arguments()
