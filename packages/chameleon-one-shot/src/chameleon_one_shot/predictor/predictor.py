"""A trained predictor, and the same with the tokens of one task looked up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import torch
from chameleon_core.space import Configs
from numpy.typing import NDArray
from torch import Tensor

from chameleon_one_shot.predictor.encoding import EncodedTask
from chameleon_one_shot.predictor.network import TokenNetwork
from chameleon_one_shot.predictor.training import Scale
from chameleon_one_shot.tokens import TaskTokens, Vocabulary

Numbers = NDArray[np.float64]

_AT_ONCE = 512
"""Configurations predicted at once: their tokens fit into the second-level cache of a core."""


@attrs.frozen(kw_only=True, eq=False)
class Predictor:
    """Networks that predict the logarithm of relative throughput.

    Attributes:
        networks: in evaluation mode; the prediction is their mean.
        vocabulary: of their tokens.
        scale: of their targets.
        temperature: what predicted standard deviations are multiplied by, so that they are right
            on tasks held out (as Guo et al. 2017 do for probabilities).
    """

    networks: Sequence[TokenNetwork]
    vocabulary: Vocabulary
    scale: Scale
    temperature: float = 1.0

    def of(self, tokens: TaskTokens) -> TaskPredictor:
        """The predictor of one task's configurations."""
        return TaskPredictor(self, tokens)


class TaskPredictor:
    """A predictor of one task's configurations.

    Tokens of the task, of the device and of every choice of every knob are computed once; those of
    a configuration are looked up.

    Args:
        predictor: of any task.
        tokens: the task's.
    """

    def __init__(self, predictor: Predictor, tokens: TaskTokens) -> None:
        self._scale = predictor.scale
        self._temperature = predictor.temperature
        self._encoded = EncodedTask.of(tokens, predictor.vocabulary)
        with torch.inference_mode():
            self._members = [_Member(one, self._encoded) for one in predictor.networks]

    def moments(self, configs: Configs) -> tuple[Numbers, Numbers]:
        """Means and standard deviations of the logarithm of relative throughput, (n,) each."""
        scale, configs = self._scale, np.asarray(configs)
        means, deviations = np.zeros(len(configs)), np.zeros(len(configs))
        for rows, part in self._parts(configs):
            found = [member.moments(part) for member in self._members]
            mean = np.stack([one for one, _ in found])
            variance = np.exp(np.stack([one for _, one in found])).mean(axis=0) + mean.var(axis=0)
            means[rows], deviations[rows] = mean.mean(axis=0), np.sqrt(variance)
        return (
            scale.mean + scale.deviation * means,
            scale.deviation * self._temperature * deviations,
        )

    def representation(self, configs: Configs) -> Numbers:
        """What the networks' last layers are given, shape (n, networks * width)."""
        configs = np.asarray(configs)
        out = np.zeros((len(configs), sum(member.width for member in self._members)))
        for rows, part in self._parts(configs):
            out[rows] = np.concatenate(
                [member.representation(part) for member in self._members], axis=1
            )
        return out

    def _parts(self, configs: Configs) -> Iterator[tuple[NDArray[np.intp], _Part]]:
        """Configurations, few at a time, to which the same knobs apply; those come alone."""
        choices = self._encoded.tokens.choices(configs)
        counts = np.array([len(table) for table in self._encoded.tables], np.int64)
        applies, pattern = np.unique(choices < counts, axis=0, return_inverse=True)
        for number, knobs in enumerate(applies):
            alike = np.flatnonzero(pattern.reshape(-1) == number)
            for first in range(0, len(alike), _AT_ONCE):
                rows = alike[first : first + _AT_ONCE]
                yield (
                    rows,
                    _Part(
                        knobs=torch.from_numpy(np.flatnonzero(knobs)),
                        choices=torch.from_numpy(choices[rows][:, knobs]),
                        structure=torch.from_numpy(self._encoded.structure(configs[rows])),
                    ),
                )


@attrs.frozen(kw_only=True, eq=False)
class _Part:
    """Configurations to which the same knobs apply.

    Attributes:
        knobs: which ones, shape (k,).
        choices: theirs, shape (n, k).
        structure: numbers of loops and buffers, shape (n, groups, numbers).
    """

    knobs: Tensor
    choices: Tensor
    structure: Tensor


class _Member:
    """One network with the tokens of a task looked up."""

    def __init__(self, network: TokenNetwork, encoded: EncodedTask) -> None:
        self._network = network
        self._rows = encoded.rows
        embedding = network.embedding
        fixed = encoded.fixed
        self._fixed = embedding(
            torch.from_numpy(encoded.fixed_values)[None, None],
            *(torch.from_numpy(one)[None] for one in (fixed.columns, fixed.names, fixed.kinds)),
        )[0]
        self._tables = [
            self._embedded(torch.from_numpy(table)[:, None], slice(knob, knob + 1))[:, 0]
            for knob, table in enumerate(encoded.tables)
        ]
        starts = np.cumsum([0, *(len(table) for table in self._tables)])[:-1]
        self._starts = torch.from_numpy(starts.astype(np.int64))
        self.width = self._fixed.shape[-1]
        self._table = torch.cat(self._tables)

    def _embedded(self, values: Tensor, places: slice) -> Tensor:
        """Tokens of some places, shape (n, places, width).

        Args:
            values: their numbers, shape (n, places, numbers).
            places: which tokens of a configuration.
        """
        rows = self._rows
        ids = (
            torch.from_numpy(one[places])[None] for one in (rows.columns, rows.names, rows.kinds)
        )
        embedded: Tensor = self._network.embedding(values[None], *ids)
        return embedded[0]

    def representation(self, part: _Part) -> NDArray[np.float64]:
        """What is read out of configurations, shape (n, width)."""
        with torch.inference_mode():
            return np.asarray(self._read(part).numpy(), np.float64)

    def moments(self, part: _Part) -> tuple[Numbers, Numbers]:
        """Means and logarithms of variances, standardised, shape (n,) each."""
        with torch.inference_mode():
            mean, log_variance = self._network.moments(self._read(part))
            return mean.double().numpy(), log_variance.double().numpy()

    def _read(self, part: _Part) -> Tensor:
        count = len(part.choices)
        knobs = self._table[part.choices + self._starts[part.knobs]]
        groups = self._embedded(part.structure, slice(len(self._tables), None))
        tokens = torch.cat([self._fixed.expand(count, -1, -1), knobs, groups], dim=1)
        return self._network.representation(tokens)


__all__ = ["Predictor", "TaskPredictor"]
