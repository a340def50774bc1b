"""Registers this package's plugins; imports no numerical library."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugins import CommandRecord, PluginRecord, hookimpl

from chameleon_networks.importers.options import (
    REDUCED,
    BuiltinOptions,
    OnnxOptions,
    TorchOptions,
)

FRONTENDS = (
    PluginRecord(
        name="builtin",
        summary="The operators of a network written here, with random weights",
        factory="chameleon_networks.delivery.frontends:NetworksFrontend",
        options=BuiltinOptions,
        precisions=REDUCED,
    ),
    PluginRecord(
        name="torch",
        summary="The operators of a PyTorch module, or of a saved torch.export program",
        factory="chameleon_networks.delivery.frontends:NetworksFrontend",
        options=TorchOptions,
        precisions=REDUCED,
    ),
    PluginRecord(
        name="onnx",
        summary="The operators of a network in an ONNX file",
        factory="chameleon_networks.delivery.frontends:NetworksFrontend",
        options=OnnxOptions,
        precisions=REDUCED,
    ),
)


@hookimpl
def chameleon_frontends() -> Iterable[PluginRecord]:
    """The frontends of this package."""
    return FRONTENDS


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """Commands about networks and about what runs deliver."""
    yield CommandRecord(
        name="compile",
        summary="Compile and verify the network of a run, without tuning.",
        factory="chameleon_networks.commands.compile:command",
    )
    yield CommandRecord(
        name="bench-network",
        summary="Time a delivered network against whatever else runs it here.",
        factory="chameleon_networks.commands.bench_network:command",
    )
    yield CommandRecord(
        name="export",
        summary="Write a run's winners as libraries, as bundles for C, or for TVM alone.",
        factory="chameleon_networks.commands.export:command",
    )
