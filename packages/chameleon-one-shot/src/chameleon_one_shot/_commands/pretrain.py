"""The command ``chameleon pretrain``, which trains a predictor on a data set."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import click
from chameleon_cli.api import results_alone

from chameleon_one_shot._dataset.format import read_dataset
from chameleon_one_shot._predictor.options import KINDS, Architecture, TrainingOptions


@click.command("pretrain", epilog="Example: chameleon pretrain datasets/cpu --to cpu.safetensors")
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option(
    "--to",
    "file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The model's file.",
)
@click.option(
    "--hold-out",
    default=0.15,
    show_default=True,
    type=click.FloatRange(0.0, 0.9),
    help="Share of the candidates, in whole groups of similar tasks, to judge the model by.",
)
@click.option(
    "--stop-by",
    default=0.15,
    show_default=True,
    type=click.FloatRange(0.01, 0.9),
    help="Share of the candidates, in whole groups, that tells the errors of trees and ends the "
    "training of networks.",
)
@click.option(
    "--kind", type=click.Choice(KINDS), help="Boosted trees, or networks of attention.  [trees]"
)
@click.option(
    "--steps", type=click.IntRange(min=1), help="Largest number of training steps of a network."
)
@click.option(
    "--members",
    type=click.IntRange(min=1),
    help="Number of boosters or networks; their mean is the prediction.",
)
@click.option("--width", type=click.IntRange(min=4), help="Width of a network's token.")
@click.option("--layers", type=click.IntRange(min=1), help="Number of attention layers.")
@click.option("--ranking", type=click.FloatRange(min=0.0), help="Weight of the ranking loss.")
@click.option("--seed", default=0, show_default=True, help="The seed of all random choices.")
@click.option("--threads", type=click.IntRange(min=1), help="Number of threads.")
@click.option("--device", default="cpu", show_default=True, help="The device that torch trains on.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(  # noqa: PLR0917 - click passes them by name
    dataset: Path,
    file: Path,
    hold_out: float,
    stop_by: float,
    threads: int | None,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Train a predictor of kernels' speed on the data set in folder DATASET."""
    # torch takes seconds to import, which `--help` need not wait for.
    import torch  # noqa: PLC0415

    from chameleon_one_shot._predictor import pretraining  # noqa: PLC0415

    if threads is not None:
        torch.set_num_threads(threads)
    with results_alone():
        model = pretraining.pretrain(
            read_dataset(dataset),
            _options(chosen),
            pretraining.SplitShares(stopping=stop_by, held_out=hold_out),
            command=_command(dataset, file, hold_out, stop_by, chosen),
            say=lambda sentence: click.echo(sentence, err=True),
        )
        model.save(file)
    provenance = model.provenance
    if as_json:
        line = {
            "model": str(file),
            "training": len(provenance.training),
            "candidates": provenance.candidates,
            **provenance.results,
        }
        click.echo(json.dumps(line))
        return
    more = f"; then on {len(provenance.stopping)} more" if _options(chosen).kind == "trees" else ""
    tasks = f"{provenance.candidates} candidates of {len(provenance.training)} tasks{more}"
    click.echo(f"{file}: trained on {tasks}")
    judged = provenance.results.get("held_out")
    if judged:
        click.echo(
            f"{judged['tasks']} tasks held out: Kendall's tau {judged.get('tau', 0.0):.3f}, "
            f"top-10 regret {judged.get('top10', 0.0):.1%}; {judged['coverage_90']:.0%} of the "
            "candidates lie in predicted intervals of 90 %"
        )


def _options(arguments: Mapping[str, Any]) -> TrainingOptions:
    """Training options, with defaults in place of those that were not given."""
    chosen = {name: value for name, value in arguments.items() if value is not None}
    sizes = {field.name for field in attrs.fields(Architecture)}
    own = {name: value for name, value in chosen.items() if name in sizes}
    rest = {name: value for name, value in chosen.items() if name not in sizes}
    return TrainingOptions(architecture=attrs.evolve(Architecture(), **own), **rest)


def _command(
    dataset: Path, file: Path, hold_out: float, stop_by: float, arguments: Mapping[str, Any]
) -> str:
    """The command line that trains the same model, without options such as --device."""
    words = ["chameleon", "pretrain", str(dataset), "--to", str(file)]
    words += ["--hold-out", str(hold_out), "--stop-by", str(stop_by)]
    for name, value in arguments.items():
        if value is not None and name != "device":
            words += [f"--{name}", str(value)]
    return shlex.join(words)
