"""Chameleon's runners, which build, check and time candidates in worker processes."""

from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.local.options import LocalOptions

__all__ = ["FleetOptions", "LocalOptions"]
