"""Draws tasks that resemble the operators of networks.

Prior-guided sampling draws the arguments of an operator one after another (One-Shot Tuner, Ryu et
al., CC 2022, section 4.2). Each is drawn by its distribution in networks, given the arguments
before. Operators with other arguments count too, with a weight that falls with the difference, and
sizes may lie between two sizes of networks. Otherwise each draw would repeat an existing operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.api import Registry, generator
from chameleon_core.plugin_api import ConfigError, Task, read_options
from numpy.typing import NDArray

from chameleon_one_shot._dataset.tasks import DatasetError, canonical, rename_by_key

Path = tuple[str | int, ...]
"""The position of a value in the arguments: keys, and indices in lists."""

ABSENT = object()
"""The value of an argument that an operator does not have, such as a default."""


_BANDWIDTHS = (0.25, 0.5, 1.0, 2.0)
"""Bandwidths in octaves, by which operators may differ from the arguments drawn so far.

The next bandwidth is used if too few operators are similar enough.
"""

_LEAST_EFFECTIVE_SIZE = 6.0
"""The least effective number of operators that an argument is drawn from, if possible."""

_CATEGORY_DISTANCE = 2.0
"""The distance in octaves between two values that are no sizes, such as layouts."""

_LEAST_DISTINCT = 8
"""An argument is a size if it has this many values, and no value has more than half the mass."""

_INTERPOLATION_PROBABILITY = 0.5
"""The probability that a size is moved to a value between two observed sizes."""

_LARGEST_RATIO = 2
"""The largest ratio of two neighbouring sizes between which a size may be moved."""

_HALVINGS = 3
"""The largest number of halvings of a size's power-of-two factor.

A moved size is a multiple of this halved factor.
"""


@attrs.frozen(kw_only=True, eq=False)
class ObservedTask:
    """A task of a network.

    Attributes:
        mass: the share of the network's operators that are this task.
    """

    task: Task
    mass: float


class OperatorDistribution:
    """The distribution of the arguments of one kind of operator in networks."""

    def __init__(self, observed: Sequence[ObservedTask]) -> None:
        rows = [flatten(entry.task.arguments) for entry in observed]
        self._mass = np.array([entry.mass for entry in observed])
        paths = dict.fromkeys(path for row in rows for path in row)
        self._columns = {path: [row.get(path, ABSENT) for row in rows] for path in paths}
        sizes = [path for path in paths if self._is_size(path)]
        # Sizes come last, because they depend on the kind of kernel.
        self._order = [path for path in paths if path not in sizes] + sizes
        self._sizes = frozenset(sizes)
        self._logarithms = {
            path: np.log2([max(float(value), 1.0) for value in self._columns[path]])
            for path in sizes
        }

    def _is_size(self, path: Path) -> bool:
        values = self._columns[path]
        if not all(isinstance(value, int) and is_number(value) for value in values):
            return False
        shares: dict[int, float] = {}
        for value, mass in zip(values, self._mass, strict=True):
            shares[value] = shares.get(value, 0.0) + mass
        return len(shares) >= _LEAST_DISTINCT and max(shares.values()) <= 0.5 * self._mass.sum()

    def draw(self, rng: np.random.Generator) -> dict[str, Any]:
        """Draw the arguments of one operator."""
        drawn: dict[Path, Any] = {}
        distance = np.zeros(len(self._mass))
        for path in self._order:
            row = int(rng.choice(len(self._mass), p=self._weights(distance)))
            drawn[path] = self._value(path, row, drawn, rng)
            distance += self._differences(path, drawn[path]) ** 2
        return unflatten({path: drawn[path] for path in self._columns})

    def _weights(self, squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """The weight of each observed task, from its squared distance to the drawn arguments."""
        relative = squares - squares.min()
        weights = self._mass
        for width in _BANDWIDTHS:
            weights = self._mass * np.exp(-relative / (2.0 * width**2))
            if weights.sum() ** 2 >= _LEAST_EFFECTIVE_SIZE * (weights**2).sum():
                break
        return np.asarray(weights / weights.sum())

    def _value(
        self, path: Path, row: int, drawn: Mapping[Path, Any], rng: np.random.Generator
    ) -> Any:
        value = self._columns[path][row]
        before = _previous_index(path)
        if before in drawn and self._columns[before][row] == value:
            return drawn[before]  # square images and filters, and equal padding
        if path not in self._sizes:
            return value
        return (
            self._interpolate(path, value, rng)
            if rng.random() < _INTERPOLATION_PROBABILITY
            else value
        )

    def _interpolate(self, path: Path, value: int, rng: np.random.Generator) -> int:
        """A size between an observed size and a neighbouring one, with similar divisors."""
        known = np.unique(self._columns[path])
        at = int(np.searchsorted(known, value))
        other = at + int(rng.choice((-1, 1)))
        if not 0 <= other < len(known) or value < 1:
            return value
        low, high = sorted((value, int(known[other])))
        if high > _LARGEST_RATIO * low:
            return value  # networks have no sizes in between
        step = max(1, (value & -value) >> int(rng.integers(0, _HALVINGS + 1)))
        between = np.arange(step * (low // step + 1), high, step)
        return value if not len(between) else int(rng.choice(between))

    def _differences(self, path: Path, value: Any) -> NDArray[np.float64]:
        """The distance of each observed task's value from a drawn value, in octaves."""
        if path in self._sizes:
            return np.asarray(self._logarithms[path] - math.log2(max(value, 1)))
        return np.array(
            [0.0 if other == value else _CATEGORY_DISTANCE for other in self._columns[path]]
        )


def _previous_index(path: Path) -> Path:
    """The position before a position in the same list; empty if there is none."""
    *above, last = path
    return (*above, last - 1) if isinstance(last, int) else ()


class TaskDistribution:
    """The distribution of operators in some networks."""

    def __init__(self, observed: Sequence[ObservedTask]) -> None:
        groups: dict[tuple[str, tuple[Path, ...]], list[ObservedTask]] = {}
        for entry in observed:
            groups.setdefault((entry.task.operator, _lists(entry.task.arguments)), []).append(entry)
        self._kinds = [operator for operator, _ in groups]
        self._distributions = [OperatorDistribution(group) for group in groups.values()]
        mass = np.array([sum(entry.mass for entry in group) for group in groups.values()])
        # The square root makes rare kinds more frequent, so that a model learns them too.
        self._shares = np.sqrt(mass) / np.sqrt(mass).sum()

    def draw(self, rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
        """Draw a kind of operator and its arguments."""
        which = int(rng.choice(len(self._kinds), p=self._shares))
        return self._kinds[which], self._distributions[which].draw(rng)


def _lists(arguments: Mapping[str, Any]) -> tuple[Path, ...]:
    """The positions of values in lists, which distinguish operators of different ranks."""
    return tuple(sorted((path for path in flatten(arguments) if len(path) > 1), key=str))


def flatten(arguments: Mapping[str, Any]) -> dict[Path, Any]:
    """The single values in an operator's nested arguments, by their position."""
    return {
        path: value for key, inner in arguments.items() for path, value in _leaves(inner, (key,))
    }


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list | tuple) and value:
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    else:
        yield path, value


def unflatten(fields: Mapping[Path, Any]) -> dict[str, Any]:
    """The inverse of ``flatten``, without values that are ``ABSENT``."""
    out: dict[str | int, Any] = {}
    for path, value in fields.items():
        if value is ABSENT:
            continue
        below = out
        for step in path[:-1]:
            below = below.setdefault(step, {})
        below[path[-1]] = value
    return {str(key): _to_lists(value) for key, value in out.items()}


def _to_lists(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        return value
    inner = {key: _to_lists(item) for key, item in value.items()}
    if all(isinstance(key, int) for key in inner):
        return [inner[index] for index in sorted(inner)]
    return inner


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TRIES = 500
"""The largest number of draws for one task."""


@attrs.frozen(kw_only=True, eq=False)
class TaskSampler:
    """Draws distinct tasks that resemble those of networks.

    Attributes:
        most_flop: the largest number of operations of one evaluation of a task.
        has_space: returns whether a task has a design space.
    """

    observed: Sequence[ObservedTask]
    held_out: HeldOut
    target: str
    most_flop: float
    seed: int
    registry: Registry
    has_space: Callable[[Task], bool]

    def draw(self, count: int, known: Sequence[Task] = ()) -> list[Task]:
        """Draw tasks that resemble the operators of networks, after the ``known`` ones."""
        if not self.observed:
            raise DatasetError("the networks have no operator to tune", hint="Name some that have.")
        distribution = TaskDistribution(self.observed)
        # Operators without a class of arguments are drawn as a whole.
        observed_tasks = {
            (entry.task.operator, canonical(dict(entry.task.arguments))): entry.task
            for entry in self.observed
        }
        tasks = list(known[:count])
        keys = {task.key for task in tasks}
        for number in range(len(tasks), count):
            rng = generator(self.seed, "tasks", str(number))
            task = self._draw_one(distribution, observed_tasks, keys, rng)
            if task is None:
                raise DatasetError(
                    f"only {len(tasks)} tasks of {count} could be drawn from these networks",
                    hint="Ask for fewer tasks, name more networks, or raise most_gflop.",
                )
            tasks.append(task)
            keys.add(task.key)
        return tasks

    def _draw_one(
        self,
        distribution: TaskDistribution,
        observed_tasks: dict[tuple[str, str], Task],
        keys: set[str],
        rng: np.random.Generator,
    ) -> Task | None:
        for _ in range(_TRIES):
            operator, arguments = distribution.draw(rng)
            if self.held_out.covers(operator, arguments):
                continue
            task = self._task(operator, arguments, observed_tasks)
            if task is None or task.key in keys or task.flop > self.most_flop:
                continue
            # The operator may have changed its arguments.
            if not self.held_out.covers(operator, task.arguments) and self.has_space(task):
                return task
        return None

    def _task(
        self, operator: str, arguments: dict[str, Any], observed_tasks: dict[tuple[str, str], Task]
    ) -> Task | None:
        """The task of an operator and its arguments; None if the operator is impossible."""
        record = self.registry.record("operators", operator)
        if record.arguments is None:
            task = observed_tasks.get((operator, canonical(arguments)))
        else:
            try:
                spec = read_options(arguments, record.arguments, f"operator '{operator}'")
                task = spec.task(operator, self.target)
            except (ConfigError, ValueError, ArithmeticError):
                return None
        return None if task is None else rename_by_key(task)


SIMILARITY_TOLERANCE = 0.1
"""The share by which numbers may differ to count as equal to a held-out task's."""


class HeldOut:
    """The operators of held-out networks."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._numbers: dict[str, list[dict[Path, float]]] = {}
        for task in tasks:
            self._numbers.setdefault(task.operator, []).append(_numbers(task.arguments))

    def covers(self, operator: str, arguments: Mapping[str, Any]) -> bool:
        """Whether an operator is too similar to a task of a held-out network."""
        numbers = _numbers(arguments)
        return any(_are_similar(numbers, other) for other in self._numbers.get(operator, ()))


def _numbers(arguments: Mapping[str, Any]) -> dict[Path, float]:
    return {path: value for path, value in flatten(arguments).items() if is_number(value)}


def _are_similar(values: Mapping[Path, float], other: Mapping[Path, float]) -> bool:
    return values.keys() == other.keys() and all(
        abs(value - other[path]) <= SIMILARITY_TOLERANCE * max(abs(value), abs(other[path]))
        for path, value in values.items()
    )
