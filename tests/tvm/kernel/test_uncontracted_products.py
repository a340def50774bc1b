"""LLVM merges no product with a sum, wherever the product of the sum's operand is."""

import numpy as np
import pytest
import tvm
from chameleon_core.plugin_api import NoOptions
from chameleon_tvm._device.targets import TVMTargets, tvm_target
from chameleon_tvm._opaque import blocks_pipeline
from chameleon_tvm.api import emit, opaque, tirx

COUNT = 512


def _bound(x, y):
    number = tirx.Var("number", "float32")
    return tirx.Let(number, x, opaque("multiply", number, y))


FORMS = {
    "plain": lambda x, y, i: opaque("multiply", x, y),
    "in a let": lambda x, y, i: _bound(x, y),
    "chosen": lambda x, y, i: tirx.if_then_else(i < COUNT // 2, _bound(x, y), _bound(y, x)),
    "of a bound value": lambda x, y, i: opaque("maximum", _bound(x, y), _bound(y, x)),
}


def _loop(form, buffers, local):
    x, y, added, result = buffers

    def body(i):
        product = FORMS[form](emit.load(x, [i]), emit.load(y, [i]), i)
        if local is None:
            total = opaque("add", product, emit.load(added, [i]))
            return emit.store(result, [i], total)
        first, second = local
        return emit.sequence(
            [
                tirx.AllocBuffer(first),
                tirx.AllocBuffer(second),
                emit.store(first, [0], product),
                emit.store(second, [0], emit.load(first, [0])),
                emit.store(
                    result, [i], opaque("subtract", emit.load(added, [i]), emit.load(second, [0]))
                ),
            ]
        )

    return emit.loop("i", COUNT, body)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("form", list(FORMS))
def test_a_product_is_rounded_before_it_is_added(form, stored):
    buffers = [emit.buffer(name, [COUNT]) for name in "xyar"]
    local = [emit.buffer(name, [1]) for name in "pq"] if stored else None
    root = tvm.s_tir.SBlock([], [], [], "root", _loop(form, buffers, local))
    function = emit.function(buffers, tvm.s_tir.SBlockRealize([], tirx.const(True), root))
    module = tvm.IRModule({"main": function.with_attr({"s_tir": True, "global_symbol": "main"})})
    target = tvm_target(TVMTargets(NoOptions()).resolve("native"))
    library = tvm.tirx.build(module, target=target, pipeline=blocks_pipeline())
    rng = np.random.default_rng(0)
    x, y, added = (rng.standard_normal(COUNT).astype(np.float32) for _ in range(3))
    arrays = [tvm.runtime.tensor(array) for array in (x, y, added, np.zeros_like(x))]
    library["main"](*arrays)
    wanted = added - x * y if stored else x * y + added
    np.testing.assert_array_equal(arrays[3].numpy(), wanted)
