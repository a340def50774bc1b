"""The markers of hooks, and the options of pluggy that implementations may not ask for."""

from __future__ import annotations

import pluggy


def order_of(implementation: pluggy.HookImpl) -> int:
    """The position of an event hook's implementation: ``tryfirst``, those without, ``trylast``."""
    return implementation.trylast - implementation.tryfirst


def is_wrapper(implementation: pluggy.HookImpl) -> bool:
    """Whether it is to be called around the others, in the new way or in the old one."""
    return bool(implementation.wrapper or implementation.hookwrapper)


def refused_event_hook(implementation: pluggy.HookImpl) -> str:
    """Unknown arguments of an event hook's implementation, after "implements ..."; or nothing."""
    if is_wrapper(implementation):
        return (
            "as a wrapper, which is left out: an event has no result to wrap; write a plain "
            "function, with tryfirst or trylast where the order matters"
        )
    return ""


def refused_registration(implementation: pluggy.HookImpl) -> str:
    """Unknown arguments of a registration hook, after "implements ..."; or nothing."""
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
"""The group of entry points, and how the name of each hook begins."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
