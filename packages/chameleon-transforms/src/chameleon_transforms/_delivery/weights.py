"""Derives the weights of transformed layers from the weights of the original convolutions.

If a group of channels becomes smaller, the channels with the largest weights are kept. Products of
smaller matrices are truncated singular value decompositions, which are the best approximations
(Eckart and Young 1936).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from chameleon_transforms._nest.domain import Nest
from chameleon_transforms._nest.modules import TransformedConvolution
from chameleon_transforms._nest.program import Program, Stage
from chameleon_transforms._network.channels import ChannelGroup
from chameleon_transforms._network.replacement import replacements
from chameleon_transforms._network.space import Candidate, NetworkSpace

_TINY = 1e-12


def ungrouped(weight: Tensor, groups: int) -> Tensor:
    """The weight (O, I of a group, kh, kw) of a grouped convolution as (O, I, kh, kw)."""
    if groups == 1:
        return weight
    outputs, inputs, *taps = weight.shape
    full = weight.new_zeros((outputs, inputs * groups, *taps))
    for group in range(groups):
        rows = slice(group * outputs // groups, (group + 1) * outputs // groups)
        full[rows, group * inputs : (group + 1) * inputs] = weight[rows]
    return full


def factorize(weight: Tensor, stages: Sequence[Stage]) -> list[Tensor] | None:
    """Weights of stages that approximate one (O, I, kh, kw); None for unknown stages."""
    if len(stages) == 1:
        return [weight]
    outputs, inputs, *taps = weight.shape
    if _is_pointwise(stages[-1]):
        left, right = _truncated_svd(weight.reshape(outputs, -1), stages[-1].input[0])
        rest = factorize(right.reshape(-1, inputs, *taps), stages[:-1])
        return None if rest is None else [*rest, left[:, :, None, None]]
    if _is_pointwise(stages[0]):
        matrix = weight.transpose(0, 1).reshape(inputs, -1)
        left, right = _truncated_svd(matrix, stages[0].output[0])
        rest = factorize(right.reshape(-1, outputs, *taps).transpose(0, 1), stages[1:])
        return None if rest is None else [left.T[:, :, None, None], *rest]
    kernels = [stage.nests[0].kernel for stage in stages]
    if len(stages) == 2 and kernels == [(taps[0], 1), (1, taps[1])]:  # noqa: PLR2004
        # (inputs, rows of taps) against (outputs, columns of taps).
        matrix = weight.permute(1, 2, 0, 3).reshape(inputs * taps[0], outputs * taps[1])
        left, right = _truncated_svd(matrix, stages[0].output[0])
        vertical = left.T.reshape(-1, inputs, taps[0], 1)
        horizontal = right.reshape(-1, outputs, 1, taps[1]).transpose(0, 1)
        return [vertical, horizontal]
    return None


def _is_pointwise(stage: Stage) -> bool:
    return all(nest.kernel == (1, 1) and nest.stride == (1, 1) for nest in stage.nests)


def _truncated_svd(matrix: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Two factors with ``rank`` columns and rows; padded with zeros if the matrix has less rank."""
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    count = min(rank, len(s))
    root = s[:count].sqrt()
    left = matrix.new_zeros((len(matrix), rank))
    right = matrix.new_zeros((rank, matrix.shape[1]))
    left[:, :count] = u[:, :count] * root
    right[:count] = root[:, None] * v[:count]
    return left, right


def weight_of_nest(weight: Tensor, nest: Nest) -> Tensor:
    """A nest's part of a weight (O, I, kh, kw), each filter with its former norm."""
    part = weight[nest.outputs.start : nest.outputs.stop, nest.inputs.start : nest.inputs.stop]
    rows, columns = (
        (have - want) // 2 for have, want in zip(part.shape[2:], nest.kernel, strict=True)
    )
    full = part
    part = part[:, :, rows : rows + nest.kernel[0], columns : columns + nest.kernel[1]]
    per_output, per_input = nest.outputs.length // nest.groups, nest.inputs.length // nest.groups
    tiles = [
        part[tile * per_output : (tile + 1) * per_output, tile * per_input : (tile + 1) * per_input]
        for tile in range(nest.groups)
    ]
    parts = torch.cat(tiles)
    before, after = (weights.flatten(1).norm(dim=1) for weights in (full, parts))
    scale = torch.where(after > _TINY, before / after.clamp_min(_TINY), torch.ones_like(after))
    return parts * scale[:, None, None, None]


def transfer_weights(
    module: nn.Module, program: Program, weight: Tensor, bias: Tensor | None
) -> bool:
    """Set a module's weights from (O, I, kh, kw) and bias (O,), and return whether."""
    weights = factorize(weight, program.stages)
    if weights is None:
        return False
    with torch.no_grad():
        if isinstance(module, TransformedConvolution):
            for stage, convolutions, stage_weight in zip(
                program.stages, module.convolutions, weights, strict=True
            ):
                for nest, convolution in zip(stage.in_order, convolutions, strict=True):
                    convolution.weight.copy_(weight_of_nest(stage_weight, nest))
        else:
            module.weight.copy_(weight_of_nest(weights[0], program.stages[0].nests[0]))
        if bias is not None:
            module.bias.copy_(bias)
    return True


class WeightTransfer:
    """Makes the modules of a transformed network, with weights from the original network."""

    def __init__(self, space: NetworkSpace, candidate: Candidate) -> None:
        self._space = space
        self._candidate = candidate
        self._original = space.network.module
        self._kept_channels = {group.name: self._largest(group) for group in space.groups}

    def _largest(self, group: ChannelGroup) -> Tensor:
        """The channels of a group that are kept, in order: those with the largest weights."""
        left = self._candidate.channels[group.name]
        total = torch.zeros(group.channels)
        for writer in group.writers:
            weight = self._original.get_submodule(writer).weight.detach()
            norms = weight.flatten(1).norm(dim=1).cpu().float()
            total += norms / norms.mean().clamp_min(_TINY)
        return total.topk(left).indices.sort().values

    def modules(self) -> tuple[Mapping[str, nn.Module], list[str]]:
        """The new modules by name, and the names of those with initial weights."""
        modules = replacements(self._space, self._candidate)
        fresh: list[str] = []
        for name, module in modules.items():
            original = self._original.get_submodule(name)
            program = self._candidate.programs.get(name)
            if program is not None:
                weight, bias = self._of_convolution(name, original)
                if not transfer_weights(module, program, weight, bias):
                    fresh.append(name)
            else:
                self._narrow(name, original, module)
        return modules, fresh

    def _of_convolution(self, name: str, original: nn.Module) -> tuple[Tensor, Tensor | None]:
        weight = ungrouped(original.weight.detach(), original.groups)
        bias = None if original.bias is None else original.bias.detach()
        for group in self._space.groups:
            rows = self._kept_channels[group.name]
            if name in group.writers:
                weight, bias = weight[rows], None if bias is None else bias[rows]
            if name in group.readers:
                weight = weight[:, rows]
        return weight, bias

    def _narrow(self, name: str, original: nn.Module, module: nn.Module) -> None:
        """Fill a normalization or a linear layer that has fewer channels."""
        group = next(
            item for item in self._space.groups if name in (*item.normalisations, *item.products)
        )
        rows = self._kept_channels[group.name]
        with torch.no_grad():
            if isinstance(module, nn.Linear):
                module.weight.copy_(original.weight[:, rows])
                if module.bias is not None:
                    module.bias.copy_(original.bias)
                return
            for part in ("weight", "bias", "running_mean", "running_var"):
                value = getattr(original, part, None)
                if value is not None:
                    getattr(module, part).copy_(value[rows])
