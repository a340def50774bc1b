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


def test_a_file_imports_the_modules_beside_it(tmp_path, monkeypatch):
    """Two folders may have modules of the same name, and functions may import when called."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("one", "other"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "chameleon_test_layers.py").write_text(f"WHO = {name!r}\n")
        (folder / f"chameleon_test_late_{name}.py").write_text(f"LATE = {name!r}\n")
        (folder / "entry.py").write_text(
            "from chameleon_test_layers import WHO\n"
            f"def net():\n    from chameleon_test_late_{name} import LATE\n    return WHO, LATE\n"
        )
        assert named_object(f"{folder}/entry.py:net", "test")() == (name, name)
    (folder / "chameleon_test_layers.py").write_text("WHO = 'changed'\n")
    assert named_object(f"{folder}/entry.py:net", "test")() == ("changed", "other")


def test_a_module_that_is_missing_is_named(tmp_path):
    file = tmp_path / "entry.py"
    file.write_text("import chameleon_test_missing\n")
    with pytest.raises(ConfigError) as caught:
        named_object(f"{file}:net", "test")
    assert f"'chameleon_test_missing' is neither in {tmp_path} nor installed" in caught.value.hint


def test_a_file_that_exits_is_an_error_of_the_file(tmp_path):
    file = tmp_path / "leaves.py"
    file.write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(ConfigError, match="SystemExit"):
        named_object(f"{file}:net", "test")
    assert not [name for name in sys.modules if name.endswith("_leaves")]
