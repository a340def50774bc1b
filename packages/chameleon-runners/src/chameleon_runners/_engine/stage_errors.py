"""Errors of a stage in a worker process, raised again in the main process."""

from __future__ import annotations

from chameleon_core import plugin_api

from chameleon_runners._worker.protocol import Message


def raise_stage_error(factory: str, reply: Message) -> None:
    """Raise the error that a worker's reply with status ``error`` describes."""
    kind = getattr(plugin_api, reply["type"], None) if reply["type"] else None
    # The constructor of a PipelineError takes problems instead of a message.
    if (
        isinstance(kind, type)
        and issubclass(kind, plugin_api.ChameleonError)
        and not issubclass(kind, plugin_api.PipelineError)
    ):
        raise kind(reply["message"], hint=reply["hint"])
    raise plugin_api.PluginError(
        f"the stage {factory!r} fails in a worker process: {reply['message']}",
        hint="check its options, and that what it needs is installed where the runner is",
    )
