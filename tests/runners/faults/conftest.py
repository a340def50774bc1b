"""Every runner that the shared suite of faults is played against.

A runner joins by adding a ``Harness`` to ``HARNESSES``.
"""

from collections.abc import Callable

import attrs
import pytest
from chameleon_core._measurement import FailureKind
from chameleon_core.plugin_api import Runner
from chameleon_runners._fleet.options import FleetOptions
from chameleon_runners._fleet.runner import FleetRunner
from chameleon_runners._local.options import LocalOptions
from chameleon_runners._local.runner import LocalRunner
from fault_devices import fault_device_ref
from faults import Fault
from marks import full

from ..conftest import QUICK, carriers, folders  # noqa: TID252 - tests are no package

EXPECTED = {
    Fault.NONE: None,
    Fault.INVALID: FailureKind.INVALID,
    Fault.BUILD_RAISES: FailureKind.BUILD_ERROR,
    Fault.BUILD_HANGS: FailureKind.BUILD_TIMEOUT,
    Fault.BUILD_SEGFAULTS: FailureKind.CRASH,
    Fault.SEGFAULTS: FailureKind.CRASH,
    Fault.ABORTS: FailureKind.CRASH,
    Fault.HANGS: FailureKind.RUN_TIMEOUT,
    Fault.HANGS_BLOCKING_SIGNALS: FailureKind.RUN_TIMEOUT,
    Fault.EATS_MEMORY: FailureKind.OUT_OF_MEMORY,
    Fault.PRINTS: None,
    Fault.PRINTS_WITHOUT_END: FailureKind.RUN_TIMEOUT,
    Fault.SCRIBBLES: FailureKind.CRASH,
    Fault.FORKS: None,
    Fault.FORKS_AND_HANGS: FailureKind.RUN_TIMEOUT,
    Fault.RETURNS_TWICE: None,
    Fault.EXITS: FailureKind.RUN_ERROR,
    Fault.EXITS_HARD: FailureKind.CRASH,
    Fault.WRONG: FailureKind.WRONG_OUTPUT,
    Fault.WRONG_SHAPE: FailureKind.WRONG_OUTPUT,
    Fault.WRONG_DTYPE: FailureKind.WRONG_OUTPUT,
    Fault.NAN: FailureKind.WRONG_OUTPUT,
    Fault.RAISES: FailureKind.RUN_ERROR,
    Fault.SLOW: None,
    Fault.DISCONNECTS: FailureKind.CRASH,
    Fault.EXHAUSTS_DEVICE: FailureKind.OUT_OF_MEMORY,
}
"""What each fault is recorded as, by every runner unless its harness says otherwise."""

FLEET = {
    **{name: QUICK[name] for name in QUICK if name != "leader_rounds"},
    "probe_after": 0.1,
    "patience": 240.0,
    "pace_tolerance": None,
}


@attrs.frozen(kw_only=True)
class Harness:
    """A runner as the suite needs it.

    Attributes:
        make: makes the runner; takes options to change and a folder for what it needs.
        differs: faults that it records as something else than the others.
    """

    make: Callable[..., Runner]
    differs: dict[Fault, FailureKind | None] = attrs.field(factory=dict)

    def expected(self, fault):
        """What a fault is recorded as."""
        return self.differs.get(fault, EXPECTED[fault])


def make_local(_folder, **options):
    return LocalRunner(LocalOptions(**{**QUICK, **options}))


def make_fleet(folder, *, devices=2, **options):
    rates = options.pop("rates", {})
    device_refs = [
        fault_device_ref(f"device-{seed}", folder, seed=seed, rates=rates)
        for seed in range(devices)
    ]
    chosen = FleetOptions(**{**FLEET, **options})
    return FleetRunner(chosen, lambda: device_refs, kind="fake")


HARNESSES = {
    # Nobody can be disconnected from oneself: the kernel raises, that is all.
    "local": Harness(make=make_local, differs={Fault.DISCONNECTS: FailureKind.RUN_ERROR}),
    "fleet": Harness(make=make_fleet),
}


@pytest.fixture(params=["local", full("fleet")])
def harness(request, hangs_end_soon):
    yield HARNESSES[request.param]
    assert carriers() == []
    assert folders() == []
