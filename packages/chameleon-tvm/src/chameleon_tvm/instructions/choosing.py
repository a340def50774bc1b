"""Which instructions a target has, and which of them multiply tensors of given types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache

import structlog
from chameleon_core.plugins import KINDS, InstructionRecord, default_registry
from chameleon_core.plugins.factory import make
from chameleon_system.permissions import refusal

from chameleon_tvm.device.cpus.description import is_this_cpu
from chameleon_tvm.device.cpus.features import architecture_of, target_features
from chameleon_tvm.device.targets import target_info, tvm_target
from chameleon_tvm.instructions.base import Dot, Instruction
from chameleon_tvm.instructions.records import INSTRUCTIONS
from chameleon_tvm.instructions.tiles import TileProduct
from chameleon_tvm.types import INT7, INT8, STORAGE, UINT8

log = structlog.get_logger()

SHIFTS = {UINT8: 0, INT8: 128}
"""What is taken from uint8 data in a copy of these types; zero points are taken from wider ones."""


def dots_of(target: str, *, data: str, weights: str) -> Sequence[Dot]:
    """The dot products that multiply tensors of two types on a target, fastest first.

    An operand may be wider than its tensor, whose values are converted then. If one of this
    package's own fits, those of other distributions are left out, and change no kernel of a target
    that is served already.

    Args:
        target: a canonical target of a CPU.
        data: storage type of the input.
        weights: that of the weights.

    Returns:
        Those for vectors of the target's size.

    Raises:
        PluginError: one of another distribution cannot be imported.
    """
    size = target_info(target).vector_bytes
    features = target_features(tvm_target(target))

    def fitting(records: Iterable[InstructionRecord]) -> list[Dot]:
        dots = [
            dot
            for dot in map(instruction_of, records)
            if isinstance(dot, Dot)
            and _holds(dot, data, weights)
            and _exact(dot, weights)
            and size in dot.vectors
            and dot.needs(size) <= features
        ]
        return sorted(dots, key=lambda dot: -dot.lanes(size) * dot.depth / dot.cost)

    return fitting(own_records_of(target)) or fitting(others_records_of(target))


def integer_dots_of(target: str, weights: str = INT8) -> Sequence[Dot]:
    """The dot products of data of eight bits that a target has, those of signed ones last.

    Args:
        target: as for ``dots_of``.
        weights: storage type of the weights.
    """
    return [dot for data in SHIFTS for dot in dots_of(target, data=data, weights=weights)]


def tile_products_of(target: str, *, data: str, weights: str) -> Sequence[TileProduct]:
    """The tile products that multiply tensors of two types on a target, fastest first.

    If the target is this machine's CPU, those that the system refuses to this process are left out,
    with a warning.

    Args:
        target: as for ``dots_of``, as below.
        data: storage type of the input.
        weights: that of the weights.
    """

    def fitting(records: Iterable[InstructionRecord]) -> list[TileProduct]:
        tiles = [
            tile
            for tile in map(instruction_of, records)
            if isinstance(tile, TileProduct)
            and _holds(tile, data, weights)
            and _permitted(tile.permission, target)
        ]
        return sorted(tiles, key=lambda tile: -tile.rows * tile.columns * tile.depth / tile.cost)

    return fitting(own_records_of(target)) or fitting(others_records_of(target))


def narrow_weights_pay(target: str) -> bool:
    """Whether a target multiplies bytes by weights of 7 bits faster than by those of 8.

    Args:
        target: a canonical target of a CPU.
    """
    rates = [
        max((dot.depth / dot.cost for dot in integer_dots_of(target, weights)), default=0.0)
        for weights in (INT8, INT7)
    ]
    # Tiles multiply either, and more than vectors.
    return rates[0] < rates[1] and not tile_products_of(target, data=UINT8, weights=INT8)


def own_records_of(target: str) -> Sequence[InstructionRecord]:
    """The instructions of this package that a target has.

    Args:
        target: a canonical one of a CPU.
    """
    return _had(target, INSTRUCTIONS)


def others_records_of(target: str) -> Sequence[InstructionRecord]:
    """The instructions of other distributions that a target has.

    Args:
        target: a canonical one of a CPU.
    """
    names = {record.name for record in INSTRUCTIONS}
    entries = default_registry().entries("instructions")
    return _had(target, [entry.record for entry in entries if entry.name not in names])


def _had(target: str, records: Iterable[InstructionRecord]) -> Sequence[InstructionRecord]:
    resolved = tvm_target(target)
    architecture, features = architecture_of(resolved), target_features(resolved)
    return [
        record
        for record in records
        if record.architecture in {"", architecture} and features.issuperset(record.features)
    ]


@cache
def instruction_of(record: InstructionRecord) -> Instruction:
    """The instruction that a record names.

    Raises:
        PluginError: it cannot be imported or made.
    """
    instruction: Instruction = make(KINDS["instructions"], record)
    return instruction


@cache
def _permitted(permission: str, target: str) -> bool:
    """Whether code for a target may use what the system has to be asked for."""
    if not permission or not is_this_cpu(tvm_target(target), json.loads(target)):
        return True
    refused = refusal(permission)
    if refused:
        log.warning("instructions_left_out", permission=permission, because=refused)
    return not refused


def _exact(dot: Dot, weights: str) -> bool:
    """Whether it adds up products of all weights of a type exactly."""
    return dot.largest_weight is None or STORAGE[weights].magnitude <= dot.largest_weight


def _holds(dot: Dot | TileProduct, data: str, weights: str) -> bool:
    """Whether the operands hold the values of the tensors."""
    known = {data, weights} <= STORAGE.keys()
    return known and dot.data in STORAGE[data].operands and dot.weights in STORAGE[weights].operands
