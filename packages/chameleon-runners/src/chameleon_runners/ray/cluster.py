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
from chameleon_core.errors import ChameleonError, TargetError
from chameleon_core.stages import StageRef
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from chameleon_runners.fleet.device_state import DeviceRef
from chameleon_runners.ray.host import Host
from chameleon_runners.ray.options import RayOptions

_log = structlog.get_logger()

_KNOCK_SECONDS = 3.0
_MIB = 1 << 20


class Cluster:
    """A connection to a Ray cluster. An existing connection of this process is reused.

    Args:
        options: The runner's options.

    Raises:
        TargetError: There is no cluster at the address, or it cannot be joined.
    """

    def __init__(self, options: RayOptions) -> None:
        self._options = options
        self._own = not ray.is_initialized()
        if self._own:
            _join(options)
        self._actor: Any = ray.remote(concurrency_groups={"control": 1})(Host)

    def device_refs(self) -> list[DeviceRef]:
        """List the devices of the cluster: on each node as many as its resources allow.

        Raises:
            ChameleonError: There is no device.
        """
        device_refs: list[DeviceRef] = []
        seen: Counter[str] = Counter()
        for node in self._nodes():
            for _ in range(self._devices_on(node["Resources"])):
                seen[node["NodeManagerAddress"]] += 1
                name = f"{node['NodeManagerAddress']}#{seen[node['NodeManagerAddress']]}"
                device_refs.append(self._device_ref(name, node["NodeID"]))
        if not device_refs:
            raise self._no_device()
        return device_refs[: self._options.devices]

    def _device_ref(self, name: str, node: str) -> DeviceRef:
        # The pool reads this and passes the stage's own options on.
        options = {"name": name, "node": node, "options": self._options.stage_options}
        return DeviceRef(name=name, device=StageRef(factory=self._options.device, options=options))

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

    def _devices_on(self, resources: dict[str, float]) -> int:
        needs = self._options.needs
        return min((int(resources.get(name, 0.0) / needs[name]) for name in needs), default=0)

    def _no_device(self) -> ChameleonError:
        needs = ", ".join(f"{amount:g} {name}" for name, amount in self._options.needs.items())
        total = {
            name: amount
            for name, amount in ray.cluster_resources().items()
            if ":" not in name and "memory" not in name
        }
        has = ", ".join(f"{amount:g} {name}" for name, amount in sorted(total.items()))
        return TargetError(
            f"no node of the Ray cluster has a device: one takes {needs or 'nothing'}, and all "
            f"nodes together have {has or 'nothing'}",
            hint="Start nodes with `ray start --num-gpus=N`, or declare what they measure on, "
            "as in `ray start --resources='{\"device\": 1}'`, and give the runner "
            "`resources: {device: 1}`.",
        )

    def builders(self) -> int:
        """The number of builders to start: one for each CPU that the devices leave.

        Raises:
            TargetError: The devices leave no CPU for builders.
        """
        total = ray.cluster_resources().get("CPU", 0.0)
        devices = len(self.device_refs())
        left = int(total - devices * self._options.cpus)
        if left < 1:
            raise TargetError(
                f"the cluster's {total:g} CPUs are all kept free for {devices} devices, and "
                "none is left to build",
                hint="Lower `cpus_per_device` or `devices` of the runner.",
            )
        return self._options.workers or left

    def start_builder(self) -> Any:
        """Start an actor that builds, on any node."""
        return self._start(threads=1, num_cpus=1, scheduling_strategy="SPREAD")

    def start_device(self, node: str) -> Any:
        """Start an actor that uses one device of a node alone."""
        options = self._options
        return self._start(
            threads=options.threads,
            num_cpus=options.cpus,
            num_gpus=options.gpus,
            resources=options.resources,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )

    def _start(self, *, threads: int, **resources: Any) -> Any:
        memory = self._options.memory_mib
        return self._actor.options(max_restarts=0, max_task_retries=0, **resources).remote(
            threads=threads,
            memory_bytes=memory and memory * _MIB,
            start_timeout=self._options.start_timeout,
        )

    @property
    def joined(self) -> bool:
        """Whether this process is connected to a Ray cluster."""
        return bool(ray.is_initialized())

    def close(self) -> None:
        """Leave the Ray cluster, and end the cluster if it was started for this run."""
        if self._own and self.joined:
            ray.shutdown()


def _join(options: RayOptions) -> None:
    address = options.address
    named = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    _knock(named)
    local = address == "local"
    # A cluster for the run alone has what the options call a device.
    declared = {n: amount * (options.devices or 1) for n, amount in options.resources.items()}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=address,
            include_dashboard=False if local else None,
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
        # What a signal means is the command line's to say.
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGTERM, handler)
    _log.info("ray_joined", address=address, nodes=len(ray.nodes()))


def _knock(address: str) -> None:
    """Check that a program listens at an address, since Ray would retry for a minute."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return
    hint = "`ray status --address host:port` tells whether one can be reached there."
    with TargetError.on_os_error(f"there is no Ray cluster at {address}", hint=hint):
        socket.create_connection((host, int(port)), timeout=_KNOCK_SECONDS).close()
