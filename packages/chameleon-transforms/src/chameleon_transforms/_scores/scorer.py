"""Computes scores of many candidates with initial weights, all on the same minibatch.

The minibatch and the random numbers for weights are drawn once. So networks are compared on the
same numbers, and no network is copied or initialized again.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import torch
from chameleon_core.plugin_api import ConfigError
from chameleon_system.api import usable_cores
from torch import Tensor, fx, nn

from chameleon_transforms._contract import NetworkScore, UntrainedNetwork
from chameleon_transforms._network.channels import NORMALISATIONS, checked_scores
from chameleon_transforms._network.replacement import convolution_of
from chameleon_transforms._network.space import UNCHANGED, Candidate, NetworkSpace

_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)

_PIECE = 1 << 12
"""Number of random numbers that are drawn at a time."""


class Scorer:
    """Computes scores of transformed networks with initial weights, on one minibatch.

    Args:
        images: A minibatch, shape (n, channels, rows, columns), n at least 2.
        labels: The images' classes, shape (n,).
    """

    def __init__(self, space: NetworkSpace, images: Tensor, labels: Tensor, seed: int = 0) -> None:
        self.space = space
        self.images = images
        self.labels = labels
        self._seed = seed
        self._numbers: dict[str, Tensor] = {}
        self.features = {name: group.name for group in space.groups for name in group.products}
        """Linear modules whose inputs may become fewer, with the name of the channel group that
        they read."""

    def candidate(self, candidate: Candidate) -> UntrainedNetwork:
        """A candidate with its initial weights."""
        return _CandidateNetwork(self, candidate)

    def score(self, candidate: Candidate, score: NetworkScore) -> float:
        """The score of a candidate."""
        try:
            return score.score(self.candidate(candidate))
        except (RuntimeError, IndexError, ValueError) as error:
            raise ConfigError(
                f"the network cannot be judged on the data: {error}",
                hint="Labels are classes from 0 on, fewer than the network has outputs; images "
                "have the shape of its example inputs.",
            ) from error

    def score_all(
        self, candidates: Sequence[Candidate], scores: Mapping[str, NetworkScore]
    ) -> list[dict[str, float]]:
        """The scores of each candidate, each network in one thread."""

        def all_of(candidate: Candidate) -> dict[str, float]:
            return {name: self.score(candidate, score) for name, score in scores.items()}

        # Two threads gain little from sharing a network with small images.
        threads = torch.get_num_threads()
        workers = min(threads, len(usable_cores()))  # torch knows of no quota
        try:
            with ThreadPoolExecutor(workers, initializer=partial(torch.set_num_threads, 1)) as pool:
                return list(pool.map(all_of, candidates))
        finally:
            torch.set_num_threads(threads)

    def numbers(self, name: str, count: int) -> Tensor:
        """Normal random numbers for a module's initial weights, the same for the same name."""
        known = self._numbers.get(name)
        if known is None or len(known) < count:
            # Numbers are drawn in pieces, so that the first ones do not depend on the count.
            pieces = [self._piece(name, index) for index in range(-(-count // _PIECE))]
            known = self._numbers[name] = torch.cat(pieces)
        return known[:count]

    def _piece(self, name: str, index: int) -> Tensor:
        digest = hashlib.sha256(f"{self._seed} {name} {index}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        return torch.randn(_PIECE, generator=generator)

    def filled(self, name: str, module: nn.Module) -> nn.Module:
        """Fill a module on the device ``meta`` with initial weights (He et al. 2015)."""
        used = 0
        weights = [part for part in module.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
        numbers = self.numbers(name, sum(layer.weight.numel() for layer in weights))
        for part in weights:
            shape = part.weight.shape
            scale = math.sqrt(2.0 / part.weight[0].numel())
            drawn = numbers[used : used + shape.numel()].view(shape) * scale
            used += shape.numel()
            part.weight = nn.Parameter(drawn, requires_grad=False)
        for part in module.modules():
            if getattr(part, "bias", None) is not None:
                part.bias = nn.Parameter(torch.zeros(part.bias.shape), requires_grad=False)
        return module


class _CandidateNetwork(UntrainedNetwork):
    """A candidate with its initial weights."""

    def __init__(self, scorer: Scorer, candidate: Candidate) -> None:
        self.images, self.labels = scorer.images, scorer.labels
        self.multiply_adds = candidate.multiply_adds
        self._scorer = scorer
        self._candidate = candidate
        self._graph = scorer.space.network.module
        self._modules: dict[str, nn.Module] = {}

    def module(self, name: str) -> nn.Module:
        """The candidate's module with the given name."""
        if name not in self._modules:
            self._modules[name] = self._made(name)
        return self._modules[name]

    def _made(self, name: str) -> nn.Module:
        original = self._graph.get_submodule(name)
        program = self._candidate.programs.get(name)
        with torch.device("meta"):
            if program is not None:
                module = convolution_of(program, plain=self._candidate.labels[name] == UNCHANGED)
            elif isinstance(original, nn.Linear):
                group = self._scorer.features.get(name)
                inputs = original.in_features if group is None else self._candidate.channels[group]
                module = nn.Linear(inputs, original.out_features, bias=original.bias is not None)
            else:
                return original
        return self._scorer.filled(name, module)

    def run(
        self, images: Tensor, *, normalised: bool = True
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        interpreter = _Run(self, self._graph, normalised=normalised)
        return checked_scores(interpreter.run(images)), interpreter.layer_outputs

    def parameters(self) -> list[Tensor]:
        calls = [n for n in self._graph.graph.nodes if n.op == "call_module"]
        parts = {str(n.target): self.module(str(n.target)) for n in calls}
        return [
            layer.weight
            for part in parts.values()
            for layer in part.modules()
            if isinstance(layer, nn.Conv2d | nn.Linear)
        ]


class _Run(fx.Interpreter):
    """Runs a graph with a candidate's modules, and keeps the outputs of its layers."""

    def __init__(
        self, network: _CandidateNetwork, graph: fx.GraphModule, *, normalised: bool
    ) -> None:
        super().__init__(graph)
        self.layer_outputs: dict[str, Tensor] = {}
        self._network = network
        self._normalised = normalised
        self._names = _layer_names(network._scorer.space)  # noqa: SLF001 - both classes are of this module

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        name = self._names.get(n.name)
        if name is not None:
            if torch.is_grad_enabled() and not value.requires_grad:
                # The first layers: nothing before them has gradients.
                value = value.detach().requires_grad_()
            self.layer_outputs[name] = value
        return value

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        part = self._network.module(str(target))
        if isinstance(part, _DROPOUT):
            return args[0]
        if isinstance(part, NORMALISATIONS):
            if not self._normalised:
                return args[0]
            # The layers before may have fewer channels now, so the stored weights do not fit.
            # Initial weights of a normalisation are ones.
            return nn.functional.batch_norm(args[0], None, None, training=True, eps=part.eps)
        return part(*args, **kwargs)


@cache
def _layer_names(space: NetworkSpace) -> dict[str, str]:
    return {layer.output_node: layer.name for layer in space.network.layers if layer.output_node}
