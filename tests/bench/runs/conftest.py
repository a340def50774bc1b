"""Small runs of synthetic stages, made once."""

import pytest
from chameleon_bench import hooks
from synthetic import run_synthetic, synthetic_document

OPERATORS = [[7, 9], [5, 5, 5], [11, 4]]


@pytest.fixture(scope="session")
def few(tmp_path_factory):
    """A finished run of three operators."""
    return _run(tmp_path_factory.mktemp("runs") / "few", measurements=8)


@pytest.fixture(scope="session")
def many(few):
    """The same beside it with another seed and a larger budget."""
    return _run(few.with_name("many"), measurements=16, seed=1)


def _run(folder, *, measurements, seed=0):
    budget = {"measurements": measurements, "batch_size": 4}
    document = synthetic_document(folder, operators=OPERATORS, budget=budget, seed=seed)
    run_synthetic(document, hooks)
    return folder
