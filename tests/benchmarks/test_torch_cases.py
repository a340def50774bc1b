"""Torch's samples of operators: several of them in one network, and each alone if that is wrong."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from case_suite import NO_NETWORK, RIGHT, WRONG, RefusedError, WrongAnswerError, outcome_of

pytest.importorskip("onnx")

from hard_inputs import chooses_equally, hard_inputs
from module_cases import ModuleCases
from onnx_cases import OnnxCases
from torch.utils import _pytree as pytree
from torch_cases import OpInfoCases, Sampled, check_outputs

SAMPLES = [(torch.rand(2, 3),), (torch.rand(0),), (torch.rand(4),), (torch.rand(1),)]


class Cases(OpInfoCases):
    """Samples of an operator that gives two results.

    Args:
        together: samples of a network.
        wrong: results of a network of several samples.
    """

    def __init__(self, together, *, wrong=False):
        super().__init__("0", together)
        self.outputs: list[int] = []
        self._wrong = wrong
        self.entries = {
            "max": SimpleNamespace(
                op=lambda x: torch.max(x, 0),
                sample_inputs=lambda *_: [
                    SimpleNamespace(input=x, args=(), kwargs={}) for (x,) in SAMPLES
                ],
            )
        }

    def compiler(self, graph):
        outputs = graph["main"].ret_ty.fields
        self.outputs.append(len(outputs))

        def network(*inputs):
            off = 1.0 if self._wrong and len(inputs) > 1 else 0.0
            results = [(x.max(0) + off, x.argmax(0)) for x in inputs]
            return [np.asarray(array) for pair in results for array in pair]

        return network


@pytest.mark.parametrize(("together", "outputs"), [("1", [2, 2, 2]), ("3", [4, 2]), ("4", [6])])
def test_samples_share_a_network(together, outputs):
    suite = Cases(together)
    kinds = [outcome_of(suite, case).kind for case in suite.cases()]
    assert kinds == [RIGHT, NO_NETWORK, RIGHT, RIGHT]
    assert suite.outputs == outputs


def test_samples_of_a_wrong_network_run_alone():
    suite = Cases("4", wrong=True)
    kinds = [outcome_of(suite, case).kind for case in suite.cases()]
    assert WRONG not in kinds
    assert suite.outputs == [6, 2, 2, 2]


def test_a_sample_of_a_module_is_a_network_of_its_weights():
    suite = ModuleCases("0")
    sample = SimpleNamespace(
        constructor_input=SimpleNamespace(args=(3, 2), kwargs={"bias": False}),
        forward_input=SimpleNamespace(args=(torch.rand(4, 3),), kwargs={}),
    )
    suite.entries = {
        "linear": SimpleNamespace(
            module_cls=torch.nn.Linear, module_inputs_func=lambda *_, **__: [sample]
        )
    }
    assert list(suite.cases().items()) == [("linear/0", "modules")]
    assert outcome_of(suite, "linear/0").kind == RIGHT


def test_an_exception_of_another_backend_is_a_refusal(monkeypatch):
    backend = SimpleNamespace(run_model=lambda _, inputs: [1 // x for x in inputs])
    monkeypatch.setitem(sys.modules, "some_backend", backend)
    run = OnnxCases("some_backend").prepared(None)
    assert run([1]) == ([1], None)
    with pytest.raises(RefusedError, match="by zero"):
        run([0])


_NAN = float("nan")
_X = torch.tensor([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
_CONDITION = torch.tensor([[1.0, 1.0], [1.0, 1.0 + 2e-4]])


def _difference_of_large(x):
    return x + 1e8 - 1e8


def _chebyshev(x):
    return torch.special.chebyshev_polynomial_u(x, torch.tensor([3.0, 1.0, 2.0, 4.0]))


@pytest.mark.parametrize(
    ("function", "x", "ours", "is_right"),
    [
        # Indices of equal numbers.
        (lambda x: x.sort(1), _X, [[[1, 2, 3, 3], [0] * 4], [[0, 3, 2, 1], [3, 2, 1, 0]]], True),
        (lambda x: x.sort(1), _X, [[[1, 2, 3, 3], [0] * 4], [[0, 3, 1, 1], [3, 2, 1, 0]]], False),
        (lambda x: x.sort(1), _X, [[[1, 2, 3, 3], [0] * 4], [[0, 2, 3, 1], [3, 2, 1, 0]]], False),
        (lambda x: x.kthvalue(3), _X, [[3, 0], [1, 0]], True),
        (lambda x: x.kthvalue(3), _X, [[3, 0], [0, 0]], False),
        (lambda x: torch.count_nonzero(x, 1), _X, [[4, 1]], False),
        # Jumps are no rounding.
        (torch.floor, _X, [[[1, 2, 3, 2], [0] * 4]], False),
        (torch.sign, _X, [[[1, 1, 1, 1], [0, 1, 0, 0]]], False),
        # Results that rounded inputs change as much.
        (torch.linalg.inv, _CONDITION, [[[5001.8, -5000.8], [-5000.8, 5000.8]]], True),
        (torch.linalg.inv, _CONDITION, [[[5101.8, -5100.8], [-5100.8, 5100.8]]], False),
        # Two dtypes of the reference have no digit in common.
        (_difference_of_large, torch.tensor([2.0, 16.0]), [[7.0, 16.0]], True),
        (_difference_of_large, torch.tensor([2.0, 16.0]), [[2.0, 99.0]], False),
        # Torch returns memory that it has not written.
        (_chebyshev, torch.tensor([0.5, _NAN, _NAN, 0.3]), [[-1.0, _NAN, _NAN, 0.0496]], True),
        (_chebyshev, torch.tensor([0.5, _NAN, _NAN, 0.3]), [[-1.0, 0.0, _NAN, 0.0496]], False),
    ],
)
def test_results_that_torch_leaves_open(function, x, ours, is_right):
    network = Sampled(function, (x,), {}, None)
    expected = pytree.tree_leaves(network(x))
    got = [
        np.asarray(each, wanted.numpy().dtype) for each, wanted in zip(ours, expected, strict=True)
    ]
    if is_right:
        check_outputs(got, expected, network)
    else:
        with pytest.raises(WrongAnswerError):
            check_outputs(got, expected, network)


def test_increasing_inputs_stay_increasing():
    edges, rows = np.arange(5, dtype=np.float32), np.ones((2, 3), np.float32)
    for label, (hard, other) in hard_inputs([edges, rows], [], casts=False).items():
        assert np.array_equal(np.sort(hard), hard, equal_nan=True), label
        assert other.shape == rows.shape


def test_indices_outside_choose_nothing():
    x = np.array([5.0, 7.0])
    assert chooses_equally([x], [x[1]], np.array(1), np.array(1))
    assert not chooses_equally([x], [x[1]], np.array(2), np.array(1))
    ties = np.zeros(4, np.float32)
    for order, right in (([3, 1, 0, 2], True), ([3, 1, 0, 0], False), ([3, 1, 0, 4], False)):
        assert chooses_equally([ties], [], np.array(order), np.arange(4)) is right
