"""Simulated networks: what they compute is what networks with types compute."""

import numpy as np
import pytest
from chameleon_core._errors import ChameleonError, ConfigError
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._delivery.mixed_precision.simulation import Simulation
from chameleon_networks._evaluation.messages import describe_network
from chameleon_networks._evaluation.verify import magnitudes, relative_error
from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._importers.options import BuiltinOptions
from chameleon_networks._importers.sources import BuiltinNetwork
from chameleon_networks._quantize.apply_dtypes import apply_dtypes
from chameleon_networks._quantize.calibration_batches import batches_of
from chameleon_networks._quantize.eligibility import find_eligible
from chameleon_networks._quantize.ranges import MIN_MAX, Affine
from chameleon_networks._quantize.simulated_network import SimulatedNetwork
from chameleon_networks._quantize.simulation_process import CORRECTED_BIASES, Calibrator, Server
from chameleon_networks._quantize.weights import channel_means, constants_for

pytestmark = pytest.mark.usefixtures("forked_networks")

SHAPE = (1, 8, 10, 9)


def _normal(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _built(emit, x):
    """Convolutions, one of each channel, a residual, pooling, and a product; all with biases."""

    def convolved(data, seed, *, groups=1):
        filters = relax.const(_normal(seed, 8, 8 // groups, 3, 3))
        sums = emit(relax.op.nn.conv2d(data, filters, padding=1, groups=groups))
        return emit(relax.op.add(sums, relax.const(_normal(seed + 50, 1, 8, 1, 1))))

    first = emit(relax.op.nn.relu(convolved(x, 1)))
    pooled = emit(relax.op.nn.max_pool2d(first, (2, 2), (2, 2)))
    inner = emit(relax.op.nn.relu(convolved(pooled, 2)))
    added = emit(relax.op.add(convolved(inner, 3, groups=8), pooled))
    mean = emit(relax.op.mean(convolved(emit(relax.op.nn.relu(added)), 4), axis=[2, 3]))
    product = emit(relax.op.matmul(mean, relax.const(_normal(5, 8, 6))))
    return emit(relax.op.add(product, relax.const(_normal(6, 6))))


ALL = dict.fromkeys(range(5), "int8")


@pytest.fixture(scope="module")
def network(network_of):
    return network_of(_built, SHAPE)


@pytest.fixture(scope="module")
def compiled(network, target):
    return SimulatedNetwork(*network, target)


@pytest.fixture
def simulated(compiled):
    compiled.means = {}
    return compiled


def _calibrated(simulated, batches):
    calibrator = Calibrator(simulated)
    for seed in range(batches):
        calibrator.observe([_normal(100 + seed, *SHAPE)])
    return calibrator.calibration()


@pytest.mark.full
@pytest.mark.parametrize(
    "types",
    [
        *({}, ALL, dict.fromkeys(range(5), "bfloat16")),
        *({0: "int8", 1: "int8", 4: "int8"}, {2: "float16", 3: "int8", 4: "float16"}),
        *({1: "bfloat16", 2: "int8", 3: "bfloat16"}, {0: "int8", 2: "bfloat16"}),
    ],
)
def test_a_simulated_network_computes_what_the_typed_one_does(types, network, simulated, ran):
    module, fusions = network
    calibration = _calibrated(simulated, 4)
    x = _normal(0, *SHAPE)
    ours = simulated.outputs([x], types, calibration.ranges)
    typed = apply_dtypes(module, fusions, types, calibration.ranges, calibration.means)
    # A number next to the middle of two steps may be rounded to the other one.
    assert relative_error(ours, ran(typed, x)) < 2e-3
    assert (relative_error(ours, simulated.outputs([x])) > 0) == bool(types)


def test_what_is_observed_is_what_chains_read_in_float32(network, simulated):
    x = _normal(0, *SHAPE)
    seen = {}

    def observe(index, number, values):
        seen[index, number] = values.copy()

    ranges = dict.fromkeys(simulated.network.names.values(), Affine(scale=0.5, zero_point=9))
    simulated.outputs([x], {0: "int8"}, ranges, observe)
    assert set(seen) == {(0, 0), (1, 0), (2, 0), (2, 1), (3, 0), (4, 0)}
    np.testing.assert_array_equal(seen[0, 0], x)
    # The residual is what the second convolution reads: what was pooled.
    np.testing.assert_array_equal(seen[1, 0].reshape(-1), seen[2, 1].reshape(-1))
    simulated.outputs([x], {}, {}, observe)
    assert (seen[1, 0] >= 0).all()


def test_ranges_reach_what_calibration_met_and_are_shared_where_numbers_move(network, simulated):
    _, fusions = network
    calibrator = Calibrator(simulated)
    batches = [_normal(seed, *SHAPE) for seed in range(3)]
    for batch in batches:
        calibrator.observe([batch])
    ranges = calibrator.ranges()[MIN_MAX]
    names = simulated.network.names
    image = ranges[names[fusions[0].inputs[0]]]
    assert image == Affine.between(float(np.min(batches)), float(np.max(batches)))
    # On both sides of the pooling.
    assert ranges[names[fusions[0].last]] == ranges[names[fusions[1].inputs[0]]]


def test_what_multiplies_constants_stays_and_what_reads_it_gets_types(network_of, target, ran):
    """A recurrent layer's first state is constant, and so are a decoder's learned queries."""

    def build(emit, x):
        state = emit(relax.op.matmul(relax.const(_normal(1, 4, 8)), relax.const(_normal(2, 8, 8))))
        read = emit(relax.op.matmul(x, relax.const(_normal(3, 8, 8))))
        both = emit(relax.op.tanh(emit(relax.op.add(state, read))))
        return emit(relax.op.matmul(both, relax.const(_normal(4, 8, 8))))

    module, fusions = network_of(build, (4, 8))
    able = find_eligible(fusions, "int8").indices
    assert len(fusions) == 3
    assert len(able) == 2
    simulated = SimulatedNetwork(module, fusions, target)
    calibrator = Calibrator(simulated)
    calibrator.observe([_normal(0, 4, 8)])
    calibration = calibrator.calibration()
    x, types = _normal(5, 4, 8), dict.fromkeys(able, "int8")
    ours = simulated.outputs([x], types, calibration.ranges)
    typed = apply_dtypes(module, fusions, types, calibration.ranges, calibration.means)
    assert relative_error(ours, ran(typed, x)) < 2e-3
    assert relative_error(simulated.outputs([x]), ran(module, x)) < 1e-5


def test_outputs_of_a_network_have_ranges_of_their_own(network_of, target):
    def build(emit, x):
        def convolved(data, scale):
            filters = relax.const(scale * _normal(1, 8, 8, 3, 3))
            return emit(relax.op.nn.conv2d(data, filters, padding=1))

        small = convolved(x, 1e-3)
        large = convolved(small, 1e6)
        return emit(relax.Tuple([small, large, convolved(large, 1.0)]))

    module, fusions = network_of(build, SHAPE)
    simulated = SimulatedNetwork(module, fusions, target)
    calibrator = Calibrator(simulated)
    calibrator.observe([_normal(0, *SHAPE)])
    ranges = calibrator.ranges()[MIN_MAX]
    small, large = (ranges[simulated.network.names[fusion.inputs[0]]] for fusion in fusions[1:])
    assert large.scale > 1e4 * small.scale


def test_biases_are_corrected_where_that_helps_on_other_batches(simulated):
    calibration = _calibrated(simulated, 8)
    assert calibration.method in calibration.errors
    helped = calibration.errors[CORRECTED_BIASES] < calibration.errors[calibration.method]
    assert bool(calibration.means) == helped
    # With as many as are tried there are no others to find means with.
    few = _calibrated(simulated, 2)
    assert CORRECTED_BIASES not in few.errors
    assert not few.means


def test_a_corrected_bias_takes_back_the_mean_shift(network):
    _, fusions = network
    depthwise, dense = fusions[2], fusions[4]
    for fusion, data in ((depthwise, _normal(7, 2, 5, 4, 8)), (dense, _normal(8, 5, 8))):
        mean = channel_means(fusion, data)
        np.testing.assert_allclose(mean, data.reshape(-1, 8).mean(axis=0), atol=1e-6)
        weights, bias = fusion.constants.arrays
        rounded, corrected = constants_for(fusion, "int8", mean).arrays
        errors = (rounded - weights).astype(np.float64)
        shift = errors.sum(axis=(1, 2, 3)) * mean if fusion is depthwise else errors @ mean
        np.testing.assert_allclose(corrected, bias - shift, atol=1e-6)
        assert constants_for(fusion, "int8").bias is bias


def test_what_is_not_finite_inside_of_the_network_is_refused(simulated):
    huge = np.full(SHAPE, 3e38, np.float32)
    with pytest.raises(ConfigError, match="of a tensor, which has no range"):
        Calibrator(simulated).observe([huge])
    assert np.isfinite(simulated.outputs([_normal(0, *SHAPE)])[0]).all()


def test_numbers_that_float16_does_not_hold_are_noticed(simulated):
    large = np.full(SHAPE, 7e4, np.float32)
    assert np.isfinite(simulated.outputs([large], {0: "bfloat16"})[0]).all()
    assert not simulated.overflowed
    # What is behind it clips infinite numbers, so that outputs alone do not tell.
    simulated.outputs([large], {0: "float16"})
    assert simulated.overflowed
    simulated.outputs([large])
    assert not simulated.overflowed


@pytest.fixture(scope="module")
def residual():
    return BuiltinNetwork(BuiltinOptions(network="resnet_small", compare=False))


@pytest.mark.full
def test_errors_of_types_are_measured_in_a_process_of_their_own(residual, target):
    module, fusions = prepared_network(residual)
    with Simulation(residual, module, fusions, target, 2) as simulation:
        with pytest.raises(ChameleonError, match="no inputs to measure errors on"):
            simulation.error_of({})
        batches = batches_of(residual, None)
        ranges, means = simulation.calibrated(batches)
        simulation.sample(batches.samples)
        alone = simulation.errors_alone(["int8", "bfloat16"])
        assert set(alone) == {
            (index, kind) for index in range(len(fusions)) for kind in ("int8", "bfloat16")
        }
        assert all(0 < error < 0.2 for error in alone.values())
        assert simulation.error_of({}) == 0.0
        every = dict.fromkeys(range(len(fusions)), "int8")
        error = simulation.error_of(every)
        exact = [simulation.outputs(sample.inputs, {}) for sample in batches.samples]
        scales = magnitudes(exact)
        assert error == max(
            relative_error(simulation.outputs(sample.inputs, every), expected, scales)
            for sample, expected in zip(batches.samples, exact, strict=True)
        )
        simulation.restore(ranges, means)
        assert simulation.error_of(every) == error
        assert simulation.error_of({99: "int8"}) == float("inf")
        huge = [np.full_like(array, 3e38) for array in batches.samples[0].inputs]
        with pytest.raises(ConfigError, match="of a tensor, which has no range"):
            simulation.calibrated([huge])


def test_a_process_with_another_network_says_so(residual, target):
    request = {"target": target, "names": ["x0"], **describe_network(residual)}
    with pytest.raises(ConfigError, match="reads the network differently"):
        Server().answer({"do": "open", **request})
