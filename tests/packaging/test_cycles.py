"""No module, and no first folder of a package, imports itself by way of others.

Imports in functions, for annotations alone and by name count like any other.
"""

from pathlib import Path

import pytest
from imports import circles_in, folders_of, graph_of, modules_of


@pytest.mark.full
def test_there_is_no_cycle(package):
    if package.modules is None:
        pytest.skip("it has no code")
    graph = graph_of(modules_of(package.modules))
    assert [*circles_in(graph), *circles_in(folders_of(graph))] == []


def write(folder, **files):
    for name, text in files.items():
        file = Path(folder, *name.split("__")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return graph_of(modules_of(folder))


@pytest.mark.parametrize(
    "text",
    [
        "import pack.a",
        "def late():\n    import pack.a",
        "def late():\n    from pack import a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from pack.a import A",
        "import importlib\n\n\ndef late():\n    importlib.import_module('pack.a')",
    ],
    ids=["plain", "in a function", "a module in a function", "for types", "by name"],
)
def test_a_cycle_of_modules_is_found(text, tmp_path):
    graph = write(tmp_path / "pack", a="from pack import b", b=text, c="import pack.a")
    assert circles_in(graph) == [["pack.a", "pack.b"]]


def test_a_cycle_of_folders_is_found_if_no_modules_have_one(tmp_path):
    graph = write(
        tmp_path / "pack",
        left__a="import pack.right.a",
        right__a="",
        right__b="import pack.left.b",
        left__b="",
    )
    assert circles_in(graph) == []
    assert circles_in(folders_of(graph)) == [["pack.left", "pack.right"]]
