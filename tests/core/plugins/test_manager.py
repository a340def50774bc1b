"""A broken plugin is remembered and harms nobody else."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import attrs
import pytest
from chameleon_core.plugins import (
    API_VERSION,
    CommandRecord,
    NoOptions,
    PluginRecord,
    PresetRecord,
    Registry,
    UnknownNameError,
    hookimpl,
)
from chameleon_core.plugins.manager import Candidate, load_plugins


def record(name: Any = "good", **changes: Any) -> PluginRecord:
    values = {"summary": "Fine.", "factory": "some.module:Class", "options": NoOptions, **changes}
    return PluginRecord(name=name, **values)


def explorers(returned: Any) -> Any:
    """A plugin whose explorer hook returns, or raises, this."""

    class Plugin:
        @hookimpl
        def chameleon_explorers(self):
            if isinstance(returned, BaseException):
                raise returned
            return returned

    return Plugin()


GOOD = ("good-dist", explorers([record()]))


def load(*plugins: Any) -> Registry:
    return Registry.from_plugins([*plugins, GOOD])


class Unprintable(Exception):  # noqa: N818 - what a plugin may call it
    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (RuntimeError("boom"), "failed in chameleon_explorers: RuntimeError: boom"),
        (SystemExit(3), "failed in chameleon_explorers: SystemExit: 3"),
        (Unprintable(), "failed in chameleon_explorers: Unprintable"),
        (None, "returns None from chameleon_explorers, which must return a list of records"),
        (3, "failed in chameleon_explorers: TypeError: 'int' object is not iterable"),
        ("ppo", "returns 'ppo' from chameleon_explorers, which must return a list of records"),
        ([3], "registers an int as explorer, which must be a PluginRecord"),
        ([record("a b")], "registers an explorer named 'a b'"),
        ([record("")], "registers an explorer named ''"),
        ([record(None)], "registers an explorer named None"),
        ([record(factory="module")], "with the factory 'module', which must be like"),
        ([record(factory=3)], "with the factory 3, which must be like 'module:Class'"),
        ([record(options=int)], "with the options <class 'int'>, which must be an attrs class"),
        ([record(summary=None)], "with a summary that is no text"),
        ([record(api_version="1")], "with the API version '1', which must be a positive integer"),
        ([record(api_version=True)], "with the API version True"),
        (
            [record(api_version=API_VERSION + 1)],
            (
                f"with API version {API_VERSION + 1}, newer than this installation's "
                f"{API_VERSION}: "
                "upgrade chameleon-tuner-core"
            ),
        ),
        (
            [PresetRecord(name="p", summary="", pipeline={})],
            "registers a PresetRecord as explorer, which must be a PluginRecord",
        ),
        ([record("two"), record("two")], "registers the explorer 'two' twice"),
        (itertools.repeat(record("many")), "returns more than 10000 records"),
    ],
)
def test_rubbish_is_remembered_with_its_distribution(returned, message):
    registry = load(("bad-dist", explorers(returned)))
    assert "good" in registry.names("explorers")
    (error,) = registry.errors
    assert error.distribution == "bad-dist"
    assert message in error.message
    assert str(error).startswith("plugin 'plugin-0' of 'bad-dist' ")


def test_a_generator_that_fails_half_way_keeps_what_it_yielded():
    def some():
        yield record("first")
        raise RuntimeError("later")

    registry = load(("bad-dist", explorers(some())))
    assert registry.names("explorers") == ("first", "good")
    assert "RuntimeError: later" in registry.errors[0].message


def test_options_that_clash_or_cannot_be_read_are_refused():
    @attrs.frozen(kw_only=True)
    class Named:
        name: str = ""

    @attrs.frozen(kw_only=True)
    class Dangling:
        size: NoSuchType = 0  # noqa: F821 - the mistake under test

    registry = load(explorers([record("x", options=Named), record("y", options=Dangling)]))
    assert [error.message.partition(" with ")[2][:40] for error in registry.errors] == [
        "an option called 'name', which the pipel",
        "options whose annotations cannot be reso",
    ]
    assert registry.names("explorers") == ("good",)


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [([], "a pipeline that is no mapping"), ({3: 1}, "no text"), ({"preset": "x"}, "do not nest")],
)
def test_bad_presets_are_refused(pipeline, message):
    class Plugin:
        @hookimpl
        def chameleon_presets(self):
            return [PresetRecord(name="p", summary="", pipeline=pipeline)]

    assert message in load(Plugin()).errors[0].message


def test_a_command_needs_a_factory():
    class Plugin:
        @hookimpl
        def chameleon_commands(self):
            return [CommandRecord(name="go", summary="", factory="nothing")]

    assert "the command 'go' with the factory 'nothing'" in load(Plugin()).errors[0].message


@pytest.mark.parametrize(
    "raised", [ImportError("no libfoo"), SyntaxError("bad"), SystemExit("bye"), MemoryError()]
)
def test_a_plugin_that_fails_to_import_is_shown_where_a_name_is_unknown(raised):
    def fail():
        raise raised

    broken = Candidate(name="their-plugin", distribution="their-dist", load=fail)
    good = Candidate(name="good", distribution="good-dist", load=lambda: GOOD[1])
    registry = Registry(load_plugins([broken, good]))
    assert registry.names("explorers") == ("good",)
    with pytest.raises(UnknownNameError, match="unknown explorer 'goof'; did you mean 'good'") as e:
        registry.find("explorers", "goof")
    assert "installed explorers: good" in e.value.hint
    assert "`pip install chameleon-tuner-explorers` brings some" in e.value.hint
    assert "plugin 'their-plugin' of 'their-dist' failed to load: " in e.value.hint
    assert type(raised).__name__ in e.value.hint


def test_ctrl_c_is_not_swallowed():
    with pytest.raises(KeyboardInterrupt):
        load(explorers(KeyboardInterrupt()))


def test_a_hook_with_arguments_of_its_own_and_one_that_does_not_exist_are_reported():
    class Wrong:
        @hookimpl
        def chameleon_explorers(self, colour):
            return []

    class Misspelt:
        @hookimpl
        def chameleon_explorer(self):
            return []

    registry = load(Wrong(), Misspelt())
    assert registry.names("explorers") == ("good",)
    first, second = registry.errors
    assert "failed to load: PluginValidationError" in first.message
    assert second.message == (
        "implements 'chameleon_explorer', which is no hook; did you mean 'chameleon_explorers'?"
    )
    # A plugin that is refused hears no events either.
    assert len(registry.manager.get_plugins()) == 2


def test_what_plugins_print_does_not_mix_with_results(capsys):
    class Chatty:
        @hookimpl
        def chameleon_explorers(self):
            print("hello")  # noqa: T201 - the mistake under test
            return []

    load(Chatty())
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "hello\n")


def test_entry_points_are_found_with_their_distribution(tmp_path, monkeypatch):
    info = tmp_path / "weird_dist-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: weird-dist\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[chameleon]\nweird = weird_plugin_hooks\nbroken = weird_plugin_broken\n"
        "gone = no_such_module_at_all\n"
    )
    (tmp_path / "weird_plugin_hooks.py").write_text(
        "from chameleon_core.plugins import *\n\n"
        "@hookimpl\ndef chameleon_samplers():\n"
        "    yield PluginRecord(name='weird', summary='', factory='a:b', options=NoOptions)\n"
    )
    (tmp_path / "weird_plugin_broken.py").write_text("import sys\nsys.exit('no display')\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry.load()
    monkeypatch.delitem(sys.modules, "weird_plugin_hooks", raising=False)
    assert registry.find("samplers", "weird-dist:weird").distribution == "weird-dist"
    assert [str(error) for error in registry.errors if error.distribution == "weird-dist"] == [
        "plugin 'broken' of 'weird-dist' failed to load: SystemExit: no display",
        (
            "plugin 'gone' of 'weird-dist' failed to load: ModuleNotFoundError: No module named "
            "'no_such_module_at_all'"
        ),
    ]
