"""Pages of classes from their docstrings (autodoc)."""

from __future__ import annotations

import inspect
from types import ModuleType

import chameleon_core
import chameleon_networks
from chameleon_core import api, plugin_api
from chameleon_core.plugin_api import EventHooks

from chameleon_reference.markdown import section
from chameleon_reference.public import constant

SHOWN: tuple[tuple[str, str, ModuleType], ...] = (
    ("Programs and notebooks", "Interface to tune from Python and to read runs.", chameleon_core),
    ("Delivered networks", "Functions to load a network that a run delivered.", chameleon_networks),
    ("Plugins", "Contracts, records, design spaces and errors for authors of plugins.", plugin_api),
    ("Pipelines and runs", "Functions and classes to load pipelines and to run them.", api),
)
"""Modules whose public names have a page: its title, a sentence, the module."""


def python_page(title: str, about: str, module: ModuleType) -> str:
    """The public names of a module, in the order that it lists them."""
    head = section(title, about, f"Module `{module.__name__}`.", level=1)
    entries = [section(f"`{name}`", _entry(module, name)) for name in names_of(module)]
    return "\n".join([head, *entries])


def _entry(module: ModuleType, name: str) -> str:
    """A class or a function by autodoc; of an alias, which has no docstring, what it stands for."""
    value = getattr(module, name)
    own = getattr(value, "__module__", "").startswith("chameleon_")
    if inspect.ismodule(value):
        directive = f".. automodule:: {value.__name__}\n   :members:"
    elif own and isinstance(value, type):
        # A page of its own shows the hooks of events.
        members = "" if value is EventHooks else "\n   :members:"
        directive = f".. autoclass:: {module.__name__}.{name}{members}"
    elif own and callable(value):
        directive = f".. autofunction:: {module.__name__}.{name}"
    else:
        return f"```text\n{name}: {constant(value)}\n```"
    return f"```{{eval-rst}}\n{directive}\n```"


def names_of(module: ModuleType) -> list[str]:
    """What a module makes public, without what another page shows."""
    shown = chameleon_core.__all__ if module is api else ()
    return [name for name in module.__all__ if name not in shown]


def page_name(module: ModuleType) -> str:
    """The page of a module."""
    return "python-" + module.__name__.removeprefix("chameleon_core.").replace(".", "-")
