"""The kinds of things a plugin can register, and the hook each is registered through."""

from __future__ import annotations

import attrs

from chameleon_core.plugins.records import CommandRecord, PluginRecord, PresetRecord


@attrs.frozen(kw_only=True)
class Kind:
    """One kind of plugin.

    Attributes:
        name: the plural, as in ``chameleon plugins`` and ``chameleon_<name>``.
        noun: the singular, for sentences.
        record: the class of its records.
        takes_context: whether its factory is called with a context beside its options.
        contract: ``"module:Class"``, the abstract class whose methods it must have, or None.
        distribution: the first-party distribution that brings some, for install hints.
    """

    name: str
    noun: str
    record: type = PluginRecord
    takes_context: bool = False
    contract: str | None = None
    distribution: str

    @property
    def hook(self) -> str:
        """Name of the registration hook."""
        return f"chameleon_{self.name}"


_KINDS = (
    Kind(
        name="frontends",
        noun="frontend",
        contract="chameleon_core.stages:Frontend",
        distribution="chameleon-tuner-tvm",
    ),
    Kind(
        name="targets",
        noun="target resolver",
        contract="chameleon_core.stages:TargetResolver",
        distribution="chameleon-tuner-tvm",
    ),
    Kind(
        name="spaces",
        noun="space",
        contract="chameleon_core.stages:SpaceProvider",
        distribution="chameleon-tuner-tvm",
    ),
    Kind(
        name="explorers",
        noun="explorer",
        takes_context=True,
        contract="chameleon_core.stages:Explorer",
        distribution="chameleon-tuner-explorers",
    ),
    Kind(
        name="cost_models",
        noun="cost model",
        takes_context=True,
        contract="chameleon_core.stages:CostModel",
        distribution="chameleon-tuner-cost-models",
    ),
    Kind(
        name="samplers",
        noun="sampler",
        takes_context=True,
        contract="chameleon_core.stages:Sampler",
        distribution="chameleon-tuner-samplers",
    ),
    Kind(
        name="synthesizers",
        noun="synthesizer",
        takes_context=True,
        contract="chameleon_core.stages:Synthesizer",
        distribution="chameleon-tuner-samplers",
    ),
    Kind(
        name="runners",
        noun="runner",
        contract="chameleon_core.stages:Runner",
        distribution="chameleon-tuner-runners",
    ),
    Kind(
        name="baselines",
        noun="baseline",
        contract="chameleon_core.stages:Baseline",
        distribution="chameleon-tuner-tvm",
    ),
    Kind(
        name="rivals",
        noun="rival",
        contract="chameleon_core.stages:Rival",
        distribution="chameleon-tuner-tvm",
    ),
    Kind(
        name="schedulers",
        noun="scheduler",
        takes_context=True,
        distribution="chameleon-tuner-core",
    ),
    Kind(
        name="presets",
        noun="preset",
        record=PresetRecord,
        distribution="chameleon-tuner",
    ),
    Kind(
        name="commands",
        noun="command",
        record=CommandRecord,
        distribution="chameleon-tuner",
    ),
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS}
"""Every kind by its name, in the order of the flow."""

STAGE_KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS if kind.record is PluginRecord}
"""The kinds that are made with options and used in a pipeline."""
