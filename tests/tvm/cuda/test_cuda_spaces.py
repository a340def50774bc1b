"""Design spaces of the CUDA templates: knobs, legality, features, first guesses."""

import attrs
import numpy as np
import pytest
from chameleon_core._errors import ConfigError, InvalidConfigurationError
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.cuda.base import CudaTemplate
from chameleon_tvm._spaces.cuda.tensor_core import TensorCoreTemplate, shared_bytes
from chameleon_tvm._spaces.cuda.tiling import guessed_cost
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm._spaces.sketch.provider import SketchBuilder
from chameleon_tvm._spaces.template.provider import template_of
from chameleon_tvm.api import BatchMatmulSpec, Conv2dSpec, DenseSpec, DepthwiseConv2dSpec
from computing import require_sound, resolved

SM_75 = '{"arch": "sm_75", "kind": "cuda"}'
SM_80 = '{"arch": "sm_80", "kind": "cuda"}'
LIMITS = '"max_threads_per_block": 128, "max_shared_memory_per_block": 4096'
TIGHT = f'{{"arch": "sm_80", "kind": "cuda", {LIMITS}}}'
TAGGED = resolved("nvidia/nvidia-a100")
R8 = Conv2dSpec(input=[1, 256, 14, 14], filters=256, kernel=3, padding=1)
SPECS = [
    R8,
    Conv2dSpec(input=[1, 3, 224, 224], filters=64, kernel=7, stride=2, padding=3, layout="NHWC"),
    Conv2dSpec(input=[2, 32, 14, 14], filters=64, kernel=1, groups=2, bias=True),
    DepthwiseConv2dSpec(input=[1, 32, 112, 112], kernel=3, padding=1, layout="NHWC"),
    DenseSpec(input=[128, 768], units=3072, bias=True, activation="gelu"),
    DenseSpec(input=[1, 8], units=3),
    BatchMatmulSpec(a=[12, 128, 64], b=[12, 128, 64], transpose_b=True),
]
NAMES = [f"{spec.kind}-{number}" for number, spec in enumerate(SPECS)]


def made(spec, target=SM_80):
    template = template_of(spec.task("t", target))
    return template, template.space()


def test_the_convolution_has_the_knobs_of_the_paper():
    _, space = made(R8)
    knobs = {knob.name: knob for knob in space.knobs}
    for name, parts in {"f": 4, "y": 4, "x": 4, "rc": 2, "ry": 2, "rx": 2}.items():
        assert knobs[f"tile_{name}"].parts == parts
    assert {"auto_unroll_max_step", "unroll_explicit"} <= set(knobs)


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
def test_guesses_are_legal_distinct_and_features_finite(spec):
    require_sound(made(spec)[1])


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
def test_no_legal_block_breaks_the_limits_of_its_target(spec):
    template, space = made(spec, TIGHT)
    values = space.values(space.sample(300, np.random.default_rng(1)))
    nest = template.nest
    assert (nest.threads(values) <= 128).all()
    assert (nest.virtual_threads(values) <= 8).all()
    assert (nest.shared_bytes(values, 4) <= 4096).all()
    assert (nest.sums(values) < 255).all()


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
def test_what_is_legal_passes_tvms_check(spec):
    template, space = made(spec)
    for config in space.sample(3, np.random.default_rng(2)):
        template.function(space.decode(config))


def test_the_space_is_the_same_in_every_process_and_knows_its_target():
    first, again, tight = (made(R8, target)[1] for target in (SM_80, SM_80, TIGHT))
    assert first.fingerprint == again.fingerprint != tight.fingerprint
    np.testing.assert_array_equal(first.first_guesses, again.first_guesses)


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ({"tile_rc": (1, 256), "tile_ry": (1, 3)}, "max_shared_memory_per_block"),
        ({"tile_f": (1, 1, 256, 1), "tile_x": (1, 1, 7, 2)}, "max_threads_per_block"),
    ],
)
def test_what_breaks_a_limit_is_refused_before_building(change, limit):
    template, space = made(R8)
    values = space.decode(space.first_guesses[0]) | {
        "tile_f": (8, 1, 16, 2),
        "tile_y": (7, 1, 2, 1),
        "tile_x": (1, 1, 7, 2),
    }
    with pytest.raises(InvalidConfigurationError, match=limit):
        template.function(values | change)


def test_auto_takes_the_template_where_it_applies():
    auto = AutoSpace(AutoOptions())
    assert isinstance(auto.builder(R8.task("t", SM_80), threads=1).template, CudaTemplate)
    several = DepthwiseConv2dSpec(input=[1, 16, 8, 8], kernel=3, multiplier=2)
    assert isinstance(auto.builder(several.task("t", TAGGED), threads=1), SketchBuilder)


@pytest.mark.parametrize("target", [SM_75, SM_80])
def test_the_first_guesses_are_among_the_cheapest_and_fill_the_gpu(target):
    template, space = made(R8, target)
    nest, info = template.nest, template.info
    drawn = guessed_cost(nest, info, space.values(space.sample(1000, np.random.default_rng(3))))
    guesses = space.values(space.first_guesses)
    assert guessed_cost(nest, info, guesses).max() < np.quantile(drawn, 0.05)
    assert (nest.blocks(guesses) >= 32).all()


HALF = DenseSpec(input=[128, 768], units=3072, bias=True, activation="gelu", dtype="float16")
CONVOLUTION = Conv2dSpec(
    input=[1, 64, 14, 14], filters=64, kernel=3, padding=1, layout="NHWC", dtype="bfloat16"
)


@pytest.mark.parametrize(("spec", "target"), [(HALF, SM_75), (HALF, SM_80), (CONVOLUTION, SM_80)])
def test_tensor_cores_are_for_half_precision_and_know_the_limits(spec, target):
    template, space = made(spec, target)
    assert isinstance(template, TensorCoreTemplate)
    assert len(space.first_guesses) == len(space.distinct(space.first_guesses)) > 0
    drawn = space.sample(200, np.random.default_rng(0))
    values = space.values(drawn)
    assert (shared_bytes(template.product, values) <= 48 * 1024).all()
    assert (values["tile_m"][:, 1] * values["tile_n"][:, 1] * 32 <= 1024).all()
    for config in drawn[:3]:
        template.function(space.decode(config))


def test_a_convolution_on_tensor_cores_has_the_knobs_of_the_paper_that_it_can():
    _, space = made(CONVOLUTION)
    knobs = {knob.name: knob for knob in space.knobs}
    assert {"tile_rc", "tile_ry", "tile_rx", "auto_unroll_max_step"} <= set(knobs)
    # 196 pixels are 13 fragments, which two warps could not share.
    assert knobs["tile_m"].extent == 14


@pytest.mark.parametrize(
    ("spec", "arch"),
    [
        (Conv2dSpec(input=[1, 16, 8, 8], filters=16, kernel=1, layout="NCHW8c"), "sm_80"),
        (DepthwiseConv2dSpec(input=[1, 16, 8, 8], kernel=3, multiplier=2), "sm_80"),
        (DenseSpec(input=[8, 64], units=64, dtype="float16"), "sm_80"),
        (HALF, "sm_61"),
        (Conv2dSpec(input=[1, 16, 8, 8], filters=16, kernel=1, dtype="float16"), "sm_80"),
        (
            Conv2dSpec(input=[1, 3, 8, 8], filters=16, kernel=3, layout="NHWC", dtype="float16"),
            "sm_80",
        ),
    ],
    ids=["blocks", "several", "size", "architecture", "layout", "channels"],
)
def test_templates_and_tensor_cores_say_where_they_do_not_apply(spec, arch):
    with pytest.raises(ConfigError) as caught:
        made(spec, f'{{"arch": "{arch}", "kind": "cuda"}}')
    assert "sketch" in caught.value.hint


def test_what_gpus_compute_in_half_precision_is_said():
    with pytest.raises(ConfigError, match="float16"):
        HALF.task("t", '{"kind": "vulkan"}')
    with pytest.raises(ConfigError, match="float64"):
        DenseSpec(input=[16, 16], units=16, dtype="float64")
    with pytest.raises(ConfigError, match="on a GPU"):
        DepthwiseConv2dSpec(input=[1, 16, 8, 8], kernel=3, dtype="float16").task("t", SM_80)
    with pytest.raises(ConfigError, match="write nothing else on a GPU"):
        attrs.evolve(HALF, output_dtype="float32").task("t", SM_80)


def test_bfloat16_needs_a_gpu_that_has_it():
    with pytest.raises(ConfigError, match="sm_80 or later, and the target is sm_75") as caught:
        CONVOLUTION.task("t", SM_75)
    assert "float16" in caught.value.hint
