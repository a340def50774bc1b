"""The markers of hooks: pluggy finds what they mark."""

from __future__ import annotations

import pluggy

PROJECT = "chameleon"
"""The group of entry points, and how the name of each hook begins."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
