"""Names find records, and records become stages."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import attrs
import pytest
from chameleon_core.errors import ConfigError, ExitCode, PluginError
from chameleon_core.plugins import (
    KINDS,
    AmbiguousNameError,
    PluginRecord,
    Registry,
    UnknownNameError,
    hookimpl,
    load_factory,
)
from chameleon_core.plugins.factory import hint_after


@attrs.frozen(kw_only=True)
class Options:
    size: int = 3


class Sampler:
    """Has what a sampler needs, without being derived from the contract."""

    def __init__(self, options: Options, context: Any) -> None:
        self.options, self.context = options, context

    def select(self, candidates: Any, visited: Any, count: int) -> Any:
        raise NotImplementedError


class Idle:
    """Lacks what a sampler needs."""

    def __init__(self, options: Options, context: Any) -> None:
        pass


def refuse(options: Options, context: Any) -> None:
    raise ConfigError("not on this machine", hint="take another")


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("registry_test_module")
    made.__dict__.update(Sampler=Sampler, Idle=Idle, refuse=refuse, number=3)
    monkeypatch.setitem(sys.modules, made.__name__, made)


def plugin(*names: str, **factories: str) -> Any:
    class Plugin:
        @hookimpl
        def chameleon_samplers(self):
            where = "registry_test_module:"
            records = [(name, "Sampler") for name in names] + list(factories.items())
            return [
                PluginRecord(name=name, summary=name, factory=where + found, options=Options)
                for name, found in records
            ]

    return Plugin()


def test_two_with_one_name_are_an_error_that_names_both_when_the_name_is_used():
    registry = Registry.from_plugins([("one", plugin("a", "b")), ("Two_Dist", plugin("a", "c"))])
    assert not registry.errors
    assert registry.record("samplers", "b").name == "b"
    with pytest.raises(AmbiguousNameError, match="'a' is registered by 'one' and 'Two_Dist'") as e:
        registry.find("samplers", "a")
    assert e.value.hint == "write 'one:a' or 'Two_Dist:a'"
    assert e.value.exit_code == ExitCode.PLUGIN
    assert registry.find("samplers", "two-dist:a").distribution == "Two_Dist"
    with pytest.raises(UnknownNameError):
        registry.find("samplers", "one:c")


def test_an_unknown_name_is_answered_with_a_guess_and_with_what_to_install():
    registry = Registry.from_plugins([("one", plugin("greedy"))])
    with pytest.raises(UnknownNameError, match="unknown sampler 'gredy'; did you mean") as caught:
        registry.find("samplers", "gredy")
    assert "installed samplers: greedy" in caught.value.hint
    assert "`pip install chameleon-tuner-samplers`" in caught.value.hint
    with pytest.raises(UnknownNameError) as caught:
        registry.find("explorers", "ppo")
    assert str(caught.value) == "unknown explorer 'ppo'", "there is nothing to guess from"
    assert "no explorer is installed" in caught.value.hint
    have = Registry.from_plugins([("chameleon-tuner-samplers", plugin("greedy"))])
    with pytest.raises(UnknownNameError) as caught:
        have.find("samplers", "x")
    assert "pip install" not in caught.value.hint


def test_a_stage_is_made_with_default_or_given_options():
    registry = Registry.from_plugins([plugin("a")])
    assert registry.create("samplers", "a").options == Options()
    made = registry.create("samplers", "a", Options(size=5), context="here")
    assert (made.options.size, made.context) == (5, "here")


def test_a_stage_without_its_contracts_methods_is_refused_when_it_is_made():
    registry = Registry.from_plugins([plugin(idle="Idle", wrong="number", no="refuse")])
    with pytest.raises(PluginError, match="sampler 'idle' lacks 'select'"):
        registry.create("samplers", "idle")
    with pytest.raises(PluginError, match="cannot be called"):
        registry.create("samplers", "wrong")
    with pytest.raises(ConfigError, match="not on this machine"):
        registry.create("samplers", "no")


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("no_such_module:X", "cannot be imported: No module named 'no_such_module'"),
        ("registry_test_module:Missing", "AttributeError"),
        ("registry_test_module", "another form"),
        (":X", "another form"),
        ("registry_test_module:number", "is an int and cannot be called"),
    ],
)
def test_a_factory_that_cannot_be_loaded_says_why(factory, message):
    with pytest.raises(PluginError, match=message) as caught:
        load_factory(factory)
    assert caught.value.hint


def test_a_factory_may_be_nested():
    assert load_factory("registry_test_module:Sampler.select") is Sampler.select


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_contract_exists(kind):
    if kind.contract is not None:
        # Where the core is tested alone, the contracts of others are not there.
        pytest.importorskip(kind.contract.partition(".")[0])
        assert load_factory(kind.contract).__abstractmethods__


def test_installed_plugins_can_be_joined_by_own_ones():
    registry = Registry.from_plugins([plugin("mine")], with_installed=True)
    assert "mine" in registry.names("samplers")
    assert "chameleon-tuner-core" in registry.distributions


def test_a_hint_names_what_is_missing_or_says_how_to_see_the_traceback():
    missing = ModuleNotFoundError("No module named 'surely.missing'", name="surely.missing")
    assert "the module 'surely'" in hint_after(missing)
    own = ModuleNotFoundError("No module named 'pytest.optionz'", name="pytest.optionz")
    assert hint_after(own) == (
        "the package 'pytest' has no module 'pytest.optionz': correct the import"
    )
    assert "--debug" in hint_after(ZeroDivisionError())
