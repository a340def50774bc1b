"""Imports that fail for a while, and imports without garbage collection."""

import sys
from importlib import import_module

import pytest
from chameleon_system._imports import block_import


def test_a_module_that_is_not_imported_yet_is_absent_meanwhile(tmp_path, monkeypatch):
    (tmp_path / "tested_option.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with block_import("tested_option"), block_import("sys"):
        assert import_module("sys") is sys  # it was imported before
        with pytest.raises(ModuleNotFoundError):
            import_module("tested_option")
    assert import_module("tested_option") is sys.modules.pop("tested_option")


def test_later_collections_leave_out_what_was_imported(run_python):
    """Unless the program has frozen objects, which then stay frozen."""
    program = "import gc; from chameleon_system._imports import pause_garbage_collection\n"
    program += "for _ in range(2):\n with pause_garbage_collection(): imported = []\n"
    program += " print(any(x is imported for x in gc.get_objects(generation=2)))\n gc.freeze()"
    assert run_python(program).split() == ["True", "False"]
