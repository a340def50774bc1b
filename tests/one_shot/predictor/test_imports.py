"""A library is imported without an optional one, which others can import afterwards."""

import sys
from importlib import import_module

from chameleon_one_shot._predictor.imports import import_without


def test_a_library_without_a_module_is_the_importers_own(tmp_path, monkeypatch):
    (tmp_path / "tested_library.py").write_text(
        "try:\n    import tested_option\nexcept ImportError:\n    tested_option = None\n"
    )
    (tmp_path / "tested_option.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    own = import_without("tested_library", "tested_option")
    assert own.tested_option is None
    assert import_module("tested_library").tested_option is sys.modules.pop("tested_option")
    assert import_without("tested_library", "tested_option") is sys.modules.pop("tested_library")
