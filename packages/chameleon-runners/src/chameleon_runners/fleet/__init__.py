"""Measuring on many devices at once, whatever the devices are.

Builders export artifacts, device workers load and time them, one thread keeps all of them
busy and tells a bad candidate from a bad device.
"""

from chameleon_runners.fleet.options import FleetOptions

__all__ = ["FleetOptions"]
