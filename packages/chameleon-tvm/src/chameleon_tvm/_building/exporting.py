"""Common functions of all forms of export."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs
from chameleon_core.plugin_api import ConfigError, Delivery, SpaceProvider

from chameleon_tvm._building.builder import TVMBuilder
from chameleon_tvm._words import identifier


@attrs.frozen(kw_only=True)
class Exported:
    """The result of exporting operators or a network for use without Chameleon.

    Attributes:
        files: Paths of the written files, in the order of the tasks.
        tasks: Names of the exported tasks.
        notes: Sentences for the people who use the files.
    """

    files: tuple[Path, ...]
    tasks: tuple[str, ...]
    notes: tuple[str, ...] = ()


def identifiers(names: Sequence[str]) -> list[str]:
    """Make distinct file names from names of tasks; equal results get a number.

    Args:
        names: Names of tasks, which may contain any characters.
    """
    known: Counter[str] = Counter()
    results = []
    for name in map(identifier, names):
        results.append(f"{name}_{known[name]}" if known[name] else name)
        known[name] += 1
    return results


def tvm_builder(space: SpaceProvider, winner: Delivery.Winner) -> TVMBuilder:
    """Make the builder of the task of a winner (a run's fastest configuration).

    Args:
        space: The space whose configuration the winner is.
        winner: The winner of a run.

    Raises:
        ConfigError: The space's builder does not use TVM.
    """
    builder = space.builder(winner.task, threads=1)
    if not isinstance(builder, TVMBuilder):
        raise ConfigError(
            f"task {winner.task.name!r} is not built by TVM", hint="Leave it out with --task."
        )
    return builder


def unoccupied(folder: Path, names: Sequence[str]) -> None:
    """Make a folder for exported files, and raise an error if it already has one of the files.

    Args:
        folder: The folder.
        names: Names of the files that will be written.

    Raises:
        ConfigError: The folder has one of the files, or cannot be made.
    """
    existing = [name for name in names if (folder / name).exists()]
    if existing:
        raise ConfigError(
            f"{folder} has {', '.join(existing)} already", hint="Name another folder, or remove it."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{folder} cannot be made: {error.strerror}", hint="Name another folder."
        ) from error
