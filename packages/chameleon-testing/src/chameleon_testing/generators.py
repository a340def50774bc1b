"""Finds random numbers that a stage does not draw from its context's generator.

One seed gives one result only where every draw comes from ``context.rng``. Three things break that:
the global generators of Python, NumPy and torch, a generator that the module keeps, and one that
is made with a number that does not come from the run's seed.
"""

from __future__ import annotations

import contextlib
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, TypeVar
from unittest import mock

import attrs
import numpy as np
from chameleon_core.space import DesignSpace
from chameleon_core.stages import StageContext

from chameleon_testing.conformance_cases import SEED, context_of
from chameleon_testing.sentences import require

Used = TypeVar("Used")

_MAKERS: Mapping[str, Callable[..., Any]] = {
    "numpy.random.default_rng": np.random.default_rng,
    "numpy.random.RandomState": np.random.RandomState,
    "numpy.random.PCG64": np.random.PCG64,
    "numpy.random.MT19937": np.random.MT19937,
    "numpy.random.SeedSequence": np.random.SeedSequence,
    "random.Random": random.Random,
}
"""What makes generators, by name."""

_KEPT = (np.random.Generator, np.random.RandomState, random.Random)

_NUMBERS = (int, np.integer, str, bytes, float, tuple, list)
"""What a seed is that was written down; all else is a generator that somebody passed on."""

_KIT = "chameleon_testing.conformance"


@attrs.frozen(kw_only=True)
class Making:
    """A generator that was made.

    Attributes:
        maker: what was called, such as ``numpy.random.default_rng``.
        seed: the arguments as text; empty where there were none.
        place: file and line of the plugin's own code.
    """

    maker: str
    seed: str
    place: str


def global_states() -> dict[str, Any]:
    """The states of the global generators, by what they are called; torch's where it is there."""
    legacy: Any = np.random.get_state()  # noqa: NPY002 - this is what is looked at
    name, keys, position, *_ = legacy
    states: dict[str, Any] = {
        "Python's global generator (random)": hash(random.getstate()),
        "NumPy's global generator (numpy.random)": (name, hash(keys.tobytes()), position),
    }
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        state = torch.get_rng_state().numpy().tobytes()
        states["torch's global generator"] = hash(state)
    return states


@contextlib.contextmanager
def global_generators_kept(where: str) -> Iterator[None]:
    """Require that the global generators are left as they are.

    Args:
        where: said first in the sentence of a failure.

    Raises:
        ConformanceError: one of them was drawn from or seeded.
    """
    before = global_states()
    yield
    after = global_states()
    touched = [name for name, state in before.items() if after[name] != state]
    require(
        not touched,
        f"{where}: it seeds or draws from {' and '.join(touched)}; draw from context.rng alone",
    )


@contextlib.contextmanager
def generators_made(package: str) -> Iterator[list[Making]]:
    """Note the generators that are made by, or on behalf of, one package.

    Args:
        package: an import package; those of its modules that are imported already are watched,
            whichever way they import what makes generators.

    Yields:
        What was made so far; empty for a package that makes none.
    """
    made: list[Making] = []
    with contextlib.ExitStack() as stack:
        for name, original in _MAKERS.items():
            watched = _watched(name, original, package, made)
            for module, attribute in _holders(original, package):
                stack.enter_context(mock.patch.object(module, attribute, watched))
        torch = sys.modules.get("torch")
        if torch is not None:
            original = torch.Generator
            watched = _watched_torch(original, package, made)
            for module, attribute in _holders(original, package, torch):
                stack.enter_context(mock.patch.object(module, attribute, watched))
        yield made


def generators_kept(package: str) -> list[str]:
    """The generators that a package's modules, and their classes, keep: ``module.name``."""
    return [
        f"{holder}.{name}"
        for module in _modules(package)
        for holder, names in (
            (module.__name__, vars(module)),
            *((one.__qualname__, vars(one)) for one in _classes(module)),
        )
        for name, value in list(names.items())
        if isinstance(value, _KEPT)
    ]


def check_seeds(
    make: Callable[[StageContext], Any],
    space: DesignSpace,
    use: Callable[[int], Used],
    *,
    where: str,
) -> tuple[Used, Used]:
    """Use a stage with two seeds; every generator that it makes has to follow them.

    Args:
        make: makes the stage from its context.
        space: that of its context.
        use: makes the stage with a seed and has it do its work.
        where: said first in the sentence of a failure.

    Returns:
        What using it gave with each of the seeds.

    Raises:
        ConformanceError: its package keeps a generator, or it makes one that nobody seeds, or one
            with the same seed in both runs.
    """
    module = type(make(context_of(space))).__module__
    package = module.rpartition(".")[0] or module
    kept = generators_kept(package)
    require(
        not kept,
        f"{where}: {' and '.join(kept)} is a generator of its own, the same for all tasks and "
        "seeds; draw from context.rng",
    )
    with generators_made(package) as once:
        first = use(SEED)
    with generators_made(package) as other:
        second = use(SEED + 1)
    for one in once:
        require(
            one.seed,
            f"{where}: {one.place} makes a generator that nobody seeds, {one.maker}(); draw from "
            "context.rng",
        )
        require(
            one not in other,
            f"{where}: {one.place} makes a generator of its own with a fixed seed, "
            f"{one.maker}({one.seed}); draw from context.rng, or seed it with a number drawn there",
        )
    return first, second


def _watched(name: str, original: Any, package: str, made: list[Making]) -> Callable[..., Any]:
    """What is called in an original's place: the same, noted."""

    def note(arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> None:
        given = [one for one in (*arguments, *keywords.values()) if one is not None]
        place = _place(package)
        if place and all(isinstance(one, _NUMBERS) for one in given):
            seed = ", ".join(map(repr, given))
            made.append(Making(maker=name, seed=seed, place=place))

    if not isinstance(original, type):

        def noted(*arguments: Any, **keywords: Any) -> Any:
            note(arguments, keywords)
            return original(*arguments, **keywords)

        return noted

    class Noting(_instances_of(original)):  # type: ignore[misc]
        def __call__(self, *arguments: Any, **keywords: Any) -> Any:
            note(arguments, keywords)
            return original(*arguments, **keywords)

    return Noting(original.__name__, (original,), {})


def _instances_of(original: Any) -> Any:
    """A metaclass of classes whose instances those of the original are: some were made before."""

    class Instances(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    return Instances


def _watched_torch(original: Any, package: str, made: list[Making]) -> Any:
    """What takes the place of torch's generators: the same, noted with their seeds."""

    class Generator(original, metaclass=_instances_of(original)):  # type: ignore[misc, metaclass]
        def __init__(self, *_: Any, **__: Any) -> None:
            self.note("its default seed")

        def manual_seed(self, seed: int) -> Any:
            self.note(str(seed))
            return super().manual_seed(seed)

        def seed(self) -> int:
            self.note("")
            return int(super().seed())

        def note(self, seed: str) -> None:
            place = _place(package)
            if not place:
                return
            noted = getattr(self, "noted", None)
            if noted in made:
                made.remove(noted)
            self.noted = Making(maker="torch.Generator", seed=seed, place=place)
            made.append(self.noted)

    return Generator


def _place(package: str) -> str:
    """Where the package's own code called; empty where it did not."""
    for frame, line in traceback.walk_stack(None):
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(_KIT):
            return ""  # the checks draw as well
        if module == package or module.startswith(f"{package}."):
            return f"{module}, line {line},"
    return ""


def _holders(original: object, package: str, *homes: ModuleType) -> list[tuple[Any, str]]:
    """Where an original is found under a name: in its own module, and in the package's."""
    return [
        (module, name)
        for module in (np.random, random, *homes, *_modules(package))
        for name, value in list(vars(module).items())
        if value is original
    ]


def _modules(package: str) -> list[ModuleType]:
    return [
        module
        for name, module in list(sys.modules.items())
        if isinstance(module, ModuleType) and (name == package or name.startswith(f"{package}."))
    ]


def _classes(module: ModuleType) -> list[type]:
    return [
        one
        for one in vars(module).values()
        if isinstance(one, type) and one.__module__ == module.__name__
    ]
