"""The public names of this package for commands of others: options, tables, and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chameleon_system.api import lazy_exports

if TYPE_CHECKING:
    from chameleon_cli._options import given_again, output_option, seconds, set_option, trust_option
    from chameleon_cli._progress import progress_for
    from chameleon_cli._result_rows import (
        duration,
        failures,
        front_table,
        network_remarks,
    )
    from chameleon_cli._results_table import print_network, print_table
    from chameleon_cli._run import command as run_command
    from chameleon_cli._signals import signals
    from chameleon_cli._streams import results_alone
else:
    __all__, __getattr__, __dir__ = lazy_exports(__name__, __file__)
