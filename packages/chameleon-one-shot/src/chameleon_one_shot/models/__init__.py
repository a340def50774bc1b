"""Included models: files that `chameleon pretrain` wrote, and which of them suits a target."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chameleon_core.errors import ConfigError

from chameleon_one_shot.options import AUTO
from chameleon_one_shot.predictor.header import read_header

_WIDTHS = {"avx512f": 64, "avx2": 32, "avx": 32, "sse2": 16}
"""Bytes of the vectors of x86 CPUs by the feature that brings them, the widest first."""

FOLDER = Path(__file__).parent
ENDING = ".safetensors"

_MAKE = (
    "Make one: `chameleon dataset collect PLAN.yaml`, then `chameleon pretrain DATASET --to "
    "my.safetensors`, and name it: `--set cost_model.model=my.safetensors`."
)


class NoModelError(ConfigError):
    """There is no model of such a name, or for such a target."""


def in_the_box(folder: Path = FOLDER) -> dict[str, Path]:
    """The included models by name."""
    return {file.stem: file for file in sorted(folder.glob(f"*{ENDING}"))}


def model_file(wanted: str, device: Mapping[str, Any], folder: Path = FOLDER) -> Path:
    """The file of a model.

    Args:
        wanted: a file, a name, or ``auto``.
        device: what it is to predict for (``StageContext.device``).
        folder: the folder of the included models.

    Raises:
        NoModelError: there is none.
        ModelFileError: an included model is damaged.
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
    suited = [(words, name) for name in boxed for words in _suited(boxed[name], device)]
    if not suited:
        what = " ".join([str(device.get("kind", "")), str(device.get("mcpu", ""))]).strip()
        raise NoModelError(
            f"no included model is for this target ({what or 'of which nothing is known'})",
            hint=_MAKE,
        )
    return boxed[max(suited)[1]]


def same_vectors(target: Mapping[str, Any], device: Mapping[str, Any]) -> bool:
    """Whether both are x86 CPUs whose vectors are of one width.

    Args:
        target: of a model, with ``kind`` and ``features``.
        device: what a model is to predict for.
    """
    widths = [_vector_bytes(entry) for entry in (target, device)]
    return target["kind"] == device.get("kind") and widths[0] == widths[1] > 0


def _vector_bytes(device: Mapping[str, Any]) -> int:
    """The width of an x86 CPU's vectors; 0 of any other device."""
    features = device.get("features", ())
    return next((width for name, width in _WIDTHS.items() if name in features), 0)


def _suited(file: Path, device: Mapping[str, Any]) -> list[tuple[bool, int]]:
    """How near a device is to each target of a model that suits it; the nearest is the largest."""
    features = frozenset(map(str, device.get("features", ())))
    suited = []
    for target in read_header(file)["provenance"]["targets"]:
        words, same = frozenset(target["features"]), same_vectors(target, device)
        if same or (target["kind"] == device.get("kind") and words <= features):
            suited.append((same, len(words & features)))
    return suited


__all__ = ["ENDING", "FOLDER", "NoModelError", "in_the_box", "model_file", "same_vectors"]
