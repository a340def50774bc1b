"""A Ray cluster: how the runner joins it, lists its devices and starts actors on it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections import Counter
from typing import Any

import ray
import structlog
from chameleon_core.plugin_api import ChameleonError, StageRef, TargetError
from chameleon_system.api import usable_cores
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from chameleon_runners._baselines.onednn import kind_of
from chameleon_runners._fleet.device_state import DeviceRef
from chameleon_runners._ray.actor import WorkerActor
from chameleon_runners._ray.options import RayOptions

_log = structlog.get_logger()

_CONNECT_SECONDS = 3.0
_MIB = 1 << 20


class Cluster:
    """A connection to a Ray cluster."""

    def __init__(self, options: RayOptions) -> None:
        self._options = options
        self._started_here = not ray.is_initialized()
        if self._started_here:
            _join(options)
        self._actor: Any = ray.remote(concurrency_groups={"control": 1})(WorkerActor)

    def device_refs(self, target: str | None = None) -> list[DeviceRef]:
        """The devices of the cluster: on each node as many as its resources allow.

        If the devices are CPUs, each machine has only one, since two would disturb each other's
        times.
        """
        nodes = self._nodes()
        choices = self._options.choices(for_cpus=kind_of(target) == "llvm")
        for options in choices:
            device_refs = _cpus(options, nodes) if options.local else _slots(options, nodes)
            if device_refs:
                return device_refs[: options.devices]
        raise _no_device(choices[-1])

    @staticmethod
    def _nodes() -> list[dict[str, Any]]:
        try:
            alive = [node for node in ray.nodes() if node["Alive"]]
        except Exception as error:
            raise TargetError(
                f"the Ray cluster does not answer: {error}",
                hint="See `ray status` on its head node.",
            ) from error
        return sorted(alive, key=lambda node: (node["NodeManagerAddress"], node["NodeID"]))

    def builders(self) -> int:
        """The number of builders to start: one for each CPU that the devices leave."""
        total = ray.cluster_resources().get("CPU", 0.0)
        devices = [ref.device.options["resources"] for ref in self.device_refs()]
        left = int(total - sum(resources["num_cpus"] for resources in devices))
        if left < 1:
            raise TargetError(
                f"the cluster's {total:g} CPUs are all kept free for {len(devices)} devices, and "
                "none is left to build",
                hint="Lower `cpus_per_device` or `devices` of the runner.",
            )
        return min(left, self._options.workers or left)

    def start_builder(self) -> Any:
        """Start an actor that builds, on any node."""
        return self._start(threads=1, num_cpus=1, scheduling_strategy="SPREAD")

    def start_device(self, node: str, resources: dict[str, Any]) -> Any:
        """Start an actor that alone uses one device of a node."""
        affinity = NodeAffinitySchedulingStrategy(node, soft=False)
        threads = self._options.threads
        return self._start(threads=threads, scheduling_strategy=affinity, **resources)

    def _start(self, *, threads: int, **resources: Any) -> Any:
        memory = self._options.memory_mib
        return self._actor.options(max_restarts=0, max_task_retries=0, **resources).remote(
            threads=threads,
            memory_bytes=memory and memory * _MIB,
            start_timeout=self._options.start_timeout,
        )

    @property
    def connected(self) -> bool:
        """Whether this process is connected to a Ray cluster."""
        return bool(ray.is_initialized())

    def close(self) -> None:
        """Leave the Ray cluster, and end it if it was started for this run."""
        if self._started_here and self.connected:
            ray.shutdown()


def _slots(options: RayOptions, nodes: list[dict[str, Any]]) -> list[DeviceRef]:
    """The devices of all nodes, on each as many as its resources allow."""
    device_refs: list[DeviceRef] = []
    seen: Counter[str] = Counter()
    for node in nodes:
        for _ in range(_devices_on(options, node)):
            seen[node["NodeManagerAddress"]] += 1
            name = f"{node['NodeManagerAddress']}#{seen[node['NodeManagerAddress']]}"
            device_refs.append(_device_ref(options, name, node["NodeID"]))
    return device_refs


def _cpus(options: RayOptions, nodes: list[dict[str, Any]]) -> list[DeviceRef]:
    """The CPUs of all machines but this one; this machine's CPU if there is no other."""
    able = {
        node["NodeManagerAddress"]: node["NodeID"] for node in nodes if _devices_on(options, node)
    }
    own = ray.get_runtime_context().get_node_id()
    here = {node["NodeManagerAddress"] for node in nodes if node["NodeID"] == own}
    names = sorted(able.keys() - here) or sorted(able)
    shared = options.cpus_per_device is None
    return [
        _device_ref(options, name, able[name], shared=shared, here=name in here) for name in names
    ]


def _device_ref(options: RayOptions, name: str, node: str, **about: bool) -> DeviceRef:
    cpus, gpus, others = options.cpus, options.gpus, options.resources
    resources = {"num_cpus": cpus, "num_gpus": gpus, "resources": others}
    factory, stage_options = options.stage
    # The pool passes only ``options`` to the stage.
    place = {"name": name, "node": node, "resources": resources, "options": stage_options}
    return DeviceRef(name=name, device=StageRef(factory=factory, options=place), **about)


def _devices_on(options: RayOptions, node: dict[str, Any]) -> int:
    needs, has = options.needs, node["Resources"]
    return min((int(has.get(name, 0.0) / needs[name]) for name in needs), default=0)


def _no_device(options: RayOptions) -> ChameleonError:
    needs = ", ".join(f"{amount:g} {name}" for name, amount in options.needs.items())
    total = {
        name: amount
        for name, amount in ray.cluster_resources().items()
        if ":" not in name and "memory" not in name
    }
    has = ", ".join(f"{amount:g} {name}" for name, amount in sorted(total.items()))
    return TargetError(
        f"no node of the Ray cluster has a device: one takes {needs or 'nothing'}, and all "
        f"nodes together have {has or 'nothing'}",
        hint="Lower `threads` of the runner."
        if options.local
        else "Start nodes with `ray start --num-gpus=N`, or declare what they measure on, "
        "as in `ray start --resources='{\"device\": 1}'`, and give the runner "
        "`resources: {device: 1}`; or measure on the nodes' CPUs with `device: local`.",
    )


def _join(options: RayOptions) -> None:
    address = options.address
    named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    _check_reachable(named)
    local = address == "local"
    # A new cluster for the run declares the resources of its devices.
    declared = {n: amount * (options.devices or 1) for n, amount in options.resources.items()}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=address,
            include_dashboard=False if local else None,
            num_cpus=len(usable_cores()) if local else None,
            resources=declared if local else None,
            configure_logging=False,
            log_to_driver=False,
            namespace="chameleon",
            runtime_env=options.runtime_env or None,
        )
    except Exception as error:
        where = "on this machine" if address in {"auto", "local"} else f"at {address}"
        raise TargetError(
            f"there is no Ray cluster to be joined {where}: {error}",
            hint="Start one with `ray start --head`, with the same versions of Ray and Python "
            "on all its nodes, and give the runner its `address: host:port`; or `address: local`.",
        ) from error
    finally:
        # Ray replaces the handler of the command line.
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGTERM, handler)
    _log.info("ray_joined", address=address, nodes=len(ray.nodes()))


def _check_reachable(address: str) -> None:
    """Check that a program listens at an address, since Ray would retry for a minute."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return
    hint = "`ray status --address host:port` tells whether one can be reached there."
    with TargetError.on_os_error(f"there is no Ray cluster at {address}", hint=hint):
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
