"""Networks that are right for random numbers alone are found by other inputs, and by channel."""

import numpy as np
import pytest
from chameleon_networks._evaluation import verify
from chameleon_networks._evaluation.special_inputs import integer_data, special_inputs
from chameleon_networks._evaluation.verify import Expected, SpecialCheck, SpecialInputs
from chameleon_networks._importers.options import OnnxOptions, TorchOptions
from chameleon_networks._importers.sources import OnnxNetwork, TorchNetwork

from ..onnx_files import onnx_file  # noqa: TID252 - shared by folders

LABELS = ["a mean of 1000", "a constant", "a tile of extremes", "NaN and infinities"]


def _network(tmp_path, text, **weights):
    file = onnx_file(tmp_path / "net.onnx", text, opsets='"" : 18', **weights)
    return OnnxNetwork(OnnxOptions(source=str(file)))


def _special(network):
    return {one.label: one.inputs for one in special_inputs(network)}


def test_floats_get_means_constants_extremes_and_nan(tmp_path):
    network = _network(tmp_path, "(float[4, 8] x) => (float[4, 8] y) { y = Relu(x) }")
    special = _special(network)
    assert list(special) == LABELS
    [mean], [constant], [tile], [nan] = special.values()
    assert abs(mean.mean() - 1000) < 2
    assert np.ptp(constant) == 0
    assert {0.0, 1e3, -1e3} < set(tile.ravel().tolist())
    assert {*np.isnan(nan).ravel().tolist(), np.isposinf(nan).any()} == {True, False}
    assert {array.dtype.name for [array] in special.values()} == {"float32"}


def test_numbers_that_become_integers_are_none_whose_integer_nobody_defines(tmp_path):
    text = "(float[4, 8] x) => (int32[4, 8] y) { y = Cast <to = 6> (x) }"
    assert list(_special(_network(tmp_path, text))) == LABELS[:2]


@pytest.mark.parametrize(("operator", "spreads"), [("MaxPool", True), ("AveragePool", False)])
def test_nan_may_spread_in_windows_of_maxima(operator, spreads, tmp_path):
    node = f"y = {operator} <kernel_shape = [2, 2]> (x)"
    text = f"(float[1, 2, 4, 4] x) => (float[1, 2, 3, 3] y) {{ {node} }}"
    *finite, nan = special_inputs(_network(tmp_path, text))
    assert [one.may_spread for one in (*finite, nan)] == [False] * 3 + [spreads]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("(int32[9] n) => (int32[9] y) { t = Mul(n, three) y = Div(t, three) }", {0}),
        ("(int32[9] n, int32[9] m) => (int32[9] y) { y = Div(n, m) }", set()),
        ("(int64[3] n, float[9] x) => (float[3] y) { y = Gather(x, n) }", set()),
        ("(int64[3] n, int64[3] m) => (bool[3] y) { t = Neg(n) y = Less(t, m) }", {0, 1}),
    ],
)
def test_integers_are_data_unless_an_operator_reads_them_as_something_else(text, places, tmp_path):
    network = _network(tmp_path, text, three=np.array(3, np.int32))
    assert integer_data(network.imported["main"]) == places
    special = _special(network).get("integers over their whole range")
    assert (special is not None) == bool(places)
    for place in places:
        limits = np.iinfo(special[place].dtype)
        assert {limits.min, limits.max} <= set(special[place].tolist())


def test_lengths_are_neither_0_nor_longer_than_the_sequence(tmp_path):
    text = """(float[5, 3, 4] x, int32[3] lengths) => (float[5, 1, 3, 2] y) {
        y = GRU <hidden_size = 2> (x, w, r, , lengths)
    }"""
    shapes = {"w": (1, 6, 4), "r": (1, 6, 2)}
    weights = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    network = _network(tmp_path, text, **weights)
    assert network.facts.ranges == {"lengths": (1, 5)}
    assert all((inputs[1] >= 1).all() for inputs in _special(network).values())
    file = onnx_file(
        tmp_path / "reversed.onnx",
        """(float[5, 3] x, int64[5] n) => (float[5, 3] y) {
            y = ReverseSequence <batch_axis = 0, time_axis = 1> (x, n)
        }""",
    )
    assert OnnxNetwork(OnnxOptions(source=str(file))).facts.ranges == {"n": (1, 3)}


MODEL = """
import torch

class Log(torch.nn.Module):
    def forward(self, x, mask):
        return torch.log(x) * mask

def make():
    mask = torch.tensor([[0.0, float("-inf")], [0.0, 0.0]])
    return Log(), (torch.tensor([[1.0, 2.0], [3.0, 4.0]]), mask)
"""


def test_the_example_counts_and_its_range_and_mask_stay(tmp_path):
    (tmp_path / "net.py").write_text(MODEL)
    special = _special(TorchNetwork(TorchOptions(source=f"{tmp_path / 'net.py'}:make")))
    assert list(special) == ["the example", *LABELS[1:]]
    assert special["the example"][0].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert special["a tile of extremes"][0].min() >= 1
    assert all(np.isinf(mask).sum() == 1 for _, mask in special.values())


# -- comparison -----------------------------------------------------------------------------------

X = np.linspace(1, 4, 96, dtype=np.float32).reshape(1, 2, 48)


def _expected(run, special, *, lenient=False, others=lambda _: []):
    check = SpecialCheck(special, run(special.inputs), others, lenient=lenient)
    return verify.Expected([[X]], [run([X])], lambda: None, special=[check])


def _centred(inputs):
    """The variance of a row, as it should be computed."""
    return [inputs[0].var(axis=-1, dtype=np.float64, keepdims=True).astype(np.float32)]


def _squares(inputs):
    """The variance of a row, as E[x²] - E[x]²."""
    [x] = inputs
    return [(x * x).mean(axis=-1, keepdims=True) - x.mean(axis=-1, keepdims=True) ** 2]


def test_a_network_that_is_wrong_for_a_large_mean_alone_is_wrong():
    mean = SpecialInputs(label="a mean of 1000", inputs=[X + 1000])
    assert _expected(_centred, mean).verdict(_centred).problem is None
    plain = verify.Expected([[X]], [_centred([X])], lambda: None)
    assert plain.verdict(_squares).problem is None
    expected = _expected(_centred, mean)
    problem = expected.verdict(_squares).problem
    assert problem.startswith("with a mean of 1000 as inputs, its outputs are off by")
    assert expected.wrong is not None
    assert (expected.wrong[0] is mean.inputs, expected.wrong[1]) == (True, 0)
    far = [np.array([[[4.0], [4.0]]], np.float32)]
    assert _expected(_centred, mean, others=lambda _: [far]).verdict(_squares).problem is None


NAN = SpecialInputs(
    label="NaN and infinities", inputs=[np.where(X > 2, np.nan, X)], is_finite=False
)


def _ignores(inputs):
    return [np.nan_to_num(inputs[0])]


def _spreads(inputs):
    return [np.where(np.isnan(inputs[0]).any(), np.nan, inputs[0])]


def _same(inputs):
    return [inputs[0]]


def test_nan_is_passed_as_by_the_reference():
    assert _expected(_same, NAN).verdict(_same).problem is None
    lost = _expected(_same, NAN).verdict(_ignores).problem
    assert lost.endswith("output 0 has numbers instead of NaN or infinity")
    spread = _expected(_same, NAN).verdict(_spreads).problem
    assert spread.endswith("output 0 has NaN or infinity instead of numbers")
    assert _expected(_same, NAN, lenient=True).verdict(_spreads).problem is None
    assert _expected(_same, NAN, lenient=True).verdict(_ignores).problem is not None


def test_a_network_that_fails_is_wrong():
    def fails(inputs):
        if np.isnan(inputs[0]).any():
            raise verify.ChameleonError("it crashed")
        return inputs

    problem = _expected(_same, NAN).verdict(fails).problem
    assert problem == "with NaN and infinities as inputs, it crashed"


SMALL = np.concatenate([X, X * np.float32(0.01)], axis=1)


def _by_channel(*others):
    return verify.Expected([[SMALL]], [[SMALL]], lambda: None, others=[lambda: list(others)])


def test_small_channels_count():
    off = SMALL.copy()
    off[0, 3] += 2e-4
    right = [SMALL + np.float32(1e-6)]
    assert verify.compare_outputs([off], [SMALL]).problem is None
    problem = _by_channel(right).verdict(lambda _: [off]).problem
    assert problem.startswith("channel 3 (axis 1) of output 0 is off by 5.0e-03")
    assert _by_channel(right).verdict(lambda _: right).problem is None
    assert _by_channel([SMALL + np.float32(5e-5)]).verdict(lambda _: [off]).problem is None


def test_integers_that_no_rounding_changes_must_be_equal(tmp_path):
    text = """(int64[8] n, float[8] x) => (int64[8] a, int64[1] b, int64[8] c, float[8] d) {
        a = Div(n, seven)
        b = ArgMax(x)
        c = Cast<to = 7>(x)
        d = Cast<to = 1>(a)
    }"""
    network = _network(tmp_path, text, seven=np.array(7, np.int64))
    assert network.exact_outputs == {0, 1}
    right = [np.array([2**62, 5]), np.array([20_000])]
    for number, changed in enumerate(([2**62 + 1, 5], [20_001])):
        wrong = list(right)
        wrong[number] = np.array(changed)
        special = SpecialInputs(label="some", inputs=[], exact=frozenset({0, 1}))
        check = SpecialCheck(special, right, lambda _: ())
        expected = Expected([[]], [right], lambda: None, exact_outputs=frozenset({0, 1}))
        words = f"output {number} has 1 wrong integer of"
        assert words in check.problem(lambda _, wrong=wrong: wrong, [1.0, 1.0], 1e-3)
        assert words in expected.verdict(lambda _, wrong=wrong: wrong).problem
        assert check.problem(lambda _: right, [1.0, 1.0], 1e-3) is None
        assert expected.verdict(lambda _: right).problem is None
