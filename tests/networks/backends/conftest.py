"""A cache, processes and networks for graphs of ``torch.compile``."""

import contextlib
import io
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from chameleon_networks._backends import graph_deliveries as deliveries
from chameleon_networks._backends import torch_graphs as backend
from chameleon_networks._backends.torch_graphs import CompiledGraph

from .networks import PRODUCT, Network, loads


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of the test's own; torch forgets what it compiled before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    torch._dynamo.reset()
    return tmp_path / "chameleon" / "torch"


@pytest.fixture
def eager_is_slow(monkeypatch):
    """Whatever the machine is busy with, networks count as faster."""
    monkeypatch.setattr(CompiledGraph, "_seconds", lambda *_: (1.0, 2.0))


@pytest.fixture
def no_delivery(monkeypatch):
    """Nothing is delivered."""

    refusal = Mock(side_effect=AssertionError("a run was started"))
    monkeypatch.setattr(deliveries, "idle_run_process", refusal)


@pytest.fixture
def delivered(tmp_path, eager_is_slow, monkeypatch):
    """Lets a network be delivered that computes a function of one tensor."""

    def deliver(*function):
        network = Network(*function)
        monkeypatch.setattr(deliveries.Delivery, "folder", lambda _: tmp_path / "nowhere")
        monkeypatch.setattr(backend, "load", lambda *_, **__: network)
        return network

    return deliver


@pytest.fixture
def exported(tmp_path, eager_is_slow, monkeypatch):
    """Lets networks be delivered that compute what is exported for them, without a run."""

    def folder(delivery):
        delivery.prepare()
        network = Network(torch.export.load(delivery._program).module())
        monkeypatch.setattr(backend, "load", lambda *_, **__: network)
        return tmp_path / "nowhere"

    monkeypatch.setattr(deliveries.Delivery, "folder", folder)


@pytest.fixture
def weighted(tmp_path, eager_is_slow, monkeypatch):
    """A graph of a weight and a tensor, which a network in ``run`` doubles; counts its loads."""
    load = loads(monkeypatch, run=Network())
    monkeypatch.setattr(deliveries.Delivery, "folder", lambda _: tmp_path / "run" / "network")
    return CompiledGraph(PRODUCT, [0], backend.BackendOptions()), load


@pytest.fixture
def weighted_networks(tmp_path, eager_is_slow, monkeypatch):
    """The same with a network for each weight, in a folder that is called as it is."""

    def graph_of(networks):
        load = loads(monkeypatch, **networks)
        folder = lambda delivery: tmp_path / f"{delivery._arguments[0][0]:.0f}" / "network"  # noqa: E731
        monkeypatch.setattr(deliveries.Delivery, "folder", folder)
        return CompiledGraph(PRODUCT, [0], backend.BackendOptions()), load

    return graph_of


@pytest.fixture
def children(monkeypatch):
    """Scripts the processes that deliver: what they do, how they end, and what they print."""

    def script(work, status, log=""):
        folders = []

        @contextlib.contextmanager
        def child(folder, *, idle):
            assert not idle
            folders.append(folder)
            yield SimpleNamespace(
                log=log, stdin=io.BytesIO(), stop=lambda _: status, wait=lambda _: work(folder)
            )

        monkeypatch.setattr(deliveries, "idle_run_process", child)
        return folders

    return script
