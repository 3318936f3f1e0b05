"""A property that is computed when it is first read, without a lock.

Python 3.11's :class:`functools.cached_property` holds one lock for all objects of a class while it
computes. Threads with different objects would wait for each other, and a child forked in the meantime
would wait for ever, because the thread that holds the lock does not exist there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

Value = TypeVar("Value")


class cached_property(Generic[Value]):  # noqa: N801 (a decorator, named as in functools)
    """Decorator of a method without arguments: its result is kept in the object as an attribute.

    Two threads that read it at the same time may both compute it; both get the first result.

    Args:
        method: Returns the value.

    >>> class Circle:
    ...     radius = 2.0
    ...
    ...     @cached_property
    ...     def area(self) -> float:
    ...         return 3.14 * self.radius**2
    >>> circle = Circle()
    >>> circle.area
    12.56
    >>> circle.radius = 1.0
    >>> circle.area
    12.56
    """

    def __init__(self, method: Callable[[Any], Value]) -> None:
        self._method = method
        self._name = method.__name__
        self.__doc__ = method.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...

    def __get__(self, instance: object | None, owner: type) -> Self | Value:
        if instance is None:
            return self
        value = self._method(instance)
        # Later reads find the attribute before they find this descriptor.
        attributes: dict[str, Value] = vars(instance)
        return attributes.setdefault(self._name, value)
