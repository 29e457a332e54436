"""A property that is computed once for each object, when it is first read, without a lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):  # noqa: N801 - it is written like ``property``
    """Like ``functools.cached_property``, which in Python 3.11 locks all objects of a class against each other.

    A thread that holds that lock and one that holds the connection to the records would wait for each other for ever.
    Without a lock at worst two threads compute the same value.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> once[T] | T:
        if instance is None:
            return self
        value = self._function(instance)
        # From now on Python finds this value first, because this descriptor has no ``__set__``.
        instance.__dict__[self._name] = value
        return value
