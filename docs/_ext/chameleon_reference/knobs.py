"""The page of spaces: the knobs that some operators have on some targets, with their values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
from chameleon_cli._space import describe_space
from chameleon_core._loop.start.tasks import TaskSource
from chameleon_core._pipeline.load import from_dict
from chameleon_core.plugin_api import DesignSpace

from chameleon_reference.markdown import cell, code, section, table

_SHOWN = 10
_SAMPLES = 2048

_CONVOLUTION = {"input": [1, 64, 56, 56], "filters": 64, "kernel": 3, "padding": 1}
_PRODUCT = {"dense": {"input": [64, 256], "units": 512}}
_HEADS = [1, 4, 64, 32]
_CPU, _TILES, _GPU = "llvm -mcpu=znver4", "llvm -mcpu=sapphirerapids", "nvidia/nvidia-h100"


@attrs.frozen(kw_only=True)
class Example:
    """An operator whose space is shown.

    Attributes:
        title: of its section.
        operator: as in a pipeline's list of operators.
        target: as after ``target:``.
        space: the space provider.
    """

    title: str
    operator: Mapping[str, Any]
    target: str
    space: str = "template"

    def made(self) -> DesignSpace:
        """Its design space."""
        pipeline = from_dict(
            {
                "model": {"operators": [dict(self.operator)]},
                "target": self.target,
                "space": self.space,
            }
        )
        source = TaskSource(pipeline)
        tasks = source.tasks(source.target())
        (space,) = source.spaces(tasks)
        return space


EXAMPLES = (
    Example(
        title="A convolution on a CPU",
        operator={"conv2d": {**_CONVOLUTION, "layout": "NHWC"}},
        target=_CPU,
    ),
    Example(
        title="A convolution in eight bits on a CPU with products of tiles",
        operator={"conv2d": {**_CONVOLUTION, "layout": "NHWC", "dtype": "int8"}},
        target=_TILES,
    ),
    Example(
        title="Attention on a CPU",
        operator={"attention": dict.fromkeys(("query", "key", "value"), _HEADS)},
        target=_CPU,
    ),
    Example(title="A convolution on a GPU", operator={"conv2d": _CONVOLUTION}, target=_GPU),
    Example(title="A matrix product on a GPU", operator=_PRODUCT, target=_GPU),
    Example(title="Sketches on a CPU", operator=_PRODUCT, target=_CPU, space="sketch"),
    Example(title="Sketches on a GPU", operator=_PRODUCT, target=_GPU, space="sketch"),
)
"""One of each kind of template, and sketches for each kind of target."""


def knobs_page() -> str:
    """All examples."""
    head = section(
        "Knobs of some operators",
        "The knobs of some example operators, as `chameleon space` prints them. "
        "[Knobs](../knobs.md) explains the names of the knobs.",
        level=1,
    )
    return "\n".join([head, *map(example_section, EXAMPLES)])


def example_section(example: Example) -> str:
    """The knobs of an example in a table."""
    facts = describe_space(example.made(), samples=_SAMPLES, guesses=0, seed=0)
    legal = facts["legal"]
    about = (
        f"For the target `{example.target}`, the space `{example.space}` of this operator has "
        f"{len(facts['knobs'])} knobs, {facts['first_guesses']} first guesses and "
        f"{facts['size']:.3g} configurations. In a sample of {legal['samples']} configurations, "
        f"{legal['share']:.1%} are legal."
    )
    rows = [[f"`{knob['name']}`", _values(knob["values"]), _when(knob)] for knob in facts["knobs"]]
    shown = f"```json\n{json.dumps(example.operator)}\n```"
    return section(example.title, shown, about, table(["knob", "values", "applies if"], rows))


def _values(values: list[Any]) -> str:
    words = [
        "x".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
        for value in values[:_SHOWN]
    ]
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return cell(", ".join(words) + more)


def _when(knob: Mapping[str, Any]) -> str:
    if knob["when"] is None:
        return ""
    return cell(f"{code(knob['when']['knob'])} is {' or '.join(map(str, knob['when']['values']))}")
