"""The command ``chameleon evaluate-predictor``, which judges a predictor on unseen tasks."""

from __future__ import annotations

import json
from pathlib import Path

import click
from chameleon_cli.api import results_alone

_ALTERNATIVES = ("xgboost", "lightgbm", "flat-network", "first-guesses")


@click.command(
    "evaluate-predictor",
    epilog="Example: chameleon evaluate-predictor cpu.safetensors datasets/cpu",
)
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option(
    "--against",
    multiple=True,
    type=click.Choice(_ALTERNATIVES),
    help="A model to compare it with; all by default. May be given again.",
)
@click.option("--alone", is_flag=True, help="Do not compare it with other models.")
@click.option(
    "--seed", default=0, show_default=True, help="The seed of the models to compare with."
)
@click.option("--threads", type=click.IntRange(min=1), help="Number of threads.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(  # noqa: PLR0917 - click passes them by name
    model: Path,
    dataset: Path,
    against: tuple[str, ...],
    alone: bool,
    seed: int,
    threads: int | None,
    as_json: bool,
) -> None:
    """Judge MODEL by the tasks of the data set DATASET that are unlike all tasks of its training.

    For comparison, other models are trained on the data set's tasks that MODEL was trained on, and
    are judged by the same unseen tasks. The regret is how much longer the best of the first 1 or 10
    candidates takes than the best candidate of all. A speed is relative to the best candidate: that
    of the choice without measurements, and that of the fastest of 8, which `preset: one-shot`
    measures. The table has geometric means, and the share of tasks with a speed below 0.85 (slow).
    """
    # torch takes seconds to import, which `--help` need not wait for.
    import torch  # noqa: PLC0415

    from chameleon_one_shot._predictor import evaluation  # noqa: PLC0415

    if threads is not None:
        torch.set_num_threads(threads)
    with results_alone():
        judged = evaluation.evaluate_file(
            model,
            dataset,
            alternatives=() if alone else against or _ALTERNATIVES,
            seed=seed,
            say=lambda sentence: click.echo(sentence, err=True),
        )
    if as_json:
        click.echo(json.dumps(judged.to_json()))
        return
    tasks = len({result.task for result in judged.results})
    click.echo(f"{tasks} tasks that the model has not seen, mean over tasks:")
    click.echo(evaluation.table(judged))
