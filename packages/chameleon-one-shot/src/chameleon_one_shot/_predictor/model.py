"""A predictor with all facts about its training, and its file in the safetensors format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import safetensors.numpy
from chameleon_core.api import words
from chameleon_system.api import open_atomic

from chameleon_one_shot._predictor.examples import Scale
from chameleon_one_shot._predictor.header import FORMAT, KEY, ModelFileError, read_header
from chameleon_one_shot._predictor.out_of_distribution import OODDetector
from chameleon_one_shot._predictor.trees import TREES, TreePredictor
from chameleon_one_shot._tokens.vocabulary import Vocabulary

if TYPE_CHECKING:
    from chameleon_one_shot._predictor.predictor import Predictor


@attrs.frozen(kw_only=True)
class Provenance:
    """The origin of a model, as JSON values.

    Attributes:
        versions: the versions of the distributions that took part, by name.
        targets: the kinds of targets in the training data, with their features.
        training: the identities of the tasks that the model was trained on.
        stopping: the identities of the tasks for early stopping.
        held_out: the identities of the tasks that took no part in the training.
        candidates: the number of candidates of the tasks in ``training``.
    """

    command: str
    versions: Mapping[str, str]
    targets: tuple[Mapping[str, Any], ...]
    training: tuple[str, ...]
    stopping: tuple[str, ...]
    held_out: tuple[str, ...]
    candidates: int
    results: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True, eq=False)
class Model:
    """A predictor that can be saved to a file, with its detector of unlike tasks."""

    predictor: Predictor | TreePredictor
    detector: OODDetector
    provenance: Provenance

    def save(self, file: Path) -> None:
        """Write the model to a file atomically."""
        predictor = self.predictor
        header = {
            "format": FORMAT,
            **predictor.header(),
            "vocabulary": predictor.vocabulary.to_json(),
            "scale": attrs.asdict(predictor.scale),
            "temperature": predictor.temperature,
            "familiarity": self.detector.to_json(),
            "provenance": attrs.asdict(self.provenance),
        }
        data = safetensors.numpy.save(predictor.arrays(), metadata={KEY: json.dumps(header)})
        hint = "Restore access or free space, and give the same command again."
        with ModelFileError.on_os_error(f"cannot write the model {file}", hint=hint):
            file.parent.mkdir(parents=True, exist_ok=True)
            with open_atomic(file) as stream:
                stream.write(data)


def load(file: Path) -> Model:
    """Load a trained model (a predictor) from its file."""
    header = read_header(file)
    try:
        kind = TreePredictor if header.get("kind") == TREES else _networks()
        return Model(
            predictor=kind.of_file(
                header,
                safetensors.numpy.load(file.read_bytes()),
                vocabulary=Vocabulary.of_json(header["vocabulary"]),
                scale=Scale(**header["scale"]),
                temperature=float(header["temperature"]),
            ),
            detector=OODDetector.of_json(header["familiarity"]),
            provenance=_provenance(header["provenance"]),
        )
    except (
        safetensors.SafetensorError,
        RuntimeError,
        ValueError,
        KeyError,
        TypeError,
        OSError,
    ) as error:
        raise ModelFileError(
            f"{file} is damaged: {words.in_one_line(error)[-300:]}",
            hint="Copy it again, or train it anew with `chameleon pretrain`.",
        ) from error


def _networks() -> type[Predictor]:
    from chameleon_one_shot._predictor.predictor import Predictor  # noqa: PLC0415 - imports torch

    return Predictor


def _provenance(value: Mapping[str, Any]) -> Provenance:
    # Earlier versions kept digests of design spaces as well.
    fields: dict[str, Any] = {name: value[name] for name in attrs.fields_dict(Provenance)}
    lists = {name: tuple(part) for name, part in fields.items() if isinstance(part, list)}
    return Provenance(**{**fields, **lists})
