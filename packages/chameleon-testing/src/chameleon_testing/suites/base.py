"""What all conformance suites have: the record, the options, and what they are tried on."""

from __future__ import annotations

import json
import subprocess
import sys
import unittest
from collections.abc import Mapping
from typing import Any, ClassVar

import attrs
from chameleon_core.errors import ChameleonError
from chameleon_core.loop.start.tasks import tasks_of
from chameleon_core.pipeline.jsonable import to_json
from chameleon_core.pipeline.read_options import read_options
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.plugins import KINDS, Kind, NoOptions, PluginRecord, make_stage
from chameleon_core.plugins.check import complaint
from chameleon_core.task import Task
from chameleon_core.versions import stages_of

from chameleon_testing.sentences import ConformanceError, require

HEAVY = ("tvm", "torch", "sklearn", "xgboost", "lightgbm", "scipy", "pandas")
"""What the modules that every command imports must not import."""


class ConformanceSuite:
    """Checks of one plugin; each method whose name begins with ``test`` is one.

    Attributes:
        kind: name of the kind, a key of ``KINDS``.
        record: what the plugin registers; to be set by whoever derives from a suite.
    """

    kind: ClassVar[str]
    record: ClassVar[Any] = None

    @property
    def about(self) -> Kind:
        """What is known of the kind."""
        return KINDS[self.kind]

    @property
    def where(self) -> str:
        """What a sentence begins with."""
        return f"{self.about.noun} '{self.record.name}'"

    @classmethod
    def subjects(cls, pipeline: ResolvedPipeline) -> dict[str, Any]:
        """What of a pipeline the plugin can be tried on, as attributes of the suite.

        Args:
            pipeline: one that uses the plugin.
        """
        del pipeline
        return {}

    def test_record(self) -> None:
        """It registers a record that is complete."""
        require(
            self.record is not None,
            f"{type(self).__name__} does not say what it checks: set its attribute 'record' to "
            "what the plugin registers",
        )
        wrong = complaint(self.about, self.record)
        require(wrong is None, f"the plugin registers {wrong}")
        require(
            self.record.summary.strip(),
            f"{self.where}: its summary is empty; say in one line what it does",
        )


class StageSuite(ConformanceSuite):
    """Checks of what a pipeline makes with options.

    Attributes:
        options: what differs from the options' defaults, as a pipeline file writes it.
    """

    record: ClassVar[PluginRecord | None] = None
    options: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def subjects(cls, pipeline: ResolvedPipeline) -> dict[str, Any]:
        for stage in _stages(pipeline):
            if stage.kind == cls.kind and stage.record == cls.record:
                return {"options": stage.options_json}
        return {}

    @property
    def registered(self) -> PluginRecord:
        """What the plugin registers."""
        self.test_record()
        assert self.record is not None  # noqa: S101 - see above
        return self.record

    def made_options(self) -> Any:
        """The options that the plugin is tried with.

        Raises:
            ConformanceError: they cannot be made.
            unittest.SkipTest: one that has no default is not given.
        """
        kind = self.registered.options
        missing = [
            field.alias
            for field in attrs.fields(kind)
            if field.init and field.default is attrs.NOTHING and field.alias not in self.options
        ]
        if missing:
            raise unittest.SkipTest(
                f"{', '.join(map(repr, missing))} has no default: set the suite's attribute "
                "'options', or name a pipeline that uses the plugin"
            )
        try:
            return read_options(self.options, kind, self.where)
        except ChameleonError as error:
            raise ConformanceError(f"{self.where}: its options cannot be made: {error}") from error

    def make(self, context: Any = None) -> Any:
        """The plugin, made as a pipeline makes it.

        Args:
            context: of kinds that take one.
        """
        return make_stage(self.about, self.registered, self.made_options(), context)

    def test_options(self) -> None:
        """Its options are data: frozen, documented, and the same again after JSON."""
        options = self.made_options()
        kind = type(options)
        for field in attrs.fields(kind):
            require(
                field.metadata.get("help"),
                f"{self.where}: option '{field.alias}' has no help; add metadata={{\"help\": ...}}",
            )
            try:
                setattr(options, field.name, getattr(options, field.name))
            except attrs.exceptions.FrozenError:
                continue
            require(
                condition=False,
                sentence=f"{self.where}: its options can be changed after a run has begun; make "
                "their class with @attrs.frozen(kw_only=True)",
            )
        written = to_json(options)
        try:
            again = read_options(json.loads(json.dumps(written)), kind, self.where)
        except (TypeError, ValueError, ChameleonError) as error:
            raise ConformanceError(
                f"{self.where}: its options cannot be written as JSON and read again, as worker "
                f"processes read them: {error}"
            ) from error
        for field in attrs.fields(kind):
            # Reading makes paths absolute, and stages of their names.
            require(
                {"path", "stages"} & field.metadata.keys()
                or getattr(again, field.name) == getattr(options, field.name),
                f"{self.where}: its option '{field.alias}' is another one after JSON",
            )

    def test_light_import(self) -> None:
        """Its options are imported by every command: quickly, without libraries for learning."""
        options = self.registered.options
        if options is NoOptions:
            return
        code = (
            "import sys; path, module, *heavy = sys.argv[1:]; sys.path[:] = path.split('\\n'); "
            "__import__(module); print(*[name for name in heavy if name in sys.modules])"
        )
        words = [sys.executable, "-c", code, "\n".join(sys.path), options.__module__, *HEAVY]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise unittest.SkipTest(f"{options.__module__} is no module that can be imported alone")
        require(
            not done.stdout.strip(),
            f"{self.where}: importing {options.__module__} imports {done.stdout.strip()}, which "
            "every command would wait for; import it where it is used",
        )


class TaskSuite(StageSuite):
    """Checks that need a task.

    Attributes:
        task: one that the plugin supports; small, since it may be computed.
    """

    task: ClassVar[Task | None] = None

    @classmethod
    def subjects(cls, pipeline: ResolvedPipeline) -> dict[str, Any]:
        _, tasks = tasks_of(pipeline)
        return {**super().subjects(pipeline), **({"task": tasks[0]} if tasks else {})}

    def given_task(self) -> Task:
        """The task.

        Raises:
            unittest.SkipTest: there is none.
        """
        if self.task is None:
            raise unittest.SkipTest(
                "it needs a task: set the suite's attribute 'task', or name a pipeline that uses "
                "the plugin"
            )
        return self.task


def _stages(pipeline: ResolvedPipeline) -> list[Any]:
    return list(stages_of(pipeline))


__all__ = ["ConformanceSuite", "StageSuite", "TaskSuite"]
