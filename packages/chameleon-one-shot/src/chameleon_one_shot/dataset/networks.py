"""The tasks of a plan's networks, read once and kept beside the data set."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
from chameleon_core.errors import ChameleonError, ConfigError
from chameleon_core.loop import Interruption
from chameleon_core.loop.start.tasks import frontend_of, named_tasks
from chameleon_core.pipeline.schema import Subject
from chameleon_core.task import Task

from chameleon_one_shot.dataset.records import canonical
from chameleon_one_shot.dataset.sampling.distribution import Observed
from chameleon_one_shot.dataset.task_file import read_tasks, write_tasks


class NetworkTasks:
    """Reads networks, each once.

    Args:
        folder: where their tasks are kept; made where it is missing.
        target: canonical, that the tasks are for.
        interruption: the request to stop.
        say: tells what is done, in a line.
    """

    def __init__(
        self,
        folder: Path,
        target: str,
        *,
        interruption: Interruption,
        say: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._target = target
        self._interruption = interruption
        self._say = say

    def of(self, networks: Sequence[Subject]) -> list[list[Task]]:
        """The tasks of each network.

        Raises:
            ConfigError: some cannot be read; says which, after all others have been read.
        """
        found, problems = [], []
        for number, network in enumerate(networks, 1):
            try:
                found.append(self._one(network, f"{number} of {len(networks)}"))
            except ChameleonError as error:
                self._interruption.check()
                problems.append(f"{_words(network)}: {error}")
        if problems:
            raise ConfigError(
                "\n".join(problems),
                hint="Take these networks out of the plan, or install what they need; those that "
                "could be read are kept.",
            )
        return found

    def _one(self, network: Subject, place: str) -> list[Task]:
        text = canonical([network.model.to_json(), self._target])
        file = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        if file.exists():
            return read_tasks(file)
        self._say(f"network {place}: {_words(network)}")
        with self._interruption.at_once():
            tasks = named_tasks(network, frontend_of(network), self._target)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_tasks(file, tasks)
        return tasks


def observed(networks: Sequence[Sequence[Task]]) -> list[Observed]:
    """Tasks with how often they occur, where each network counts the same."""
    return [
        Observed(task=task, mass=task.weight / sum(other.weight for other in tasks))
        for tasks in networks
        for task in tasks
    ]


def _words(network: Subject) -> str:
    model = network.model
    fields = attrs.fields(model.record.options)
    required = [field.alias for field in fields if field.default is attrs.NOTHING]
    return " ".join([model.name, *(str(model.options_json[name]) for name in required)])


__all__ = ["NetworkTasks", "observed"]
