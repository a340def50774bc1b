"""Small networks, read once for all tests of this folder."""

from functools import cache

import attrs
import pytest
from chameleon_networks._comparison import reduced_precision
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._evaluation.processes import framework_process
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._importers.options import BuiltinOptions
from chameleon_networks._importers.sources import BuiltinNetwork

from .sequence.conftest import deliverer


@cache
def _frontend(network):
    return NetworkFrontend(BuiltinNetwork(BuiltinOptions(network=network, compare=False)))


@pytest.fixture(scope="session")
def frontend():
    """A built-in network's frontend, by name."""
    return _frontend


@pytest.fixture
def deliver(tmp_path):
    """See ``deliverer``."""
    return deliverer(tmp_path)


@pytest.fixture
def delivery_of(delivery_into, tmp_path):
    """A delivery with a random configuration for every task of a network."""
    return lambda source: delivery_into(source, tmp_path / "network")


@pytest.fixture
def doubling(monkeypatch):
    """Doubles the packed weights of the kernels that a test chooses."""
    honest = Kernels.of

    def double(chosen):
        def lying(self, fusion):
            kernel = honest(self, fusion)
            if kernel is None or not chosen(self, fusion):
                return kernel
            doubled = tuple(None if a is None else a * 2 for a in kernel.arguments)
            return attrs.evolve(kernel, arguments=doubled)

        monkeypatch.setattr(Kernels, "of", lying)

    return double


@pytest.fixture(scope="session")
def delivered(frontend, delivery_into, tmp_path_factory):
    """A built-in network's delivery and its result, by name: made once, and only to be read."""

    @cache
    def deliver(network):
        source = frontend(network)
        delivery = delivery_into(source, tmp_path_factory.mktemp(network) / "network")
        return delivery, source.deliver(delivery)

    return deliver


@pytest.fixture
def by_default(monkeypatch):
    """Makes a framework that computes in some precision by default, with an error of 0.4 %.

    It is onnxruntime under another name. Without a precision, all say that it is float32.
    """

    def opened(precision, network, name, *, threads):
        process = framework_process(network, "onnxruntime", threads=threads)
        honest = process.outputs
        process.name, process.answer = name, {"precision": precision}
        process.outputs = lambda inputs: [1.004 * array for array in honest(inputs)]
        return process

    def make(module, precision):
        def reduced_process(network, name, calibration, *, threads, warm_up):
            return opened(precision, network, name, threads=threads)

        monkeypatch.setattr(module, "reduces_by_default", lambda *_: precision is not None)
        monkeypatch.setattr(reduced_precision, "reduced_process", reduced_process)
        monkeypatch.setattr(reduced_precision, "missing_packages", lambda *_: {})

    return make
