"""No module, and no first folder of a package, imports itself by way of others.

Imports for annotations alone bring nothing along, and are left out.
"""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import pytest


def modules_of(folder):
    """The modules of an import package by name."""
    found = {}
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder.parent).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = file
    return found


def imported(file):
    """What a file imports: modules, and what may be a module in one."""
    pending = [ast.parse(file.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
        else:
            pending += ast.iter_child_nodes(node)


def imports_of(folder):
    """For each module of a package the others of it that it imports, in functions as well."""
    modules = modules_of(folder)
    graph = {}
    for name, file in modules.items():
        given = (one if one in modules else one.rpartition(".")[0] for one in imported(file))
        graph[name] = {one for one in given if one in modules and one != name}
    return graph


def cycle_in(graph):
    """Some cycle as ``a > b > a``, or nothing."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return " < ".join(error.args[1])
    return ""


def first_folders(graph):
    """The same between first folders, and modules beside them; those of one are one."""
    made = {}
    for name, given in graph.items():
        own = made.setdefault(_first(name), set())
        own |= {_first(one) for one in given} - {_first(name)}
    return made


def _first(name):
    return ".".join(name.split(".")[:2])


def test_there_is_no_cycle(package):
    if package.modules is None:
        pytest.skip("it has no code")
    graph = imports_of(package.modules)
    assert not cycle_in(graph)
    assert not cycle_in(first_folders(graph))


def write(folder, **files):
    for name, text in files.items():
        file = Path(folder, *name.split("__")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return imports_of(folder)


def test_a_cycle_of_modules_is_found_in_functions_too(tmp_path):
    graph = write(
        tmp_path / "one",
        a="from one import b",
        b="def late():\n    import one.a",
        c="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from one.d import D",
        d="from one.c import C",
    )
    assert {"one.a", "one.b"} == set(cycle_in(graph).split(" < "))
    assert graph["one.c"] == set()


def test_a_cycle_of_folders_is_found_where_no_modules_have_one(tmp_path):
    graph = write(
        tmp_path / "one",
        left__a="import one.right.a",
        right__a="",
        right__b="import one.left.b",
        left__b="",
    )
    assert not cycle_in(graph)
    assert cycle_in(first_folders(graph))
