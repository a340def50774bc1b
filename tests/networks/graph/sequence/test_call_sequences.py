"""Networks as call sequences: what they return, what they leave alone, and how they fail."""

import os
import threading

import numpy as np
import pytest
from chameleon_core.plugin_api import ConfigError
from chameleon_networks._artifact.load import load
from chameleon_networks._evaluation.profile import AROUND, Profiler, kernel_seconds
from chameleon_networks._graph.relax_utils import relax, tvm
from chameleon_system._cores import usable_cores
from chameleon_tvm._quick_tvm import te, tirx
from marks import full

from ...modules import expected, module_of  # noqa: TID252 - shared by folders

op = relax.op
RNG = np.random.default_rng(0)
SHAPE = (1, 8, 6, 5)
X = RNG.standard_normal(SHAPE, np.float32)


def _same(outputs, wanted):
    outputs = outputs if isinstance(outputs, list) else [outputs]
    assert [output.shape for output in outputs] == [output.shape for output in wanted]
    for output, other in zip(outputs, wanted, strict=True):
        assert output.dtype == other.dtype
        np.testing.assert_allclose(output, other, rtol=1e-5, atol=1e-5)


def _everything(emit, x):
    """Outputs of all origins: an input, a view of one, a constant, a kernel's, that again."""
    constant = relax.const(np.arange(6, dtype=np.int32))
    rectified = emit(op.nn.relu(x))
    flat = emit(op.reshape(rectified, (8, 30)))
    total = emit(op.sum(rectified, axis=[1]))
    return (x, emit(op.reshape(x, (48, 5))), constant, rectified, flat, total, rectified)


def test_outputs_may_be_anything(deliver):
    module = module_of(_everything, (SHAPE, "float32"))
    network = deliver(module)
    assert network.compiled.virtual_machine is None
    wanted = expected(module, X)
    _same(network.run(X), wanted)


def test_results_are_the_callers(deliver):
    network = deliver(module_of(_everything, (SHAPE, "float32"))).run
    first = network(X)
    copies = [output.copy() for output in first]
    network(X + 1)
    for output, other in zip(first, copies, strict=True):
        np.testing.assert_array_equal(output, other)
    first[0][:] = 7
    np.testing.assert_array_equal(network(X)[0], X)


def test_inputs_are_taken_as_they_come(deliver):
    module = module_of(lambda emit, x: emit(op.nn.softmax(x)), (SHAPE, "float32"))
    network = deliver(module).run
    wanted = expected(module, X)
    memory = np.empty(X.nbytes + 64, np.uint8)
    odd = memory[4 : 4 + X.nbytes].view(np.float32).reshape(SHAPE)
    odd[:] = X
    fixed = X.copy()
    fixed.flags.writeable = False
    turned = np.asfortranarray(X)
    for array in (odd, fixed, turned, X.astype(np.float64), X.tolist()):
        _same(network(array), wanted)


@pytest.mark.parametrize("instances", [full(1), 2, full(5)])
def test_threads_share_a_network(deliver, instances):
    def build(emit, x):
        for _ in range(6):
            x = emit(op.nn.softmax(emit(op.add(x, emit(op.sin(x))))))
        return x

    folder = deliver(module_of(build, (SHAPE, "float32"))).folder
    network = load(folder, threads=2, instances=instances)
    inputs = [X * number for number in range(1, 5)]
    wanted = [network(array) for array in inputs]
    wrong = []

    def work(number):
        outputs = (network(inputs[number]) for _ in range(200))
        wrong.extend(number for array in outputs if not np.array_equal(array, wanted[number]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_callers_keep_the_cores_that_they_were_on(deliver):
    folder = deliver(module_of(_everything, (SHAPE, "float32"))).folder
    pairs = []

    def call():
        before = usable_cores()
        for _ in range(2):
            network = load(folder)
            pairs.append((before, usable_cores()))
            for _ in range(3):
                network(X)
                pairs.append((before, usable_cores()))

    for caller in (threading.Thread(target=call), threading.Thread(target=call)):
        caller.start()
        caller.join()
    assert len(pairs) == 16
    assert all(before == after for before, after in pairs)


def test_tuples_and_functions_of_the_runtime(deliver):
    def build(emit, x):
        best = emit(op.topk(x, k=2, axis=-1, ret_type="both"))
        order = emit(op.argsort(x, axis=1, descending=True))
        return (emit(best[0]), emit(best[1]), order)

    network = deliver(module_of(build, ((4, 9), "float32")))
    assert network.compiled.virtual_machine is None
    values = RNG.permutation(36).astype(np.float32).reshape(4, 9)
    outputs = network.run(values)
    np.testing.assert_array_equal(outputs[0], -np.sort(-values, axis=1)[:, :2])
    np.testing.assert_array_equal(outputs[1], np.argsort(-values, axis=1)[:, :2])
    np.testing.assert_array_equal(outputs[2], np.argsort(-values, axis=1))


def test_kernels_that_call_functions_of_tvm_are_left_to_the_virtual_machine(deliver):
    a = te.placeholder((3,), name="a")
    result = te.extern(
        (3,),
        [a],
        lambda ins, outs: tirx.call_packed("chameleon.test.double", ins[0], outs[0]),
        dtype="float32",
    )
    kernel = te.create_prim_func([a, result]).without_attr("global_symbol")
    tvm.register_global_func("chameleon.test.double", _double, override=True)

    def build(emit, x):
        variable = relax.BlockBuilder.current().add_func(kernel.with_attr("op_pattern", 8), "own")
        return emit(relax.call_tir(variable, [x], relax.TensorType([3], "float32")))

    network = deliver(module_of(build, ((3,), "float32")))
    assert network.compiled.virtual_machine == "own calls a function of TVM"
    _same(network.run(np.ones(3, np.float32)), [np.full(3, 2, np.float32)])


def _double(x, out):
    out.copyfrom(x.numpy() * 2)


def test_what_is_no_call_is_left_to_the_virtual_machine(deliver):
    tvm.register_global_func("chameleon.test.double", _double, override=True)

    def build(emit, x):
        kind = relax.TensorType([3], "float32")
        return emit(relax.call_dps_packed("chameleon.test.double", (x,), out_ty=kind))

    network = deliver(module_of(build, ((3,), "float32")))
    assert network.compiled.virtual_machine == "it calls relax.call_dps_packed"
    _same(network.run(np.ones(3, np.float32)), [np.full(3, 2, np.float32)])
    names = [k.name for k in kernel_seconds(str(network.folder), [np.ones(3, np.float32)])]
    assert AROUND in names
    with pytest.raises(ConfigError, match="cannot repeat single kernels"):
        kernel_seconds(str(network.folder), [np.ones(3, np.float32)], repeats=1)


def test_nothing_at_all_is_computed(deliver):
    network = deliver(module_of(lambda emit, x: emit(op.reshape(x, (6,))), ((2, 3), "float32")))
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    _same(network.run(values), [values.reshape(6)])


def test_arrays_of_other_shapes_are_refused(deliver):
    network = deliver(module_of(lambda emit, x: emit(op.nn.relu(x)), ((2, 3), "float32"))).run
    for wrong in (np.zeros((3, 2), np.float32), np.zeros(6, np.float32), np.zeros((2, 3, 1))):
        with pytest.raises(ValueError, match=r"x0 must have shape \[2, 3\]"):
            network(wrong)
    with pytest.raises(ValueError, match="input x0 is missing; the network takes x0"):
        network()


def test_each_kernel_is_timed(deliver):
    def build(emit, x):
        return emit(op.nn.softmax(emit(op.sum(emit(op.nn.softmax(x)), axis=[1]))))

    network = deliver(module_of(build, (SHAPE, "float32")))
    rows = kernel_seconds(str(network.folder), [X])
    count = {row.name: row.calls for row in rows}
    assert count.pop(AROUND) == 1
    assert sum(count.values()) == len(network.kernels)
    assert set(count) == set(network.kernels)
    assert all(row.seconds > 0 for row in rows)
    alone = {row.name: row.seconds for row in kernel_seconds(str(network.folder), [X], repeats=2)}
    assert alone.pop(AROUND) == 0, "nothing else is timed"
    assert set(alone) == set(count)
    assert all(seconds > 0 for seconds in alone.values())


def test_kernels_are_repeated_to_be_timed_alone(deliver, tmp_path):
    # Each run of the kernel moves the position in a file by one.
    with (tmp_path / "file").open("wb") as file:
        moved = tirx.call_extern("int64", "lseek", file.fileno(), tirx.const(1, "int64"), 1)
        a = te.placeholder((4,), name="a")
        result = te.extern(
            (4,),
            [a],
            lambda ins, outs: outs[0].vstore([0], ins[0].vload([0]) + moved.astype("float32")),
        )
        kernel = te.create_prim_func([a, result]).without_attr("global_symbol")

        def build(emit, x):
            opaque = kernel.with_attr("op_pattern", 8)
            variable = relax.BlockBuilder.current().add_func(opaque, "moving")
            return emit(relax.call_tir(variable, [x], relax.TensorType([4], "float32")))

        folder = str(deliver(module_of(build, ((4,), "float32"))).folder)
        profiler = Profiler(folder, [np.zeros(4, np.float32)])
        counts = []
        for repeats in (0, 3):
            before = os.lseek(file.fileno(), 0, os.SEEK_CUR)
            profiler.run(repeats)
            counts.append(os.lseek(file.fileno(), 0, os.SEEK_CUR) - before)
    assert counts == [1, 4]


def test_weights_of_any_size_and_kind(deliver):
    table = RNG.standard_normal((3000, 300)).astype(np.float32)
    numbers = relax.const(table)

    def build(emit, x):
        return emit(op.take(numbers, x, axis=0)), relax.const(table[:5] > 0)

    network = deliver(module_of(build, ((7,), "int32")))
    places = RNG.integers(0, 3000, 7).astype(np.int32)
    outputs = network.run(places)
    np.testing.assert_array_equal(outputs[0], table[places])
    np.testing.assert_array_equal(outputs[1], table[:5] > 0)
