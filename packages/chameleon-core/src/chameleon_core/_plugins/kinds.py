"""The kinds of plugins, as a table. Chameleon makes one registration hook for each kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from chameleon_core._errors import ChameleonError, PluginError
from chameleon_core._plugins import records
from chameleon_core._plugins.factory import hint_after, load_factory
from chameleon_core._plugins.first_party import CORE
from chameleon_core._plugins.hookspecs import PROJECT, hookspec

_WHOLE = "chameleon-tuner"
_TVM = "chameleon-tuner-tvm"
_TRANSFORMS = "chameleon-tuner-transforms"
_TVM_SUITES = "chameleon_tvm.testing.suites"


_IS_CLASS: Any = attrs.validators.instance_of(type)


@attrs.frozen(kw_only=True)
class Kind:
    """One kind of plugin, such as explorers or runners.

    Attributes:
        name: the name in the plural, as in ``chameleon plugins`` and ``chameleon_<name>``.
        summary: a sentence about the kind, for the reference.
        distribution: a distribution that has plugins of this kind, for install hints.
        contract: the abstract class whose methods a plugin must have, as ``"module:Class"``, or
            None.
        record: the class of the records that plugins register. For stages, it is a subclass of
            ``PluginRecord``, and plugins may also register a ``PluginRecord``.
        arguments: the names of the arguments of a plugin's factory.
        unique: whether only one distribution may use a name, because records of measurements
            contain the name. If several distributions register a name, it belongs to
            ``distribution``.
        noun: the name in the singular, for messages.
        conformance: the test suite for plugins of this kind, as ``"module:Class"``. The default is
            the suite of ``chameleon_testing`` that is named after ``noun``.
    """

    name: str = attrs.field(validator=attrs.validators.matches_re(r"[a-z_]+"))
    summary: str
    distribution: str
    contract: str | None = None
    record: type = attrs.field(default=records.PluginRecord, validator=_IS_CLASS)
    arguments: tuple[str, ...] = ("options",)
    unique: bool = False
    noun: str = attrs.field()
    conformance: str = attrs.field()

    @noun.default
    def _singular(self) -> str:
        return self.name.replace("_", " ").removesuffix("s")

    @conformance.default
    def _suite(self) -> str:
        return f"chameleon_testing.suites:{self.noun.title().replace(' ', '')}Suite"

    @property
    def hook(self) -> str:
        """Name of the registration hook."""
        return f"{PROJECT}_{self.name}"

    @property
    def takes_context(self) -> bool:
        """Whether a plugin's factory takes a context in addition to options."""
        return "context" in self.arguments

    def make_stage(self, record: records.PluginRecord, options: Any, context: Any = None) -> Any:
        """Import and make a stage of a pipeline. Raises the same errors as ``make``.

        Args:
            record: the record that the plugin registered.
            options: an instance of ``record.options``.
            context: the second argument of the factory, for kinds that take a context.
        """
        return self.make(record, *((options, context) if self.takes_context else (options,)))

    def make(
        self,
        record: records.PluginRecord
        | records.OperatorRecord
        | records.TemplateRecord
        | records.InstructionRecord,
        *arguments: Any,
    ) -> Any:
        """Import a plugin's class, make an object, and check that it has the contract's methods.

        Args:
            record: the record that the plugin registered.
            arguments: the arguments of the factory.

        Raises:
            PluginError: the class cannot be imported, its constructor fails, or the object lacks a
                method.
            ChameleonError: the constructor raised a ``ChameleonError``, which is passed on.
        """
        factory = load_factory(record.factory)
        try:
            stage = factory(*arguments)
        except ChameleonError:
            raise
        except (Exception, SystemExit) as error:
            raise PluginError(
                f"{self.noun} '{record.name}' cannot be made: {type(error).__name__}: {error}",
                hint=f"{record.factory!r} raised this; {hint_after(error)}",
            ) from error
        if missing := self._missing_methods(stage):
            raise PluginError(
                f"{self.noun} '{record.name}' lacks {', '.join(map(repr, missing))}",
                hint=f"{record.factory!r} must have every method of {self.contract}",
            )
        return stage

    def _missing_methods(self, stage: Any) -> list[str]:
        if self.contract is None:
            return []
        contract = load_factory(self.contract)
        names: frozenset[str] = getattr(contract, "__abstractmethods__", frozenset())
        return sorted(name for name in names if not hasattr(stage, name))


def _stage(name: str, summary: str, part: str, **more: Any) -> Kind:
    """A kind whose contract is in ``plugin_api``, by default the class with its noun."""
    kind = Kind(name=name, summary=summary, distribution=f"{_WHOLE}-{part}", **more)
    contract = f"chameleon_core.plugin_api:{kind.noun.title().replace(' ', '')}"
    return kind if kind.contract else attrs.evolve(kind, contract=contract)


def _search(name: str, summary: str, part: str, **more: Any) -> Kind:
    return _stage(name, summary, part, arguments=("options", "context"), **more)


_ROWS = (
    _stage(
        "frontends",
        "Frontends turn the section ``model`` into tasks.",
        "networks",
        record=records.FrontendRecord,
    ),
    Kind(
        name="operators",
        summary="Operators are the kinds of tensor operators, made computable.",
        contract="chameleon_tvm.api:Operator",
        distribution=_TVM,
        conformance=f"{_TVM_SUITES}:OperatorSuite",
        record=records.OperatorRecord,
        arguments=("task",),
        unique=True,
    ),
    _stage(
        "targets",
        "Target resolvers read the text that a user writes after ``target``.",
        "tvm",
        noun="target resolver",
        record=records.TargetRecord,
        conformance="chameleon_testing.suites:TargetSuite",
    ),
    _stage(
        "spaces",
        "Space providers give a task its design space and builder.",
        "tvm",
        contract="chameleon_core.plugin_api:SpaceProvider",
        record=records.SpaceRecord,
    ),
    Kind(
        name="templates",
        summary="Templates are hand-written schedules of operators, with knobs.",
        contract="chameleon_tvm.api:Template",
        distribution=_TVM,
        conformance=f"{_TVM_SUITES}:TemplateSuite",
        record=records.TemplateRecord,
        arguments=("task", "options"),
    ),
    Kind(
        name="instructions",
        summary="Instructions are machine instructions that templates multiply with.",
        contract="chameleon_tvm.api:Instruction",
        distribution=_TVM,
        conformance=f"{_TVM_SUITES}:InstructionSuite",
        record=records.InstructionRecord,
        arguments=(),
        unique=True,
    ),
    Kind(
        name="transforms",
        summary="Transforms change the loop nests of a convolution.",
        contract="chameleon_transforms.api:Transform",
        distribution=_TRANSFORMS,
        conformance="chameleon_transforms.testing:TransformSuite",
    ),
    Kind(
        name="network_scores",
        summary="Scores tell, without training, how well a network may learn.",
        contract="chameleon_transforms.api:NetworkScore",
        distribution=_TRANSFORMS,
        conformance="chameleon_transforms.testing:NetworkScoreSuite",
    ),
    _search(
        "explorers", "Explorers walk a design space.", "explorers", record=records.ExplorerRecord
    ),
    _search(
        "cost_models",
        "Cost models predict which configurations are fast.",
        "cost-models",
        record=records.CostModelRecord,
    ),
    _search("samplers", "Samplers keep few of the candidates.", "samplers"),
    _search(
        "synthesizers", "Synthesizers replace candidates that need not be measured.", "samplers"
    ),
    _stage("runners", "Runners build, check and time.", "runners", record=records.RunnerRecord),
    _stage("baselines", "Baselines are kernels that a user would run instead.", "tvm"),
    _stage("rivals", "Rivals are other tuners, for ``chameleon bench``.", "tvm"),
    _search(
        "schedulers",
        "Schedulers decide which task gets the next batch.",
        "core",
        contract="chameleon_core.plugin_api:Scheduler",
    ),
    _stage(
        "record_databases",
        "Record databases keep measurements beside the runs.",
        "records",
        record=records.RecordDatabaseRecord,
    ),
    Kind(
        name="presets",
        summary="Presets are stages of a pipeline under a name.",
        distribution=_WHOLE,
        record=records.PresetRecord,
        arguments=(),
    ),
    Kind(
        name="commands",
        summary="Commands of the command line are made with click.",
        distribution=_WHOLE,
        record=records.CommandRecord,
        arguments=(),
    ),
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in _ROWS}
"""All kinds by name, in the order in which a run uses them."""

STAGE_KINDS: dict[str, Kind] = {
    name: kind for name, kind in KINDS.items() if issubclass(kind.record, records.PluginRecord)
}
"""The kinds of stages: plugins with options that a pipeline names."""

STAGES: dict[str, str] = {
    "space": "spaces",
    "explorer": "explorers",
    "cost_model": "cost_models",
    "sampler": "samplers",
    "synthesizer": "synthesizers",
    "runner": "runners",
    "scheduler": "schedulers",
}
"""The pipeline keys of stages, and for each the kind of plugin that it names."""

KIND_OF_KINDS = Kind(
    name="kinds",
    noun="kind of plugin",
    summary="Kinds of plugins that a distribution brings beside these.",
    distribution=CORE,
    conformance="",
    record=Kind,
    arguments=(),
)
"""The kind for the hook ``chameleon_kinds``, which yields further kinds of plugins."""

KIND_OF_SECTIONS = attrs.evolve(
    KIND_OF_KINDS,
    name="sections",
    noun="section",
    summary="Sections of the pipeline file that a distribution brings.",
    record=records.SectionRecord,
)
"""The kind for the hook ``chameleon_sections``. Pipelines do not choose among sections, so the
table does not have it."""


def hook_specs(kinds: Iterable[Kind]) -> type:
    """Make the class whose methods are the registration hooks of all kinds, for pluggy.

    Args:
        kinds: the kinds of plugins.
    """
    return type("RegistrationHooks", (), {kind.hook: _hook_spec(kind) for kind in kinds})


def _hook_spec(kind: Kind) -> Any:
    def registers() -> Iterable[Any]:
        return ()

    registers.__name__ = registers.__qualname__ = kind.hook
    registers.__doc__ = kind.summary
    return hookspec(registers)
