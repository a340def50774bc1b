"""Example inputs and outputs that belong to other tensors."""

import numpy as np
import torch
from chameleon_networks._frameworks import inference
from chameleon_networks._importers.torch import programs
from torch import nn


class _Difference(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, first, second):
        return first - self.weight * second, self.weight


def test_an_example_may_be_one_tensor_that_requires_gradients():
    x = torch.ones(2, 3, requires_grad=True)
    program = programs.export_module(_Difference().eval(), (x, x), "net").program
    assert list(programs.ProgramInputs.of(program).ranges) == ["first", "second"]
    first, second = np.full((2, 2, 3), [[[5]], [[2]]], np.float32)
    difference, weight = inference.torch_inference(program.module(), program)([first, second])
    np.testing.assert_array_equal(difference, np.full((2, 3), 3))
    np.testing.assert_array_equal(weight, np.ones(3))
