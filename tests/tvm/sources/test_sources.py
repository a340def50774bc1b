"""Objects that a pipeline names as a file and a function."""

import inspect
import sys

import pytest
from chameleon_core._errors import ConfigError
from chameleon_tvm._sources import named_object


def test_two_files_of_one_stem_are_two_modules(tmp_path):
    result = {}
    for name in ("one", "other"):
        file = tmp_path / name / "nets.py"
        file.parent.mkdir()
        file.write_text(f"WHO = {name!r}\n\ndef net():\n    return WHO  # of {name}\n")
        result[name] = named_object(f"{file}:net", "test")
    for name, net in result.items():
        assert net() == name
        # What reads a function's source, as TVMScript does, finds its own module.
        assert sys.modules[net.__module__] is inspect.getmodule(net)
        assert name == sys.modules[net.__module__].WHO
        assert f"of {name}" in inspect.getsource(net)


def test_a_file_that_exits_is_an_error_of_the_file(tmp_path):
    file = tmp_path / "leaves.py"
    file.write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(ConfigError, match="SystemExit"):
        named_object(f"{file}:net", "test")
    assert not [name for name in sys.modules if name.endswith("_leaves")]
