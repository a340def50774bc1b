"""``hookimpl`` and ``hookspec``, which mark functions as hooks, and checks of their options."""

from __future__ import annotations

import pluggy


def order_of(implementation: pluggy.HookImpl) -> int:
    """A sort key for the plugins that implement an event hook: -1 for first, 1 for last, else 0.

    It follows from pluggy's options ``tryfirst`` and ``trylast``.

    Args:
        implementation: a plugin's implementation of the hook.
    """
    return implementation.trylast - implementation.tryfirst


def is_wrapper(implementation: pluggy.HookImpl) -> bool:
    """Whether a hook's implementation is a wrapper, in which pluggy calls other implementations."""
    return bool(implementation.wrapper or implementation.hookwrapper)


def refused_event_hook(implementation: pluggy.HookImpl) -> str:
    """The reason why Chameleon does not call an implementation of an event hook, or "".

    The reason continues a message that begins with "implements" and the hook's name.
    """
    if is_wrapper(implementation):
        return (
            "as a wrapper, which is left out: an event has no result to wrap; write a plain "
            "function, with tryfirst or trylast where the order matters"
        )
    return ""


def refused_registration(implementation: pluggy.HookImpl) -> str:
    """The reason why Chameleon does not call an implementation of a registration hook, or "".

    The reason continues a message that begins with "implements" and the hook's name.
    """
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
