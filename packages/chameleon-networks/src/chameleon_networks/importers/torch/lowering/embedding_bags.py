"""Bags of embeddings: rows of a table summed, averaged or reduced to their largest, bag by bag."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from chameleon_networks.graph.relaxed import relax
from chameleon_networks.importers.torch.lowering.values import Converter, extents, given

_MEAN, _MAX = 1, 2
"""As torch numbers its modes; the other one is the sum."""


def _embedding_bag(node: Any, importer: Any) -> tuple[Any]:
    """``nn.EmbeddingBag``; of its results the first alone."""
    emit = importer.block_builder.emit
    weights, indices, offsets = (importer.env[one] for one in node.args[:3])
    factors = given(node, 6, "per_sample_weights")
    rows = emit(relax.op.take(weights, indices, 0))
    count, width = extents(rows)
    size = _equal_size(node)
    if size is None:
        inside = _inside(node, importer, indices, offsets)
        return (_of_any_size(node, importer, rows, inside),)
    bags = emit(relax.op.reshape(rows, [count // size, size, width]))
    if factors is not None:
        by_row = emit(relax.op.reshape(importer.env[factors], [count // size, size, 1]))
        bags = emit(relax.op.multiply(bags, by_row))
    mode = given(node, 4, "mode", 0)
    reduce = {_MEAN: relax.op.mean, _MAX: relax.op.max}.get(mode, relax.op.sum)
    return (emit(reduce(bags, [1])),)


def _equal_size(node: Any) -> int | None:
    """The size of all bags, where the program says it, as it does for a matrix of indices."""
    offsets = node.args[2]
    if offsets.target is not torch.ops.aten.arange.start_step or _padding(node) >= 0:
        return None
    start, end, size = (*offsets.args, 1)[:3]
    whole = start == 0 and end % size == 0 and end == node.args[1].meta["val"].shape[0]
    return int(size) if whole and not given(node, 7, "include_last_offset", False) else None


def _padding(node: Any) -> int:
    """The index that belongs to no bag, or -1."""
    return int(given(node, 8, "padding_idx", -1))


def _inside(node: Any, importer: Any, indices: Any, offsets: Any) -> Any:
    """Whether a row belongs to a bag, as (bags, rows)."""
    emit = importer.block_builder.emit
    [count] = extents(indices)
    [bags] = extents(offsets)
    kind = str(offsets.ty.dtype)
    if given(node, 7, "include_last_offset", False):
        bags -= 1
        begin, end = (
            emit(relax.op.strided_slice(offsets, [0], [place], [place + bags])) for place in (0, 1)
        )
    else:
        begin = offsets
        later = emit(relax.op.strided_slice(offsets, [0], [1], [bags]))
        end = emit(relax.op.concat([later, relax.const(np.array([count]), kind)], 0))
    places = relax.const(np.arange(count), kind)
    after = emit(relax.op.greater_equal(places, emit(relax.op.expand_dims(begin, 1))))
    before = emit(relax.op.less(places, emit(relax.op.expand_dims(end, 1))))
    inside = emit(relax.op.logical_and(after, before))
    padding = _padding(node)
    if padding < 0:
        return inside
    kept = emit(relax.op.not_equal(indices, relax.const(padding, str(indices.ty.dtype))))
    return emit(relax.op.logical_and(inside, kept))


def _of_any_size(node: Any, importer: Any, rows: Any, inside: Any) -> Any:
    """Bags told apart when the network runs; one without a row is zeros."""
    emit = importer.block_builder.emit
    kind = str(rows.ty.dtype)
    mode = given(node, 4, "mode", 0)
    member = emit(relax.op.astype(inside, kind))
    count = emit(relax.op.sum(member, [1], keepdims=True))
    if mode == _MAX:
        lowest = relax.const(np.finfo(kind).min, kind)
        found = emit(relax.op.where(emit(relax.op.expand_dims(inside, 2)), rows, lowest))
        largest = emit(relax.op.max(found, [1]))
        some = emit(relax.op.greater(count, relax.const(0.0, kind)))
        return emit(relax.op.where(some, largest, relax.const(0.0, kind)))
    factors = given(node, 6, "per_sample_weights")
    if factors is not None:
        member = emit(relax.op.multiply(member, importer.env[factors]))
    total = emit(relax.op.matmul(member, rows))
    if mode != _MEAN:
        return total
    return emit(relax.op.divide(total, emit(relax.op.maximum(count, relax.const(1.0, kind)))))


CONVERTERS: dict[str, Converter] = {"_embedding_bag.default": _embedding_bag}
"""Converters by the name of the operator."""
