"""Synthetic runs in a test's own folder."""

from __future__ import annotations

import pytest

from .synthetic import measured_lines, synthetic_run


@pytest.fixture
def run(tmp_path):
    """Runs a pipeline in ``tmp_path/name``."""

    def made(name, **more):
        return synthetic_run(tmp_path / name, **more)

    return made


@pytest.fixture
def measured(tmp_path):
    """What a run of ``run`` has measured, a line each."""

    def lines(name):
        return measured_lines(tmp_path / name)

    return lines
