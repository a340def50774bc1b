"""Finds a model's file and reads its header, without a machine-learning library.

The file has the safetensors format: eight bytes with the length of the header, the header as JSON,
and the arrays.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chameleon_core.plugin_api import ConfigError

from chameleon_one_shot._options import AUTO

FORMAT = 1
"""The version of the format, raised when older readers would misread the file."""

KEY = "chameleon_one_shot"
_LONGEST_HEADER = 100_000_000
"""The longest header in bytes that safetensors reads."""

_INCLUDED = Path(__file__).parents[1] / "_models"
"""The folder of the included models."""

_HOW_TO_TRAIN = (
    "Make one: `chameleon dataset collect PLAN.yaml`, then `chameleon pretrain DATASET --to "
    "my.safetensors`, and name it: `--set cost_model.model=my.safetensors`."
)


class ModelFileError(ConfigError):
    """A model's file cannot be used; the message says why."""


class NoModelError(ConfigError):
    """There is no model with this name, or for this target."""


def read_header(file: Path) -> dict[str, Any]:
    """The header of a model's file, without the arrays.

    Args:
        file: The file of the model.

    Raises:
        ModelFileError: The file is missing, incomplete, no model, or has another format version.
    """
    hint = "Name a file that `chameleon pretrain` wrote."
    with (
        ModelFileError.on_os_error(f"the model {file} cannot be read", hint=hint),
        file.open("rb") as stream,
    ):
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0  # noqa: PLR2004
        text = stream.read(length) if length <= _LONGEST_HEADER else b""
        size = file.stat().st_size
    try:
        entries = json.loads(text)
        header = json.loads(entries.pop("__metadata__")[KEY])
        ends = [entry["data_offsets"][1] for entry in entries.values()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(
            f"{file} is no predictor of Chameleon, or its beginning is damaged",
            hint="Name a file that `chameleon pretrain` wrote. Files of other tools, pickles among "
            "them, are never read.",
        ) from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        version = header.get("format") if isinstance(header, dict) else None
        newer = isinstance(version, int) and version > FORMAT
        raise ModelFileError(
            f"{file} is a predictor of format {version}, and this version reads {FORMAT}",
            hint="Upgrade chameleon." if newer else "Train it anew with `chameleon pretrain`.",
        )
    if size != 8 + length + max(ends, default=0):
        raise ModelFileError(
            f"{file} is cut off or has something after its end: it has {size} bytes, and its "
            f"header tells of {8 + length + max(ends, default=0)}",
            hint="Copy it again, or train it anew with `chameleon pretrain`.",
        )
    return header


def model_files(wanted: str, device: Mapping[str, Any], folder: Path = _INCLUDED) -> list[Path]:
    """The files of a predictor: a user's file, or models that this package includes."""
    included = {file.stem: file for file in sorted(folder.glob("*.safetensors"))}
    if wanted in included:
        return [included[wanted]]
    if wanted != AUTO:
        if not Path(wanted).exists():
            names = ", ".join(included) or "none"
            raise NoModelError(
                f"there is no model {wanted!r}: it is neither a file nor one of the included "
                f"models ({names})",
                hint=_HOW_TO_TRAIN,
            )
        return [Path(wanted)]
    features = frozenset(map(str, device.get("features", ())))
    distances = []
    for name, file in included.items():
        targets = read_header(file)["provenance"]["targets"]
        known = [set(each["features"]) for each in targets if each["kind"] == device.get("kind")]
        if known:
            distances.append((min(len(features ^ each) for each in known), name))
    if not distances:
        what = " ".join([str(device.get("kind", "")), str(device.get("mcpu", ""))]).strip()
        raise NoModelError(
            f"no included model is for this target ({what or 'which is unknown'})",
            hint=_HOW_TO_TRAIN,
        )
    return [included[name] for _, name in sorted(distances)]
