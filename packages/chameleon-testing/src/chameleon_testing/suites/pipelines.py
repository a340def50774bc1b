"""Suites of frontends, target resolvers, presets and commands."""

from __future__ import annotations

import contextlib
import io
from typing import Any, ClassVar

from chameleon_core.api import Registry, ResolvedPipeline, TaskSource, from_dict
from chameleon_core.plugin_api import (
    ChameleonError,
    Frontend,
    NoOptions,
    PluginRecord,
    TargetError,
    Task,
    hookimpl,
    load_factory,
)

from chameleon_testing._generators import trial
from chameleon_testing.conformance import after_json
from chameleon_testing.suites.base import ConformanceSuite, StageSuite


class FrontendSuite(StageSuite):
    """Checks of a frontend.

    Attributes:
        target: a resolved target for which the frontend names tasks.
    """

    kind = "frontends"
    target: ClassVar[str] = "conformance"

    @classmethod
    def subjects(cls, pipeline: ResolvedPipeline) -> dict[str, Any]:
        return {**super().subjects(pipeline), "target": TaskSource(pipeline).target()}

    def test_tasks(self) -> None:
        """Tasks are JSON, have unique names and at least one operation, and are reproducible.

        A second frontend with the same options returns the same tasks.
        """
        with trial(self.where):
            frontend = self.make()
            tasks, again = (each.tasks(self.target) for each in (frontend, self.make()))
            assert all(isinstance(task, Task) for task in tasks), "names something else than tasks"
            delivers = type(frontend).deliver is not Frontend.deliver
            assert tasks or delivers, "it names no task, and delivers nothing"
            names = [task.name for task in tasks]
            twice = ", ".join(sorted({repr(name) for name in names if names.count(name) > 1}))
            assert not twice, f"two tasks are called {twice}"
            assert len(tasks) == len(again), "another number of tasks the next time"
            for task, other in zip(tasks, again, strict=True):
                about = f"task '{task.name}'"
                assert task.flop > 0, f"{about} has no floating-point operations"
                assert task.weight >= 1, f"{about} has the weight {task.weight}"
                other_target = (
                    f"is for the target {task.target!r}, not for the one it was asked for"
                )
                assert task.target == self.target, f"{about} {other_target}"
                read = Task(**after_json(task.to_json(), f"the content of {about}"))
                changes = f"the arguments of {about} change when they are written as JSON"
                assert read.key == task.key, changes
                assert task.key == other.key, f"{about} is another one the next time"


class TargetSuite(StageSuite):
    """Checks of a target resolver.

    Attributes:
        targets: targets that users may write.
        nonsense: a text that is no target.
    """

    kind = "targets"
    targets: ClassVar[tuple[str, ...]] = ("native",)
    nonsense: ClassVar[str] = "no-such-target --at-all"

    @classmethod
    def subjects(cls, pipeline: ResolvedPipeline) -> dict[str, Any]:
        return {**super().subjects(pipeline), "targets": (pipeline.target,)}

    def test_canonical(self) -> None:
        """A resolved target does not change when it is resolved again."""
        for text in self.targets:
            with trial(f"{self.where}: '{text}'"):
                resolved = self.make().resolve(text)
                named = isinstance(resolved, str) and resolved
                assert named, f"it resolves to {resolved!r}, not to a text"
                again = self.make().resolve(resolved)
                assert again == resolved, (
                    f"it resolves to {resolved!r}, and that to {again!r}; records are kept under "
                    "the resolved form, so there must be one"
                )

    def test_nonsense(self) -> None:
        """A text that is no target is refused with a message and a hint."""
        with trial(self.where):
            try:
                resolved = self.make().resolve(self.nonsense)
            except TargetError as error:
                assert error.hint, "its refusal has no hint that says what there is"
            except Exception as error:
                kind = type(error).__name__
                problem = f"it refuses '{self.nonsense}' with {kind}, not with TargetError"
                raise AssertionError(problem) from error
            else:
                raise AssertionError(f"it takes '{self.nonsense}' for {resolved!r}")

    def test_description(self) -> None:
        """The description of a device is JSON, has sorted features, and stays the same."""
        for text in self.targets:
            with trial(f"{self.where}: '{text}'"):
                target = self.make().resolve(text)
                first, again = (dict(self.make().describe(target)) for _ in range(2))
                after_json(first, "its description")
                features = list(first.get("features", []))
                assert features == sorted(features), "its features are not sorted"
                assert first == again, "it is described differently the next time"


class NoModel(Frontend):
    """A frontend that stands for any model, in pipelines that are read but never run."""

    def __init__(self, _options: NoOptions) -> None:
        pass

    def tasks(self, target: str) -> list[Task]:
        raise NotImplementedError("a pipeline of this model is never run")


class PresetSuite(ConformanceSuite):
    """Checks of a preset: the stages that it names must be installed.

    The preset itself need not be registered by an installed plugin.
    """

    kind = "presets"

    def test_keys(self) -> None:
        """All keys of the preset are keys of a pipeline file.

        The keys ``model``, ``output`` and ``preset`` are not allowed, because a pipeline file must
        set them itself.
        """
        self.test_record()
        for key in self.record.pipeline:
            assert key in Registry.default().pipeline_keys, f"{self.where}: there is no key '{key}'"
            assert key not in {"model", "output", "preset"}, (
                f"{self.where}: it names '{key}', which every pipeline file says for itself"
            )

    def test_pipeline(self) -> None:
        """A pipeline with the preset is complete, and all its stages and options are known."""
        self.test_record()
        record = self.record
        known = [entry.record for entry in Registry.default().entries("presets")]

        class Own:
            @hookimpl
            def chameleon_frontends(self) -> Any:
                """The model of the pipeline."""
                factory = f"{NoModel.__module__}:{NoModel.__name__}"
                yield PluginRecord(
                    name="nothing", summary="Names no task", options=NoOptions, factory=factory
                )

            @hookimpl
            def chameleon_presets(self) -> Any:
                """The preset that is checked, if nobody installed it."""
                return [] if record in known else [record]

        registry = Registry.from_plugins([Own()], with_installed=True)
        document = {"model": {"nothing": {}}, "target": "native", "preset": record.name}
        try:
            from_dict(document, registry=registry)
        except ChameleonError as error:
            sentence = f"{self.where}: a pipeline with it cannot be read: {error}"
            raise AssertionError(sentence) from error


class CommandSuite(ConformanceSuite):
    """Checks of a command that a plugin adds to the command line."""

    kind = "commands"

    def test_help(self) -> None:
        """The command is made with click, and has a help text."""
        self.test_record()
        command = load_factory(self.record.factory)
        main = getattr(command, "main", None)
        assert callable(main), (
            f"{self.where}: {self.record.factory!r} is {type(command).__name__} and no click "
            "command; make it with @click.command()"
        )
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            code = main(args=["--help"], prog_name="chameleon", standalone_mode=False)
        assert code in {None, 0}, f"{self.where}: --help ends with exit code {code}"
        text = getattr(command, "help", None) or getattr(command, "short_help", None)
        help_text = text and printed.getvalue().strip()
        assert help_text, f"{self.where}: it has no help; give its function a docstring"
