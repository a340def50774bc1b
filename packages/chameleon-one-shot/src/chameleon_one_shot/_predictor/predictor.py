"""Predictors that are neural networks: one for all tasks, and a faster form for one task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import attrs
import numpy as np
import torch
from chameleon_core.plugin_api import Configs
from numpy.typing import NDArray
from torch import Tensor

from chameleon_one_shot._predictor.encoding import EncodedTask
from chameleon_one_shot._predictor.examples import Scale
from chameleon_one_shot._predictor.network import TokenNetwork, TokenTable
from chameleon_one_shot._predictor.options import Architecture
from chameleon_one_shot._predictor.training import new_network
from chameleon_one_shot._tokens.configuration import TaskTokens
from chameleon_one_shot._tokens.vocabulary import Vocabulary

Numbers = NDArray[np.float64]

_CHUNK = 128
"""The number of configurations to predict at once, whose tokens fit a core's second-level cache."""

_BLOCK = 4096
"""The number of configurations whose distinct tokens are computed at once."""


@attrs.frozen(kw_only=True, eq=False)
class Predictor:
    """Networks that predict the logarithm of relative throughput of configurations.

    Attributes:
        networks: the networks, in evaluation mode, whose mean is the prediction.
        temperature: the factor on predicted standard deviations that makes them right on tasks
            outside the training (Guo et al. 2017 scale probabilities in this way).
    """

    networks: Sequence[TokenNetwork]
    architecture: Architecture
    vocabulary: Vocabulary
    scale: Scale
    temperature: float = 1.0

    def of(self, tokens: TaskTokens) -> TaskPredictor:
        """The predictor for one task's configurations."""
        return TaskPredictor(self, tokens)

    def header(self) -> dict[str, Any]:
        """Facts about the predictor for the header of its file."""
        return {"members": len(self.networks), "architecture": attrs.asdict(self.architecture)}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The weights of all networks by name."""
        return {
            f"{member}.{name}": tensor.contiguous().numpy()
            for member, network in enumerate(self.networks)
            for name, tensor in network.state_dict().items()
        }

    @classmethod
    def of_file(
        cls,
        header: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]],
        *,
        vocabulary: Vocabulary,
        **rest: Any,
    ) -> Self:
        """Make a predictor from the content of its file."""
        architecture = Architecture(**header["architecture"])
        networks = []
        for member in range(header["members"]):
            network = new_network(vocabulary, architecture)
            own = {name.partition("."): torch.tensor(array) for name, array in arrays.items()}
            network.load_state_dict(
                {name: value for (of, _, name), value in own.items() if of == str(member)}
            )
            networks.append(network.eval())
        return cls(networks=networks, architecture=architecture, vocabulary=vocabulary, **rest)


class TaskPredictor:
    """Predicts the speed of configurations of one task."""

    def __init__(self, predictor: Predictor, tokens: TaskTokens) -> None:
        self._scale = predictor.scale
        self._temperature = predictor.temperature
        self._encoded = encoded = EncodedTask.of(tokens, predictor.vocabulary)
        with torch.inference_mode():
            self._members = [_Member(network, encoded) for network in predictor.networks]
        counts = [1, len(encoded.fixed.names), *(len(table) for table in encoded.tables)]
        self._starts = np.cumsum(counts, dtype=np.int64)
        """Rows of the members' tables: where each knob's choices begin, and where all end."""

    def moments(self, configs: Configs) -> tuple[Numbers, Numbers]:
        """Mean and deviation of the logarithm of relative throughput, shape (n,) each."""
        scale, configs = self._scale, np.asarray(configs)
        means, deviations = np.zeros(len(configs)), np.zeros(len(configs))
        for rows, read in self._read(configs):
            pairs = [member.moments(row) for member, row in zip(self._members, read, strict=True)]
            mean = np.stack([row for row, _ in pairs])
            variance = np.exp(np.stack([row for _, row in pairs])).mean(axis=0) + mean.var(axis=0)
            means[rows], deviations[rows] = mean.mean(axis=0), np.sqrt(variance)
        return (
            scale.mean + scale.deviation * means,
            scale.deviation * self._temperature * deviations,
        )

    def representation(self, configs: Configs) -> Numbers:
        """The networks' inner vectors for each configuration, shape (n, networks * width)."""
        configs = np.asarray(configs)
        out = np.zeros((len(configs), sum(member.width for member in self._members)))
        for rows, read in self._read(configs):
            out[rows] = torch.cat(read, dim=1).numpy()
        return out

    def _read(self, configs: Configs) -> Iterator[tuple[NDArray[np.intp], list[Tensor]]]:
        """Yield the rows of a few configurations at a time, with each network's representation."""
        for start in range(0, len(configs), _BLOCK):
            block = configs[start : start + _BLOCK]
            choices = self._encoded.tokens.choices(block)
            groups = DistinctTokens.of(self._encoded.structure(block))
            with torch.inference_mode():
                tables = [member.table(groups) for member in self._members]
            ids = np.concatenate(
                [
                    np.broadcast_to(np.arange(self._starts[1]), (len(block), self._starts[1])),
                    self._starts[1:-1] + choices,
                    self._starts[-1] + groups.rows,
                ],
                axis=1,
            )
            for rows, columns in self._same_tokens(choices):
                part = torch.from_numpy(ids[rows][:, columns])
                with torch.inference_mode():
                    yield (
                        start + rows,
                        [
                            member.read(table, part)
                            for member, table in zip(self._members, tables, strict=True)
                        ],
                    )

    def _same_tokens(
        self, choices: NDArray[np.int64]
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Yield a few rows of configurations with the same tokens at a time, and these tokens."""
        counts = np.diff(self._starts[1:])
        applies, pattern = np.unique(choices < counts, axis=0, return_inverse=True)
        groups = np.ones(len(self._encoded.tokens.groups), np.bool_)
        for number, knobs in enumerate(applies):
            always = np.ones(self._starts[1], np.bool_)
            columns = np.flatnonzero(np.concatenate([always, knobs, groups]))
            same_rows = np.flatnonzero(pattern.reshape(-1) == number)
            for first in range(0, len(same_rows), _CHUNK):
                yield same_rows[first : first + _CHUNK], columns


class _Member:
    """One network with the precomputed tokens of a task."""

    def __init__(self, network: TokenNetwork, encoded: EncodedTask) -> None:
        self._network = network
        self._encoded = encoded
        self.width = network.readout.shape[0]
        fixed = encoded.fixed
        shared = network.embedding(
            torch.from_numpy(encoded.fixed_values)[None, None],
            *(torch.from_numpy(array)[None] for array in (fixed.columns, fixed.names, fixed.kinds)),
        )[0, 0]
        tables = encoded.tables
        knobs = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        chosen = np.concatenate(tables) if tables else np.zeros((0, encoded.rows.columns.shape[1]))
        self._table = network.table(
            torch.cat([shared, self._embed(chosen.astype(np.float32), knobs)])
        )

    def table(self, groups: DistinctTokens) -> TokenTable:
        """The table of the task's distinct tokens, with what the first layer computes from each."""
        places = len(self._encoded.tables) + groups.groups
        tokens = self._embed(groups.values, places)
        return self._table.concat(self._network.table(tokens))

    def _embed(self, values: NDArray[np.float32], places: NDArray[np.intp]) -> Tensor:
        """The vectors of tokens, shape (m, width).

        ``values`` has the numbers of the tokens, shape (m, numbers), and ``places`` their indices
        among a configuration's own tokens, shape (m,).
        """
        rows = self._encoded.rows
        ids = (
            torch.from_numpy(row[places])[:, None] for row in (rows.columns, rows.names, rows.kinds)
        )
        embedded: Tensor = self._network.embedding(torch.from_numpy(values)[:, None, None], *ids)
        return embedded[:, 0, 0]

    def read(self, table: TokenTable, rows: Tensor) -> Tensor:
        """The network's representation of configurations, shape (n, width)."""
        return self._network.representation_of(table, rows)

    def moments(self, read: Tensor) -> tuple[Numbers, Numbers]:
        """Means and logarithms of variances, standardised, shape (n,) each."""
        with torch.inference_mode():
            mean, log_variance = self._network.moments(read)
            return mean.double().numpy(), log_variance.double().numpy()


@attrs.frozen(kw_only=True, eq=False)
class DistinctTokens:
    """The m distinct tokens of loops and buffers of n configurations.

    Attributes:
        values: the numbers that describe each distinct token, shape (m, numbers).
        groups: the index of the loop or buffer of each distinct token, shape (m,).
        rows: the distinct token for each loop and buffer of each configuration, shape (n, groups).
    """

    values: NDArray[np.float32]
    groups: NDArray[np.intp]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, structure: NDArray[np.float32]) -> Self:
        """The distinct tokens among loops and buffers, shape (n, groups, numbers)."""
        count, groups, numbers = structure.shape
        rows = np.zeros((count, groups), np.int64)
        values, owners, begin = [np.zeros((0, numbers), np.float32)], [np.zeros(0, np.intp)], 0
        keys = _keys(structure)
        for group in range(groups):
            own = structure[:, group]
            _, first, inverse = np.unique(keys[:, group], return_index=True, return_inverse=True)
            rows_of_group = own[first]
            if not np.array_equal(rows_of_group[inverse], own, equal_nan=True):
                rows_of_group, inverse = np.unique(own, axis=0, return_inverse=True)
            values.append(rows_of_group)
            owners.append(np.full(len(rows_of_group), group))
            rows[:, group] = begin + inverse.reshape(-1)
            begin += len(rows_of_group)
        return cls(values=np.concatenate(values), groups=np.concatenate(owners), rows=rows)


def _keys(structure: NDArray[np.float32]) -> NDArray[np.uint64]:
    """A hash of each token, shape (n, groups)."""
    bits = np.ascontiguousarray(structure).view(np.uint32).astype(np.uint64)
    factors = np.random.default_rng(0).integers(1 << 63, size=bits.shape[-1], dtype=np.uint64)
    return np.asarray((bits * (2 * factors + 1)).sum(axis=-1, dtype=np.uint64))
