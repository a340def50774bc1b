"""The ``chameleon`` command with the synthetic plugins, to be run as a process of its own."""

import sys

from chameleon_cli._main import run
from chameleon_core.api import Registry
from synthetic import synthetic_registry

if __name__ == "__main__":
    known = synthetic_registry()
    Registry.default = lambda: known
    sys.exit(run(sys.argv[1:]))
