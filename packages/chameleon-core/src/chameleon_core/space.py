"""Design spaces, under a former name of their module; ``plugin_api`` has them all."""

from __future__ import annotations

from typing import Any

from chameleon_core import plugin_api


def __getattr__(name: str) -> Any:
    return getattr(plugin_api, name)
