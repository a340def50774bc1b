"""Small networks, read once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chameleon_core.plugins import NoOptions
from chameleon_core.stages import Delivery, Frontend, Winner
from chameleon_networks.delivery.networks import NetworkFrontend
from chameleon_networks.importers.options import BuiltinOptions
from chameleon_networks.importers.sources import BuiltinNetwork
from chameleon_tvm.device.targets import TVMTargets
from chameleon_tvm.spaces.auto import AutoSpace
from chameleon_tvm.spaces.options import AutoOptions

Deliveries = Callable[[Frontend], Delivery]


@cache
def _frontend(network: str) -> NetworkFrontend:
    return NetworkFrontend(BuiltinNetwork(BuiltinOptions(network=network, compare=False)))


@pytest.fixture(scope="session")
def frontend() -> Any:
    """A built-in network's frontend, by name."""
    pytest.importorskip("torch")
    return _frontend


@pytest.fixture(scope="session")
def target() -> str:
    return TVMTargets(NoOptions()).resolve("native")


@pytest.fixture(scope="session")
def random_delivery(target: str) -> Callable[[Frontend, Path], Delivery]:
    """Makes a delivery into a folder, with a random configuration for every task of a network."""

    def made(source: Frontend, folder: Path) -> Delivery:
        space = AutoSpace(AutoOptions())
        rng = np.random.default_rng(0)
        winners = []
        for task in source.tasks(target):
            [config] = space.design_space(task).sample(1, rng)
            indices = tuple(int(index) for index in config)
            winners.append(Winner(task=task, config=indices, seconds=1e-3))
        return Delivery(target=target, winners=winners, space=space, folder=folder, threads=2)

    return made


@pytest.fixture
def delivery_of(random_delivery: Any, tmp_path: Path) -> Deliveries:
    """A delivery with a random configuration for every task of a network."""
    return lambda source: random_delivery(source, tmp_path / "network")


@pytest.fixture(scope="session")
def delivered(
    frontend: Any, random_delivery: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Delivery, dict[str, Any]]]:
    """A built-in network's delivery and its result, by name: made once, and only to be read."""

    @cache
    def made(network: str) -> tuple[Delivery, dict[str, Any]]:
        source = frontend(network)
        delivery = random_delivery(source, tmp_path_factory.mktemp(network) / "network")
        return delivery, source.deliver(delivery)

    return made
