"""Measuring on many devices at the same time: GPUs, remote boards or nodes of a cluster.

Builders export kernels to folders (artifacts), and device workers load and time them. One thread
gives work to all workers, and decides whether a candidate or its device caused a failure.
"""

from chameleon_runners._fleet.options import FleetOptions

__all__ = ["FleetOptions"]
