"""The ``chameleon`` command with the synthetic plugins, to be run as a process of its own."""

import sys

from chameleon_cli._main import run
from chameleon_core._pipeline import load
from chameleon_core._plugins import registry
from synthetic import synthetic_registry

if __name__ == "__main__":
    known = synthetic_registry()
    for module in (registry, sys.modules[run.__module__], load):
        module.default_registry = lambda: known
    sys.exit(run(sys.argv[1:]))
