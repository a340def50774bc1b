"""``python -m chameleon_core`` is the ``chameleon`` command."""

import sys

from chameleon_core.cli import main

sys.exit(main())
