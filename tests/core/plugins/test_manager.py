"""A broken plugin is remembered and harms nobody else."""

import itertools
import sys

import attrs
import pytest
from chameleon_core._plugins.manager import DiscoveredPlugin, load_plugins
from chameleon_core._plugins.records import API_VERSION
from chameleon_core._plugins.registry import UnknownNameError
from chameleon_core.api import Registry
from chameleon_core.plugin_api import (
    KINDS,
    CommandRecord,
    InstructionRecord,
    Kind,
    NoOptions,
    OperatorRecord,
    PluginRecord,
    PresetRecord,
    TemplateRecord,
    hookimpl,
)
from synthetic import plugin_of


def record(name="good", **changes):
    values = {"summary": "Fine.", "factory": "some.module:Class", "options": NoOptions, **changes}
    return PluginRecord(name=name, **values)


def explorers(returned):
    return plugin_of(explorers=returned)


GOOD = ("good-dist", explorers([record()]))


def load(*plugins):
    return Registry.from_plugins([*plugins, GOOD])


class Unprintable(Exception):  # noqa: N818 - what a plugin may call it
    def __str__(self):
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
        ([3], "registers an int as explorer, which must be an ExplorerRecord"),
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
            "registers a PresetRecord as explorer, which must be an ExplorerRecord",
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
        size: "NoSuchType" = 0  # noqa: F821 - the mistake under test

    registry = load(explorers([record("x", options=Named), record("y", options=Dangling)]))
    assert [error.message.partition(" with ")[2][:40] for error in registry.errors] == [
        "an option called 'name', which the pipel",
        "options whose annotations cannot be reso",
    ]
    assert registry.names("explorers") == ("good",)


@pytest.mark.parametrize(
    "raised", [ImportError("no libfoo"), SyntaxError("bad"), SystemExit("bye"), MemoryError()]
)
def test_a_plugin_that_fails_to_import_is_shown_where_a_name_is_unknown(raised):
    def fail():
        raise raised

    broken = DiscoveredPlugin(name="their-plugin", distribution="their-dist", load=fail)
    good = DiscoveredPlugin(name="good", distribution="good-dist", load=lambda: GOOD[1])
    registry = Registry(load_plugins([broken, good]))
    assert registry.names("explorers") == ("good",)
    with pytest.raises(UnknownNameError, match="unknown explorer 'goof'; did you mean 'good'") as e:
        registry.find("explorers", "goof")
    assert "installed explorers: good" in e.value.hint
    assert "`pip install ./packages/chameleon-explorers`" in e.value.hint
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

    registry = load(Wrong(), plugin_of(explorer=[]))
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
        "from chameleon_core.plugin_api import *\n\n"
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


class Hasty:
    """Asks for an order, which registration has none of, and wraps, which it cannot."""

    @hookimpl(tryfirst=True)
    def chameleon_explorers(self):
        return [record("hasty")]

    @hookimpl(wrapper=True)
    def chameleon_samplers(self):
        return (yield)

    @hookimpl(hookwrapper=True)
    def chameleon_measured(self, event):
        yield


def test_orders_and_wrappers_of_registration_are_refused_with_a_sentence():
    registry = load(("hasty-dist", Hasty()))
    assert registry.names("explorers") == ("good", "hasty")
    assert registry.names("samplers") == ()
    said = {error.message for error in registry.errors}
    assert said == {
        (
            "implements chameleon_explorers with tryfirst or trylast, which changes nothing: "
            "records are found by their names; leave it out"
        ),
        (
            "implements chameleon_samplers as a wrapper, which is left out: records are "
            "collected of every plugin on its own, so there is nothing to wrap"
        ),
        (
            "implements chameleon_measured as a wrapper, which is left out: an event has no "
            "result to wrap; write a plain function, with tryfirst or trylast where the order "
            "matters"
        ),
    }


@attrs.frozen(kw_only=True)
class Arguments:
    """What a pipeline file says of an operator."""

    kind = "mine"

    def task(self, name, target): ...


class Other(Arguments):
    """The arguments of an operator of another name."""

    kind = "conv2d"


class Idle:
    """Arguments without a method ``task``."""

    kind = "mine"


def operators(*classes, **changes):
    """A plugin that registers operators."""
    values = {"summary": "", "factory": "a:B", **changes}
    return plugin_of(operators=[OperatorRecord(arguments=cls, **values) for cls in classes])


def templates(**changes):
    """A plugin that registers a template."""
    values = {"summary": "", "factory": "a:B", "operators": ("conv2d",), "targets": ("llvm",)}
    return plugin_of(templates=[TemplateRecord(name="mine", **{**values, **changes})])


def command():
    """A plugin that registers a command without a module."""
    return plugin_of(commands=[CommandRecord(name="go", summary="", factory="nothing")])


def preset(pipeline):
    """A plugin that registers a preset."""
    return plugin_of(presets=[PresetRecord(name="p", summary="", pipeline=pipeline)])


def instructions(*names, **changes):
    """A plugin that registers instructions."""
    values = {"summary": "", "factory": "a:B", **changes}
    return plugin_of(instructions=[InstructionRecord(name=name, **values) for name in names])


@pytest.mark.parametrize(
    ("noun", "made", "shared", "own"),
    [("operator", operators, Other, Arguments), ("instruction", instructions, "conv2d", "mine")],
)
def test_a_name_that_records_hold_is_one_distribution_s_alone(noun, made, shared, own):
    kind = f"{noun}s"
    ours = KINDS[kind].distribution
    registry = load(("a-dist", made(shared, own)), (ours, made(shared)))
    assert registry.find(kind, "conv2d").distribution == ours
    assert registry.names(kind) == ("conv2d", "mine")
    assert [str(error) for error in registry.errors] == [
        (
            f"plugin 'plugin-0' of 'a-dist' registers the {noun} 'conv2d', as '{ours}' does; "
            "records of measurements hold the name, so it must be another one"
        )
    ]
    registry = load(("a-dist", made(own)), ("b-dist", made(own, shared)))
    assert registry.names(kind) == ("conv2d",)
    assert [error.distribution for error in registry.errors] == ["a-dist", "b-dist"]


def test_operators_have_the_classes_of_their_arguments():
    registry = load(operators(Other, Arguments))
    assert registry.classes("operators") == {"conv2d": Other, "mine": Arguments}


@pytest.mark.parametrize(
    ("rubbish", "message"),
    [
        (operators(int, name="mine"), "the arguments <class 'int'>, which must be an attrs class"),
        (operators(attrs.frozen(Idle)), "which must have a method 'task(name, target)'"),
        (operators(Arguments, name="yours"), "whose 'kind' must be 'yours' too, not 'mine'"),
        (operators(Arguments, factory="module"), "the factory 'module', which must be like"),
        (operators(Arguments, api_version=API_VERSION + 1), "upgrade chameleon-tuner-core"),
        (operators(NoOptions), "registers an operator named ''"),
        (templates(operators="conv2d"), "the operators 'conv2d', which must be a tuple of texts"),
        (templates(operators=()), "no operators, of which it must name one at least"),
        (templates(targets=()), "no targets, of which it must name one at least"),
        (templates(targets=["llvm"]), "the targets ['llvm'], which must be a tuple of texts"),
        (instructions("mine", architecture=None), "the architecture None, which must be a text"),
        (instructions("mine", features="avx2"), "the features 'avx2', which must be a tuple of"),
        (instructions("mine", factory="module"), "the factory 'module', which must be like"),
        (instructions("mine", api_version=0), "the API version 0, which must be a positive"),
        (command(), "the command 'go' with the factory 'nothing'"),
        (preset([]), "a pipeline that is no mapping"),
        (preset({3: 1}), "no text"),
        (preset({"preset": "x"}), "do not nest"),
    ],
)
def test_rubbish_of_other_kinds_is_remembered(rubbish, message):
    (error,) = load(rubbish).errors
    assert error.message.startswith("registers ")
    assert message in error.message


PLACERS = Kind(
    name="placers",
    summary="Placers give layers to devices.",
    distribution="placer-dist",
    conformance="placing:PlacerSuite",
)


def test_a_distribution_brings_a_kind_that_others_register():
    greedy, brings = plugin_of(placers=[record("greedy")]), plugin_of(kinds=[PLACERS])
    registry = load(("other-dist", greedy), ("placer-dist", brings))
    assert not registry.errors
    assert list(registry.kinds) == [*KINDS, "placers"]
    assert registry.names("placers") == ("greedy",)
    with pytest.raises(UnknownNameError, match="unknown placer 'greed'; did you mean 'greedy'"):
        registry.find("placers", "greed")
    assert "'chameleon_placers', which is no hook" in load(greedy).errors[0].message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "explorers"}, "'explorers', which there is already"),
        ({"name": "layer-placers"}, "failed in chameleon_kinds: ValueError"),
        ({"record": 5}, "failed in chameleon_kinds: TypeError"),
    ],
)
def test_a_kind_that_cannot_be_is_left_out(changes, message):
    registry = load(plugin_of(kinds=(attrs.evolve(PLACERS, **row) for row in [changes])))
    assert message in registry.errors[0].message
    assert list(registry.kinds) == list(KINDS)
    assert registry.names("explorers") == ("good",)
