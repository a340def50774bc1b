"""Makes stages of a search as pipelines do."""

from collections.abc import Callable
from typing import Any

from chameleon_core.api import Registry
from chameleon_core.plugin_api import load_factory

_KINDS = ("explorers", "cost_models", "samplers", "synthesizers")


def maker(options: Any) -> Callable[[Any], Any]:
    """A function of a context that makes the installed stage to whose class options belong."""
    entries = [entry for kind in _KINDS for entry in Registry.default().entries(kind)]
    (factory,) = [e.record.factory for e in entries if e.record.options is type(options)]
    return lambda context: load_factory(factory)(options, context)
