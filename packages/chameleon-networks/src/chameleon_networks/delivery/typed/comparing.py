"""What frameworks are calibrated with, and what their errors are measured on: the same as ours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chameleon_networks.delivery.reduced_rivals import ReducedRequest
from chameleon_networks.frameworks.reduced import asked_for
from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.quantize.batches import KEPT, batches_of
from chameleon_networks.running.samples import Sample
from chameleon_networks.running.verify import Run


def reduced_request(
    network: ImportedNetwork, precisions: Sequence[str], source: str | None, run: Run
) -> ReducedRequest:
    """How a network is compared with whatever else runs it in some precisions.

    Args:
        network: as its framework has it.
        precisions: each one of ``importers.options.PRECISIONS``.
        source: of inputs to calibrate with, as for ``batches_of``.
        run: the reference in float32.

    Raises:
        ChameleonError: there are no such inputs, they are not what the network takes, or the
            reference fails.
    """
    calibrated = any(one.calibrated for one in asked_for(network.forms, precisions))
    batches = batches_of(network, source) if calibrated else None
    calibration = [] if batches is None else list(batches)
    # The user's are read once.
    samples = batches.kept if batches and source else kept_samples(network, source)
    return ReducedRequest(
        precisions=precisions,
        calibration=calibration,
        samples=samples,
        expected=[one.cut(run(one.inputs)) for one in samples],
    )


def kept_samples(network: ImportedNetwork, source: str | None) -> list[Sample]:
    """Inputs that nothing is calibrated with.

    Args:
        network: as its framework has it.
        source: as for ``batches_of``.

    Raises:
        ConfigError: there are none, or they are not what the network takes.
    """
    if source is None:
        return [Sample(inputs=network.samples(np.random.default_rng(seed))) for seed in range(KEPT)]
    batches = batches_of(network, source)
    for _ in batches:
        pass
    return batches.kept
