"""What is in this repository, read from its files."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]
GENERATED = {"__pycache__", "build", "dist", "runs", "_build", "reference"}


@attrs.frozen(kw_only=True)
class Package:
    """One of ``packages/``: its folder and the ``[project]`` table."""

    folder: Path
    project: dict

    @property
    def name(self):
        return self.project["name"]

    @property
    def modules(self):
        """The folder with the code, or None for the package that only depends on the others."""
        return next((self.folder / "src").glob("chameleon_*"), None)

    @property
    def hooks(self):
        """The module that its entry point names, or None for a package that brings no plugins."""
        points = self.project.get("entry-points", {}).get("chameleon", {})
        assert len(points) <= 1
        return next(iter(points.values()), None)


def read_packages():
    return [
        Package(folder=file.parent, project=tomllib.loads(file.read_text())["project"])
        for file in sorted(ROOT.glob("packages/*/pyproject.toml"))
    ]


def pytest_generate_tests(metafunc):
    if "package" in metafunc.fixturenames:
        given = read_packages()
        metafunc.parametrize("package", given, ids=[one.name for one in given])


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def packages():
    return read_packages()


@pytest.fixture(scope="session")
def files():
    """Every file of the repository but what tools and runs leave."""
    found = []
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [
            name
            for name in inner
            if name not in GENERATED
            and not name.endswith(".egg-info")
            and (not name.startswith(".") or name in {".ci", ".github"})
        ]
        # In a worktree of git, `.git` is a file that names a folder of the machine.
        found += [Path(folder) / name for name in names if name != ".git"]
    return found
