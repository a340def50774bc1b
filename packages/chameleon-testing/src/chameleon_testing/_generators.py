"""Finds random numbers that a stage does not draw from its context's generator.

A run is reproducible from its seed only if every random number comes from ``context.rng``. Three
kinds of generators violate this. They are the global generators of Python, NumPy and torch,
generators that a module keeps, and generators with a seed of their own.
"""

from __future__ import annotations

import contextlib
import inspect
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, TypeVar
from unittest import mock

import attrs
import numpy as np
from numpy.typing import NDArray

Used = TypeVar("Used")

SEED = 20
"""Seed of the generators that the checks give to stages."""

_MAKERS: Mapping[str, Callable[..., Any]] = {
    "numpy.random.default_rng": np.random.default_rng,
    "numpy.random.RandomState": np.random.RandomState,
    "numpy.random.PCG64": np.random.PCG64,
    "numpy.random.MT19937": np.random.MT19937,
    "numpy.random.SeedSequence": np.random.SeedSequence,
    "random.Random": random.Random,
}
"""Functions and classes that make generators, by name."""

_KEPT = (np.random.Generator, np.random.RandomState, random.Random)

_NUMBERS = (int, np.integer, str, bytes, float, tuple, list)
"""Types of seeds. An argument of another type is a generator or seed sequence that was passed
on."""

_KIT = "chameleon_testing.conformance"


@contextlib.contextmanager
def trial(where: str = "", **arrays: NDArray[Any]) -> Iterator[None]:
    """A context for trying a plugin, which must not change global generators or arguments.

    Args:
        where: a description of the plugin, with which failure messages begin.
        arrays: arrays that the plugin gets, by their names for failure messages.

    Raises:
        AssertionError: the plugin draws from a global generator, seeds it, or changes an array.
    """
    states, copies = _global_states(), {name: array.copy() for name, array in arrays.items()}
    try:
        yield
        now = _global_states()
        touched = " and ".join(name for name, state in states.items() if now[name] != state)
        assert not touched, f"it seeds or draws from {touched}; draw from context.rng alone"
        for name, copy in copies.items():
            same = np.array_equal(arrays[name], copy, equal_nan=copy.dtype.kind == "f")
            assert same, f"it changes the {name} it is given; work on a copy"
    except AssertionError as error:
        error.args = (f"{where}: {error}" if where else str(error),)
        raise


def _global_states() -> dict[str, Any]:
    """The states of the global generators, by name."""
    legacy: Any = np.random.get_state()  # noqa: NPY002 - the check is about this generator
    name, keys, position, *_ = legacy
    states: dict[str, Any] = {
        "Python's global generator (random)": hash(random.getstate()),
        "NumPy's global generator (numpy.random)": (name, hash(keys.tobytes()), position),
    }
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        states["torch's global generator"] = hash(torch.get_rng_state().numpy().tobytes())
    return states


@attrs.define(kw_only=True)
class Making:
    """A place in a plugin's code that made a random generator, and the seed that it used.

    Attributes:
        maker: the function or class that made it, such as ``numpy.random.default_rng``.
        seed: the arguments as text; empty without arguments.
        line: the file and line of the plugin's code that made it.
    """

    maker: str
    seed: str
    line: str


def check_seeds(stage: object, use: Callable[[int], Used]) -> tuple[Used, Used]:
    """Run a stage with two seeds, and check that every generator that it makes depends on the seed.

    Args:
        stage: an instance of the stage, whose package is watched.
        use: a function that makes the stage with a seed, lets it work, and returns the result.

    Returns:
        The results for both seeds.

    Raises:
        AssertionError: the stage's package keeps a generator, makes one without a seed, or makes
            one with the same seed in both runs.
    """
    module = type(stage).__module__
    package = module.rpartition(".")[0] or module
    rngs = " and ".join(_generators_kept(package))
    assert not rngs, (
        f"{rngs} is a generator of its own, the same for all tasks and seeds; draw from context.rng"
    )
    with _generators_made(package) as once:
        first = use(SEED)
    with _generators_made(package) as other:
        second = use(SEED + 1)
    for making in once:
        where, call = making.line, f"{making.maker}({making.seed})"
        assert making.seed, (
            f"{where} makes a generator that nobody seeds, {call}; draw from context.rng"
        )
        assert making not in other, (
            f"{where} makes a generator of its own with a fixed seed, {call}; "
            "draw from context.rng, or seed it with a number drawn there"
        )
    return first, second


def _generators_kept(package: str) -> list[str]:
    """The generators that a package's modules and their classes keep, as ``module.name``."""
    holders: dict[str, Any] = {}
    for module in _modules(package):
        holders[module.__name__] = module
        for member in vars(module).values():
            if isinstance(member, type) and member.__module__ == module.__name__:
                holders[member.__qualname__] = member
    return [
        f"{holder}.{name}"
        for holder, members in holders.items()
        for name, value in list(vars(members).items())
        if isinstance(value, _KEPT)
    ]


@contextlib.contextmanager
def _generators_made(package: str) -> Iterator[list[Making]]:
    """Record the generators that a package's modules make while the context is open."""
    makings: list[Making] = []
    makers, homes = dict(_MAKERS), [np.random, random]
    if (torch := sys.modules.get("torch")) is not None:
        makers["torch.Generator"] = torch.Generator
        homes.append(torch)
    with contextlib.ExitStack() as stack:
        for name, original in makers.items():
            watched = _Watched(name, original, package, makings)
            for module in (*homes, *_modules(package)):
                for attribute in [key for key, value in vars(module).items() if value is original]:
                    stack.enter_context(mock.patch.object(module, attribute, watched))
        yield makings


class _Watched:
    """Replaces a maker of generators: makes the same generator, and records the seed."""

    def __init__(self, name: str, original: Any, package: str, makings: list[Making]) -> None:
        self._name, self._original, self._package, self._made = name, original, package, makings
        self._torch = name.startswith("torch")
        self._maker = _noting(original) if self._torch else original

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        seeds = [value for value in (*arguments, *keywords.values()) if value is not None]
        seed = "its default seed" if self._torch else ", ".join(map(repr, seeds))
        line, generator = _line_of(self._package), self._maker(*arguments, **keywords)
        if line and all(isinstance(value, _NUMBERS) for value in seeds):
            self._made.append(Making(maker=self._name, seed=seed, line=line))
            if self._torch:
                generator.noted = self._made[-1]
        return generator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._original)

    def __mro_entries__(self, _bases: object) -> tuple[type, ...]:
        return (self._original,)


def _noting(original: Any) -> Any:
    """A class of torch's generators that records how they are seeded."""

    class Generator(original):  # type: ignore[misc]
        noted: Making | None = None

        def manual_seed(self, seed: int) -> Any:
            if self.noted:
                self.noted.seed = str(seed)
            return super().manual_seed(seed)

        def seed(self) -> int:
            if self.noted:
                self.noted.seed = ""
            return int(super().seed())

    return Generator


def _line_of(package: str) -> str:
    """The line of the package's own code that made the present call; empty if there is none."""
    for frame, line in traceback.walk_stack(inspect.currentframe()):
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(_KIT):
            return ""  # the checks themselves made the call
        ours = module == package or module.startswith(f"{package}.")
        if ours and module != __name__:
            return f"{module}, line {line},"
    return ""


def _modules(package: str) -> list[ModuleType]:
    return [
        module
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and (name == package or name.startswith(f"{package}."))
    ]
