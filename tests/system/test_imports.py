"""A library is imported without an optional one, which others can import afterwards."""

import sys
from importlib import import_module

import pytest
from chameleon_system.imports import imported_without, without


def test_a_module_that_is_not_imported_yet_is_absent_meanwhile(tmp_path, monkeypatch):
    (tmp_path / "optional_of_a_test.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with without("optional_of_a_test"), pytest.raises(ModuleNotFoundError):
        import_module("optional_of_a_test")
    assert import_module("optional_of_a_test") is sys.modules.pop("optional_of_a_test")


def test_a_library_without_a_module_is_the_importers_own(tmp_path, monkeypatch):
    (tmp_path / "library_of_a_test.py").write_text(
        "try:\n    import optional_of_a_test\nexcept ImportError:\n    optional_of_a_test = None\n"
    )
    (tmp_path / "optional_of_a_test.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    own = imported_without("library_of_a_test", "optional_of_a_test")
    assert own.optional_of_a_test is None
    whole = import_module("library_of_a_test")
    assert whole.optional_of_a_test is sys.modules.pop("optional_of_a_test")
    assert imported_without("library_of_a_test", "optional_of_a_test") is whole
    del sys.modules["library_of_a_test"]


def test_a_module_that_is_imported_stays():
    with without("sys"):
        assert import_module("sys") is sys
    assert sys.modules["sys"] is sys
