"""``python -m chameleon_core`` is the ``chameleon`` command."""

from chameleon_core.cli import main

main()
