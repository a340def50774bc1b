"""The page of all public names, with their stability and the version that made them public."""

from __future__ import annotations

import importlib
import inspect
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chameleon_reference.markdown import cell, section, table

NAMES = Path(__file__).parents[2] / "public-names.toml"

_ABOUT = """These are all names that programs and plugins may import. A module or folder whose name
begins with an underscore is not public, and may change in any release. A stable name keeps its
meaning until the next major version. A provisional name may change in a minor version; the
changelog then says so. `chameleon_core.stages`, `.plugins` and `.space` are former names of parts
of `chameleon_core.plugin_api`. The conformance suites of plugins are in `chameleon_testing.suites`,
`chameleon_tvm.testing.suites` and `chameleon_transforms.testing`."""

_LONGEST = 60
"""Characters of the longest value that the page shows."""


def public_page() -> str:
    """The public modules, each with a table of its names."""
    parts = [section("Public names", _ABOUT, level=1)]
    for module, about in tomllib.loads(NAMES.read_text()).items():
        imported = importlib.import_module(module)
        rows = [
            [f"`{path}`", version, cell(_summary(value))]
            for version, names in about["since"].items()
            for name in names
            for path, value in _with_nested(name, getattr(imported, name))
        ]
        stability = f"All names of this module are {about['stability']}."
        first = (imported.__doc__ or "").strip().partition("\n")[0]
        parts.append(
            section(f"`{module}`", first, stability, table(["name", "since", "meaning"], rows))
        )
    return "\n".join(parts)


def _with_nested(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """An object with its name, and the public classes nested in it."""
    yield name, value
    for inner, nested in inspect.getmembers(value, inspect.isclass):
        if inspect.isclass(value) and inner[0].isupper():
            yield f"{name}.{inner}", nested


def _summary(value: Any) -> str:
    """The first sentence of an object's docstring; of a constant, its value or class."""
    if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
        return (inspect.getdoc(value) or "").partition("\n\n")[0]
    return constant(value)


def constant(value: Any) -> str:
    """A short constant's value, or the class of a long one."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"an object of the class {type(value).__name__}"
