"""The pages of the reference: names to texts, without Sphinx."""

from __future__ import annotations

from chameleon_core.plugins.kinds import KINDS
from chameleon_core.plugins.registry import Registry, default_registry

from chameleon_reference.commands import commands_page
from chameleon_reference.markdown import section
from chameleon_reference.messages import messages_page
from chameleon_reference.plugins import hooks_page, kind_page, pipeline_page
from chameleon_reference.python import SHOWN, page_name, python_page
from chameleon_reference.results import results_page


def pages(registry: Registry | None = None) -> dict[str, str]:
    """Every page of the reference by name, the one that lists them among them.

    Args:
        registry: the plugins; the installed ones where None.
    """
    registry = registry if registry is not None else default_registry()
    files = {
        "pipeline": pipeline_page(registry),
        "commands": commands_page(),
        "results": results_page(),
        "messages": messages_page(),
    }
    plugins = {kind.name: kind_page(kind, registry) for kind in KINDS.values()}
    # The page of all commands has those of plugins as well.
    del plugins["commands"]
    python = {page_name(shown[-1]): python_page(*shown) for shown in SHOWN}
    groups = {
        "Files and commands": files,
        "Plugins": {**plugins, "hooks": hooks_page()},
        "Python": python,
    }
    found = {name: text for group in groups.values() for name, text in group.items()}
    return {"index": _index({title: list(group) for title, group in groups.items()}), **found}


def _index(groups: dict[str, list[str]]) -> str:
    trees = [
        section(title, "\n".join(["```{toctree}", ":maxdepth: 1", "", *names, "```"]))
        for title, names in groups.items()
    ]
    about = "Made of the code when this site was built, with the plugins that were installed then."
    return "\n".join([section("Reference", about, level=1), *trees])
