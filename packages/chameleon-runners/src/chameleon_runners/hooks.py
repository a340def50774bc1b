"""Registers this package's runners and baselines; imports no numerical library."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugins import CommandRecord, NoOptions, PluginRecord, hookimpl

from chameleon_runners.baselines.records import BASELINES
from chameleon_runners.cuda.options import CudaOptions
from chameleon_runners.local.options import LocalOptions
from chameleon_runners.ray.options import RayOptions
from chameleon_runners.replay.options import ReplayOptions, TableOptions
from chameleon_runners.rpc.options import RpcOptions


@hookimpl
def chameleon_runners() -> Iterable[PluginRecord]:
    """The runners of this package."""
    return (
        PluginRecord(
            name="local",
            summary="Worker processes on this machine's CPU",
            factory="chameleon_runners.local.runner:LocalRunner",
            options=LocalOptions,
        ),
        PluginRecord(
            name="cuda",
            summary="The CUDA GPUs of this machine, each in a process of its own",
            factory="chameleon_runners.cuda.runner:CudaRunner",
            options=CudaOptions,
        ),
        PluginRecord(
            name="rpc",
            summary="Remote devices: boards and GPU servers behind TVM's RPC",
            factory="chameleon_runners.rpc.runner:RpcRunner",
            options=RpcOptions,
        ),
        PluginRecord(
            name="ray",
            summary="A Ray cluster: its CPUs build, its devices measure",
            factory="chameleon_runners.ray.runner:RayRunner",
            options=RayOptions,
        ),
        PluginRecord(
            name="replay",
            summary="Recorded tables instead of hardware, on a simulated clock",
            factory="chameleon_runners.replay.runner:ReplayRunner",
            options=ReplayOptions,
        ),
    )


@hookimpl
def chameleon_frontends() -> Iterable[PluginRecord]:
    """The frontends of this package."""
    return (
        PluginRecord(
            name="table",
            summary="Recorded tables: Kernel Tuner caches, T4 files, run folders",
            factory="chameleon_runners.replay.frontend:TableFrontend",
            options=TableOptions,
        ),
    )


@hookimpl
def chameleon_spaces() -> Iterable[PluginRecord]:
    """The design spaces of this package."""
    return (
        PluginRecord(
            name="table",
            summary="What a recorded table tried, a knob for each of its parameters",
            factory="chameleon_runners.replay.space:TableSpace",
            options=NoOptions,
            operators=("table",),
        ),
    )


@hookimpl
def chameleon_baselines() -> Iterable[PluginRecord]:
    """The baselines of this package."""
    return BASELINES


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """Commands about remote devices."""
    return (
        CommandRecord(
            name="devices",
            summary="Show the devices of an RPC tracker, and test them.",
            factory="chameleon_runners.commands.devices:command",
        ),
        CommandRecord(
            name="serve",
            summary="Serve this machine as devices: an RPC tracker and servers.",
            factory="chameleon_runners.commands.serve:command",
        ),
    )
