"""Chameleon's runners, which build, check and time candidates in worker processes."""

from chameleon_runners._fleet.options import FleetOptions
from chameleon_runners._local.options import LocalOptions

__all__ = ["FleetOptions", "LocalOptions"]
