"""Calibration: the ranges of a network's tensors, from inputs like those it will get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chameleon_core.stages import Arrays

from chameleon_tvm.precision.errors import Simulation
from chameleon_tvm.precision.ranges import Affine

if TYPE_CHECKING:
    from chameleon_tvm.frontends.networks import NetworkFrontend
    from chameleon_tvm.graph.chains import Chain


def calibrated(
    frontend: NetworkFrontend,
    module: Any,
    chains: Sequence[Chain],
    batches: Iterable[Arrays],
    *,
    target: str,
    threads: int,
) -> Mapping[str, Affine]:
    """The ranges of the tensors that chains may read in int8, by the tensors' names.

    Whoever needs errors as well keeps the ``Simulation``, which calibrates likewise.

    Args:
        frontend: the network's.
        module: its prepared module, in the layout that the frontend has chosen.
        chains: its chains.
        batches: inputs, one at a time; ``batches_of`` makes them of what a user names.
        target: the resolved target, of this machine.
        threads: that the network computes with.

    Raises:
        ConfigError: a batch is not what the network takes, or makes something in it infinite.
    """
    with Simulation(frontend, module, chains, target, threads) as simulation:
        return simulation.calibrated(batches)
