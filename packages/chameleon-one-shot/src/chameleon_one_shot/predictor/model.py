"""A predictor with all that has to be known of it, and its file.

The file is in the safetensors format: arrays, and a header of JSON. Nothing in it is code, and it
is read whole and checked before an array of it is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import safetensors.torch
from chameleon_system.files import replacing

from chameleon_one_shot.predictor.familiarity import Familiarity
from chameleon_one_shot.predictor.header import FORMAT, KEY, ModelFileError, read_header
from chameleon_one_shot.predictor.predictor import Predictor
from chameleon_one_shot.predictor.training import Scale
from chameleon_one_shot.predictor.trees import TREES, TreePredictor
from chameleon_one_shot.tokens import Vocabulary

AnyPredictor = Predictor | TreePredictor


@attrs.frozen(kw_only=True)
class Provenance:
    """The origin of a model; JSON values.

    Attributes:
        command: that made it.
        versions: of the distributions that took part, by name.
        targets: kinds of targets and their features in the training data.
        training: identities of the tasks that networks were trained on.
        stopping: of those that ended the training.
        held_out: of those that took no part in it.
        candidates: measured candidates of the tasks that it was trained on.
        results: what its training and its evaluation gave.
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
    """A predictor that can be stored.

    Attributes:
        predictor: trees or networks.
        familiarity: what they were trained on, and what is too far from it.
        provenance: how they were made.
    """

    predictor: AnyPredictor
    familiarity: Familiarity
    provenance: Provenance

    def save(self, file: Path) -> None:
        """Write it; the file is there whole or not at all.

        Raises:
            ModelFileError: it cannot be written.
        """
        predictor = self.predictor
        header = {
            "format": FORMAT,
            **predictor.header(),
            "vocabulary": predictor.vocabulary.to_json(),
            "scale": attrs.asdict(predictor.scale),
            "temperature": predictor.temperature,
            "familiarity": self.familiarity.to_json(),
            "provenance": attrs.asdict(self.provenance),
        }
        data = safetensors.torch.save(predictor.tensors(), metadata={KEY: json.dumps(header)})
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with replacing(file) as stream:
                stream.write(data)
        except OSError as error:
            raise ModelFileError(
                f"cannot write the model {file}: {error.strerror or error}",
                hint="Restore access or free space, and give the same command again.",
            ) from error


def load(file: Path) -> Model:
    """A model from its file.

    Raises:
        ModelFileError: as for ``read_header``, or its arrays do not fit its header.
    """
    header = read_header(file)
    try:
        kind = TreePredictor if header.get("kind") == TREES else Predictor
        return Model(
            predictor=kind.of_file(
                header,
                safetensors.torch.load(file.read_bytes()),
                vocabulary=Vocabulary.of_json(header["vocabulary"]),
                scale=Scale(**header["scale"]),
                temperature=float(header["temperature"]),
            ),
            familiarity=Familiarity.of_json(header["familiarity"]),
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
            f"{file} is damaged: {str(error).splitlines()[0]}",
            hint="Copy it again, or train it anew with `chameleon pretrain`.",
        ) from error


def _provenance(value: Mapping[str, Any]) -> Provenance:
    # Earlier versions kept digests of design spaces as well.
    fields: dict[str, Any] = {name: value[name] for name in attrs.fields_dict(Provenance)}
    lists = {name: tuple(part) for name, part in fields.items() if isinstance(part, list)}
    return Provenance(**{**fields, **lists})
