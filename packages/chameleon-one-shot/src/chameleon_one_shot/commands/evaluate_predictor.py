"""``chameleon evaluate-predictor``: how good a model is on tasks that it has not seen."""

from __future__ import annotations

from pathlib import Path

import click
from chameleon_cli.streams import results_alone


@click.command("evaluate-predictor")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option(
    "--against",
    multiple=True,
    type=click.Choice(["xgboost", "lightgbm", "flat-network", "first-guesses"]),
    help="What to compare it with; all by default. Give it several times for several.",
)
@click.option("--alone", is_flag=True, help="Compare it with nothing.")
@click.option("--seed", default=0, show_default=True, help="Of the models it is compared with.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads that compute.")
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
    """Judge MODEL by the tasks of the folder DATASET that are unlike all it was trained on.

    Other models are trained on the tasks of the folder that it was trained on, and judged by the
    same ones. Regret is how much longer the best of the first 1 or 10 candidates takes than the
    best of all.
    """
    import json  # noqa: PLC0415 - --help is quick

    import torch  # noqa: PLC0415

    from chameleon_one_shot.dataset.format import read_dataset  # noqa: PLC0415
    from chameleon_one_shot.predictor.evaluation import evaluate, table  # noqa: PLC0415
    from chameleon_one_shot.predictor.examples import examples_of  # noqa: PLC0415
    from chameleon_one_shot.predictor.model import load  # noqa: PLC0415
    from chameleon_one_shot.predictor.rivals import RIVALS  # noqa: PLC0415

    if threads is not None:
        torch.set_num_threads(threads)
    with results_alone():
        found = evaluate(
            load(model),
            examples_of(read_dataset(dataset)),
            rivals=() if alone else against or tuple(RIVALS),
            seed=seed,
            say=lambda sentence: click.echo(sentence, err=True),
        )
    if as_json:
        click.echo(json.dumps(found.to_json()))
        return
    tasks = len({one.task for one in found.results})
    click.echo(f"{tasks} tasks that the model has not seen, mean over tasks:")
    click.echo(table(found.means))
