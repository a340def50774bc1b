"""Plugins are used where they lie, and never mixed up with others."""

import os
import sys

import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._plugins import local
from chameleon_core._plugins.local import PLUGINS_VARIABLE
from chameleon_core.api import Registry

HOOKS = """
from chameleon_core.plugin_api import NoOptions, PluginRecord, hookimpl

@hookimpl
def chameleon_explorers():
    yield PluginRecord(name="odd", summary="", options=NoOptions, factory="{module}:Odd")
"""


@pytest.fixture(autouse=True)
def _as_nobody_gave_any(monkeypatch):
    monkeypatch.setenv(PLUGINS_VARIABLE, "")
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def package(tmp_path):
    """A distribution with a package, in a folder ``src``."""
    folder = tmp_path / "given-explorer"
    package = folder / "src" / "given_explorer"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "hooks.py").write_text(HOOKS.format(module="given_explorer.odd"))
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "Given_Explorer"\n'
        '[project.entry-points.chameleon]\ngiven = "given_explorer.hooks"\n'
    )
    return package


def test_a_folder_without_a_plugin_is_refused(package):
    with pytest.raises(ConfigError, match=r"neither hooks\.py nor pyproject\.toml"):
        local.add([str(package.parent)])


@pytest.mark.parametrize("place", ["../..", ".", "hooks.py"])
def test_a_plugin_is_found_by_its_module_its_package_or_its_folder(package, place):
    local.add([str(package / place)])
    (first,) = local.in_use()
    assert (first.module, first.distribution) == ("given_explorer.hooks", "Given_Explorer")
    assert Registry.load().find("explorers", "odd").distribution == "Given_Explorer"


def test_it_is_there_once_however_often_it_is_given(package):
    local.add([str(package), str(package / "hooks.py")])
    local.add([str(package.parents[1])])
    assert len(local.in_use()) == 1
    registry = Registry.load()
    assert [entry.name for entry in registry.entries("explorers")].count("odd") == 1
    assert not registry.errors


def test_processes_that_are_started_find_it_too(package):
    local.add([str(package)])
    assert os.environ[PLUGINS_VARIABLE] == str(package)


def test_two_of_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "twice_given.py").touch()
    paths = [str(tmp_path / folder / "twice_given.py") for folder in ("a", "b")]
    with pytest.raises(ConfigError, match="are both imported as 'twice_given'"):
        local.add(paths)
    assert os.environ[PLUGINS_VARIABLE] == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("random.py", "Python's own library has a module 'random'"),
        ("numpy.py", "there is another module 'numpy'"),
        ("my-hooks.py", "'my-hooks' is no name of a module"),
        ("notes.txt", "no Python module"),
        ("missing.py", "there is no plugin"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_a_sentence(tmp_path, name, words):
    if name != "missing.py":
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=words) as caught:
        local.add([str(tmp_path / name)])
    assert caught.value.hint


def test_an_installed_one_of_the_same_distribution_is_left_out(package):
    local.add([str(package)])
    (first,) = local.in_use()
    assert first.replaces("given.explorer", "elsewhere.hooks")
    assert first.replaces("other", "given_explorer.hooks")
    assert not first.replaces("other", "elsewhere.hooks")


def test_a_module_that_would_hide_another_one_is_refused(tmp_path, monkeypatch):
    for folder in ("there", "here"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "given_hidden.py").touch()
    monkeypatch.syspath_prepend(tmp_path / "there")
    with pytest.raises(ConfigError, match=r"there is another module 'given_hidden', in .*there"):
        local.add([str(tmp_path / "here" / "given_hidden.py")])
    assert str(tmp_path / "here") not in sys.path
