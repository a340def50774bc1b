"""Base classes of suites, with the plugin's record, options and task, and code that runs checks."""

from __future__ import annotations

import contextlib
import inspect
import json
import subprocess
import sys
import unittest
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import attrs
from chameleon_core.api import ResolvedPipeline, TaskSource, to_json
from chameleon_core.plugin_api import (
    KINDS,
    ChameleonError,
    Kind,
    NoOptions,
    PluginRecord,
    Task,
    complaint,
    read_options,
)

HEAVY = ("tvm", "torch", "sklearn", "xgboost", "lightgbm", "scipy", "pandas")
"""Libraries that the modules of options must not import, because every command imports these
modules."""

_IMPORTED = (
    "import sys; path, module, *heavy = sys.argv[1:]; sys.path[:] = path.split('\\n'); "
    "__import__(module); print(*[name for name in heavy if name in sys.modules])"
)


class ConformanceSuite:
    """Checks of one plugin. Each method whose name begins with ``test`` is a check.

    Attributes:
        kind: the name of the plugin's kind, a key of ``KINDS``.
        record: the record that the plugin registers. A subclass must set it.
    """

    kind: ClassVar[str]
    record: ClassVar[Any] = None

    @property
    def about(self) -> Kind:
        """The description of the plugin's kind."""
        return KINDS[self.kind]

    @property
    def where(self) -> str:
        """The plugin's kind and name, with which messages about failed checks begin."""
        return f"{self.about.noun} '{self.record.name}'"

    @classmethod
    def subjects(cls, pipeline: ResolvedPipeline) -> dict[str, Any]:
        """Take the values from a pipeline with which the plugin can be checked, such as a task.

        The result maps names of the suite's attributes to these values.

        Args:
            pipeline: a pipeline that uses the plugin.
        """
        del pipeline
        return {}

    def given(self, attribute: str, noun: str) -> Any:
        """The value of an attribute that subclasses of the suite may set, such as ``task``.

        Args:
            attribute: the name of the attribute.
            noun: a noun for its value, for the message if it is missing.

        Raises:
            unittest.SkipTest: the attribute is not set.
        """
        value = getattr(self, attribute)
        if value is None:
            raise unittest.SkipTest(
                f"it needs {noun}: set the suite's attribute '{attribute}', or name a pipeline "
                "that uses the plugin"
            )
        return value

    def test_record(self) -> None:
        """The plugin registers a complete record."""
        assert self.record is not None, (
            f"{type(self).__name__} does not say what it checks: set its attribute 'record' to "
            "what the plugin registers"
        )
        wrong = complaint(self.about, self.record)
        assert wrong is None, f"the plugin registers {wrong}"
        summary = self.record.summary.strip()
        assert summary, f"{self.where}: its summary is empty; say in one line what it does"


class StageSuite(ConformanceSuite):
    """Checks of a stage: a plugin that a pipeline names, with options.

    Attributes:
        options: options that differ from their defaults, as in a pipeline file.
    """

    record: ClassVar[PluginRecord | None] = None
    options: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def subjects(cls, pipeline: ResolvedPipeline) -> dict[str, Any]:
        for stage in pipeline.stages():
            if stage.kind == cls.kind and stage.record == cls.record:
                return {"options": stage.options_json}
        return {}

    @property
    def registered(self) -> PluginRecord:
        """The record that the plugin registers."""
        self.test_record()
        assert self.record is not None
        return self.record

    def made_options(self, **more: Any) -> Any:
        """Make the options with which the plugin is checked.

        Args:
            more: options in addition to those of the suite.

        Raises:
            AssertionError: the options cannot be made.
            unittest.SkipTest: an option without a default is missing.
        """
        kind, options = self.registered.options, {**self.options, **more}
        fields = [field for field in attrs.fields(kind) if field.init]
        needed = {field.alias for field in fields if field.default is attrs.NOTHING}
        if missing := ", ".join(map(repr, sorted(needed - options.keys()))):
            raise unittest.SkipTest(
                f"{missing} has no default: set the suite's attribute 'options', or name a "
                "pipeline that uses the plugin"
            )
        try:
            return read_options(options, kind, self.where)
        except ChameleonError as error:
            raise AssertionError(f"{self.where}: its options cannot be made: {error}") from error

    def make(self, context: Any = None, **options: Any) -> Any:
        """Make the plugin as a pipeline makes it.

        Args:
            context: the context, for kinds whose factories take one.
            options: options in addition to those of the suite.
        """
        return self.about.make_stage(self.registered, self.made_options(**options), context)

    def test_options(self) -> None:
        """The options are immutable, have help texts, and do not change when written as JSON."""
        options = self.made_options()
        kind = type(options)
        try:
            again = read_options(json.loads(json.dumps(to_json(options))), kind, self.where)
        except (TypeError, ValueError, ChameleonError) as error:
            raise AssertionError(
                f"{self.where}: its options cannot be written as JSON and read again, as worker "
                f"processes read them: {error}"
            ) from error
        for field in attrs.fields(kind):
            about, value = f"{self.where}: option '{field.alias}'", getattr(options, field.name)
            text = field.metadata.get("help")
            assert text, f'{about} has no help; add metadata={{"help": ...}}'
            # Reading makes paths absolute, and replaces names of stages by stages.
            read = {"path", "stages"} & field.metadata.keys() or getattr(again, field.name) == value
            assert read, f"{about} is another one after JSON"
            try:
                setattr(options, field.name, value)
            except attrs.exceptions.FrozenError:
                continue
            raise AssertionError(
                f"{self.where}: its options can be changed after a run has begun; make their class "
                "with @attrs.frozen(kw_only=True)"
            )

    def test_light_import(self) -> None:
        """The module of the options imports no library for learning, so commands start fast."""
        options = self.registered.options
        if options is NoOptions:
            return
        words = ["-c", _IMPORTED, "\n".join(sys.path), options.__module__, *HEAVY]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise unittest.SkipTest(f"{options.__module__} is no module that can be imported alone")
        heavy = done.stdout.strip()
        assert not heavy, (
            f"{self.where}: importing {options.__module__} imports {heavy}, which every command "
            "would wait for; import it where it is used"
        )


class TaskSuite(StageSuite):
    """Checks of a stage that need a task.

    Attributes:
        task: a task that the plugin supports. It should be small, because it may be computed.
    """

    task: ClassVar[Task | None] = None

    @classmethod
    def subjects(cls, pipeline: ResolvedPipeline) -> dict[str, Any]:
        source = TaskSource(pipeline)
        tasks = source.tasks(source.target())
        return {**super().subjects(pipeline), **({"task": tasks[0]} if tasks else {})}


@attrs.define(kw_only=True)
class Outcome:
    """The result of one check.

    Attributes:
        name: the name of the check's method, without ``test_``.
        sentence: a sentence that says what the check requires.
        failure: the message of the failure, or None if the check passed.
        skipped: the reason why the check was skipped, or None if it was not.
        error: the exception that caused a failure, or None.
    """

    name: str
    sentence: str
    failure: str | None = None
    skipped: str | None = None
    error: BaseException | None = None


def outcomes(suite: type[ConformanceSuite], attributes: Mapping[str, Any]) -> Iterator[Outcome]:
    """Run the checks of a suite, one after the other. Output of plugins goes to stderr.

    Args:
        suite: the suite of a kind, or a class that is derived from it.
        attributes: the values of the suite's attributes: ``record``, ``options``, ``task`` and
            others.

    Raises:
        ChameleonError: Python runs without assertions (``python -O``), so no check would work.
    """
    if not __debug__:
        raise ChameleonError("checks are assertions, which `python -O` leaves out")
    chosen = type(suite.__name__, (suite,), dict(attributes))
    # Checks run in the order of the source, those of base classes first.
    written = [name for kind in reversed(chosen.__mro__) for name in vars(kind)]
    for name in dict.fromkeys(name for name in written if name.startswith("test_")):
        check = getattr(chosen, name)
        sentence, _, _ = (inspect.getdoc(check) or name).partition("\n")
        outcome = Outcome(name=name.removeprefix("test_"), sentence=sentence)
        try:
            with contextlib.redirect_stdout(sys.stderr):
                check(chosen())
        except unittest.SkipTest as error:
            outcome.skipped = str(error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a plugin raises
            outcome.error, outcome.failure = error, _failure(error)
        yield outcome


def _failure(error: BaseException) -> str:
    """The message of a check's failure."""
    if isinstance(error, ChameleonError):
        return error.with_hint()
    if isinstance(error, AssertionError) and str(error):
        return str(error)
    return f"it raises {type(error).__name__}: {error}".rstrip(": ")
