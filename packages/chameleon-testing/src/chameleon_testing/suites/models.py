"""Suites of what comes before a search: frontends and target resolvers."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from chameleon_core.errors import TargetError
from chameleon_core.loop.start.tasks import target_of
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.stages import Frontend
from chameleon_core.task import Task

from chameleon_testing.generators import global_generators_kept
from chameleon_testing.sentences import require
from chameleon_testing.suites.base import StageSuite


class FrontendSuite(StageSuite):
    """Checks of a frontend.

    Attributes:
        target: a resolved target that it names tasks for.
    """

    kind = "frontends"
    target: ClassVar[str] = "conformance"

    @classmethod
    def subjects(cls, pipeline: ResolvedPipeline) -> dict[str, Any]:
        return {**super().subjects(pipeline), "target": target_of(pipeline)}

    def test_tasks(self) -> None:
        """Its tasks are data: unique names, positive work, and the same again in any process."""
        where = self.where
        with global_generators_kept(where):
            frontend, again = self.make(), self.make()
            tasks, others = frontend.tasks(self.target), again.tasks(self.target)
        require(
            all(isinstance(task, Task) for task in tasks),
            f"{where}: names something else than tasks",
        )
        delivers = type(frontend).deliver is not Frontend.deliver
        require(tasks or delivers, f"{where}: it names no task, and delivers nothing")
        names = [task.name for task in tasks]
        twice = sorted({name for name in names if names.count(name) > 1})
        require(not twice, f"{where}: two tasks are called {', '.join(map(repr, twice))}")
        for task, other in zip(tasks, others, strict=False):
            require(task.flop > 0, f"{where}: task '{task.name}' has no floating-point operations")
            require(task.weight >= 1, f"{where}: task '{task.name}' has the weight {task.weight}")
            require(
                task.target == self.target,
                f"{where}: task '{task.name}' is for the target {task.target!r}, not for the one "
                "it was asked for",
            )
            _require_json(task, where)
            require(
                task.key == other.key, f"{where}: task '{task.name}' is another one the next time"
            )
        require(len(tasks) == len(others), f"{where}: another number of tasks the next time")


def _require_json(task: Task, where: str) -> None:
    try:
        again = Task(**json.loads(json.dumps(task.to_json(), allow_nan=False)))
    except (TypeError, ValueError) as error:
        require(
            condition=False,
            sentence=f"{where}: the arguments of task '{task.name}' are no JSON: {error}",
        )
        return
    require(
        again.key == task.key,
        f"{where}: the arguments of task '{task.name}' change when they are written as JSON",
    )


class TargetSuite(StageSuite):
    """Checks of a target resolver.

    Attributes:
        targets: what users may write.
        nonsense: what is no target.
    """

    kind = "targets"
    targets: ClassVar[tuple[str, ...]] = ("native",)
    nonsense: ClassVar[str] = "no-such-target --at-all"

    @classmethod
    def subjects(cls, pipeline: ResolvedPipeline) -> dict[str, Any]:
        return {**super().subjects(pipeline), "targets": (pipeline.target,)}

    def test_canonical(self) -> None:
        """A target has one form: resolving it again changes nothing."""
        for text in self.targets:
            resolved = self.make().resolve(text)
            require(
                isinstance(resolved, str) and resolved,
                f"{self.where}: '{text}' resolves to {resolved!r}, not to a text",
            )
            again = self.make().resolve(resolved)
            require(
                again == resolved,
                f"{self.where}: '{text}' resolves to {resolved!r}, and that to {again!r}; records "
                "are kept under the resolved form, so there must be one",
            )

    def test_nonsense(self) -> None:
        """What is no target is refused in a sentence with a next step."""
        try:
            resolved = self.make().resolve(self.nonsense)
        except TargetError as error:
            require(error.hint, f"{self.where}: its refusal has no hint that says what there is")
            return
        except Exception as error:  # noqa: BLE001 - whatever a plugin raises
            require(
                condition=False,
                sentence=f"{self.where}: it refuses '{self.nonsense}' with {type(error).__name__}, "
                "not with TargetError",
            )
        else:
            require(
                condition=False,
                sentence=f"{self.where}: it takes '{self.nonsense}' for {resolved!r}",
            )

    def test_description(self) -> None:
        """What it knows of a device is JSON, with sorted features, and the same again."""
        for text in self.targets:
            resolver = self.make()
            target = resolver.resolve(text)
            told = dict(resolver.describe(target))
            try:
                json.dumps(told, allow_nan=False)
            except (TypeError, ValueError) as error:
                require(
                    condition=False,
                    sentence=f"{self.where}: the description of '{text}' is no JSON: {error}",
                )
            features = told.get("features", [])
            require(
                list(features) == sorted(features),
                f"{self.where}: the features of '{text}' are not sorted",
            )
            require(
                told == dict(self.make().describe(target)),
                f"{self.where}: '{text}' is described differently the next time",
            )
