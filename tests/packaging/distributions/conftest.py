"""Every package built as a user would get it, and clean environments that have some of them."""

import json
import os
import venv
from pathlib import Path

import attrs
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from programs import completed

HERE = Path(__file__).parent
OURS = "chameleon-tuner"

VARIABLE = "CHAMELEON_DISTRIBUTIONS"
"""Names the folder with the distributions to test; `nox -s packaging` builds them and sets it."""

LARGE = {"apache-tvm", "apache-tvm-ffi", "onnx", "pyarrow", "safetensors", "torch"}
"""Libraries that no plugin may need before one of its stages is made."""


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.packaging)
            # All are built, and environments filled, within whichever test comes first.
            item.add_marker(pytest.mark.timeout(1800))


@attrs.frozen(kw_only=True)
class Built:
    """A package's distributions."""

    package: object
    wheel: Path
    sdist: Path


@pytest.fixture(scope="session")
def built(packages):
    """Every package by its name: a source distribution, and the wheel that is made of that one."""
    folder = Path(os.environ[VARIABLE]).absolute()
    collected = {}
    for package in packages:
        start = f"{package.name.replace('-', '_')}-{package.project['version']}"
        (wheel,) = folder.glob(f"{start}-*.whl")
        (sdist,) = folder.glob(f"{start}.tar.gz")
        collected[package.name] = Built(package=package, wheel=wheel, sdist=sdist)
    return collected


def run(words, *, cwd=None, codes=(0,)):
    """Run a command without what this process has on its paths; returns what it printed."""
    variables = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "NOX"))
    }
    done = completed(words, None, cwd=cwd, env={**variables, "CHAMELEON_RECORDS": "none"})
    assert done.returncode in codes, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@attrs.frozen(kw_only=True)
class Environment:
    """A virtual environment, and a folder to work in that is nowhere near the repository."""

    folder: Path

    def python(self, *words, **more):
        """Run its Python."""
        return run([self.folder / "bin" / "python", "-I", *words], cwd=self.folder, **more)

    def chameleon(self, *words, **more):
        """Run the command that its distributions brought."""
        return run([self.folder / "bin" / "chameleon", *words], cwd=self.folder, **more)

    def line_of(self, file, text):
        """The number of a file's line."""
        return (self.folder / file).read_text().splitlines().index(text) + 1

    def has(self, module):
        """Whether a module could be imported."""
        program = f"import importlib.util as u; print(u.find_spec({module!r}) is not None)"
        return json.loads(self.python("-c", program).stdout.lower())


@pytest.fixture(scope="session")
def environment(root, built, tmp_path_factory):
    """Makes clean environments that have some of the packages, and of what these need the rest."""

    def make(*names):
        folder = tmp_path_factory.mktemp("environment")
        venv.create(folder, with_pip=True)
        pip = [folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install"]
        pip += ["--quiet", "-c", root / "constraints.txt"]
        needed = {str(other) for name in names for other in others(built[name].package)}
        run([*pip, *sorted(needed)])
        wheels = [built[name].wheel for name in names]
        run([*pip, "--no-deps", *wheels])
        return Environment(folder=folder)

    return make


def others(package):
    """What a package asks for that is not ours, without large libraries."""
    wanted = map(Requirement, package.project.get("dependencies", ()))
    return [
        row
        for row in wanted
        if not row.name.startswith(OURS) and canonicalize_name(row.name) not in LARGE
    ]
