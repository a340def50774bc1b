"""Code that files name or carry is refused unless the user trusts them."""

from pathlib import Path

import attrs
import pytest
import structlog
from chameleon_core._errors import ConfigError
from chameleon_core._fallbacks import STRICT, fall_back
from chameleon_core._plugins.options import sources_in
from chameleon_core._task import Task
from chameleon_core._trust import check_sources, check_tasks
from chameleon_core.api import Registry
from chameleon_core.plugin_api import OperatorRecord, hookimpl
from chameleon_networks._precision.section import Precision

FOLDER = Path("runs/strange")


@attrs.frozen
class Inner:
    source: str = attrs.field(metadata={"source": True})
    file: str = attrs.field(default="data.onnx", metadata={"path": True})


@attrs.frozen
class Outer:
    listed: tuple[Inner, ...] = ()
    named: dict[str, Inner] = attrs.field(factory=dict)
    missing: str | None = attrs.field(default=None, metadata={"source": True})


def test_sources_are_found_wherever_options_have_them():
    options = Outer(
        listed=(Inner("a.py:make"), Inner("package.b:make")), named={"c": Inner("c.pt2")}
    )
    assert list(sources_in(options)) == ["a.py:make", "package.b:make", "c.pt2"]
    precision = Precision(
        type="int8", calibrate="data.py:batches", metric="data.py:score", max_drop=0.1
    )
    assert list(sources_in(precision)) == ["data.py:batches", "data.py:score"]


def test_a_source_is_refused_with_its_name_and_the_flag():
    with pytest.raises(ConfigError, match=r"runs/strange names code .*: a\.py:make\n") as caught:
        check_sources(FOLDER, Outer(), Inner("a.py:make"), Inner("a.py:make"), trust_source=False)
    assert "`trust_source=True`" in caught.value.hint
    check_sources(FOLDER, Inner("a.py:make"), trust_source=True)
    check_sources(FOLDER, Outer(), Precision(), trust_source=False)


class Operators:
    @hookimpl
    def chameleon_operators(self):
        yield OperatorRecord(name="data", summary="Data", factory="nowhere:Data")
        yield OperatorRecord(name="code", summary="Code", factory="nowhere:Code", carries_code=True)


@pytest.mark.parametrize("kind", ["code", "in-process:code"])
def test_a_task_that_carries_code_is_refused(monkeypatch, kind):
    registry = Registry.from_plugins([Operators()])
    Registry.default.cache_clear()
    monkeypatch.setattr(Registry, "load", classmethod(lambda _: registry))
    tasks = [
        Task(name=name, operator=name, arguments={}, target="t", flop=1.0)
        for name in ("data", "unknown", kind)
    ]
    try:
        check_tasks(FOLDER, tasks[:2], trust_source=False)
        check_tasks(FOLDER, tasks, trust_source=True)
        with pytest.raises(ConfigError, match=f"task '{kind}' of runs/strange carries") as caught:
            check_tasks(FOLDER, tasks, trust_source=False)
    finally:
        Registry.default.cache_clear()
    assert "`trust_source=True`" in caught.value.hint
    assert "trust_source: true" in caught.value.hint


def test_an_error_in_tests_is_raised():
    error = ValueError("no such loop")
    with pytest.raises(ValueError, match="no such loop") as caught:
        fall_back("left_as_it_is", error)
    assert caught.value is error


def test_a_user_gets_the_fallback_and_its_reason(monkeypatch):
    monkeypatch.delenv(STRICT)
    error = ValueError("no such loop\nand more")
    with structlog.testing.capture_logs() as lines:
        fall_back("left_as_it_is", error, function="f")
    [line] = lines
    assert line["problem"] == "ValueError: no such loop"
    assert (line["event"], line["function"]) == ("left_as_it_is", "f")
    assert line["exc_info"] is error
