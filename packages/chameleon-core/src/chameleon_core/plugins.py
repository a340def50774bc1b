"""Records and hooks of plugins, under a former name of the module; `plugin_api` has all."""

from __future__ import annotations

from typing import Any

from chameleon_core import plugin_api


def __getattr__(name: str) -> Any:
    return getattr(plugin_api, name)
