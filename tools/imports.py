"""Who imports whom in this repository, imports that a reader overlooks included.

Counted are imports at the top of a module, in functions, under ``TYPE_CHECKING``, and by name:
``import_module("chameleon_networks._artifact.load")``. A factory in a plugin's record is no import.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
Graph = dict[str, set[str]]
"""For each module or folder, by its dotted name, those that it imports."""


class Import(NamedTuple):
    """A name that a file imports, in which line, and whether its module starts without it."""

    name: str
    line: int
    late: bool


def modules_of(folder: Path) -> dict[str, Path]:
    """The modules of an import package by dotted name."""
    modules = {}
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder.parent).with_suffix("").parts
        modules[".".join(parts).removesuffix(".__init__")] = file
    return modules


@cache
def imports_in(text: str) -> list[Import]:
    """What a source text imports: modules, and what may be a module of one."""
    return list(_imports(ast.parse(text), late=False))


def _imports(node: ast.AST, *, late: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, node.lineno, late) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        names = (f"{node.module}.{alias.name}" for alias in node.names)
        yield from (Import(name, node.lineno, late) for name in names)
    elif isinstance(node, ast.Call) and _last_name(node.func) == "import_module":
        first = node.args[0] if node.args else None
        if isinstance(first, ast.Constant):
            yield Import(str(first.value), node.lineno, late=True)
    within = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    checked = isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING"
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, late=late or within or checked)


def _last_name(node: ast.expr) -> str:
    return getattr(node, "attr", "") or getattr(node, "id", "")


def graph_of(modules: dict[str, Path]) -> Graph:
    """The imports between given modules. A name of a public module counts as its home's."""
    homes = _homes(modules)
    graph: Graph = {}
    for name, file in modules.items():
        imports = imports_in(file.read_text())
        named = (homes.get(item.name, item.name) for item in imports)
        targets = (target if target in modules else _parent(target) for target in named)
        graph[name] = {target for target in targets if target in modules and target != name}
    return graph


def is_door(text: str) -> bool:
    """Whether a module only exports names of its package's other modules, lazily."""
    return "lazy_exports(__name__, __file__)" in text


def exports_of(text: str) -> dict[str, str]:
    """For each name that a public module exports, its name in the module that defines it."""
    if not is_door(text):
        return {}
    checked = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.If))
    imports = (item for node in checked for item in node.body if isinstance(item, ast.ImportFrom))
    return {
        alias.asname or alias.name: f"{item.module}.{alias.name}"
        for item in imports
        for alias in item.names
    }


def _homes(modules: dict[str, Path]) -> dict[str, str]:
    texts = {name: file.read_text() for name, file in modules.items()}
    return {
        f"{name}.{public}": home
        for name, text in texts.items()
        for public, home in exports_of(text).items()
    }


def folders_of(graph: Graph) -> Graph:
    """The same between the first folders of a package, and the modules beside them."""
    folders: Graph = {}
    for name, targets in graph.items():
        folder = first_folder(name)
        folders.setdefault(folder, set()).update(map(first_folder, targets - {name}))
    return {folder: targets - {folder} for folder, targets in folders.items()}


def circles_in(graph: Graph) -> list[list[str]]:
    """Groups of two and more that reach each other, the largest first (Tarjan, 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    pending: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        pending.append(name)
        for target in sorted(graph[name]):
            if target not in order:
                visit(target)
                lowest[name] = min(lowest[name], lowest[target])
            elif target in pending:
                lowest[name] = min(lowest[name], order[target])
        if lowest[name] == order[name]:
            start = pending.index(name)
            groups.append(sorted(pending[start:]))
            del pending[start:]

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return sorted(
        (group for group in groups if len(group) > 1), key=lambda group: (-len(group), group)
    )


def reached_from(name: str, graph: Graph) -> set[str]:
    """All modules that come along with one, itself included."""
    reached: set[str] = set()
    pending = [name]
    while pending:
        current = pending.pop()
        if current not in reached:
            reached.add(current)
            pending += graph[current]
    return reached


def first_folder(name: str) -> str:
    """``chameleon_networks._graph`` of ``chameleon_networks._compile.sequence.parts``."""
    return ".".join(name.split(".")[:2])


def _parent(name: str) -> str:
    return name.rpartition(".")[0]
