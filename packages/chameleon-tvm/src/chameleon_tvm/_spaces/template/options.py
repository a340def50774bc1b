"""Options of the space ``template``. This module is cheap to import, so checks stay fast."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import attrs
from attrs import validators

WINOGRAD_TILES: dict[str, int] = {"winograd2": 2, "winograd4": 4}
"""Winograd's algorithms by name, with the rows of their tiles of outputs."""

SPLIT_PARTS: dict[str, int] = {"split3": 2, "split6": 3}
"""Algorithms of float32 products by tiles of bfloat16, with the number of parts of a float32
number. Their names have the number of tile products."""

WEIGHT_DTYPES: dict[str, str] = {"bfloat16_weights": "bfloat16", "float16_weights": "float16"}
"""Algorithms of float32 products with 16-bit weights by name, with the dtype of the weights.
Reading the weights takes half as many bytes."""

MAX_ERROR: float | None = 1e-4
"""The default of ``max_error``: four times the error of F(4x4, 3x3) with 512 channels. This is a
tenth of the error of TF32, with which GPUs multiply by default."""

ALGORITHM = "algorithm"
"""Name of the knob for the algorithm, which is always the first knob."""

DIRECT = "direct"
"""Name of the direct algorithm, which every layer has. Its sums have only the usual rounding
errors."""


@attrs.frozen
class AlgorithmRow:
    """An algorithm, besides the direct one, that a layer may be computed with.

    Attributes:
        factory: The class, a subclass of ``Algorithm``, as ``module:Class``.
        parameters: The names by which users choose it, with a parameter of each. Empty if the
            algorithm has only the usual rounding errors: it is then always chosen from.
    """

    factory: str
    parameters: Mapping[str, int] = attrs.field(factory=dict)


_MODULES = "chameleon_tvm._spaces.template"
ALGORITHMS = (
    AlgorithmRow(f"{_MODULES}.tile_algorithm:TileAlgorithm"),
    AlgorithmRow(f"{_MODULES}.planar:PlanarAlgorithm"),
    AlgorithmRow(f"{_MODULES}.winograd:WinogradAlgorithm", WINOGRAD_TILES),
    AlgorithmRow(f"{_MODULES}.split_algorithm:SplitAlgorithm", SPLIT_PARTS),
)
"""The algorithms of convolutions and matrix products with constant weights, in the order of the
joint space."""

_BY_DEFAULT = (DIRECT, *(name for row in ALGORITHMS for name in row.parameters))
_NAMES = (*_BY_DEFAULT, *WEIGHT_DTYPES)

ROUNDING_RANKS = defaultdict(int, {**dict.fromkeys(_NAMES, 2), "split6": 1, DIRECT: 0})
"""Algorithms in the order of their rounding errors. Those of ``split6`` are at most a few times as
large as those of the direct algorithm."""

if TYPE_CHECKING:
    Algorithm = str
else:
    Algorithm = Literal[_NAMES]


def _distinct(_: object, attribute: Any, chosen: tuple[str, ...]) -> None:
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"{attribute.name} names an algorithm twice: {', '.join(chosen)}")


@attrs.frozen(kw_only=True, slots=False)  # a subclass has another base with slots
class TemplateOptions:
    """Options of the space ``template``.

    Attributes:
        algorithms: Algorithms to choose from. An algorithm is left out if ``max_error`` excludes
            it, or if it does not support the operator. For example, Winograd's algorithms need 3x3
            filters without strides, those with split numbers need AMX, and those with 16-bit
            weights need a dense layer. If none is left, the operator gets the direct algorithm.
        max_error: Largest expected error of an algorithm in float32, as largest |difference| over
            the largest |output|. In a network, the layer's own weights and inputs count, if large
            products cancel. None for no limit beyond the check of every kernel. ``direct`` is
            always allowed if it is named.
        templates: Names of templates that take precedence over this package's own, for the
            operators and targets that they support. Write ``distribution:name`` if two have the
            same name.
    """

    algorithms: tuple[Algorithm, ...] = attrs.field(
        default=_BY_DEFAULT,
        converter=tuple,
        validator=[
            validators.min_len(1),
            validators.deep_iterable(validators.in_(_NAMES)),
            _distinct,
        ],
        metadata={
            "help": "algorithms to choose from; convolutions: direct, winograd2, winograd4; "
            "with AMX: split3, split6; dense layers: bfloat16_weights, float16_weights"
        },
    )
    max_error: float | None = attrs.field(
        default=MAX_ERROR,
        validator=validators.optional(validators.gt(0.0)),
        metadata={"help": "largest relative error an algorithm may be expected to have"},
    )
    templates: tuple[str, ...] = attrs.field(
        default=(),
        converter=tuple,
        metadata={
            "help": "names of templates that go before the built-in ones",
            "names": "templates",
            # Run folders that were made before this option existed still match.
            "unwritten_default": True,
        },
    )
