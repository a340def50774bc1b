"""What the outcomes of the corpus depend on: the state of the code, the machine, versions."""

from __future__ import annotations

import hashlib
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from chameleon_cli._env import describe
from chameleon_core._errors import ChameleonError
from corpus_process import last_words

_PACKAGES = ("apache-tvm", "torch", "onnxruntime", "onnxscript", "openvino", "transformers")
"""What an outcome depends on beside the tuner."""


def origin(repository: Path) -> dict[str, Any]:
    """Commit, processor and versions, as an outcome keeps them."""
    machine = describe()["cpu"]
    return {
        "commit": commit_of(repository),
        "processor": machine["model"],
        "cores": machine["usable"],
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def code_of(repository: Path) -> str:
    """What identifies the tuner and the networks: their files in git, and what was changed since.

    Changes of documents or tests leave it as it is. Files that git does not know do not count.

    Raises:
        ChameleonError: there is no git repository.
    """
    places = ["packages", "benchmarks/corpus_networks"]
    trees = _git(repository, "rev-parse", *(f"HEAD:{place}" for place in places))
    changes = _git(repository, "diff", "HEAD", "--", *places)
    return hashlib.sha256((trees + changes).encode()).hexdigest()[:24]


def commit_of(repository: Path) -> str:
    """The commit, with ``-dirty`` where files were changed since."""
    return _git(repository, "describe", "--always", "--dirty", "--abbrev=12").strip()


def _git(repository: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(repository), *words],  # noqa: S607 - the user's git
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ChameleonError(
            f"git does not tell the state of {repository}: {last_words(done.stderr)}",
            hint="Run the corpus from a clone of the repository.",
        )
    return done.stdout


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
