"""Each package has one public module (core: two), and no package imports what is not public."""

import ast
import importlib
import re
import tomllib

import pytest
from imports import exports_of, is_door, modules_of
from marks import full

from .conftest import ROOT, read_packages

LARGEST = {
    "chameleon_core": 120,
    "chameleon_tvm": 150,
    "chameleon_networks": 60,
    "chameleon_system": 40,
    "chameleon_cli": 15,
}
"""Limits of the numbers of public names."""

SOURCES = (full("packages/*/src/**/*.py"), "packages/**/*.template", "examples/**/*.py")
_NAME = re.compile(r"\bchameleon_\w+(?:\.\w+)+")


def doors():
    """The public modules that export names, by name."""
    modules = {}
    for package in read_packages():
        if package.modules is not None:
            modules.update(modules_of(package.modules))
    return {name: file for name, file in modules.items() if is_door(file.read_text())}


def code_mentions(text):
    """The dotted names of Chameleon's modules in imports, and in strings that are no prose."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _NAME.findall(node.value) if " " not in node.value else ()


@pytest.mark.parametrize("pattern", SOURCES)
def test_nobody_imports_what_is_not_public(pattern):
    files = list(ROOT.glob(pattern))
    assert files
    for file in files:
        own = next((part for part in file.parts if part.startswith("chameleon_")), "")
        own = "" if file.suffix == ".template" else own
        text = file.read_text()
        mentions = code_mentions(text) if file.suffix == ".py" else _NAME.findall(text)
        private = [
            name
            for name in mentions
            if name.startswith("chameleon_")
            and name.partition(".")[0] != own
            and any(part.startswith("_") and part.strip("_") for part in name.split(".")[1:])
        ]
        assert not private, file


@pytest.mark.parametrize("name_of_package", LARGEST)
def test_public_names_are_few(name_of_package):
    names = [
        exports_of(file.read_text())
        for name, file in doors().items()
        if name.startswith(f"{name_of_package}.")
    ]
    assert sum(map(len, names)) <= LARGEST[name_of_package]


@pytest.mark.parametrize("door", doors())
def test_every_public_name_exists_and_is_listed(door):
    module = importlib.import_module(door)
    assert set(module.__all__) == set(exports_of(doors()[door].read_text()))
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        module.absent  # noqa: B018
    if "." in door:
        listed = tomllib.loads((ROOT / "docs" / "public-names.toml").read_text())[door]
        assert sorted(name for names in listed["since"].values() for name in names) == sorted(
            module.__all__
        )


def test_former_places_give_the_same_names():
    for name in ("stages", "plugins", "space"):
        former = importlib.import_module(f"chameleon_core.{name}")
        plugin_api = importlib.import_module("chameleon_core.plugin_api")
        assert former.PluginRecord is plugin_api.PluginRecord
