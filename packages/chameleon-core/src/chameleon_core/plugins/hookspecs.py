"""The markers of hooks, and the options of pluggy that implementations must not use."""

from __future__ import annotations

import pluggy


def order_of(implementation: pluggy.HookImpl) -> int:
    """The rank of an event hook's implementation: -1 for ``tryfirst``, 1 for ``trylast``, or 0."""
    return implementation.trylast - implementation.tryfirst


def is_wrapper(implementation: pluggy.HookImpl) -> bool:
    """Whether a hook's implementation is a wrapper of others, in pluggy's new or old form."""
    return bool(implementation.wrapper or implementation.hookwrapper)


def refused_event_hook(implementation: pluggy.HookImpl) -> str:
    """The reason why an event hook's implementation is refused, after "implements ..."; or ""."""
    if is_wrapper(implementation):
        return (
            "as a wrapper, which is left out: an event has no result to wrap; write a plain "
            "function, with tryfirst or trylast where the order matters"
        )
    return ""


def refused_registration(implementation: pluggy.HookImpl) -> str:
    """The reason why a registration hook is refused, after "implements ..."; or ""."""
    if is_wrapper(implementation):
        return (
            "as a wrapper, which is left out: records are collected of every plugin on its own, "
            "so there is nothing to wrap"
        )
    if implementation.tryfirst or implementation.trylast:
        return (
            "with tryfirst or trylast, which changes nothing: records are found by their names; "
            "leave it out"
        )
    return ""


PROJECT = "chameleon"
"""The name of the entry-point group, and the prefix of each hook's name."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
