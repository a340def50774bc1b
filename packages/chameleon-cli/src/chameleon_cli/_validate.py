"""``chameleon validate``: checks a pipeline, and prints it with all defaults."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click
from chameleon_core.api import Registry, ResolvedPipeline, dump_yaml, from_dict, load_pipeline

from chameleon_cli._model_files import chosen_model, is_model
from chameleon_cli._options import set_option
from chameleon_cli._streams import results_alone


@click.command(
    "validate", epilog="Example: chameleon validate pipeline.yaml --set explorer=annealing"
)
@click.argument("pipeline", type=click.Path())
@set_option("budget.measurements=64")
@click.option(
    "--quick", is_flag=True, help="Check only the file: resolve no target, import nothing."
)
@click.option(
    "--coverage",
    is_flag=True,
    help="Show the operators of a network, and which of them cannot be compiled.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(
    start_logs: Callable[[], None],
    *,
    pipeline: str,
    overrides: tuple[str, ...],
    quick: bool,
    coverage: bool,
    as_json: bool,
) -> None:
    """Check PIPELINE, and print it with presets expanded and every default written out.

    Chameleon resolves the target, imports the stages, and tries the model as a run does before it
    measures. It reads a network, compiles it without tuning, and compares its outputs once with
    those of its framework.

    With --coverage, Chameleon reads the network, but compiles nothing. It shows how often each
    operator occurs, and everything that cannot be compiled. PIPELINE may then also be the model
    itself, such as net.onnx, net.pt2 or net.py:function.
    """
    with results_alone():
        model = _of_model(pipeline, overrides) if coverage else None
        resolved = model or load_pipeline(pipeline, overrides)
        if coverage or not quick:
            start_logs()
            # The import brings NumPy, which faults of the file itself do not need.
            from chameleon_cli import _inspection as inspection  # noqa: PLC0415

            if coverage:
                operators = inspection.coverage_of(resolved)
            else:
                inspection.inspect_pipeline(resolved)
    if coverage:
        inspection.show_coverage(operators, as_json=as_json)
        return
    if as_json:
        click.echo(
            json.dumps(
                {
                    "preset": resolved.preset,
                    "digest": resolved.digest,
                    "pipeline": dict(resolved.document),
                },
                indent=2,
            )
        )
    else:
        click.echo(dump_yaml(dict(resolved.document), comment=resolved.origin), nl=False)


def _of_model(source: str, overrides: tuple[str, ...]) -> ResolvedPipeline | None:
    """A pipeline for a model that a user names, or None if the name is a pipeline's."""
    registry = Registry.default()
    if not is_model(registry, source):
        return None
    model = chosen_model(registry, Path(), source).pipeline["model"]
    return from_dict({"model": model, "target": "native"}, overrides)
