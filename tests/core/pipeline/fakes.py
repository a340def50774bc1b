"""Small plugins that only register, for tests of what is registered."""

from typing import Any, Literal

import attrs
from chameleon_core._errors import ConfigError
from chameleon_core.api import Registry
from chameleon_core.plugin_api import NoOptions, PluginRecord, PresetRecord
from synthetic import plugin_of

HERE = "chameleon_core._errors:ChameleonError"


@attrs.frozen(kw_only=True)
class ConvSpec:
    channels: int
    stride: tuple[int, int] = (1, 1)

    def __attrs_post_init__(self):
        if self.channels % self.stride[0]:
            raise ConfigError("the channels do not fit", hint="Choose others.")


@attrs.frozen(kw_only=True)
class SourceSpec:
    label: str = ""
    source: str = attrs.field(metadata={"source": True})


@attrs.frozen(kw_only=True)
class OperatorsOptions:
    operators: tuple[Any, ...] = attrs.field(
        metadata={"tagged": {"conv2d": ConvSpec, "primfunc": SourceSpec}}
    )


@attrs.frozen(kw_only=True)
class OnnxOptions:
    path: str = attrs.field(metadata={"path": True})
    batch: int = 1


@attrs.frozen(kw_only=True)
class Schedule:
    start: float = 1.0
    end: float = 0.0


@attrs.frozen(kw_only=True)
class AnnealingOptions:
    chains: int = attrs.field(default=128, validator=attrs.validators.ge(1))
    clip_range: float = 0.3
    persistent: bool = True
    mode: Literal["reg", "rank"] = "reg"
    temperature: Schedule = attrs.field(factory=Schedule)
    sizes: list[int] = attrs.field(factory=list)
    limit: int | None = None
    weights: dict[str, float] = attrs.field(factory=dict)
    kind: str = attrs.field(default="slow", validator=attrs.validators.in_(("slow", "quick")))
    parts: int = attrs.field(default=1, validator=attrs.validators.in_((1, 2)))
    pause: float = attrs.field(default=0.0, metadata={"duration": True})


def record(name, options=NoOptions, kind=PluginRecord, **more):
    return kind(name=name, summary=f"The {name}.", factory=HERE, options=options, **more)


DEFAULT = {
    "space": "template",
    "explorer": {"name": "annealing", "chains": 64},
    "cost_model": "forest",
    "sampler": "greedy",
    "synthesizer": "none",
    "runner": "local",
    "scheduler": "round-robin",
    "baselines": ["untuned"],
    "budget": {"measurements": 100, "batch_size": 10},
}


HOT = {"explorer": {"name": "annealing", "clip_range": 0.1}, "budget": {"batch_size": 64}}
FAKES = {
    "frontends": [record("operators", OperatorsOptions), record("onnx", OnnxOptions)],
    "spaces": [record("template"), record("sketch")],
    "explorers": [record("annealing", AnnealingOptions), record("random")],
    "cost_models": [record("forest")],
    "samplers": [record("greedy")],
    "synthesizers": [record("none")],
    "runners": [record("local")],
    "baselines": [record("untuned"), record("vendor")],
    "schedulers": [record("round-robin")],
    "targets": [record("compiler")],
    "presets": [
        PresetRecord(name="default", summary="What applies.", pipeline=DEFAULT),
        PresetRecord(name="hot", summary="Hot.", pipeline=HOT),
    ],
}
"""The records of one plugin: one or two of every kind."""


def registry(*more):
    return Registry.from_plugins([("fakes", plugin_of(**FAKES)), *more])


EXTRA = plugin_of(explorers=[attrs.evolve(record("random"), summary="Another one.")])
"""A plugin with a second explorer called random."""
