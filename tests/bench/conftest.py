"""Suites of synthetic stages, which run in milliseconds."""

from functools import partial

import pytest
from chameleon_bench import hooks
from chameleon_bench._cells.execute import Execution
from chameleon_bench._suites.load import load_suite
from synthetic import synthetic_registry

WORKERS = "synthetic:synthetic_registry"

STAGES = """
target: nowhere
space: synthetic
explorer: synthetic
cost_model: synthetic
sampler: synthetic
synthesizer: synthetic
scheduler: round-robin
"""


@pytest.fixture
def pipeline(pipeline):
    """The same with this package's plugin, which writes a report of each run."""
    return lambda *, plugins=(), **more: pipeline(plugins=[hooks, *plugins], **more)


def loaded(folder, text, *overrides, plugins=()):
    """A suite from its text, with the synthetic stages added."""
    file = folder / "suite.yaml"
    file.write_text(text + STAGES, encoding="utf-8")
    output = f"output={folder / 'out'}"
    return load_suite(file, [output, *overrides], registry=synthetic_registry(*plugins))


@pytest.fixture
def load(tmp_path):
    """See ``loaded``."""
    return partial(loaded, tmp_path)


@pytest.fixture(scope="session")
def run():
    """Runs a suite; the names of the cells that ended, in order."""

    def made(suite, *, workers=1, **more):
        names = []
        execution = Execution(
            registry=synthetic_registry(),
            worker_registry=WORKERS,
            workers=workers,
            ended=lambda cell, _failure: names.append(cell.name),
            **more,
        )
        execution.run(suite)
        return names

    return made
