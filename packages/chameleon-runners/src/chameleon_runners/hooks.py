"""Registers this package's runners and baselines. This module imports no numerical library."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugin_api import (
    CommandRecord,
    PluginRecord,
    RunnerRecord,
    SpaceRecord,
    hookimpl,
    recorder,
)

from chameleon_runners._cuda.options import CudaOptions
from chameleon_runners._local.options import LocalOptions
from chameleon_runners._ray.options import RayOptions
from chameleon_runners._replay.options import ReplayOptions, TableOptions
from chameleon_runners._rpc.options import RpcOptions

_record = recorder("chameleon_runners")


@hookimpl
def chameleon_runners() -> Iterable[PluginRecord]:
    """The runners of this package."""
    local = "Worker processes on this machine's CPU"
    cuda = "The CUDA GPUs of this machine, each in a process of its own"
    rpc = "Remote devices: boards and GPU servers behind TVM's RPC"
    ray = "A Ray cluster: its CPUs build, its devices measure"
    replay = "Recorded tables instead of hardware, on a simulated clock"
    yield _record("local", local, "_local.runner:LocalRunner", LocalOptions)
    yield _record("cuda", cuda, "_cuda.runner:CudaRunner", CudaOptions)
    yield _record("rpc", rpc, "_rpc.runner:RpcRunner", RpcOptions)
    yield _record("ray", ray, "_ray.runner:RayRunner", RayOptions)
    factory = "_replay.stages:ReplayRunner"
    yield _record("replay", replay, factory, ReplayOptions, RunnerRecord, operators=("table",))


@hookimpl
def chameleon_frontends() -> Iterable[PluginRecord]:
    """The frontends of this package."""
    summary = "Recorded tables: Kernel Tuner caches, T4 files, run folders"
    yield _record("table", summary, "_replay.stages:TableFrontend", TableOptions)


@hookimpl
def chameleon_spaces() -> Iterable[PluginRecord]:
    """The design spaces of this package."""
    summary = "The configurations of a recorded table, with a knob for each parameter"
    yield _record(
        "table", summary, "_replay.stages:TableSpace", kind=SpaceRecord, operators=("table",)
    )


@hookimpl
def chameleon_baselines() -> Iterable[PluginRecord]:
    """Register this package's baselines: vendors' libraries that users would otherwise call."""
    onednn = "oneDNN through PyTorch, the best of its layouts, weights prepacked"
    cudnn = "cuDNN and cuBLAS through PyTorch, the best of its layouts, TF32 off"
    yield _record("onednn", onednn, "_baselines.onednn:OneDNNBaseline")
    yield _record("cudnn", cudnn, "_cuda.cudnn:CudnnBaseline")


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """Commands about remote devices."""
    devices = "Show the devices of an RPC tracker, and test them."
    serve = "Run an RPC tracker and servers, to lend this machine as devices."
    folder = "chameleon_runners._commands"
    yield CommandRecord(name="devices", summary=devices, factory=f"{folder}.devices:command")
    yield CommandRecord(name="serve", summary=serve, factory=f"{folder}.serve:command")
