"""What ``chameleon export`` writes for use without TVM's compiler: libraries, bundles for C."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from chameleon_core.errors import RunFolderError
from chameleon_core.stages import SpaceProvider, Winner
from chameleon_tvm.building.exporting import Exported, identifiers, unoccupied

from chameleon_networks.export.c_bundle import name_for, write_c_bundle
from chameleon_networks.export.operators import deliver_operator
from chameleon_networks.package.package import MANIFEST

_RANDOM = (
    "{} holds random weights until pack.py, or pack_weights of it, has packed yours; packing.json "
    "names the arrays that it takes."
)


def to_libraries(
    winners: Sequence[Winner], space: SpaceProvider, folder: Path, threads: int
) -> Exported:
    """Write a folder with a library and its loader for each operator.

    Args:
        winners: of a run.
        space: what they are configurations of.
        folder: made where it is missing. One operator lies in it as a network does; of several,
            each gets a folder in it.
        threads: that they were measured with.

    Raises:
        ConfigError: a task is built by something else than TVM, or a folder is there already.
        TargetError: it is for something else than this machine's CPU.
    """
    places = _places(folder, identifiers([winner.task.name for winner in winners]))
    for place, winner in zip(places, winners, strict=True):
        _whole(winner, space, place, threads)
    return _exported(winners, places)


def to_c(
    winners: Sequence[Winner],
    space: SpaceProvider,
    folder: Path,
    threads: int,
    name: str | None = None,
) -> Exported:
    """Write a bundle for C for each operator.

    Args:
        winners: of a run.
        space: what they are configurations of.
        folder: as of ``to_libraries``.
        threads: that they were measured with.
        name: of the library of a single operator; the folder's if None.

    Raises:
        ConfigError: as ``to_libraries``, or C has no such name.
        TargetError: it is for something else than this machine's CPU.
    """
    names = [_named(one) for one in identifiers([winner.task.name for winner in winners])]
    places = _places(folder, names)
    called = [name_for(place, name) for place in places]
    for library, place, winner in zip(called, places, winners, strict=True):
        with tempfile.TemporaryDirectory(prefix="chameleon-operator-") as made:
            _whole(winner, space, Path(made) / library, threads)
            write_c_bundle(Path(made) / library, place, library)
    return _exported(winners, places)


def network_to_c(network: Path, folder: Path, name: str | None) -> Exported:
    """Write the bundle for C of a delivered network.

    Args:
        network: the folder that a run delivered it in.
        folder: made where it is missing.
        name: of the library; the folder's where None.

    Raises:
        RunFolderError: there is no delivered network.
        ConfigError: there is no bundle for such a network, or a file is there already.
    """
    if not (network / MANIFEST).exists():
        raise RunFolderError(
            f"{network.parent} has no delivered network",
            hint="Run `chameleon compile` on it, or name an operator with --task.",
        )
    files = write_c_bundle(network, folder, name_for(folder, name))
    return Exported(files=files, tasks=())


def _places(folder: Path, names: Sequence[str]) -> list[Path]:
    """The folders of operators, none of which holds anything yet."""
    if len(names) > 1:
        unoccupied(folder, names)
        return [folder / name for name in names]
    unoccupied(folder, sorted(one.name for one in folder.glob("*")))
    return [folder]


def _named(name: str) -> str:
    """The name of an operator's bundle; C's names begin with a letter."""
    return name if name[:1].isalpha() else f"operator_{name.lstrip('_')}"


def _whole(winner: Winner, space: SpaceProvider, folder: Path, threads: int) -> None:
    """Deliver an operator; nothing is left of a folder that is not finished."""
    try:
        deliver_operator(winner, space, folder, threads)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _exported(winners: Sequence[Winner], folders: Sequence[Path]) -> Exported:
    packed = [folder for folder in folders if (folder / "pack.py").exists()]
    return Exported(
        files=tuple(file for folder in folders for file in sorted(folder.iterdir())),
        tasks=tuple(winner.task.name for winner in winners),
        notes=tuple(_RANDOM.format(folder / "weights.bin") for folder in packed),
    )
