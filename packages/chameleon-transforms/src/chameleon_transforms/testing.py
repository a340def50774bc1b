"""Conformance suites of transforms and network scores.

A transform changes how a convolution is computed. Its suite applies the transform to several
convolutions. Each changed convolution must compute the same as a torch module and as a sequence of
TVM operators. The suite of a network score checks that scores are finite and repeatable, and differ
between two networks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from chameleon_core.plugin_api import FLOAT32, NoOptions
from chameleon_testing.suites import StageSuite, trial
from chameleon_tvm.api import Operator, operator_of, tolerance_of, tvm
from numpy.typing import NDArray
from torch import nn

from chameleon_transforms._nest.domain import Nest
from chameleon_transforms._nest.modules import TransformedConvolution, module_of
from chameleon_transforms._nest.program import Program, single_nest
from chameleon_transforms._nest.tasks import Spec, spec_of
from chameleon_transforms._network.channels import traced
from chameleon_transforms._network.space import NetworkSpace
from chameleon_transforms._scores.scorer import Scorer
from chameleon_transforms._transforms.grouping import Depthwise

_SAMPLES = 4
_IMAGE_SIZE = 6


def programs() -> dict[str, Program]:
    """Example convolutions on which a transform is tested, by name."""
    same = (1, 1, 1, 1)
    return {
        "3x3": single_nest(8, 16, (3, 3), (1, 1), same, (1, 1), size=(6, 6)),
        "strided": single_nest(16, 8, (3, 3), (2, 2), same, (1, 1), size=(7, 7), bias=True),
        "1x1": single_nest(8, 8, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), size=(4, 4)),
        "depthwise": single_nest(8, 8, (3, 3), (1, 1), same, (1, 1), size=(6, 6), groups=8),
        "odd": single_nest(3, 7, (3, 3), (1, 1), same, (1, 1), size=(5, 5)),
    }


class TransformSuite(StageSuite):
    """Checks of a transform."""

    kind = "transforms"

    def test_variants(self) -> None:
        """Variants have distinct labels, and the input and output shapes of the original."""
        count = 0
        for name, program in programs().items():
            where = f"{self.where} of the convolution '{name}'"
            with trial(where):
                variants, again = (list(self.make().variants(program)) for _ in range(2))
            assert variants == again, f"{where}: it makes different variants the next time"
            labels = [label for label, _ in variants]
            assert len(set(labels)) == len(labels), f"{where}: two variants have the same label"
            for label, changed in variants:
                assert isinstance(changed, Program), (
                    f"{where}: {label} is {type(changed).__name__} and no Program"
                )
                assert (
                    changed.stages[0].input == program.stages[0].input
                    and changed.stages[-1].output == program.stages[-1].output
                ), f"{where}: {label} has another shape than what it replaces"
                assert changed != program, f"{where}: {label} changes nothing"
            count += len(variants)
        assert count, f"{self.where}: it transforms none of {len(programs())} convolutions"

    def test_agreement(self) -> None:
        """The TVM operators of each variant compute the same as its torch module."""
        for name, program in programs().items():
            for label, changed in self.make().variants(program):
                report = disagreement(changed)
                error, limit = report["error"], report["tolerance"]
                assert error <= limit, (
                    f"{self.where} of the convolution '{name}': {label} computes something else in "
                    f"torch than its operators do: relative error {error:.2g} over {limit:.2g}, "
                    "not a number where outputs are written by nobody"
                )


class NetworkScoreSuite(StageSuite):
    """Checks of a network score."""

    kind = "network_scores"

    def test_score(self) -> None:
        """The score is finite, repeatable, and differs between two networks."""
        where = self.where
        space, images = _space()
        labels = torch.arange(_SAMPLES)
        candidates = [space.candidate(row) for row in (space.original, _changed(space))]
        with trial(where):
            scores = [
                [
                    float(self.make().score(Scorer(space, images, labels).candidate(config)))
                    for config in order
                ]
                for order in (candidates, candidates[::-1])
            ]
        once, again = scores[0], scores[1][::-1]
        assert all(math.isfinite(old) for old in once), (
            f"{where}: it cannot score a small network: {once}"
        )
        assert all(
            math.isclose(old, other, rel_tol=1e-5) for old, other in zip(once, again, strict=True)
        ), f"{where}: a network's score depends on what was scored before"
        assert once[0] != once[1], f"{where}: two networks have the same score, {once[0]:.4g}"

    def test_data(self) -> None:
        """Scoring leaves images, labels and weights unchanged."""
        space, images = _space()
        labels = torch.arange(_SAMPLES)
        judged = Scorer(space, images, labels).candidate(space.candidate(space.original))
        tensors = {"images": images, "labels": labels}
        tensors |= {f"weights {i}": item for i, item in enumerate(judged.parameters())}
        before = {name: item.detach().clone() for name, item in tensors.items()}
        self.make().score(judged)
        for name, item in tensors.items():
            assert torch.equal(item.detach(), before[name]), f"{self.where}: it changes the {name}"


def _space() -> tuple[NetworkSpace, torch.Tensor]:
    """The space of a small network, and images for it, made with fixed seeds."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 10),
        ).eval()
        images = torch.randn(_SAMPLES, 1, _IMAGE_SIZE, _IMAGE_SIZE)
    space = NetworkSpace(traced(network, images[:1]), [_depthwise()], sequence=1, widths=(1,))
    return space, images


def _depthwise() -> Depthwise:
    return Depthwise(NoOptions())


def _changed(space: NetworkSpace) -> tuple[int, ...]:
    """The network in which as many layers as possible are depthwise."""
    return tuple(int(cardinality) - 1 for cardinality in space.design.cardinalities)


Array = NDArray[np.float32]

_TARGET = json.dumps({"kind": "llvm", "opt-level": 0})
"""The target that compiles fastest. The computed numbers do not depend on it."""


@cache
def _kernel(spec: Spec) -> tuple[Operator, Any]:
    """An operator, and its compiled unscheduled function."""
    operator = operator_of(spec.task("operator", _TARGET))
    return operator, tvm.compile(operator.prim_func(), target=tvm.target.Target(_TARGET))


def _computed(nest: Nest, x: Array, weight: Array) -> Array:
    """Compute a nest with TVM for a stage's input (n, channels, rows, columns)."""
    rows = nest.read_rows
    read = x[:, nest.inputs.start : nest.inputs.stop, rows.start : rows.stop]
    operator, compiled = _kernel(spec_of(nest, batch=len(x)))
    inputs = operator.arrange([np.ascontiguousarray(read), weight])
    shape = (len(x), nest.rows.length, nest.columns, nest.outputs.length)
    out = tvm.runtime.tensor(np.zeros(shape, np.float32))
    compiled["main"](*(tvm.runtime.tensor(np.ascontiguousarray(array)) for array in inputs), out)
    (result,) = operator.logical([out.numpy()])
    return result.astype(np.float32)


def with_tvm(program: Program, module: TransformedConvolution, x: Array) -> Array:
    """Compute a program with TVM's operators for images (n, channels, rows, columns)."""
    for stage, convolutions in zip(program.stages, module.convolutions, strict=True):
        written = np.full((len(x), *stage.output), np.nan, np.float32)
        for nest, convolution in zip(stage.in_order, convolutions, strict=True):
            rows = slice(nest.rows.start, nest.rows.stop)
            channels = slice(nest.outputs.start, nest.outputs.stop)
            weight = convolution.weight.detach().numpy()
            written[:, channels, rows] = _computed(nest, x, weight)
        x = written
    if module.bias is None:
        return x
    with_bias: Array = x + module.bias.detach().numpy()[None, :, None, None]
    return with_bias


def disagreement(program: Program, *, batch: int = 1) -> Mapping[str, float]:
    """The difference between torch and TVM for a program with random weights and images.

    Args:
        program: A program, which should have few channels, because TVM's functions have no
            schedules.
        batch: Number of samples.

    Returns:
        A mapping. ``error`` is the largest difference over the largest output, or NaN if the
        operators leave an output unwritten or the shapes differ. ``tolerance`` is the largest error
        that is allowed.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = module_of(program)
        x = torch.randn((batch, *program.stages[0].input))
        if module.bias is not None:
            torch.nn.init.normal_(module.bias)
    with torch.no_grad():
        expected = module(x).numpy()
    computed = with_tvm(program, module, x.numpy())
    if computed.shape != expected.shape:
        return {"error": float("nan"), "tolerance": tolerance_of(FLOAT32)}
    error = np.abs(computed - expected).max() / np.abs(expected).max()
    return {"error": float(error), "tolerance": tolerance_of(FLOAT32)}
