"""What is in this repository, read from its files."""

import importlib.util
import json
import os
import sys
import tomllib
from pathlib import Path

import attrs
import pytest
from packaging.requirements import Requirement
from programs import completed

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


def requirements(package):
    """What a package asks for, in whatever extra."""
    optional = package.project.get("optional-dependencies", {}).values()
    texts = [*package.project.get("dependencies", []), *(text for row in optional for text in row)]
    return [Requirement(text) for text in texts]


def read_packages():
    return [
        Package(folder=file.parent, project=tomllib.loads(file.read_text())["project"])
        for file in sorted(ROOT.glob("packages/*/pyproject.toml"))
    ]


def pytest_generate_tests(metafunc):
    if "package" in metafunc.fixturenames:
        arguments = read_packages()
        metafunc.parametrize("package", arguments, ids=[row.name for row in arguments])


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def packages():
    return read_packages()


@pytest.fixture(scope="session")
def files():
    """Every file of the repository but what tools and runs leave."""
    collected = []
    for folder, inner, names in os.walk(ROOT):
        inner[:] = [
            name
            for name in inner
            if name not in GENERATED
            and not name.endswith(".egg-info")
            and (not name.startswith(".") or name in {".ci", ".github"})
        ]
        # In a worktree of git, `.git` is a file that names a folder of the machine; `.coverage` is
        # what `nox -s coverage` leaves.
        collected += [Path(folder) / name for name in names if name not in {".git", ".coverage"}]
    return collected


def installed_from_wheel(example, folder):
    """The environment of a process that has an example's wheel installed.

    Args:
        example: the folder of its distribution.
        folder: an empty one.
    """
    # Built from a copy, since setuptools leaves files where it builds.
    source, wheels, site = folder / "source", folder / "wheels", folder / "site"
    files = [file for file in example.rglob("*") if file.suffix in {".py", ".toml", ".md"}]
    for file in files:
        copy = source / file.relative_to(example)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(file.read_text())
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    # The index is asked for the build's own tool only where it is not installed.
    offline = ["--no-build-isolation"] if importlib.util.find_spec("setuptools") else []
    build = [*pip, "wheel", "--no-deps", *offline, "--wheel-dir", str(wheels), str(source)]
    completed(build)
    (wheel,) = wheels.glob("*.whl")
    install = [*pip, "install", "--no-deps", "--target", str(site), str(wheel)]
    completed(install)
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *([known] if known else [])])}


def chameleon(environment, folder, *arguments):
    """What a command prints as JSON."""
    words = [sys.executable, "-m", "chameleon_cli", *arguments, "--json"]
    return json.loads(completed(words, env=environment, cwd=folder).stdout)
