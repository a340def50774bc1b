"""A small network with a residual, and how networks of Relax are run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from chameleon_core.plugins import NoOptions
from chameleon_tvm.graph.chains import Chain, chains_of
from chameleon_tvm.graph.compile import untuned
from chameleon_tvm.graph.prepare import prepared
from chameleon_tvm.graph.relaxed import relax, tvm
from chameleon_tvm.targets import TVMTargets

Build = Callable[..., Any]


@pytest.fixture(scope="session")
def target() -> str:
    return TVMTargets(NoOptions()).resolve("native")


@pytest.fixture(scope="session")
def network_of() -> Callable[..., tuple[Any, list[Chain]]]:
    """A prepared module whose main computes ``build(emit, *inputs)``, and its chains."""

    def made(build: Build, *shapes: tuple[int, ...]) -> tuple[Any, list[Chain]]:
        inputs = [
            relax.Var(f"x{place}", relax.TensorType(shape, "float32"))
            for place, shape in enumerate(shapes)
        ]
        builder = relax.BlockBuilder()
        with builder.function("main", inputs):
            with builder.dataflow():
                out = builder.emit_output(build(builder.emit, *inputs))
            builder.emit_func_output(out)
        module = prepared(builder.get(), "NHWC")
        return module, chains_of(module)

    return made


@pytest.fixture(scope="session")
def ran() -> Callable[..., list[np.ndarray]]:
    """Outputs of a module as TVM compiles it by itself."""

    def run(module: Any, *inputs: np.ndarray) -> list[np.ndarray]:
        machine = relax.VirtualMachine(untuned(module, '{"kind": "llvm"}'), tvm.cpu())
        found = machine["main"](*(tvm.runtime.tensor(one) for one in inputs))
        return [one.numpy() for one in (found if hasattr(found, "__len__") else [found])]

    return run
