"""Addresses as users write them, such as ``host:port`` or ``[::1]:9190``."""

from __future__ import annotations

from typing import Self

import attrs
from chameleon_core.plugin_api import ConfigError

_LAST_PORT = 65535


@attrs.frozen(kw_only=True)
class Address:
    """The address of a tracker or a server of TVM's RPC."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an address such as ``host:9190``."""
        host, colon, port = text.strip().rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (colon and host and port.isdecimal() and 0 < int(port) <= _LAST_PORT):
            raise ConfigError(
                f"{text!r} is no address", hint="Write host:port, such as 127.0.0.1:9190."
            )
        return cls(host=host, port=int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
