"""Torch's samples of operators: several of them in one network, and each alone if that is wrong."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from case_suite import NO_NETWORK, RIGHT, WRONG, RefusedError, outcome_of

pytest.importorskip("onnx")

from module_cases import ModuleCases
from onnx_cases import OnnxCases
from torch_cases import OpInfoCases

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
