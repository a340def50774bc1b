"""The runner ``rpc``: a fleet of remote devices behind TVM's RPC."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import attrs
from chameleon_core.plugin_api import ConfigError, DeviceLostError, StageRef, TargetError

from chameleon_runners._fleet.device_state import DeviceRef
from chameleon_runners._fleet.runner import FleetRunner
from chameleon_runners._rpc.addresses import Address
from chameleon_runners._rpc.options import RpcDeviceOptions, RpcOptions
from chameleon_runners._rpc.tracker import Queue, queues

FACTORY = "chameleon_runners._rpc.device:RpcDevice"

_FIRST_ANSWER_SECONDS = 5.0
_ANSWER_SECONDS = 0.9
_FORGET_SECONDS = 60.0
"""Seconds for which a vanished server still counts, since a restarted one is missing briefly."""

_COPIED_OPTIONS = (
    "device_index",
    "threads",
    "priority",
    "session_timeout",
    "idle_timeout",
    "cooldown",
)
"""Options that a device takes over from its runner."""

_GRACE = 0.8
"""The device's share of the runner's ``connect_timeout``, so that the worker can still report."""


def device_refs_of(options: RpcOptions) -> Callable[[], Sequence[DeviceRef]]:
    """A function that lists the remote devices that the runner's options name."""
    if options.session_timeout < options.run_timeout:
        raise ConfigError(
            f"a session of {options.session_timeout:g} s ends before a candidate may take "
            f"{options.run_timeout:g} s",
            hint="Give a `session_timeout` of at least twice the `run_timeout`.",
        )
    if options.tracker is not None and options.addresses:
        raise ConfigError(
            "the runner 'rpc' has both a tracker and addresses",
            hint="Give `tracker:` and `key:`, or `address:`.",
        )
    if options.tracker is not None:
        if not options.key:
            raise ConfigError(
                "the runner 'rpc' has a tracker and no key",
                hint=f"`chameleon devices --tracker {options.tracker}` lists its keys.",
            )
        return TrackerDevices(options)
    if not options.addresses:
        raise ConfigError(
            "the runner 'rpc' has neither a tracker nor an address",
            hint="Give `tracker: host:port` and `key:`, or `address: host:port`; "
            "`chameleon serve` starts one and prints these lines.",
        )
    listed = [_device_at(options, Address.parse(text)) for text in options.addresses]
    chosen = listed[: options.devices]
    return lambda: chosen


class TrackerDevices:
    """Lists as many devices as the tracker has servers of a key, busy servers included."""

    def __init__(self, options: RpcOptions) -> None:
        self._options = options
        self._tracker = Address.parse(options.tracker or "")
        self._key = options.key or ""
        self._proxied = False
        self._seen: list[tuple[float, int]] = []

    def __call__(self) -> list[DeviceRef]:
        """The devices that exist now."""
        first = not self._seen
        known = queues(self._tracker, timeout=_FIRST_ANSWER_SECONDS if first else _ANSWER_SECONDS)
        mine = [queue for queue in known if queue.key == self._key]
        count = sum(queue.devices for queue in mine)
        self._proxied |= any(queue.proxied for queue in mine)
        if first and count == 0:
            raise self._unknown(known)
        now = time.monotonic()
        self._seen = [(when, n) for when, n in self._seen if now - when < _FORGET_SECONDS]
        self._seen.append((now, count))
        most = max(n for _, n in self._seen)
        return [self._device_ref(number) for number in range(1, most + 1)][: self._options.devices]

    def _device_ref(self, number: int) -> DeviceRef:
        device = RpcDeviceOptions(tracker=str(self._tracker), key=self._key, proxied=self._proxied)
        return DeviceRef(name=f"{self._key}#{number}", device=_reference(self._options, device))

    def _unknown(self, known: Sequence[Queue]) -> DeviceLostError | TargetError:
        others = sorted(queue.key for queue in known if queue.servers)
        if others:
            return TargetError(
                f"the tracker at {self._tracker} has no device of the key {self._key!r}",
                hint=f"It has {', '.join(others)}.",
            )
        return DeviceLostError(
            f"the tracker at {self._tracker} has no device at all",
            hint="Start servers that register there: `python -m tvm.exec.rpc_server --tracker "
            f"{self._tracker} --key {self._key}`.",
        )


def _device_at(options: RpcOptions, address: Address) -> DeviceRef:
    device = RpcDeviceOptions(address=str(address), key=options.key or "")
    return DeviceRef(name=str(address), device=_reference(options, device))


def _reference(options: RpcOptions, device: RpcDeviceOptions) -> StageRef:
    complete = attrs.evolve(
        device,
        **{name: getattr(options, name) for name in _COPIED_OPTIONS},
        connect_timeout=_GRACE * options.connect_timeout,
        cache_bytes=options.cache_mib << 20,
    )
    return StageRef(factory=FACTORY, options=attrs.asdict(complete))


class RpcRunner(FleetRunner):
    """Builds candidates on this machine, uploads them to remote devices, and measures there."""

    def __init__(self, options: RpcOptions) -> None:
        super().__init__(options, device_refs_of(options), kind="rpc")
