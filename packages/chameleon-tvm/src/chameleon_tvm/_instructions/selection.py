"""Choose the instructions that a target has and that multiply tensors of some dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import structlog
from chameleon_core.api import Registry
from chameleon_core.plugin_api import KINDS, InstructionRecord
from chameleon_system.api import request_permission

from chameleon_tvm._device.cpus.description import is_this_cpu
from chameleon_tvm._device.cpus.features import cpu_architecture, cpu_features
from chameleon_tvm._device.targets import target_info
from chameleon_tvm._instructions.base import Dot, Instruction
from chameleon_tvm._instructions.records import INSTRUCTIONS
from chameleon_tvm._instructions.tiles import TileProduct
from chameleon_tvm._types import INT7, INT8, STORAGE, UINT8

log = structlog.get_logger()

SHIFTS = {UINT8: 0, INT8: 128}
"""By dtype of an 8-bit copy of uint8 data: the number that is subtracted from the data. In copies
of wider dtypes, the zero point is subtracted."""


def dots_of(target: str, *, data: str, weights: str) -> Sequence[Dot]:
    """The dot-product instructions of a target that multiply tensors of two dtypes, fastest first.

    An operand of an instruction may be wider than the tensor's dtype; the template then converts
    the tensor's values. Instructions of other distributions are returned only if no instruction of
    this package fits. So installing a plugin changes no kernel of a target that this package
    supports.

    Args:
        data: Name of the dtype in which the input is stored.
        weights: Name of the dtype in which weights are stored.

    Returns:
        Dot products that support vectors of the target's size.

    Raises:
        PluginError: The instruction of another distribution cannot be imported.
    """
    size = target_info(target).vector_bytes
    features = cpu_features(target)

    def fits(dot: Instruction) -> bool:
        return (
            isinstance(dot, Dot)
            and _holds(dot, data, weights)
            and _exact(dot, weights)
            and size in dot.vectors
            and dot.needs(size) <= features
        )

    dots = _fitting(target, fits)
    return sorted(dots, key=lambda dot: -dot.lanes(size) * dot.depth / dot.cost)


def integer_dots_of(target: str, weights: str = INT8) -> Sequence[Dot]:
    """The target's dot-product instructions for 8-bit data, those for unsigned data first."""
    return [dot for data in SHIFTS for dot in dots_of(target, data=data, weights=weights)]


def tile_products_of(
    target: str, *, data: str, weights: str, plugins: bool = True
) -> Sequence[TileProduct]:
    """The target's tile products of tensors of two dtypes, fastest first.

    Instructions of other distributions are returned only if none of this package fits.
    """

    def fits(tile: Instruction) -> bool:
        known = isinstance(tile, TileProduct) and _holds(tile, data, weights)
        return known and _is_permitted(tile.permission, target)

    tiles = _fitting(target, fits, plugins=plugins)
    return sorted(tiles, key=lambda tile: -tile.rows * tile.columns * tile.depth / tile.cost)


def _fitting(
    target: str, fits: Callable[[Instruction], bool], *, plugins: bool = True
) -> list[Any]:
    """The fitting instructions of this package, or else those of other distributions."""
    for records in (package_records_of, plugin_records_of) if plugins else (package_records_of,):
        fitting = [*filter(fits, map(instruction_of, records(target)))]
        if fitting:
            return fitting
    return []


def narrow_weights_pay(target: str) -> bool:
    """Whether a target multiplies bytes by 7-bit weights faster than by 8-bit weights."""
    rates = [
        max((dot.depth / dot.cost for dot in integer_dots_of(target, weights)), default=0.0)
        for weights in (INT8, INT7)
    ]
    # Instructions for tiles accept both, and are faster than those for vectors.
    return rates[0] < rates[1] and not tile_products_of(target, data=UINT8, weights=INT8)


def package_records_of(target: str) -> Sequence[InstructionRecord]:
    """The plugin records of this package's instructions that a target has."""
    return _available(target, INSTRUCTIONS)


def plugin_records_of(target: str) -> Sequence[InstructionRecord]:
    """The plugin records of instructions that other distributions add and that a target has."""
    names = {record.name for record in INSTRUCTIONS}
    entries = Registry.default().entries("instructions")
    return _available(target, [entry.record for entry in entries if entry.name not in names])


def _available(target: str, records: Iterable[InstructionRecord]) -> Sequence[InstructionRecord]:
    architecture, features = cpu_architecture(target), cpu_features(target)
    return [
        record
        for record in records
        if record.architecture in {"", architecture} and features.issuperset(record.features)
    ]


@cache
def instruction_of(record: InstructionRecord) -> Instruction:
    """Make the object of the instruction that a plugin record describes.

    Raises:
        PluginError: The instruction's class cannot be imported, or making its object fails.
    """
    instruction: Instruction = KINDS["instructions"].make(record)
    return instruction


def permissions_for(target: str) -> frozenset[str]:
    """The permissions that a process must have to run all kernels that are built for a target."""
    return frozenset(name for name in _permissions_of(target) if _is_permitted(name, target))


def refused_permissions(target: str) -> dict[str, str]:
    """The permissions for a target's instructions that the system refuses, each with the reason."""
    reasons = {permission: request_permission(permission) for permission in _permissions_of(target)}
    return {permission: reason for permission, reason in reasons.items() if reason}


def _permissions_of(target: str) -> list[str]:
    """The permissions for all instructions of a target."""
    records = (*package_records_of(target), *plugin_records_of(target))
    return sorted({instruction_of(record).permission for record in records} - {""})


@cache
def _is_permitted(permission: str, target: str) -> bool:
    """Whether code for a target may use instructions that need an operating system's permission."""
    if not permission or not is_this_cpu(target):
        return True
    reason = request_permission(permission)
    if reason:
        log.warning("instructions_left_out", permission=permission, reason=reason)
    return not reason


def _exact(dot: Dot, weights: str) -> bool:
    """Whether a dot product adds up products of all weights of a storage type exactly."""
    return dot.largest_weight is None or STORAGE[weights].magnitude <= dot.largest_weight


def _holds(dot: Dot | TileProduct, data: str, weights: str) -> bool:
    """Whether an instruction's operands can hold the values of two tensors' storage types."""
    known = {data, weights} <= STORAGE.keys()
    return known and dot.data in STORAGE[data].operands and dot.weights in STORAGE[weights].operands
