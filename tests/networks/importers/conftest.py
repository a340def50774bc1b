"""Networks compiled as they are before anything is measured."""

import pytest
from chameleon_networks._artifact.load import load
from chameleon_networks._artifact.writer import manifest_of, write_artifact
from chameleon_networks._compile.compile import compile_network
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._frontends.network import NetworkFrontend


@pytest.fixture
def as_guessed(delivery_into, tmp_path):
    """Loads a network that is compiled with first guesses."""

    def deliver(network):
        folder = tmp_path / "network"
        delivery = delivery_into(NetworkFrontend(network), folder, guessed=True)
        module, fusions = prepared_network(network)
        winners = {winner.task.key: winner for winner in delivery.winners}
        kernels = Kernels(winners, delivery.space, delivery.target)
        result = compile_network(module, fusions, kernels, delivery.target)
        manifest = manifest_of(module, fusions, kernels, delivery.target, 2) | result.facts
        write_artifact(folder, result.executable, manifest)
        return load(folder)

    return deliver
