"""``chameleon space``: shows the design space of each operator, before anything is measured."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import click
import numpy as np
from chameleon_core.api import TaskSource, load_pipeline, words
from chameleon_core.plugin_api import ConfigError, Configs, DesignSpace, Knob

from chameleon_cli._options import set_option
from chameleon_cli._streams import results_alone

_MANY = 10**6
"""Numbers from this one on are shown with three digits."""

_SHOWN = 8
"""Number of a knob's values that are shown; the JSON has all of them."""


@click.command("space", epilog="Example: chameleon space pipeline.yaml --set space=sketch")
@click.argument("pipeline", type=click.Path(path_type=Path))
@set_option("space=sketch")
@click.option("--operator", "only", metavar="NAME", help="Show only this operator.")
@click.option(
    "--samples",
    type=click.IntRange(min=1, max=1_000_000),
    default=4096,
    show_default=True,
    help="Index vectors drawn for the share of legal ones.",
)
@click.option(
    "--guesses",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="First guesses shown, at most.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(  # noqa: PLR0917 - click passes them by name
    pipeline: Path,
    overrides: tuple[str, ...],
    only: str | None,
    samples: int,
    guesses: int,
    as_json: bool,
) -> None:
    """Show the design space of each operator of PIPELINE. Nothing is built or measured.

    The size counts all index vectors, legal or not. The share of legal ones is estimated from
    random index vectors. In these vectors, knobs that do not apply are set to their first value.
    """
    with results_alone():
        resolved = load_pipeline(pipeline, overrides)
        source = TaskSource(resolved)
        target = source.target()
        tasks = source.tasks(target)
        names = [task.name for task in tasks]
        if only is not None and only not in names:
            raise ConfigError(
                f"the pipeline has no operator '{only}'{words.did_you_mean(only, names)}",
                hint=f"operators: {', '.join(names)}",
            )
        chosen = [task for task in tasks if only in (None, task.name)]
        described = [
            {
                "operator": task.name,
                "kind": task.operator,
                "flop": task.flop,
                **describe_space(space, samples=samples, guesses=guesses, seed=resolved.seed),
            }
            for task, space in zip(chosen, source.spaces(chosen), strict=True)
        ]
    if as_json:
        document = {"target": target, "space": resolved.space.name, "operators": described}
        click.echo(json.dumps(document, indent=2))
        return
    click.echo(f"target {target}, space '{resolved.space.name}'")
    for operator in described:
        _print(operator)


def _print(operator: dict[str, Any]) -> None:
    legal = operator["legal"]
    looked_at = f"all {legal['samples']}" if legal["exact"] else f"{legal['samples']} random ones"
    count = legal["configurations"]
    click.echo()
    click.secho(f"{operator['operator']}: {operator['kind']}", bold=True)
    knobs = words.counted(len(operator["knobs"]), "knob")
    click.echo(
        f"  {knobs}, {count_in_words(operator['size'])} index vectors; "
        f"{legal['share']:.1%} of {looked_at} are legal"
        + ("" if count is None else f", {words.counted(count, 'configuration')}")
    )
    width = max(len(knob["name"]) for knob in operator["knobs"])
    for knob in operator["knobs"]:
        values = [_word(value) for value in knob["values"]]
        more = f", ... ({len(values)} in all)" if len(values) > _SHOWN else ""
        where = ""
        if knob["when"] is not None:
            conditions = " or ".join(_word(value) for value in knob["when"]["values"])
            where = f"    where {knob['when']['knob']} is {conditions}"
        click.echo(f"    {knob['name']:{width}}  {', '.join(values[:_SHOWN])}{more}{where}")
    if not operator["first_guesses"]:
        click.echo("  no first guesses: a search begins with random configurations")
    for number, guess in enumerate(operator["guesses"], 1):
        settings = ", ".join(f"{name} {_word(value)}" for name, value in guess.items())
        click.echo(f"  first guess {number} of {operator['first_guesses']}: {settings}")


def count_in_words(size: int) -> str:
    """A number of configurations as text, such as ``1.2e+30``, even if too large for a float.

    Args:
        size: the number, a Python integer.
    """
    return str(size) if size < _MANY else f"{Decimal(size):.3g}"


def _word(value: Any) -> str:
    """A knob's value as text. The factors of a loop's extent are joined, as in 8x4."""
    return "x".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


@attrs.frozen(kw_only=True)
class LegalShare:
    """The share of index vectors that are legal configurations.

    An index vector has one index per knob. A knob may apply only for some values of another knob.
    Knobs that do not apply are set to their first value before the test, because they must have it
    in a legal configuration.

    Attributes:
        share: the number of legal vectors divided by the number of tested vectors.
        samples: the number of tested vectors.
        exact: whether all vectors of the space were tested. If not, they were drawn uniformly.
        configurations: the number of legal configurations, or None if the space is too large to
            list them.
    """

    share: float
    samples: int
    exact: bool
    configurations: int | None = None


def legal_share(space: DesignSpace, samples: int, rng: np.random.Generator) -> LegalShare:
    """Compute or estimate the share of legal index vectors.

    Args:
        space: the design space.
        samples: the largest number of index vectors to test. Smaller spaces are tested as a whole.
        rng: the random generator that draws the vectors.
    """
    exact = space.size <= samples
    rows: Configs
    if exact:
        rows = space.from_keys(np.arange(space.size))
    else:
        rows = rng.integers(0, space.cardinalities, (samples, len(space.knobs)), np.int32)
    legal = space.legal(space.canonical(rows))
    everything = space.all_legal
    return LegalShare(
        share=float(legal.mean()),
        samples=len(rows),
        exact=exact,
        configurations=None if everything is None else len(everything),
    )


def describe_knob(space: DesignSpace, knob: Knob) -> dict[str, Any]:
    """A knob as JSON values: its name, all its values, and the condition under which it applies.

    Args:
        space: the design space of the knob.
        knob: a knob of the space.
    """
    when = None
    if knob.when is not None:
        other = space.knobs[space.index[knob.when[0]]]
        when = {"knob": other.name, "values": [other.decode(index) for index in knob.when[1]]}
    values = [knob.decode(index) for index in range(knob.cardinality)]
    return {"name": knob.name, "values": values, "when": when}


def describe_space(space: DesignSpace, *, samples: int, guesses: int, seed: int) -> dict[str, Any]:
    """A design space as JSON values.

    Args:
        space: the design space.
        samples: the largest number of index vectors to test for the share of legal ones.
        guesses: the largest number of first guesses whose values are returned.
        seed: the seed with which index vectors are drawn.

    Returns:
        ``size`` (number of index vectors, legal or not), ``fingerprint``, ``legal`` (the fields of
        ``LegalShare``) and ``knobs`` (as ``describe_knob`` returns them). ``constraints`` are the
        reasons why configurations may be illegal. ``first_guesses`` is the number of first guesses,
        and ``guesses`` has the knob values of the first ones.
    """
    return {
        "size": space.size,
        "fingerprint": space.fingerprint,
        "legal": attrs.asdict(legal_share(space, samples, np.random.default_rng(seed))),
        "knobs": [describe_knob(space, knob) for knob in space.knobs],
        "constraints": list(dict.fromkeys(constraint.reason for constraint in space.constraints)),
        "first_guesses": len(space.first_guesses),
        "guesses": [shown_values(space, row.tolist()) for row in space.first_guesses[:guesses]],
    }


def shown_values(space: DesignSpace, config: list[int]) -> dict[str, Any]:
    """The values of a configuration's knobs by name, without knobs that do not apply.

    Args:
        space: the design space of the configuration.
        config: knob indices.
    """
    (active,) = space.active(np.asarray([config]))
    values = space.decode(config)
    return {name: value for (name, value), on in zip(values.items(), active, strict=True) if on}
