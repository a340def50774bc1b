"""What the metadata of an option may say of it, beside ``help``; imports nothing."""

from __future__ import annotations

from types import MappingProxyType

BINDS = "binds"

NOT_BINDING = MappingProxyType({BINDS: False})
"""Metadata of an option that no measurement depends on, as a deadline or a tracker's address: a
run may be continued with another one. ``attrs.field(metadata={**NOT_BINDING, "help": ...})``."""

FORMER = "former"
"""Metadata of an option: its former name. Pipelines and run folders that have that one are read as
if they had today's. ``attrs.field(metadata={FORMER: "file", "help": ...})``."""
