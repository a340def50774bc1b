"""Frozen records that plugins register. Importing them imports no numerical library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

API_VERSION = 1
"""Raised when a contract in ``chameleon_core.stages`` changes incompatibly."""


@attrs.frozen(kw_only=True)
class PluginRecord:
    """One named implementation of a stage.

    Attributes:
        name: what the pipeline file calls it.
        summary: one line for ``chameleon plugins``.
        options: an attrs class; its fields are the options, their types are checked, their
            defaults are the defaults, ``metadata={"help": ...}`` documents them.
        factory: ``"module:Class"``, imported only when the stage is made. The class is called
            as ``Class(options, context)`` for search stages (explorer, cost model, sampler,
            synthesizer, scheduler) and as ``Class(options)`` for the others.
        api_version: the contract version it was written for.
        operators: of a space provider, the kinds of operators (``Task.operator``) that it alone
            knows. A provider that chooses among others, such as ``auto``, leaves them to it.
        precisions: of a frontend, the types beside float32 that it can have a network computed in,
            as a pipeline's ``precision`` names them; see ``Frontend.compute_in``.
        place_option: of a record database, the option that a path or URL alone sets in a pipeline;
            empty for one that has to be named.
        detect: of a frontend, ``"module:function"`` that `chameleon init` calls with a pipeline's
            folder and the name of a file, relative to it. It yields a preset for each model in the
            file, named as ``--model`` chooses it. Empty for a frontend that reads no files.
        listings: of a space provider, ``"module:function"`` that writes texts about the winners
            into the folder of a run that ends. Its arguments are the ``RunContext`` and
            ``RunResult``. Empty for a space whose builders have no listings.
        usage: of a frontend, a command or Python that uses the result of a run, whose folder it
            calls ``{folder}``.
    """

    name: str
    summary: str
    factory: str
    options: type
    api_version: int = API_VERSION
    operators: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    place_option: str = ""
    detect: str = ""
    listings: str = ""
    usage: str = ""


@attrs.frozen(kw_only=True)
class NoOptions:
    """The options class of a stage that has none."""


def recorder(package: str) -> Callable[..., PluginRecord]:
    """Makes records whose factories are named within an import package."""

    def record(
        name: str, summary: str, factory: str, options: type = NoOptions, **more: Any
    ) -> PluginRecord:
        factory = f"{package}.{factory}"
        return PluginRecord(name=name, summary=summary, factory=factory, options=options, **more)

    return record


@attrs.frozen(kw_only=True)
class OperatorRecord:
    """One kind of tensor operator.

    Attributes:
        summary: one line for ``chameleon plugins``.
        factory: ``"module:Class"``, imported only where a task is computed, and called as
            ``Class(task)``.
        arguments: an attrs class: what a pipeline file says of such an operator, with its name as
            ``kind`` and a method ``task(name, target)``. None for operators that only networks are
            made of.
        name: the kind, as ``Task.operator`` holds it and as a list of operators in a pipeline file
            names it; that of the arguments. Records of measurements hold it too: it stays what it
            is.
        api_version: the contract version it was written for.
        carries_code: whether arguments of its tasks are code, a program or the text of a function.
            Such tasks are read from files of strangers only if the user trusts these.
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
    """One hand-written schedule of operators, with its choices left open as knobs.

    Attributes:
        name: what the pipeline file calls it.
        summary: one line for ``chameleon plugins``.
        factory: ``"module:Class"``, imported only when the template is used, and called as
            ``Class(task, options)`` with the options of the space.
        operators: the kinds of operators it is for.
        targets: the kinds of targets it is for, such as ``llvm``.
        api_version: the contract version it was written for.
    """

    name: str
    summary: str
    factory: str
    operators: tuple[str, ...]
    targets: tuple[str, ...]
    api_version: int = API_VERSION


@attrs.frozen(kw_only=True)
class InstructionRecord:
    """One machine instruction that templates multiply with.

    Attributes:
        name: as assembly language calls it, or as it is told from others of that name. Measured
            configurations may hold it: it stays what it is.
        summary: one line for ``chameleon plugins``.
        factory: ``"module:Class"``, imported only for targets that may have it, and called without
            arguments.
        architecture: of the processors that have it, by Linux's name (``x86_64``, ``aarch64``), or
            a kind of target (``cuda``); empty if every CPU has it.
        features: what a target has to have, by LLVM's names; of a GPU the first architecture.
        api_version: the contract version it was written for.
    """

    name: str
    summary: str
    factory: str
    architecture: str = ""
    features: tuple[str, ...] = ()
    api_version: int = API_VERSION


@attrs.frozen(kw_only=True)
class PresetRecord:
    """Stages under one name, written as a pipeline file would: ``preset: autotvm``.

    Attributes:
        name: what the pipeline file calls it; ``default`` applies if none is named.
        summary: one line for ``chameleon plugins``.
        pipeline: pipeline keys to values; what the file itself says wins.
        reasons: why it has what it has, a sentence or two for each key, for `chameleon init`.
    """

    name: str
    summary: str
    pipeline: Mapping[str, Any]
    reasons: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class SectionRecord:
    """A section of the pipeline file that is not core's.

    Attributes:
        name: the section's key.
        summary: one line for the reference.
        options: an attrs class and a ``Section``, made of what stands in the section.
        measured: whether measurements of a run may depend on it.
    """

    name: str
    summary: str
    options: type[Section]
    measured: bool = True


class Section:
    """A section's class may say this of it; if it has ``to_json``, None is no section."""

    def problems(self, node: Any, model: Any) -> Iterable[Any]:  # noqa: ARG002 - optional
        """Its faults for a model.

        Args:
            node: the section as it was written, a ``pipeline.nodes.Node``.
            model: the frontend, a ``pipeline.schema.StageSpec``.

        Returns:
            Each ``pipeline.nodes.Problem``.
        """
        return ()

    @classmethod
    def binding(cls, section: Any) -> Any:
        """The part of a section that measurements depend on, as JSON; empty for nothing.

        Args:
            section: as a pipeline's ``document`` has it; None if it has none.
        """
        return section


@attrs.frozen(kw_only=True)
class CommandRecord:
    """A command added to the command line.

    Attributes:
        name: the command's name.
        summary: one line for ``chameleon --help``.
        factory: ``"module:function"``, a click command, imported only when called.
    """

    name: str
    summary: str
    factory: str
