"""Operators and kernels whose arrays have more elements than an int32 index counts are refused."""

import pytest
from chameleon_core._errors import ConfigError, InvalidConfigurationError
from chameleon_tvm._quick_tvm import tirx
from chameleon_tvm._spaces.template.base import _check_elements
from chameleon_tvm.api import AttentionSpec, BatchMatmulSpec, Conv2dSpec, DenseSpec

HALF = 1 << 16


@pytest.mark.parametrize(
    "spec",
    [
        DenseSpec(input=[HALF, 8], units=HALF),
        DenseSpec(input=[HALF, 1 << 15], units=8),
        BatchMatmulSpec(a=[2, HALF, 8], b=[2, 8, 1 << 14]),
        Conv2dSpec(input=[1, 3, 1 << 15, 1 << 14], filters=8, kernel=1),
        AttentionSpec(query=[HALF, 1, 64, 512], key=[HALF, 1, 4, 512], value=[HALF, 1, 4, 8]),
    ],
)
def test_an_operator_with_a_tensor_that_is_too_large(spec):
    with pytest.raises(ConfigError, match=f"{spec.kind} .*: a tensor of the shape .* elements"):
        spec.task("large", "llvm")


def test_scores_of_attention_may_be_many_since_no_kernel_stores_them():
    long = [1, 8, 1 << 15, 64]
    AttentionSpec(query=long, key=long, value=long).task("long", "llvm")


@pytest.mark.parametrize(("extent", "refused"), [((1 << 31) - 1, False), (1 << 31, True)])
def test_a_kernel_with_an_array_of_its_own_that_is_too_large(extent, refused):
    argument = tirx.decl_buffer([1 << 28], "float32", "argument")
    own = tirx.decl_buffer([extent], "float32", "own")
    body = tirx.SeqStmt([tirx.AllocBuffer(own), tirx.Evaluate(0)])
    function = tirx.PrimFunc([argument], body)
    if not refused:
        _check_elements(function)
        return
    with pytest.raises(InvalidConfigurationError, match="has 2147483648 elements"):
        _check_elements(function)
