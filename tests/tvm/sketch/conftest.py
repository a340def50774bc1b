from pathlib import Path

import pytest
from chameleon_tvm._operators.primfunc_spec import PrimFuncSpec
from chameleon_tvm.api import Conv2dSpec
from computing import resolved


@pytest.fixture(scope="session")
def target():
    return resolved("llvm -mcpu=native -num-cores=2")


@pytest.fixture(scope="session")
def task(target):
    spec = Conv2dSpec(
        input=(1, 16, 6, 6), filters=32, kernel=3, padding=1, layout="NHWC", name="small"
    )
    return spec.task("small", target)


@pytest.fixture(scope="session")
def foreign_task(target):
    """Makes the task of one of the operators of ``foreign_operators.py``."""
    source = Path(__file__).with_name("foreign_operators.py")

    def make(name):
        return PrimFuncSpec(name=name, source=f"{source}:{name}").task(name, target)

    return make
