from __future__ import annotations

import pytest
from chameleon_core.plugins import NoOptions
from chameleon_tvm.device.targets import TVMTargets
from chameleon_tvm.operators.specs import Conv2dSpec


@pytest.fixture(scope="session")
def target():
    return TVMTargets(NoOptions()).resolve("llvm -mcpu=native -num-cores=2")


@pytest.fixture(scope="session")
def task(target):
    spec = Conv2dSpec(
        input=(1, 16, 6, 6), filters=32, kernel=3, padding=1, layout="NHWC", name="small"
    )
    return spec.task("small", target)
