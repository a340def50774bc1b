"""Included models: predictors that `chameleon pretrain` wrote, chosen by target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chameleon_core.errors import ConfigError

from chameleon_one_shot.options import AUTO
from chameleon_one_shot.predictor.header import read_header

FOLDER = Path(__file__).parent
ENDING = ".safetensors"

_MAKE = (
    "Make one: `chameleon dataset collect PLAN.yaml`, then `chameleon pretrain DATASET --to "
    "my.safetensors`, and name it: `--set cost_model.model=my.safetensors`."
)


class NoModelError(ConfigError):
    """There is no model with this name, or for this target."""


def in_the_box(folder: Path = FOLDER) -> dict[str, Path]:
    """The files of the included models, by name."""
    return {file.stem: file for file in sorted(folder.glob(f"*{ENDING}"))}


def model_file(wanted: str, device: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """Find the file of a predictor: a user's file, or a model that this package includes.

    Args:
        wanted: A file, the name of an included model, or ``auto``.
        device: The description of the device to predict for (``StageContext.device``).
        folder: The folder of the included models.

    Raises:
        NoModelError: There is no such model.
        ModelFileError: An included model is damaged.
    """
    boxed = in_the_box(folder)
    if wanted in boxed:
        return boxed[wanted]
    if wanted != AUTO:
        if not Path(wanted).exists():
            names = ", ".join(boxed) or "none"
            raise NoModelError(
                f"there is no model {wanted!r}: it is neither a file nor one of the included "
                f"models ({names})",
                hint=_MAKE,
            )
        return Path(wanted)
    targets = [
        (target, name)
        for name, file in boxed.items()
        for target in read_header(file)["provenance"]["targets"]
        if target["kind"] == device.get("kind")
    ]
    if not targets:
        what = " ".join([str(device.get("kind", "")), str(device.get("mcpu", ""))]).strip()
        raise NoModelError(
            f"no included model is for this target ({what or 'which is unknown'})",
            hint=_MAKE,
        )
    features = frozenset(map(str, device.get("features", ())))
    apart = [(len(features ^ set(target["features"])), name) for target, name in targets]
    return boxed[min(apart)[1]]


__all__ = ["ENDING", "FOLDER", "NoModelError", "in_the_box", "model_file"]
