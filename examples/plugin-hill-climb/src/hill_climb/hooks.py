"""What this package registers. Every command imports it, so it imports nothing large."""

from chameleon_core.plugin_api import PluginRecord, hookimpl

from hill_climb.options import Options

RECORD = PluginRecord(
    name="hill-climb",
    summary="Hill climbing from several starts, on measurements alone",
    options=Options,
    factory="hill_climb.explorer:HillClimb",
)


@hookimpl
def chameleon_explorers():
    """The explorer."""
    yield RECORD
