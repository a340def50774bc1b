"""Models in the box: files that `chameleon pretrain` wrote, and which of them suits a target."""

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
    """There is no model of such a name, or for such a target."""


def in_the_box(folder: Path = FOLDER) -> dict[str, Path]:
    """The models in the box by name."""
    return {file.stem: file for file in sorted(folder.glob(f"*{ENDING}"))}


def model_file(wanted: str, device: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """The file of a model.

    Args:
        wanted: a file, a name, or ``auto``.
        device: what it is to predict for (``StageContext.device``).
        folder: where the models in the box are.

    Raises:
        NoModelError: there is none.
        ModelFileError: one in the box is damaged.
    """
    boxed = in_the_box(folder)
    if wanted in boxed:
        return boxed[wanted]
    if wanted != AUTO:
        if not Path(wanted).exists():
            names = ", ".join(boxed) or "none"
            raise NoModelError(
                f"there is no model {wanted!r}: it is neither a file nor in the box, which has "
                f"{names}",
                hint=_MAKE,
            )
        return Path(wanted)
    suited = [(len(words), name) for name in boxed for words in _suited(boxed[name], device)]
    if not suited:
        what = " ".join([str(device.get("kind", "")), str(device.get("mcpu", ""))]).strip()
        raise NoModelError(
            f"no model in the box is for this target ({what or 'of which nothing is known'})",
            hint=_MAKE,
        )
    return boxed[max(suited)[1]]


def _suited(file: Path, device: Mapping[str, Any]) -> list[frozenset[str]]:
    """Features of the targets of a model all of which a device has."""
    features = frozenset(map(str, device.get("features", ())))
    targets = read_header(file)["provenance"]["targets"]
    return [
        words
        for target in targets
        if target["kind"] == device.get("kind")
        and (words := frozenset(target["features"])) <= features
    ]


__all__ = ["ENDING", "FOLDER", "NoModelError", "in_the_box", "model_file"]
