"""Training batches of several tasks, in which rare targets are as likely as frequent ones."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chameleon_one_shot._predictor.encoding import EncodedTask

_BINS = 32


@attrs.frozen(kw_only=True, eq=False)
class TrainingTask:
    """One task in the form in which a network is trained on it, with n candidates.

    Attributes:
        values: the numbers that describe each candidate's tokens, shape (n, tokens, numbers).
        absent: whether each token does not apply to a candidate, shape (n, tokens).
        targets: the standardised targets, shape (n,).
    """

    encoded: EncodedTask
    values: NDArray[np.float32]
    absent: NDArray[np.bool_]
    targets: NDArray[np.float32]


@attrs.frozen(kw_only=True, eq=False)
class Batch:
    """Candidates of several tasks for one training step, padded to the same shape.

    Attributes:
        values: the numbers of each token, shape (tasks, candidates, tokens, numbers).
        columns: the ids of the names of these numbers, shape (tasks, tokens, numbers).
        names: the ids of the tokens' names, shape (tasks, tokens).
        kinds: the kinds of the tokens, shape (tasks, tokens).
        absent: whether a token is padding or does not apply, shape (tasks, candidates, tokens).
        fixed: values, columns, names and kinds of the tokens that all candidates of a task share.
        targets: shape (tasks, candidates).
    """

    values: Tensor
    columns: Tensor
    names: Tensor
    kinds: Tensor
    absent: Tensor
    fixed: tuple[Tensor, ...]
    targets: Tensor


def inverse_density(targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights (n,) with which all targets (n,) are drawn about equally often.

    Most random candidates of a space are slow, and most candidates of a search are near the best
    (Ryu et al. 2022, section 4.3).
    """
    edges = np.linspace(targets.min(), targets.max() + 1e-9, _BINS + 1)
    bin_of = np.clip(np.digitize(targets, edges) - 1, 0, _BINS - 1)
    counts = np.bincount(bin_of, minlength=_BINS).astype(np.float64)
    # Smoothed, so that neighbours in different bins have similar weights.
    smooth = np.convolve(counts, [0.25, 0.5, 0.25], mode="same")
    floor = 0.1 * len(targets) / _BINS
    return np.asarray(1.0 / np.maximum(smooth[bin_of], floor), np.float64)


def batch_of(
    tasks: Sequence[TrainingTask],
    rows: Sequence[NDArray[np.intp]],
    *,
    unknown: float = 0.0,
    rng: np.random.Generator | None = None,
) -> Batch:
    """A batch with the same number of candidates of each task."""
    count = max(task.values.shape[1] for task in tasks)
    width = max(task.values.shape[2] for task in tasks)
    shape = (len(tasks), len(rows[0]), count)
    values = np.zeros((*shape, width), np.float32)
    absent = np.ones(shape, np.bool_)
    columns = np.zeros((len(tasks), count, width), np.int64)
    names, kinds = (np.zeros((len(tasks), count), np.int64) for _ in range(2))
    for at, (task, chosen) in enumerate(zip(tasks, rows, strict=True)):
        tokens, numbers = task.values.shape[1:]
        values[at, :, :tokens, :numbers] = task.values[chosen]
        absent[at, :, :tokens] = task.absent[chosen]
        layout = task.encoded.rows
        columns[at, :tokens, :numbers] = layout.columns
        names[at, :tokens], kinds[at, :tokens] = layout.names, layout.kinds
    if rng is not None and unknown:
        names[rng.random(names.shape) < unknown] = 0
    targets = np.stack([task.targets[chosen] for task, chosen in zip(tasks, rows, strict=True)])
    return Batch(
        values=torch.from_numpy(values),
        columns=torch.from_numpy(columns),
        names=torch.from_numpy(names),
        kinds=torch.from_numpy(kinds),
        absent=torch.from_numpy(absent),
        fixed=_fixed(tasks),
        targets=torch.from_numpy(targets),
    )


def _fixed(tasks: Sequence[TrainingTask]) -> tuple[Tensor, ...]:
    layouts = [task.encoded.fixed for task in tasks]
    width = max(layout.columns.shape[1] for layout in layouts)
    values = np.zeros((len(tasks), 1, len(layouts[0].names), width), np.float32)
    columns = np.zeros((len(tasks), len(layouts[0].names), width), np.int64)
    for at, (task, layout) in enumerate(zip(tasks, layouts, strict=True)):
        numbers = layout.columns.shape[1]
        values[at, 0, :, :numbers] = task.encoded.fixed_values
        columns[at, :, :numbers] = layout.columns
    names = np.stack([layout.names for layout in layouts])
    kinds = np.stack([layout.kinds for layout in layouts])
    return tuple(torch.from_numpy(array) for array in (values, columns, names, kinds))
