"""A remote device behind TVM's RPC, used by one worker process at a time."""

from __future__ import annotations

import time
import weakref
from pathlib import Path
from typing import Any

from chameleon_core.plugin_api import Device, DeviceLostError, Kernel

from chameleon_runners._rpc import tracker
from chameleon_runners._rpc.addresses import Address
from chameleon_runners._rpc.connection import WrongKeyError
from chameleon_runners._rpc.options import RpcDeviceOptions
from chameleon_runners._rpc.session import RpcSession

_ANSWER_SECONDS = 5.0


class RpcDevice(Device):
    """A remote device that a tracker lends by its key, or that has a fixed address.

    After some time without work the session is closed, so that other clients can use the device.
    """

    def __init__(self, options: RpcDeviceOptions) -> None:
        self._options = options
        self._target = ""
        self._identity = ""
        self._session: RpcSession | None = None
        self._kernels: weakref.WeakSet[Kernel] = weakref.WeakSet()

    def connect(self, target: str) -> dict[str, Any]:
        self._release()
        self._target = target
        self._session, description = self._open()
        return description

    @property
    def identity(self) -> str:
        return self._identity

    def load(self, artifact: Path) -> Kernel:
        kernel = self._ready().load(artifact)
        self._kernels.add(kernel)
        return kernel

    def probe(self) -> None:
        session = self._ready()
        session.round_trip()
        session.try_out(self._target)

    def close(self) -> None:
        self._target = ""
        self._release()

    def _ready(self) -> RpcSession:
        """The session; a new one if it has ended or will end soon."""
        if not self._target:
            raise DeviceLostError("the device is used before it is connected to")
        session = self._session
        # Loaded kernels would be lost with their session.
        ending = session is not None and session.left < session.lifetime / 2 and not self._kernels
        if session is None or ending or not session.touch():
            self._release()
            session, _ = self._open()
            self._session = session
        return session

    def _open(self) -> tuple[RpcSession, dict[str, Any]]:
        options = self._options
        limit = time.monotonic() + options.connect_timeout
        address, key = self._request_address(options.connect_timeout)
        try:
            deadline = min(_ANSWER_SECONDS, limit - time.monotonic())
            lifetime = options.session_timeout
            session = RpcSession(address, key, lifetime=lifetime, deadline=deadline)
        except WrongKeyError as error:
            if options.tracker is None:
                raise
            # A key from a tracker is valid for one session. It is wrong if the server was
            # restarted.
            raise DeviceLostError(
                f"the server at {address} no longer accepts the key that its tracker granted",
                hint=error.hint,
            ) from error
        try:
            facts = session.prepare(
                self._target,
                index=options.device_index,
                threads=options.threads,
                cache_bytes=options.cache_bytes,
                cooldown=options.cooldown,
            )
        except BaseException:
            session.close()
            raise
        session.give_back_when_idle(options.idle_timeout)
        name = str(address)
        if options.tracker is not None:
            # The tracker may lend another server for each session.
            self._identity = "" if options.proxied else name
            name = f"{options.key}@{address}"
        return session, {"name": name, "address": str(address), **facts.to_json()}

    def _request_address(self, timeout: float) -> tuple[Address, str]:
        options = self._options
        if options.tracker is None:
            return Address.parse(options.address or ""), options.key
        grant = tracker.request(
            Address.parse(options.tracker),
            options.key,
            priority=options.priority,
            timeout=max(1.0, timeout - _ANSWER_SECONDS),
        )
        return grant.address, grant.key

    def _release(self) -> None:
        session, self._session = self._session, None
        self._kernels.clear()
        if session is not None:
            session.close()
