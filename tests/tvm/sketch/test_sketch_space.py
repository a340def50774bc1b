import json

import numpy as np
import pytest
from chameleon_core._errors import InvalidConfigurationError
from chameleon_tvm._device.targets import target_info
from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.sketch.plan import INLINE, ROOT
from chameleon_tvm._spaces.sketch.provider import SketchBuilder, SketchSpace
from chameleon_tvm.api import Conv2dSpec, DenseSpec
from computing import require_reference, require_sound, resolved


@pytest.fixture(scope="module")
def space(task):
    return SketchSpace(SketchOptions()).design_space(task)


@pytest.fixture(scope="module")
def builder(task):
    return SketchBuilder(task, SketchOptions(), threads=2)


def test_every_sampling_instruction_is_a_named_knob(space):
    names = [knob.name for knob in space.knobs]
    assert names[0] == "sketch"
    assert "unroll" in names
    assert "compute_location_padded" in names
    assert {"tile_h", "tile_w", "tile_oc", "tile_ry", "tile_rx", "tile_rc"} <= set(names)
    assert sum(name.startswith("tile_") for name in names) == 6


def test_sketches_share_the_knobs_of_the_same_choice(space):
    assert space.knobs[space.index["sketch"]].cardinality > 1
    assert all(knob.when is None for knob in space.knobs)


@pytest.mark.full
@pytest.mark.parametrize("prune", [True, False])
def test_random_and_first_configurations_are_correct(task, prune):
    provider = SketchSpace(SketchOptions(prune=prune, start=3))
    space = provider.design_space(task)
    builder = provider.builder(task, threads=2)
    drawn = space.sample(5, np.random.default_rng(3))
    require_reference(builder, [*drawn, *space.first_guesses])


def test_first_guesses_are_legal_distinct_and_as_many_as_asked(task):
    space = SketchSpace(SketchOptions(start=12)).design_space(task)
    assert len(space.first_guesses) == 12
    require_sound(space)


def test_legal_configurations_are_taken_as_they_are(task):
    provider = SketchSpace(SketchOptions(prune=False))
    space, builder = provider.design_space(task), provider.builder(task, threads=2)
    for config in space.sample(8, np.random.default_rng(5)):
        builder.scheduled(config)  # Would raise where TVM replaced a decision.


def test_partly_filled_vectors_are_no_choices_unless_asked_for(space, task):
    everything = SketchSpace(SketchOptions(prune=False, start=0)).design_space(task)
    legal, all_tiles = (
        {tuple(tile) for tile in row.knobs[row.index["tile_oc"]].values.tolist()}
        for row in (space, everything)
    )
    lanes = target_info(task.target).lanes("float32")
    assert legal == {tile for tile in all_tiles if tile[-1] % lanes == 0}
    assert legal < all_tiles


def test_a_location_tvm_would_move_is_illegal_and_detected(task):
    provider = SketchSpace(SketchOptions(prune=False, start=0))
    space, builder = provider.design_space(task), provider.builder(task, threads=2)
    column = space.index["compute_location_padded"]
    knob = space.knobs[column]
    config = space.sample(1, np.random.default_rng(0))[0].copy()
    config[column] = knob.options.index(0)  # The batch loop: one iteration.
    assert "one iteration" in space.why_illegal(config)
    with pytest.raises(InvalidConfigurationError, match=r"compute_location_padded.*TVM takes"):
        builder.scheduled(config)


def test_inline_and_root_are_locations(builder, space):
    column = space.index["compute_location_padded"]
    knob = space.knobs[column]
    config = space.sample(1, np.random.default_rng(1))[0].copy()
    for location in (INLINE, ROOT):
        config[column] = knob.options.index(location)
        assert ("padded" in builder.scheduled(config).function.script()) == (location == ROOT)


def test_a_configuration_of_another_length_is_invalid(builder):
    with pytest.raises(InvalidConfigurationError, match="knobs"):
        builder.scheduled((0, 0))


def test_features_are_finite_and_tell_configurations_apart(space):
    require_sound(space)
    features = space.features(space.sample(200, np.random.default_rng(2)))
    assert len(np.unique(features[:, space.feature_names.index("nest.cycles")])) > 20


def test_features_do_not_depend_on_the_company(space):
    configs = space.sample(50, np.random.default_rng(4))
    alone = np.concatenate([space.features(config[None]) for config in configs])
    np.testing.assert_allclose(space.features(configs), alone, rtol=1e-6)


def test_parallel_feature_is_what_tvm_makes(builder, space):
    names = space.feature_names
    for config in space.sample(8, np.random.default_rng(6)):
        feature = space.features(config[None])[0, names.index("nest.parallel")]
        expected = round(2.0 ** float(feature)) - 1
        script = builder.scheduled(config).function.script()
        assert f"T.parallel({expected}" in script


@pytest.mark.full
def test_the_space_is_the_same_in_every_process(run_python, space, task):
    program = (
        "import json, sys\n"
        "from chameleon_core._task import Task\n"
        "from chameleon_tvm._spaces.sketch.options import SketchOptions\n"
        "from chameleon_tvm._spaces.sketch.provider import SketchSpace\n"
        "space = SketchSpace(SketchOptions()).design_space(Task(**json.load(sys.stdin)))\n"
        "print(json.dumps([space.fingerprint, space.first_guesses.tolist()]))\n"
        "assert 'tvm.s_tir.tensor_intrin' not in sys.modules\n"
    )
    done = run_python(program, input=json.dumps(task.to_json()))
    assert json.loads(done) == [space.fingerprint, space.first_guesses.tolist()]


@pytest.mark.full
def test_options_that_make_other_programs_make_another_space(task, space):
    """Records of one are none of the other, though the knobs are the same."""
    result = {
        option: SketchSpace(SketchOptions(**{option: False})).design_space(task)
        for option in ("rewrite_sums", "rewrite_layout")
    }
    assert all(row.knobs == space.knobs for row in result.values())
    assert len({space.fingerprint, *(row.fingerprint for row in result.values())}) == 3


def test_weights_are_packed_only_where_asked(task, space):
    packing = SketchBuilder(task, SketchOptions(), threads=1)
    plain = SketchBuilder(task, SketchOptions(rewrite_layout=False), threads=1)
    shapes = set()
    for config in space.sample(8, np.random.default_rng(2)):
        unpacked = plain.program(config).inputs[1]
        packed = packing.program(config).inputs[1]
        assert unpacked.shape == (3, 3, 16, 32)
        assert sorted(packed.ravel()) == sorted(unpacked.ravel())
        shapes.add(packed.shape)
    assert shapes - {(3, 3, 16, 32)}


def test_other_operators_have_spaces(target):
    task = DenseSpec(input=(4, 32), units=64, name="dense").task("dense", target)
    provider = SketchSpace(SketchOptions(start=4))
    require_reference(provider.builder(task, threads=1), provider.design_space(task).first_guesses)


def test_a_cuda_space_needs_no_gpu_and_knows_the_limits_of_a_block():
    target = resolved("nvidia/nvidia-h100")
    spec = Conv2dSpec(input=(1, 64, 14, 14), filters=64, kernel=3, padding=1, name="gpu")
    task = spec.task("gpu", target)
    builder = SketchBuilder(task, SketchOptions(), threads=1)
    space = SketchSpace(SketchOptions()).design_space(task)
    configs = space.sample(8, np.random.default_rng(0))
    accepted = 0
    for config in configs:
        try:
            script = builder.scheduled(config).function.script()
        except InvalidConfigurationError as error:
            assert "VerifyGPUCode" in str(error)  # noqa: PT017 - others would be a bug
        else:
            assert "threadIdx.x" in script
            accepted += 1
    # TVM's check takes one to three in a hundred of what is not constrained.
    assert accepted >= len(configs) // 4
