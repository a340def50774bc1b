"""Errors of a stage in a worker, raised again beside the user."""

from __future__ import annotations

from chameleon_core import errors

from chameleon_runners.worker.protocol import Message


def raise_stage_error(factory: str, reply: Message) -> None:
    """Raise what a worker's ``error`` reply stands for.

    Args:
        factory: the stage that failed.
        reply: the reply; ``type`` names an error of ``chameleon_core.errors``, or nothing.

    Raises:
        ChameleonError: always; a ``PluginError`` for an exception that is none of ours.
    """
    kind = getattr(errors, reply["type"], None) if reply["type"] else None
    if isinstance(kind, type) and issubclass(kind, errors.ChameleonError):
        raise kind(reply["message"], hint=reply["hint"])
    raise errors.PluginError(
        f"the stage {factory!r} fails in a worker process: {reply['message']}",
        hint="check its options, and that what it needs is installed where the runner is",
    )
