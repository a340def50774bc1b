"""The arguments of attention in a pipeline file, their checks, and the shapes that follow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import attrs
from chameleon_core.plugin_api import option

from chameleon_tvm._operators.spec import (
    TypedSpec,
    check_dtype,
    check_positive,
    converted_option,
    format_extents,
)
from chameleon_tvm._types import FLOAT32, HALVES

TOKENS_INSIDE = ("BHSD", "BSHD")
"""Layouts of batch (B), heads (H), tokens (S) and features (D): BHSD keeps heads apart. BSHD has
the heads of a token side by side, as projections write them."""
KEY_LAYOUTS = (*TOKENS_INSIDE, "BHDS")
"""Layouts of keys, which may also be stored transposed (BHDS)."""

_RANK = 4


_SHAPE = "as [batch, heads, tokens, features], whatever the layout"


@attrs.frozen(kw_only=True)
class AttentionSpec(TypedSpec):
    """``softmax(scale * query key^T + mask) value`` for every head (Vaswani et al. 2017, 3.2).

    If keys and values have fewer heads than queries, neighbouring query heads share a key and value
    head (grouped queries, Ainslie et al. 2023). If the mask hides all keys from a query, the
    output for this query is zero. Scores, their softmax, their sums and the mask are float32,
    whatever the dtype of queries, keys and values.

    Attributes:
        query: Shape of the queries (batch, heads, queries, features).
        key: Shape of the keys (batch, key heads, keys, features). The number of key heads divides
            the number of heads.
        value: Shape of the values (batch, key heads, keys, value features).
        scale: Factor of the products of queries and keys.
        causal: Whether query i sees only the keys 0 to i. Causal attention has no mask.
        mask: Shape of an input that is broadcast and added to the scaled products; empty if the
            operator has no mask.
        packed: Whether query, key and value are one array (batch, tokens, heads + 2 key heads,
            features), in the order query, key, value.
    """

    kind: ClassVar[str] = "attention"

    query: tuple[int, int, int, int] = converted_option(f"queries {_SHAPE}")
    key: tuple[int, int, int, int] = converted_option(f"keys {_SHAPE}")
    value: tuple[int, int, int, int] = converted_option(f"values {_SHAPE}")
    scale: float = converted_option(
        "factor of the products, usually one over the root of features",
        default=1.0,
        converter=float,
    )
    causal: bool = option(False, "whether query i sees keys 0 to i only")
    mask: tuple[int, ...] = converted_option(
        "shape of a mask that is broadcast and added to products; empty for none", default=()
    )
    query_layout: str = option("BHSD", " or ".join(TOKENS_INSIDE))
    key_layout: str = option("BHSD", " or ".join(KEY_LAYOUTS))
    value_layout: str = option("BHSD", " or ".join(TOKENS_INSIDE))
    output_layout: str = option("BHSD", " or ".join(TOKENS_INSIDE))
    packed: bool = option(
        False, "whether query, key and value are one array, heads after heads, in BSHD"
    )
    dtype: str = option(FLOAT32, f"dtype: float32, or {' or '.join(HALVES)} on CPUs")

    def __attrs_post_init__(self) -> None:
        check_dtype(self, self.dtype, (FLOAT32, *HALVES))
        super().__attrs_post_init__()
        for what in ("query", "key", "value"):
            shape = getattr(self, what)
            if len(shape) != _RANK:
                raise self.fail(
                    f"{what} needs 4 numbers", f"Write {what} as [batch, heads, tokens, features]."
                )
            check_positive(self, **{what: shape})
            known = KEY_LAYOUTS if what == "key" else TOKENS_INSIDE
            self._check_layout(f"{what}_layout", known)
        self._check_layout("output_layout", TOKENS_INSIDE)
        self._check_sizes()
        self._check_mask()
        if self.packed:
            self._check_packed()

    def _check_layout(self, name: str, known: Sequence[str]) -> None:
        if getattr(self, name) not in known:
            raise self.fail(
                f"{name} {getattr(self, name)!r} is not supported",
                f"Give one of {', '.join(known)}.",
            )

    def _check_sizes(self) -> None:
        batch, heads, _, features = self.query
        fits = (
            self.key[0] == batch
            and heads % self.key[1] == 0
            and self.key[3] == features
            and self.value[:3] == self.key[:3]
        )
        if not fits:
            raise self.fail(
                f"query {list(self.query)}, key {list(self.key)} and value {list(self.value)} "
                "do not fit together",
                "Batches are the same, heads of keys divide those of queries, keys have the "
                "queries' features, and values the keys' heads and tokens.",
            )

    def _check_mask(self) -> None:
        if self.mask and self.causal:
            raise self.fail(
                "causal attention cannot have a mask as well",
                "Hide later keys in the mask, and leave causal out.",
            )
        whole = self.scores
        if self.mask and (
            len(self.mask) != _RANK
            or any(size not in {1, extent} for size, extent in zip(self.mask, whole, strict=True))
        ):
            raise self.fail(
                f"a mask of {list(self.mask)} cannot be broadcast to {list(whole)}",
                "Write mask as [batch, heads, queries, keys], each 1 or that of the scores.",
            )

    def _check_packed(self) -> None:
        layouts = {self.query_layout, self.key_layout, self.value_layout}
        if layouts != {"BSHD"} or self.query[2] != self.key[2] or self.value[3] != self.key[3]:
            raise self.fail(
                "one array cannot hold query, key and value of these sizes and layouts",
                "Packed ones have the layout BSHD, as many queries as keys, and as many "
                "features of values as of keys.",
            )

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """Shape (batch, heads, queries, keys) of the products."""
        return (*self.query[:3], self.key[2])

    @property
    def group(self) -> int:
        """Number of heads of queries that share a head of keys."""
        return self.query[1] // self.key[1]

    @property
    def parts(self) -> tuple[tuple[str, tuple[int, int, int, int], str], ...]:
        """The array that holds the query, the key and the value: name, shape and layout of each.

        A shape is [batch, heads, tokens, features]. If query, key and value are packed, all three
        are in one array.
        """
        if self.packed:
            batch, heads, tokens, features = self.query
            return (("packed", (batch, heads + 2 * self.key[1], tokens, features), "BSHD"),) * 3
        return (
            ("query", self.query, self.query_layout),
            ("key", self.key, self.key_layout),
            ("value", self.value, self.value_layout),
        )

    @property
    def first_heads(self) -> tuple[int, int, int]:
        """The first head of query, key and value in their array."""
        heads, shared = self.query[1], self.key[1]
        return (0, heads, heads + shared) if self.packed else (0, 0, 0)

    @property
    def output(self) -> tuple[int, int, int, int]:
        """Logical shape (batch, heads, queries, value features) of the output."""
        return (*self.query[:3], self.value[3])

    @property
    def tensors(self) -> Sequence[Sequence[int]]:
        # Kernels do not store the scores.
        shapes = (self.query, self.key, self.value, self.output, self.mask)
        heads = self.query[1] + 2 * self.key[1]
        batch, _, tokens, features = self.query
        return (*shapes, (batch, tokens, heads, features)) if self.packed else shapes

    @property
    def sizes(self) -> str:
        batch = self.query[:1] if self.query[0] > 1 else ()
        heads = format_extents(self.query[1], self.query[3])
        return f"{heads} @{format_extents(*batch, self.query[2], self.key[2])}"

    @property
    def flop(self) -> float:
        batch, heads, queries, keys = self.scores
        seen = float(queries * keys)
        if self.causal:
            seen = float(sum(min(query + 1, keys) for query in range(queries)))
        return 2.0 * batch * heads * seen * (self.query[3] + self.value[3])


def ordered(shape: Sequence[int], layout: str) -> tuple[int, ...]:
    """Reorder a logical shape (batch, heads, tokens, features) to a layout."""
    return tuple(shape["BHSD".index(axis)] for axis in layout)
