"""The pages of the reference: names to what writes them, without Sphinx."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from chameleon_core._plugins.kinds import KINDS
from chameleon_core._plugins.registry import Registry

from chameleon_reference.commands import commands_page
from chameleon_reference.knobs import knobs_page
from chameleon_reference.markdown import section
from chameleon_reference.messages import messages_page
from chameleon_reference.plugins import hooks_page, kind_page, pipeline_page
from chameleon_reference.public import public_page
from chameleon_reference.python import SHOWN, page_name, python_page
from chameleon_reference.results import results_page
from chameleon_reference.sources import security_page

Page = Callable[[], str]
"""Gives the text of a page."""


def pages(registry: Registry | None = None) -> dict[str, Page]:
    """Every page of the reference by name, the one that lists them among them.

    Args:
        registry: the plugins; the installed ones where None.
    """
    registry = registry if registry is not None else Registry.default()
    files: dict[str, Page] = {
        "pipeline": partial(pipeline_page, registry),
        "commands": commands_page,
        "results": results_page,
        "messages": messages_page,
        "security": security_page,
        "spaces-of-operators": knobs_page,
    }
    # The page of all commands has those of plugins as well.
    kinds = [kind for kind in KINDS.values() if kind.name != "commands"]
    plugins: dict[str, Page] = {kind.name: partial(kind_page, kind, registry) for kind in kinds}
    groups: dict[str, dict[str, Page]] = {
        "Files and commands": files,
        "Plugins": {**plugins, "hooks": hooks_page},
        "Python": {
            "public-names": public_page,
            **{page_name(shown[-1]): partial(python_page, *shown) for shown in SHOWN},
        },
    }
    by_name = {name: page for group in groups.values() for name, page in group.items()}
    return {"index": partial(_index, groups), **by_name}


def _index(groups: Mapping[str, Iterable[str]]) -> str:
    trees = [
        section(title, "\n".join(["```{toctree}", ":maxdepth: 1", "", *names, "```"]))
        for title, names in groups.items()
    ]
    about = (
        "These pages were generated from the code when this site was built. "
        "They include the plugins that were installed then."
    )
    return "\n".join([section("Reference", about, level=1), *trees])
