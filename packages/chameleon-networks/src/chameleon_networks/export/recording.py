"""Records what is done to arrays, so that it can be done again by NumPy alone.

A template packs weights with NumPy, in functions that know its knobs. For a delivered operator
they run once on arrays of a subclass that writes down each operation (NumPy's enhancement
proposals 13 and 18 say how a subclass sees them). ``pack.py`` of a delivered folder does the
operations again on other weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class NotRecordedError(Exception):
    """An operation that cannot be written down; the message names it."""


@attrs.define(kw_only=True)
class Recording:
    """Operations on arrays, in their order.

    Attributes:
        inputs: those that everything else is made of.
        constants: other arrays that take part.
        steps: each a name, its arguments and its keyword arguments as JSON values, in which
            ``{"array": n}`` is the n-th of the inputs and results together.
        fixed: numbers of inputs whose values decided something: the recording holds for these
            values alone.
        results: how many arrays there are, inputs among them.
    """

    inputs: list[Array] = attrs.field(factory=list)
    constants: list[Array] = attrs.field(factory=list)
    steps: list[tuple[str, list[Any], dict[str, Any]]] = attrs.field(factory=list)
    fixed: set[int] = attrs.field(factory=set)
    results: int = 0
    _sources: list[frozenset[int]] = attrs.field(factory=list)

    @classmethod
    def of(cls, inputs: Sequence[Array]) -> tuple[Recording, list[Array]]:
        """A recording, and the inputs as arrays that write down what is done to them."""
        made = cls(inputs=[np.ascontiguousarray(one) for one in inputs])
        wrapped: list[Array] = []
        for number, one in enumerate(made.inputs):
            made._sources.append(frozenset({number}))
            wrapped.append(made._wrapped(one))
        return made, wrapped

    def number_of(self, array: Array) -> int | None:
        """The number of an array that this recording knows, or None."""
        known = isinstance(array, Recorded) and array.recording is self
        return array.number if known else None  # type: ignore[attr-defined]

    def decided(self, array: Recorded) -> None:
        """Note that the values of an array are looked at, and not only moved."""
        self.fixed |= self._sources[_number(array)]

    def step(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Do an operation and write it down.

        Args:
            name: how ``pack.py`` finds it.
            function: does it, on plain arrays.
            args: of the function; arrays that are known among them.
            kwargs: of the function.

        Returns:
            What the function made; recorded where it is an array.
        """
        found = function(*_plain(tuple(args)), **_plain(kwargs))
        if not isinstance(found, np.ndarray):
            for array in _recorded((*args, *kwargs.values())):
                self.decided(array)
            return found
        written = [self._written(one) for one in args]
        self.steps.append((name, written, {key: self._written(one) for key, one in kwargs.items()}))
        sources = [self._sources[_number(one)] for one in _recorded((*args, *kwargs.values()))]
        self._sources.append(frozenset().union(*sources))
        return self._wrapped(found)

    def changed(self, array: Recorded, sources: Sequence[Any]) -> None:
        """Note that an array holds values of others from now on."""
        more = [self._sources[_number(one)] for one in _recorded(tuple(sources))]
        self._sources[_number(array)] = self._sources[_number(array)].union(*more)

    def write(self, name: str, args: Sequence[Any]) -> None:
        """Write down an operation that makes no array."""
        self.steps.append((name, [self._written(one) for one in args], {}))

    def _wrapped(self, array: Array) -> Recorded:
        made = array.view(Recorded)
        made.recording, made.number = self, self.results
        self.results += 1
        return made

    def _written(self, value: Any) -> Any:  # noqa: PLR0911 - one for each kind
        if isinstance(value, Recorded):
            return {"array": _number(value)}
        if isinstance(value, np.ndarray):
            self.constants.append(value)
            return {"constant": len(self.constants) - 1}
        if isinstance(value, np.generic):
            return self._written(value.item())
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, tuple | list):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [self._written(one) for one in value]}
        if isinstance(value, slice):
            return {"slice": [self._written(one) for one in (value.start, value.stop, value.step)]}
        if value is Ellipsis:
            return {"ellipsis": True}
        if isinstance(value, type | np.dtype):
            return {"dtype": np.dtype(value).name}
        raise NotRecordedError(f"an argument of type {type(value).__name__}")


class Recorded(np.ndarray[Any, Any]):
    """An array whose operations are written down; made by ``Recording.of``."""

    recording: Recording | None
    number: int

    def __array_finalize__(self, source: Any) -> None:
        # What NumPy makes without asking is no part of the recording.
        self.recording, self.number = None, -1

    def __array_ufunc__(self, ufunc: Any, method: Any, *inputs: Any, **options: Any) -> Any:
        in_place = any(one is not None for one in options.pop("out", None) or ())
        if in_place or method not in {"__call__", "reduce"}:
            raise NotRecordedError(f"{ufunc.__name__} in place")
        name = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.reduce"
        return _step(f"numpy.{name}", getattr(ufunc, method), inputs, options)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        del types
        of_numpy = getattr(np, func.__name__, None) is func
        if not of_numpy:
            raise NotRecordedError(f"{func.__module__}.{func.__name__}")
        return _step(f"numpy.{func.__name__}", func, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        return _step("getitem", np.ndarray.__getitem__, (self, key), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.recording is None:
            raise NotRecordedError("an assignment to a part of an array")
        np.asarray(self)[_plain(key)] = _plain(value)
        self.recording.write("setitem", (self, key, value))
        self.recording.changed(self, (key, value))

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __float__(self) -> float:
        return float(_read(self))

    def __int__(self) -> int:
        return int(_read(self))

    def __bool__(self) -> bool:
        return bool(_read(self))

    def item(self, *args: Any) -> Any:
        """One element, whose value counts from now on."""
        return _read(self).item(*args)

    def tolist(self) -> Any:
        """All elements, whose values count from now on."""
        return _read(self).tolist()

    @property
    def T(self) -> Any:  # noqa: N802 - NumPy's name
        """The array with its axes turned round."""
        return self.transpose()


def _method(name: str) -> Callable[..., Any]:
    """A method of arrays that is written down."""
    plain = getattr(np.ndarray, name)

    def recorded(self: Recorded, *args: Any, **kwargs: Any) -> Any:
        return _step(f"method.{name}", plain, (self, *args), kwargs)

    recorded.__name__ = name
    return recorded


_MOVES = ("reshape", "transpose", "swapaxes", "ravel", "flatten", "squeeze", "repeat", "take")
for _name in (*_MOVES, "astype", "copy"):
    setattr(Recorded, _name, _method(_name))


def _view(self: Recorded, *args: Any, **kwargs: Any) -> Any:
    if self.recording is None or args[:1] == (np.ndarray,):
        return np.ndarray.view(self, *args, **kwargs)
    return _step("method.view", np.ndarray.view, (self, *args), kwargs)


Recorded.view = _view  # type: ignore[method-assign,assignment]


def _step(name: str, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    known = [one.recording for one in _recorded((*args, *kwargs.values())) if one.recording]
    if not known:
        # It began outside of the recording, or was lost: pack.py is checked before it is written.
        return function(*_plain(tuple(args)), **_plain(kwargs))
    return known[0].step(name, function, args, kwargs)


def _read(array: Recorded) -> Array:
    if array.recording is not None:
        array.recording.decided(array)
    return np.asarray(array)


def _number(array: Recorded) -> int:
    if array.recording is None:
        raise NotRecordedError("an array that NumPy made of another one by itself")
    return array.number


def _recorded(values: tuple[Any, ...]) -> list[Recorded]:
    """The recorded arrays among values, and in tuples and lists of them."""
    found: list[Recorded] = []
    for value in values:
        if isinstance(value, Recorded):
            found.append(value)
        elif isinstance(value, tuple | list):
            found += _recorded(tuple(value))
    return found


def _plain(value: Any) -> Any:
    """The same with plain arrays in place of recorded ones."""
    if isinstance(value, Recorded):
        return np.asarray(value)
    if isinstance(value, tuple | list):
        return type(value)(_plain(one) for one in value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value
