"""Trains networks until the ranking of held-out tasks no longer improves."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence

import attrs
import numpy as np
import structlog
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from chameleon_one_shot._predictor.batches import Batch, TrainingTask, batch_of, inverse_density
from chameleon_one_shot._predictor.encoding import EncodedTask
from chameleon_one_shot._predictor.examples import Example, Scale
from chameleon_one_shot._predictor.metrics import tau
from chameleon_one_shot._predictor.network import TokenNetwork
from chameleon_one_shot._predictor.options import Architecture, TrainingOptions
from chameleon_one_shot._tokens.vocabulary import Vocabulary

log = structlog.get_logger()

_WARM_UP = 0.05
"""The share of the steps over which the learning rate rises to its full value."""

_AVERAGE_DECAY = 0.98
"""The weight of earlier steps in the running average of weights (Polyak and Juditsky 1992)."""

_ROWS = 2048
"""The number of candidates to predict at once."""


@attrs.frozen(kw_only=True, eq=False)
class TrainingResult:
    """A trained network.

    Attributes:
        network: the network, with the weights of the best evaluation.
        tau: the mean of Kendall's tau over the held-out tasks at this evaluation.
        seconds: the wall-clock seconds of the training.
    """

    network: TokenNetwork
    step: int
    tau: float
    seconds: float


def train(
    examples: Sequence[Example],
    held_out: Sequence[Example],
    *,
    vocabulary: Vocabulary,
    scale: Scale,
    options: TrainingOptions,
    seed: int,
) -> TrainingResult:
    """Train one network until the ranking of held-out tasks no longer improves."""
    start = time.perf_counter()
    device = torch.device(options.device)
    rng = np.random.default_rng(seed)
    tasks = [training_task(example, vocabulary, scale) for example in examples]
    held_out_tasks = [training_task(task, vocabulary, scale) for task in held_out]
    weights = _weights(tasks) if options.inverse_density else [None] * len(tasks)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = new_network(vocabulary, options.architecture).to(device)
        averaged = copy.deepcopy(network).eval()
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=options.learning_rate, weight_decay=options.weight_decay
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: _rate(step, options.steps)
        )
        best = TrainingResult(network=copy.deepcopy(averaged), step=0, tau=-np.inf, seconds=0.0)
        for step in range(1, options.steps + 1):
            batch = _draw(tasks, weights, options, rng)
            loss = _loss(network, _to_device(batch, device), options)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            _average(averaged, network, min(_AVERAGE_DECAY, 1.0 - 1.0 / step))
            if step % options.evaluate_every and step != options.steps:
                continue
            mean_tau = _mean_tau(averaged, held_out_tasks, device)
            log.debug("predictor_evaluated", step=step, loss=float(loss.detach()), tau=mean_tau)
            if mean_tau > best.tau:
                best = TrainingResult(
                    network=copy.deepcopy(averaged), step=step, tau=mean_tau, seconds=0.0
                )
            elif step - best.step >= options.patience * options.evaluate_every:
                break
    best.network.cpu()
    return attrs.evolve(best, seconds=time.perf_counter() - start)


def new_network(vocabulary: Vocabulary, architecture: Architecture) -> TokenNetwork:
    """A network with random weights from torch's global generator."""
    return TokenNetwork(1 + len(vocabulary.columns), 1 + len(vocabulary.tokens), architecture)


def training_task(example: Example, vocabulary: Vocabulary, scale: Scale) -> TrainingTask:
    """An example, encoded with a vocabulary and a scale."""
    encoded = EncodedTask.of(example.tokens, vocabulary)
    values, absent = encoded.values(example.configs)
    return TrainingTask(
        encoded=encoded,
        values=values,
        absent=absent,
        targets=((example.quality - scale.mean) / scale.deviation).astype(np.float32),
    )


def forward(network: TokenNetwork, batch: Batch) -> tuple[Tensor, Tensor]:
    """Means and logarithms of variances, shape (tasks * candidates,) each."""
    tasks, count, _ = batch.absent.shape
    own = network.embedding(batch.values, batch.columns, batch.names, batch.kinds)
    shared = network.embedding(*batch.fixed).expand(-1, count, -1, -1)
    tokens = torch.cat([shared, own], dim=2).flatten(0, 1)
    padding = torch.cat([batch.absent.new_zeros(tasks, count, shared.shape[2]), batch.absent], 2)
    return network.moments(network.representation(tokens, padding.flatten(0, 1)))


def _loss(network: TokenNetwork, batch: Batch, options: TrainingOptions) -> Tensor:
    network.train()
    mean, log_variance = forward(network, batch)
    shape = batch.targets.shape
    task = torch.arange(len(batch.targets), device=mean.device).repeat_interleave(shape[1])
    # The mean of a task does not count, because only configurations of one task are compared.
    mean, targets = (centre(values.view(shape)).flatten() for values in (mean, batch.targets))
    loss = regression(mean, targets) + 0.2 * uncertainty(mean, log_variance, targets)
    if options.ranking:
        loss = loss + options.ranking * ranking(mean, targets, task)
    return loss


def _draw(
    tasks: Sequence[TrainingTask],
    weights: Sequence[NDArray[np.float64] | None],
    options: TrainingOptions,
    rng: np.random.Generator,
) -> Batch:
    """A batch of random tasks, large ones more often, with candidates drawn by their weights."""
    sizes = np.sqrt([len(task.targets) for task in tasks])
    count = min(options.tasks, len(tasks))
    chosen = rng.choice(len(tasks), count, replace=False, p=sizes / sizes.sum())
    rows = [
        rng.choice(len(tasks[at].targets), options.candidates, replace=True, p=weights[at])
        for at in chosen
    ]
    return batch_of([tasks[at] for at in chosen], rows, unknown=options.unknown, rng=rng)


def _weights(tasks: Sequence[TrainingTask]) -> list[NDArray[np.float64]]:
    """The probability that each candidate of a task is drawn, for every task."""
    tokens = inverse_density(np.concatenate([task.targets for task in tasks]).astype(np.float64))
    ends = np.cumsum([len(task.targets) for task in tasks])
    return [masses / masses.sum() for masses in np.split(tokens, ends[:-1])]


def _rate(step: int, steps: int) -> float:
    """The factor on the learning rate: it rises linearly, then falls as a cosine to 0.01."""
    rise = max(1.0, _WARM_UP * steps)
    if step < rise:
        return (step + 1) / rise
    return 0.01 + 0.99 * 0.5 * (1.0 + float(np.cos(np.pi * (step - rise) / max(1.0, steps - rise))))


def _average(averaged: TokenNetwork, network: TokenNetwork, decay: float) -> None:
    with torch.no_grad():
        for mean, latest in zip(averaged.parameters(), network.parameters(), strict=True):
            mean.lerp_(latest, 1.0 - decay)


def _mean_tau(network: TokenNetwork, tasks: Sequence[TrainingTask], device: torch.device) -> float:
    targets = [task.targets.astype(np.float64) for task in tasks]
    predicted = [means(network, task, device) for task in tasks]
    return float(np.mean(list(map(tau, predicted, targets))))


def means(network: TokenNetwork, task: TrainingTask, device: torch.device) -> NDArray[np.float64]:
    """The predictions for a task's candidates, standardised, shape (n,)."""
    network.eval()
    predicted = []
    with torch.inference_mode():
        tokens = np.arange(len(task.targets))
        for first in range(0, len(tokens), _ROWS):
            rows = tokens[first : first + _ROWS]
            mean, _ = forward(network, _to_device(batch_of([task], [rows]), device))
            predicted.append(mean.cpu().numpy().astype(np.float64))
    return np.concatenate(predicted)


def _to_device(batch: Batch, device: torch.device) -> Batch:
    if device.type == "cpu":
        return batch
    tensors = attrs.asdict(batch, recurse=False)
    fixed = tuple(tensor.to(device) for tensor in tensors.pop("fixed"))
    return Batch(fixed=fixed, **{name: tensor.to(device) for name, tensor in tensors.items()})


_SHARPNESS = 3.0
"""The factor on differences of predictions in the ranking loss."""


def centre(values: Tensor) -> Tensor:
    """Values minus the mean of their row, shape (tasks, n)."""
    return values - values.mean(dim=1, keepdim=True)


def regression(mean: Tensor, targets: Tensor) -> Tensor:
    """Huber's loss, since the slowest configurations may be arbitrarily slow."""
    return functional.smooth_l1_loss(mean, targets)


def uncertainty(mean: Tensor, log_variance: Tensor, targets: Tensor) -> Tensor:
    """The loss of a predicted variance: minus the log of a normal density, for shapes (n,).

    The mean is detached, because it would neglect targets that are hard to predict (Seitzer et al.
    2022, section 3).
    """
    error = (targets - mean.detach()) ** 2
    return 0.5 * (log_variance + error * torch.exp(-log_variance)).mean()


def ranking(mean: Tensor, targets: Tensor, task: Tensor) -> Tensor:
    """The pairwise logistic loss of the order of a task's candidates (Burges et al. 2005).

    ``task`` is the number of each candidate's task; all shapes are (n,).
    """
    apart = targets[:, None] - targets[None, :]
    counts = (task[:, None] == task[None, :]) & (apart > 0.0)
    weight = torch.where(counts, apart.clamp(max=1.0), torch.zeros_like(apart))
    loss = functional.softplus(-_SHARPNESS * (mean[:, None] - mean[None, :]))
    return (weight * loss).sum() / weight.sum().clamp(min=1e-6)
