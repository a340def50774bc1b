"""Made-up kernels, and one small model of them for all tests of predictors."""

from types import SimpleNamespace

import attrs
import numpy as np
import pytest
from chameleon_core._task import Task
from chameleon_core.plugin_api import Choice, Constraint, DesignSpace
from chameleon_one_shot._dataset.tasks import DatasetTask
from chameleon_one_shot._predictor.examples import Example, configs_of_choices, log_quality
from chameleon_one_shot._predictor.options import Architecture, TrainingOptions
from chameleon_one_shot._predictor.predictor import Predictor
from chameleon_one_shot._predictor.pretraining import Split, train_model
from chameleon_one_shot._tokens.configuration import task_tokens

DEVICE = {"kind": "llvm", "mcpu": "x", "features": ["avx2", "fma"], "vector_bytes": 32, "cores": 2}
SIZES = ((64, 32), (128, 48), (256, 64), (512, 96), (96, 128), (192, 256), (384, 40), (80, 512))
TILES = (1, 2, 4, 8, 16, 32, 64)


def task_of(rows, columns, *, operator="product", dtype="float32", target='{"kind": "llvm"}'):
    arguments = {"rows": rows, "columns": columns, "dtype": dtype}
    return Task(
        name=f"{operator}-{rows}x{columns}",
        operator=operator,
        arguments=arguments,
        target=target,
        flop=2.0 * rows * columns,
    )


def space_of(task):
    rows, columns = task.arguments["rows"], task.arguments["columns"]

    def features(values):
        tile = values["tile_rows"] * values["tile_columns"]
        waste = -(-rows // values["tile_rows"]) * values["tile_rows"] / rows
        return np.stack([np.log2(tile), waste], axis=1)

    return DesignSpace(
        [
            Choice(name="tile_rows", options=TILES),
            Choice(name="tile_columns", options=tuple(t for t in TILES if t <= columns)),
            Choice(name="order", options=("rows", "columns")),
            Choice(name="unroll", options=(1, 2, 4), when=("order", (1,))),
        ],
        constraints=[
            Constraint(
                reason="the tile is too large",
                holds=lambda values: values["tile_rows"] * values["tile_columns"] <= 1024,
            )
        ],
        features=DesignSpace.FeatureBlock(
            names=("held", "waste"),
            compute=features,
            groups=(("tile", ("held",)), ("loop", ("waste",))),
        ),
        first_guesses=np.array([[2, 2, 0, 0], [3, 2, 0, 0]], np.int32),
    )


def seconds_of(task, space, configs, noise=0.0):
    values = space.values(configs)
    tile = np.log2(values["tile_rows"] * values["tile_columns"])
    log_time = 0.25 * np.abs(tile - 6.0) + 0.3 * (values["order"] == "columns")
    log_time = log_time + 0.1 * np.log2(values["unroll"]) + noise
    log_time = log_time + 0.1 * np.abs(np.log2(values["tile_rows"]) - np.log2(task.flop) / 5)
    return 1e-9 * task.flop * np.exp(log_time)


def measured(rows, columns, *, count=40, seed=0, device=DEVICE, **task):
    """A task of a data set with some of its configurations, one of which failed."""
    what = task_of(rows, columns, **task)
    space = space_of(what)
    rng = np.random.default_rng([seed, rows, columns])
    configs = space.sample(count, rng)
    seconds = seconds_of(what, space, configs, 0.02 * rng.normal(size=len(configs)))
    seconds[-1] = np.inf
    return DatasetTask(
        task=what,
        device=device,
        threads=2,
        source="made up",
        choices=[space.decode(row) for row in configs],
        seconds=seconds,
        failures=[None] * (len(configs) - 1) + ["run_error"],
    )


def example(rows, columns, **given):
    """The same with its design space, as a provider would give it."""
    source = measured(rows, columns, **given)
    space = space_of(source.task)
    return Example(
        source=source,
        tokens=task_tokens(source.task, source.device, 2, space),
        configs=configs_of_choices(space, source.choices),
        quality=log_quality(source.seconds),
    )


@pytest.fixture(scope="session")
def made():
    """What makes tasks, their spaces and their measurements."""
    return SimpleNamespace(
        example=example,
        measured=measured,
        seconds_of=seconds_of,
        space_of=space_of,
        task_of=task_of,
        device=DEVICE,
        sizes=SIZES,
    )


@pytest.fixture(scope="session")
def options():
    """A training of a second or two."""
    return TrainingOptions(
        kind="networks",
        members=1,
        architecture=Architecture(width=16, heads=2, dropout=0.0),
        steps=120,
        evaluate_every=40,
        tasks=5,
        candidates=24,
        learning_rate=1e-2,
    )


@pytest.fixture(scope="session")
def examples():
    return [example(*sizes) for sizes in SIZES]


@pytest.fixture(scope="session", params=["trees", "networks"])
def model(request, examples, options):
    """Trained on five tasks; two are for its limits, and one is left."""
    parts = Split(training=examples[:5], stopping=examples[5:7], held_out=examples[7:])
    options = attrs.evolve(options, kind=request.param)
    return train_model(parts, options, command="chameleon pretrain made-up")


@pytest.fixture(scope="session")
def networks(model):
    """The model's networks."""
    if not isinstance(model.predictor, Predictor):
        pytest.skip("it has trees")
    return model
