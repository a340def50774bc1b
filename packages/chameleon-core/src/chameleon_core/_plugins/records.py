"""Immutable records that plugins register. Their import needs no numerical library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

API_VERSION = 1
"""The version of the contracts in ``chameleon_core._stages``. An incompatible change increases
it."""


@attrs.frozen(kw_only=True)
class PluginRecord:
    """One named implementation of a stage, as a plugin registers it.

    Some kinds have a record of their own with more fields, such as ``FrontendRecord``. If a plugin
    registers a ``PluginRecord`` instead, these fields have their defaults.

    Attributes:
        name: the name of the stage in a pipeline file.
        summary: a line about the stage for ``chameleon plugins``.
        options: the attrs class of the stage's options. Each field is an option, with its type and
            its default. ``metadata={"help": ...}`` documents it.
        factory: the class of the stage as ``"module:Class"``, imported only when the stage is made.
            A program may also give the class or a function itself. Search stages (explorer, cost
            model, sampler, synthesizer, scheduler) are made by ``Class(options, context)``, all
            others by ``Class(options)``.
        api_version: the version of the contracts (``API_VERSION``) that the stage was written for.
    """

    name: str
    summary: str
    factory: str | Callable[..., Any]
    options: type
    api_version: int = API_VERSION


@attrs.frozen(kw_only=True)
class FrontendRecord(PluginRecord):
    """A frontend.

    Attributes:
        precisions: the dtypes other than float32 that the frontend accepts in the section
            ``precision`` of a pipeline (``Frontend.compute_in``).
        detect: ``"module:function"`` that ``chameleon init`` calls with a pipeline's folder and a
            file's name relative to it. The function yields a preset for each model in the file;
            ``--model`` chooses a preset by its name. Empty for a frontend that reads no files.
        complete: ``"module:function"`` that checks a delivered network. Its argument is the
            network's folder, and it raises RuntimeError if a file is missing or damaged. Any other
            exception is a fault of the plugin, and counts for nothing. Empty if Chameleon only
            checks that the folder exists.
        unchanged: ``"module:function"`` that checks that the model of a delivered network has not
            changed since. Its argument is the network's folder, and it raises a ChameleonError if a
            file of the model has changed. Empty without such a check.
    """

    precisions: tuple[str, ...] = ()
    detect: str = ""
    complete: str = ""
    unchanged: str = ""


@attrs.frozen(kw_only=True)
class TargetRecord(PluginRecord):
    """A target resolver.

    Attributes:
        machine: ``"module:function"`` that describes for ``chameleon env`` what this machine's
            kernels are compiled for. A child process calls the function without arguments. It
            returns texts, or mappings of texts, by name. Empty without a description.
    """

    machine: str = ""


@attrs.frozen(kw_only=True)
class SpaceRecord(PluginRecord):
    """A space provider.

    Attributes:
        operators: the kinds of operators (``Task.operator``) that no other provider knows. A
            provider that chooses among providers, such as ``auto``, leaves such an operator to the
            provider that names it.
        listings: ``"module:function"`` that writes texts about the winners into the run folder when
            a run ends. Its arguments are the ``RunContext`` and the ``RunResult``. Empty for a
            space without listings.
    """

    operators: tuple[str, ...] = ()
    listings: str = ""


@attrs.frozen(kw_only=True)
class ExplorerRecord(PluginRecord):
    """An explorer.

    Attributes:
        needs_cost_model: whether the explorer proposes only random configurations without a cost
            model.
    """

    needs_cost_model: bool = False


@attrs.frozen(kw_only=True)
class CostModelRecord(PluginRecord):
    """A cost model.

    Attributes:
        predicts: False if the model never predicts anything.
    """

    predicts: bool = True


@attrs.frozen(kw_only=True)
class RunnerRecord(PluginRecord):
    """A runner.

    Attributes:
        operators: the only kinds of operators (``Task.operator``) that the runner can measure;
            empty if it has no such limit.
    """

    operators: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class RecordDatabaseRecord(PluginRecord):
    """A record database.

    Attributes:
        place_option: the option that a pipeline sets by writing only a path or URL. Empty if the
            pipeline must name the database.
    """

    place_option: str = ""


@attrs.frozen(kw_only=True)
class NoOptions:
    """The options class of a stage that has no options."""


def recorder(package: str) -> Callable[..., PluginRecord]:
    """Make a function that makes records of a package's plugins, for shorter lists of records.

    The function takes ``name``, ``summary``, ``factory`` without the package, and ``options``. Its
    keyword arguments are the class ``kind`` of the record and this class's own fields.

    Args:
        package: the import package of the plugins.
    """

    def record(
        name: str,
        summary: str,
        factory: str,
        options: type = NoOptions,
        kind: type[PluginRecord] = PluginRecord,
        **more: Any,
    ) -> PluginRecord:
        factory = f"{package}.{factory}"
        return kind(name=name, summary=summary, factory=factory, options=options, **more)

    return record


@attrs.frozen(kw_only=True)
class OperatorRecord:
    """One kind of tensor operator, as a plugin registers it.

    Attributes:
        summary: a line about the operator for ``chameleon plugins``.
        factory: the operator's class as ``"module:Class"``. It is imported only when a task is
            computed, and made by ``Class(task)``.
        arguments: the attrs class of the operator's arguments in a pipeline file. It has the
            operator's name as ``kind``, and a method ``task(name, target)``. None for operators
            that occur only in networks.
        name: the name of the operator in ``Task.operator`` and in pipeline files; by default
            ``arguments.kind``. The name must not change, because records of measurements contain
            it.
        api_version: the version of the contracts (``API_VERSION``) that the operator was written
            for.
        carries_code: whether the arguments of its tasks contain code: a program or the source of a
            function. Such tasks are read from other people's files only if the user trusts these
            files.
    """

    summary: str
    factory: str
    arguments: type | None = None
    name: str = attrs.field()
    api_version: int = API_VERSION
    carries_code: bool = False

    @name.default
    def _kind(self) -> str:
        return getattr(self.arguments, "kind", "")


@attrs.frozen(kw_only=True)
class TemplateRecord:
    """One template, a hand-written schedule whose open choices are knobs, as a plugin registers it.

    Attributes:
        name: the name of the template in a pipeline file.
        summary: a line about the template for ``chameleon plugins``.
        factory: the template's class as ``"module:Class"``. It is imported only when the template
            is used, and made by ``Class(task, options)``, with the options of the space.
        operators: the kinds of operators that the template can schedule.
        targets: the kinds of targets that the template can schedule for, such as ``llvm``.
        api_version: the version of the contracts (``API_VERSION``) that the template was written
            for.
    """

    name: str
    summary: str
    factory: str
    operators: tuple[str, ...]
    targets: tuple[str, ...]
    api_version: int = API_VERSION


@attrs.frozen(kw_only=True)
class InstructionRecord:
    """One machine instruction that templates multiply with, as a plugin registers it.

    Attributes:
        name: the name in assembly language, with a suffix if several instructions have this name.
            The name must not change, because measured configurations may contain it.
        summary: a line about the instruction for ``chameleon plugins``.
        factory: the instruction's class as ``"module:Class"``. It is imported only for targets that
            may have the instruction, and made by ``Class()``.
        architecture: the architecture of processors with this instruction, by Linux's name
            (``x86_64``, ``aarch64``), or a kind of target (``cuda``). Empty if every CPU has the
            instruction.
        features: the CPU features that the instruction needs, by LLVM's names, such as ``avx512f``;
            for a GPU, the first architecture with the instruction.
        api_version: the version of the contracts (``API_VERSION``) that the instruction was written
            for.
    """

    name: str
    summary: str
    factory: str
    architecture: str = ""
    features: tuple[str, ...] = ()
    api_version: int = API_VERSION


@attrs.frozen(kw_only=True)
class PresetRecord:
    """Keys of a pipeline under one name, as in the line ``preset: autotvm`` of a pipeline file.

    Attributes:
        name: the name of the preset in a pipeline file. ``default`` applies if a file names no
            preset.
        summary: a line about the preset for ``chameleon plugins``.
        pipeline: values by key of the pipeline. Keys in the user's pipeline file override these
            values.
        reasons: for each key, a sentence or two about the reason for its value, for ``chameleon
            init``.
    """

    name: str
    summary: str
    pipeline: Mapping[str, Any]
    reasons: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class SectionRecord:
    """A section of the pipeline file that a plugin adds.

    Attributes:
        name: the section's key in the pipeline file.
        summary: a line about the section for the reference.
        options: the class of the section's options: an attrs class and a subclass of ``Section``.
        measured: whether the measurements of a run may depend on the section.
    """

    name: str
    summary: str
    options: type[Section]
    measured: bool = True


class Section:
    """Base class for the options of a section that a plugin adds to the pipeline file.

    If a subclass has ``to_json`` and this method returns None, the section counts as absent.
    """

    def problems(self, node: Any, model: Any) -> Iterable[Any]:  # noqa: ARG002 - subclasses may use it
        """Check that this section suits the pipeline's model, and return the faults.

        An example of a fault is a dtype that the frontend does not support.

        Args:
            node: the section as the user wrote it, a ``pipeline.nodes.Node``.
            model: the frontend of the pipeline, a ``pipeline.schema.StageSpec``.

        Returns:
            The faults, each a ``PipelineError.Problem``.
        """
        return ()

    @classmethod
    def binding(cls, section: Any) -> Any:
        """The part of a section that measurements depend on, as JSON values.

        This part must stay the same in a run folder. It is empty if no measurement depends on the
        section.

        Args:
            section: the section in a pipeline's ``document``; None if the document has no such
                section.
        """
        return section


@attrs.frozen(kw_only=True)
class CommandRecord:
    """A command that a plugin adds to the command line.

    Attributes:
        name: the command's name.
        summary: a line about the command for ``chameleon --help``.
        factory: the click command as ``"module:function"``, imported only when the command is
            called.
    """

    name: str
    summary: str
    factory: str
