"""Networks are freed of all that need not run, and what is tuned in them is found."""

import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._graph.constants import fold_constants
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.operators import count_unfused_operators
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.propagate_transposes import propagate_transposes
from chameleon_networks._graph.relax_utils import relax, tvm

from ..modules import expected as computed  # noqa: TID252 - shared by folders
from ..modules import module_of, operators_of  # noqa: TID252

VALUES = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4) + 1


def _constants(module):
    arrays = []

    def visit(expression):
        if isinstance(expression, tvm.ir.GenericConst):
            arrays.append(expression.value.numpy())

    relax.analysis.post_order_visit(module["main"], visit)
    return arrays


def _with_a_part(constant):
    """The second and third of the last axis are replaced by the third and fourth."""
    part = relax.const(VALUES[..., 2:])
    indices = (relax.prim_value(index) for index in (1, 3, 1))
    return relax.op.slice_scatter(constant, part, *indices, axis=3)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (relax.op.sqrt, np.sqrt(VALUES)),
        (relax.op.rsqrt, 1 / np.sqrt(VALUES)),
        (lambda c: relax.op.divide(c, relax.const(2.0, "float32")), VALUES / 2),
        (lambda c: relax.op.permute_dims(c, [0, 2, 3, 1]), VALUES.transpose(0, 2, 3, 1)),
        (relax.op.permute_dims, VALUES.transpose()),
        (lambda c: relax.op.reshape(c, (4, 6)), VALUES.reshape(4, 6)),
        (lambda c: relax.op.astype(c, "int32"), VALUES.astype("int32")),
        (lambda c: relax.op.mod(c, relax.const(5.0, "float32")), np.fmod(VALUES, 5)),
        (lambda c: relax.op.sum(c, axis=[1, -1], keepdims=True), VALUES.sum((1, 3), keepdims=True)),
        (relax.op.max, VALUES.max()),
        (lambda c: relax.op.mean(c, axis=[0]), VALUES.mean(0)),
        (_with_a_part, np.concatenate([VALUES[..., :1], VALUES[..., 2:], VALUES[..., 3:]], 3)),
    ],
)
def test_constants_are_computed(build, expected):
    module = module_of(lambda emit, x: relax.Tuple([emit(build(relax.const(VALUES))), x]), (1,))
    folded = fold_constants(module)
    assert operators_of(folded) == []
    [constant] = _constants(folded)
    assert constant.dtype == expected.dtype
    np.testing.assert_allclose(constant, expected, rtol=1e-6)


def test_permutations_that_matter_stay():
    def build(emit, x, y):
        return emit(relax.op.add(emit(relax.op.permute_dims(x, [0, 1, 3, 2])), y))

    module = propagate_transposes(module_of(build, (1, 4, 5, 5), (1, 4, 5, 5)))
    assert operators_of(module) == ["permute_dims", "add"]


def test_a_channel_shuffle_is_one_move_in_any_layout():
    def build(emit, x, y):
        parts = [emit(relax.op.permute_dims(image, [0, 3, 1, 2])) for image in (x, y)]
        both = emit(relax.op.concat(parts, axis=1))
        grouped = emit(relax.op.reshape(both, (1, 2, 4, 5, 3)))
        turned = emit(relax.op.permute_dims(grouped, [0, 2, 1, 3, 4]))
        merged = emit(relax.op.reshape(turned, (1, 8, 5, 3)))
        halves = emit(relax.op.split(merged, 2, axis=1))
        first = emit(relax.op.permute_dims(emit(halves[0]), [0, 2, 3, 1]))
        return relax.Tuple([first, emit(relax.op.permute_dims(emit(halves[1]), [0, 2, 3, 1]))])

    module = propagate_transposes(module_of(build, (1, 5, 3, 4), (1, 5, 3, 4)))
    assert operators_of(module) == ["concat", "reshape", "permute_dims", "reshape", "split"]


@pytest.mark.parametrize("keep", [True, False])
def test_reductions_are_computed_as_the_numbers_lie(keep):
    def build(emit, x):
        turned = emit(relax.op.permute_dims(x, [0, 3, 1, 2]))
        return emit(relax.op.mean(turned, axis=[2, 3], keepdims=keep))

    module = propagate_transposes(module_of(build, (2, 5, 3, 4)))
    assert operators_of(module) == (["mean", "reshape"] if keep else ["mean"])


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_resizes_are_computed_as_the_numbers_lie(layout):
    there, back = ([0, 3, 1, 2], [0, 2, 3, 1]) if layout == "NCHW" else ([0, 2, 3, 1], [0, 3, 1, 2])

    def build(emit, x):
        turned = emit(relax.op.permute_dims(x, there))
        larger = emit(relax.op.image.resize2d(turned, (6, 8), layout=layout, method="cubic"))
        return emit(relax.op.permute_dims(larger, back))

    shape = (2, 3, 4, 5) if layout == "NCHW" else (2, 5, 3, 4)
    network = module_of(build, shape)
    module = propagate_transposes(network)
    assert operators_of(module) == ["image.resize2d"]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    both = [computed(source, x) for source in (network, module)]
    np.testing.assert_allclose(*both, rtol=1e-5, atol=1e-5)


def test_what_resizes_and_pads_nothing_is_gone():
    def build(emit, x):
        same = emit(relax.op.image.resize2d(x, (3, 4), method="linear"))
        return emit(relax.op.nn.relu(emit(relax.op.nn.pad(same, [0] * 8))))

    assert operators_of(propagate_transposes(module_of(build, (1, 5, 3, 4)))) == ["nn.relu"]


def test_a_crop_of_the_same_size_stays():
    def build(emit, x):
        options = {
            "roi": (0.2, 0.2, 0.7, 0.7),
            "coordinate_transformation_mode": "tf_crop_and_resize",
        }
        return emit(relax.op.image.resize2d(x, (3, 4), **options))

    assert operators_of(propagate_transposes(module_of(build, (1, 5, 3, 4)))) == ["image.resize2d"]


def test_a_reshape_that_needs_a_move_stays_where_nothing_undoes_it():
    def build(emit, x):
        return emit(relax.op.reshape(emit(relax.op.permute_dims(x, [0, 2, 1, 3])), (8, 3, 5)))

    module = propagate_transposes(module_of(build, (2, 3, 4, 5)))
    assert operators_of(module) == ["permute_dims", "reshape"]


def test_reshapes_become_one_and_broadcasts_stay():
    def build(emit, x):
        again = emit(relax.op.reshape(emit(relax.op.reshape(x, (6, 4))), (2, 12)))
        back = emit(relax.op.broadcast_to(again, (2, 12)))
        return emit(relax.op.broadcast_to(emit(relax.op.reshape(back, (1, 24))), (3, 24)))

    assert operators_of(propagate_transposes(module_of(build, (24,)))) == [
        "reshape",
        "broadcast_to",
    ]


def _epilogues(fusions):
    return [
        (
            fusion.spec.kind,
            getattr(fusion.spec, "bias", False),
            getattr(fusion.spec, "residual", False),
            getattr(fusion.spec, "activation", "none"),
        )
        for fusion in fusions
    ]


def test_a_residual_network_is_chains_in_one_layout(frontend):
    module, fusions = prepared_network(frontend("resnet_small").network)
    assert _epilogues(fusions) == [
        ("conv2d", True, False, "relu"),
        ("conv2d", True, False, "relu"),
        ("conv2d", True, True, "relu"),
        ("conv2d", True, False, "relu"),
        ("conv2d", True, True, "relu"),
        ("conv2d", True, False, "none"),
        ("dense", True, False, "none"),
    ]
    # The first convolution reads images as they come; averages are taken in its layout, too.
    assert (fusions[0].spec.layout, fusions[0].spec.output_layout) == ("NCHW", "NHWC")
    assert {fusion.spec.layout for fusion in fusions[1:-1]} == {"NHWC"}
    assert count_unfused_operators(module, fusions) == {"mean": 1, "reshape": 1}


def test_clips_are_part_of_convolutions(frontend):
    _, fusions = prepared_network(frontend("mobilenet_small").network)
    kinds = _epilogues(fusions)
    assert ("depthwise_conv2d", True, False, "relu6") in kinds
    assert ("conv2d", True, True, "none") in kinds
    assert all(bias for _, bias, _, _ in kinds)


def test_a_transformer_is_chains_through_reshapes(frontend):
    module, fusions = prepared_network(frontend("bert_small").network)
    kinds = _epilogues(fusions)
    assert kinds.count(("dense", True, True, "none")) == 4
    assert kinds.count(("dense", True, False, "gelu")) == 2
    assert kinds.count(("attention", False, False, "none")) == 2
    assert not {"nn.gelu", "nn.softmax", "permute_dims"} & set(
        count_unfused_operators(module, fusions)
    )


def test_the_layout_may_stay_the_frameworks(frontend):
    fusions = find_fusions(prepare_module(frontend("resnet_small").network.imported, "NCHW"))
    assert {getattr(fusion.spec, "layout", "NCHW") for fusion in fusions} == {"NCHW"}
    assert _epilogues(fusions)[2] == ("conv2d", True, True, "relu")


def test_what_is_read_twice_ends_a_chain():
    weights = relax.const(np.ones((3, 5), np.float32))
    bias = relax.const(np.ones(5, np.float32))

    def build(emit, x):
        biased = emit(relax.op.add(emit(relax.op.matmul(x, weights)), bias))
        return emit(relax.op.add(emit(relax.op.nn.relu(biased)), biased))

    [fusion] = find_fusions(module_of(build, (2, 3)))
    assert _epilogues([fusion]) == [("dense", True, False, "none")]


def test_weights_repeated_for_every_sample_are_those_of_one_product():
    weights = np.arange(15, dtype=np.float32).reshape(3, 5)

    def products(*matrices):
        right = relax.const(np.stack(matrices))
        return find_fusions(module_of(lambda emit, x: emit(relax.op.matmul(x, right)), (2, 4, 3)))

    [fusion] = products(weights, weights)
    assert (fusion.spec.kind, fusion.spec.input) == ("dense", (8, 3))
    np.testing.assert_array_equal(fusion.constants.weights, weights.T)
    assert not products(weights, weights + 1)


def test_twice_the_same_is_no_residual():
    weights = relax.const(np.ones((3, 5), np.float32))

    def build(emit, x):
        product = emit(relax.op.matmul(x, weights))
        return emit(relax.op.add(product, product))

    [fusion] = find_fusions(module_of(build, (2, 3)))
    assert _epilogues([fusion]) == [("dense", False, False, "none")]


def test_no_other_layout():
    with pytest.raises(ConfigError, match="not compiled in the layout NCHW8c"):
        prepare_module(module_of(lambda emit, x: emit(relax.op.nn.relu(x)), (2, 3)), "NCHW8c")


def test_a_tensor_that_kernels_cannot_index_is_refused():
    def build(emit, x):
        wide = emit(relax.op.broadcast_to(x, [1 << 16, 1 << 16]))
        return relax.op.sum(wide, axis=[1])

    said = (
        r"the result of broadcast_to has the shape \[65536, 65536\], which is 4294967296 elements"
    )
    with pytest.raises(ConfigError, match=said) as caught:
        prepare_module(module_of(build, (1, 1 << 16)), "NCHW")
    assert "2147483647" in str(caught.value.hint)
    with pytest.raises(ConfigError, match="an input of the network has the shape"):
        prepare_module(module_of(lambda _, x: relax.op.max(x), (1 << 16, 1 << 15)), "NCHW")
