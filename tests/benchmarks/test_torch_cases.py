"""Torch's samples of operators: several of them in one network, and each alone if that is wrong."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from case_suite import NO_NETWORK, RIGHT, WRONG, outcome_of

pytest.importorskip("onnx")

from torch_cases import OpInfoCases

SAMPLES = [(torch.rand(2, 3),), (torch.full((2,), torch.nan),), (torch.rand(4),), (torch.rand(1),)]


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
        self._entries = {
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
