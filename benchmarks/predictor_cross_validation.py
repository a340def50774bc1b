"""Predictors of a data set, each part of its tasks held out once.

    chameleon dataset import DATABASE --to DATASET
    python benchmarks/predictor_cross_validation.py DATASET --folds 5 [--by device]

Every model is trained on the same tasks, ends its training by the same others, and is judged by
the part held out, which none has seen. ``--by task`` holds out groups of similar tasks, ``--by
device`` all that one device has measured. The means are over tasks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
import torch
from chameleon_one_shot._dataset.format import read_dataset
from chameleon_one_shot._dataset.tasks import DatasetError, DatasetTask, canonical
from chameleon_one_shot._predictor.alternatives import ALTERNATIVES
from chameleon_one_shot._predictor.evaluation import (
    ONE_SHOT,
    Evaluation,
    TaskResult,
    results_of,
    score_function,
    table,
)
from chameleon_one_shot._predictor.examples import Example, examples_of
from chameleon_one_shot._predictor.groups import Labels, divide_groups, task_groups
from chameleon_one_shot._predictor.options import KINDS, TrainingOptions
from chameleon_one_shot._predictor.pretraining import Split, SplitShares, train_model
from numpy.typing import NDArray


def device_groups(tasks: Sequence[DatasetTask]) -> Labels:
    """Divide tasks into groups by device: a number from 0 for each task, shape (tasks,)."""
    names = [canonical(dict(task.device)) for task in tasks]
    return np.unique(names, return_inverse=True)[1]


BY = {"task": task_groups, "device": device_groups}


@click.command()
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option("--folds", type=int, help="Parts held out; each group by itself where missing.")
@click.option("--by", type=click.Choice(list(BY)), default="task", show_default=True)
@click.option("--against", multiple=True, type=click.Choice(list(ALTERNATIVES)))
@click.option("--kind", type=click.Choice(KINDS), default=KINDS[0], show_default=True)
@click.option("--steps", default=TrainingOptions().steps, show_default=True)
@click.option("--members", default=TrainingOptions().members, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--threads", default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(  # noqa: PLR0917 - click passes them by name
    dataset: Path,
    folds: int | None,
    by: str,
    against: tuple[str, ...],
    kind: str,
    steps: int,
    members: int,
    seed: int,
    threads: int,
    as_json: bool,
) -> None:
    """Hold out each part of DATASET once and compare models on it."""
    torch.set_num_threads(threads)
    examples = examples_of(read_dataset(dataset))
    labels = BY[by]([one.source for one in examples])
    options = TrainingOptions(kind=kind, steps=steps, members=members, seed=seed)
    evaluation = cross_validate(
        examples, options, folds or len(set(labels.tolist())), labels, against
    )
    click.echo(json.dumps(evaluation.to_json()) if as_json else table(evaluation))


def cross_validate(
    examples: Sequence[Example],
    options: TrainingOptions,
    count: int,
    groups: Labels,
    alternatives: Sequence[str],
) -> Evaluation:
    """Cross-validate a predictor and other models: each fold of the tasks is held out once.

    Args:
        examples: The examples of a data set.
        options: The options of the predictor's training. The other models get its seed.
        count: The number of folds.
        groups: A number per example; examples with the same number are held out together.
        alternatives: The names of the other models, keys of ``ALTERNATIVES``; all if empty.

    Raises:
        DatasetError: There are too few groups.
    """
    results: list[TaskResult] = []
    for number, fold in enumerate(folds(groups, count, options.seed), 1):
        rest = np.setdiff1d(np.arange(len(examples)), fold)
        weights = np.array([len(examples[at]) for at in rest], np.float64)
        inner = groups[rest]
        if len(np.unique(inner)) == 1:
            # One device is left, say: tasks of it that are not alike end the training.
            inner = task_groups([examples[at].source for at in rest])
        shares = [SplitShares().stopping]
        first, second = (rest[part] for part in divide_groups(inner, weights, shares, options.seed))
        parts = Split(
            training=[examples[at] for at in first],
            stopping=[examples[at] for at in second],
            held_out=[examples[at] for at in fold],
        )
        tasks = f"{len(first)} tasks to train on, {len(fold)} held out"
        click.echo(f"fold {number} of {count}: {tasks}", err=True)
        own = results_of(ONE_SHOT, score_function(train_model(parts, options)), parts.held_out)
        for name in alternatives or ALTERNATIVES:
            other = ALTERNATIVES[name]()
            other.fit(parts.training, parts.stopping, options.seed)
            own += results_of(name, other.scores, parts.held_out)
        click.echo(table(Evaluation(results=tuple(own))), err=True)
        results += own
    return Evaluation(results=tuple(results))


def folds(labels: Labels, count: int, seed: int) -> list[NDArray[np.intp]]:
    """Divide items at random into folds, without splitting groups.

    The folds have about the same number of groups.

    Args:
        labels: The group of each item.
        count: The number of folds.
        seed: The seed of the random division.

    Returns:
        The indices of the items of each fold.

    Raises:
        DatasetError: There are fewer groups than folds.
    """
    groups = np.unique(labels)
    if len(groups) < count:
        raise DatasetError(
            f"{len(groups)} groups of similar tasks cannot be divided into {count} folds",
            hint="Ask for fewer folds, or collect tasks of more operators and shapes.",
        )
    order = np.random.default_rng(seed).permutation(groups)
    return [np.flatnonzero(np.isin(labels, part)) for part in np.array_split(order, count)]


if __name__ == "__main__":
    main()
