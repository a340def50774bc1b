"""Predictors of a data set, each part of its tasks held out once.

    chameleon dataset import DATABASE --to DATASET
    python benchmarks/predictor_cross_validation.py DATASET --folds 5 [--by device]

Every model is trained on the same tasks, ends its training by the same others, and is judged by
the part held out, which none has seen. ``--by task`` holds out groups of similar tasks, ``--by
device`` all that one device has measured. The means are over tasks.
"""

from __future__ import annotations

import json
from pathlib import Path

import click
import torch
from chameleon_one_shot.dataset.format import read_dataset
from chameleon_one_shot.predictor.alternatives import ALTERNATIVES
from chameleon_one_shot.predictor.evaluation import cross_validate, table
from chameleon_one_shot.predictor.examples import examples_of
from chameleon_one_shot.predictor.groups import device_groups, task_groups
from chameleon_one_shot.predictor.options import KINDS, TrainingOptions

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
    found = cross_validate(
        examples,
        TrainingOptions(kind=kind, steps=steps, members=members, seed=seed),
        count=folds or len(set(labels.tolist())),
        labels=labels.tolist(),
        alternatives=against or tuple(ALTERNATIVES),
        say=lambda sentence: click.echo(sentence, err=True),
    )
    click.echo(json.dumps(found.to_json()) if as_json else table(found))


if __name__ == "__main__":
    main()
