"""Whether design spaces are still those that a model was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chameleon_core.errors import ChameleonError
from chameleon_core.task import Task

from chameleon_one_shot.predictor.examples import provider, schema_of


def stale(header: Mapping[str, Any], name: str) -> list[str]:
    """What has changed since a model was trained, one sentence for each operator and change.

    Args:
        header: the model's (``header.read_header``).
        name: what the model is called.

    Returns:
        Sentences that say which model to train anew, and with which command; none where each of
        its design spaces has the knobs and features that it had.
    """
    provenance = header["provenance"]
    found = []
    for sample in provenance["samples"]:
        task = Task(**sample["task"])
        try:
            space = provider(sample["space"], dict(sample["space_options"])).design_space(task)
        except ChameleonError as error:
            changed = f"cannot be made any more ({error})"
        else:
            if schema_of(space) == sample["schema"]:
                continue
            changed = "has other knobs or features than it had"
        found.append(
            f"the space {sample['space']!r} of {task.operator} {changed}: train the model "
            f"{name!r} anew with `{provenance['command']}`, on measurements of the new space"
        )
    return list(dict.fromkeys(found))


__all__ = ["stale"]
