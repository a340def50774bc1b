"""``python -m chameleon_cli`` is the ``chameleon`` command."""

from chameleon_cli import main

main()
