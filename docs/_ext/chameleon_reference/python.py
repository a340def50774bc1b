"""Pages of classes from their docstrings (autodoc)."""

from __future__ import annotations

from types import ModuleType

import chameleon_core
import chameleon_networks
from chameleon_core import _events as records
from chameleon_core import _loop as loop
from chameleon_core import _pipeline as pipeline
from chameleon_core import _schedulers as schedulers
from chameleon_core import _space as space
from chameleon_core import _stages as stages

from chameleon_reference.markdown import section

SHOWN: tuple[tuple[str, str, ModuleType], ...] = (
    ("Programs and notebooks", "Interface to tune from Python and to read runs.", chameleon_core),
    ("Delivered networks", "Functions to load a network that a run delivered.", chameleon_networks),
    ("Design spaces", "Classes of knobs and of design spaces.", space),
    ("Contracts of stages", "Base classes of plugins: their methods and arguments.", stages),
    ("Schedulers", "Schedulers choose the task that gets the next batch.", schedulers),
    ("Pipelines", "Functions to read a pipeline, and classes of its sections.", pipeline),
    ("Runs", "Functions to run a pipeline from Python.", loop),
    ("Events", "Events of a run, which callbacks and event hooks get as their argument.", records),
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
    if own and isinstance(value, type):
        directive = f".. autoclass:: {module.__name__}.{name}\n   :members:"
    elif own and callable(value):
        directive = f".. autofunction:: {module.__name__}.{name}"
    else:
        return f"```python\n{name} = {value!r}\n```"
    return f"```{{eval-rst}}\n{directive}\n```"


def names_of(module: ModuleType) -> list[str]:
    """What a module makes public."""
    named = getattr(module, "__all__", None)
    if named is not None:
        return list(named)
    return [
        name
        for name, member in vars(module).items()
        if getattr(member, "__module__", "") == module.__name__ and not name.startswith("_")
    ]


def page_name(module: ModuleType) -> str:
    """The page of a module."""
    return "python-" + module.__name__.removeprefix("chameleon_core.").replace(".", "-")
