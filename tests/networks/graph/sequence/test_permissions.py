"""A compiled network says what its kernels have to ask the operating system for."""

import attrs
import numpy as np
import pytest
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._graph.relax_utils import relax
from chameleon_system._permissions import AMX, request_permission
from chameleon_tvm._instructions.emission import with_instructions
from chameleon_tvm._instructions.multiply_add import MultiplyAdd

from ...modules import expected, module_of  # noqa: TID252 - shared by folders

SHAPE = (1, 8, 6, 5)
WEIGHTS = np.random.default_rng(0).standard_normal((16, 8, 3, 3), np.float32)


class Asking(MultiplyAdd):
    """Needs a permission, and has something imported."""

    permission = AMX
    prelude = "define i32 @chameleon_nothing() {\n  ret i32 0\n}\n"


def _convolution(emit, x):
    return emit(relax.op.nn.conv2d(x, relax.const(WEIGHTS), padding=1))


def test_permissions_of_kernels_are_those_of_the_network(deliver, monkeypatch):
    module = module_of(_convolution, (SHAPE, "float32"))
    assert AMX not in deliver(module).compiled.permissions
    of = Kernels.of

    def asking(self, fusion):
        kernel = of(self, fusion)
        return attrs.evolve(kernel, function=with_instructions(kernel.function, [Asking()]))

    monkeypatch.setattr(Kernels, "of", asking)
    if refusal := request_permission(AMX):
        with pytest.raises(RuntimeError, match=f"the kernels need AMX.*{refusal}"):
            deliver(module, guesses=True)
        return
    network = deliver(module, guesses=True)
    assert network.compiled.permissions == {AMX}
    inputs = np.random.default_rng(1).standard_normal(SHAPE, np.float32)
    (wanted,) = expected(module, inputs)
    np.testing.assert_allclose(network.run(inputs), wanted, rtol=1e-4, atol=1e-4)
