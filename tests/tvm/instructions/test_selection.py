"""Templates get the fastest instructions that a target has for the types of their tensors."""

import re
from pathlib import Path

import pytest
from chameleon_core.api import Registry
from chameleon_core.plugin_api import InstructionRecord
from chameleon_tvm._instructions import selection
from chameleon_tvm._instructions.selection import dots_of, tile_products_of
from chameleon_tvm.testing.instructions import check_instruction
from computing import ARM, X86, resolved
from synthetic import plugin_of

PLUGINS = Path(__file__).parents[3] / "docs" / "plugins.md"


def names(target, data, weights, of=dots_of):
    return [row.name for row in of(resolved(target), data=data, weights=weights)]


@pytest.mark.parametrize(
    ("target", "data", "weights", "expected"),
    [
        (f"{X86}x86-64", "uint8", "int8", []),
        (f"{X86}haswell", "uint8", "int8", ["vpmaddwd"]),
        (f"{X86}haswell", "uint8", "int7", ["vpmaddubsw", "vpmaddwd"]),
        (f"{X86}alderlake", "uint8", "int8", ["vpdpbusd-vex", "vpmaddwd"]),
        (f"{X86}znver4", "uint8", "int7", ["vpdpbusd", "vpmaddubsw", "vpmaddwd"]),
        (f"{X86}skylake-avx512", "uint8", "int8", ["vpmaddwd"]),
        (f"{X86}znver4", "uint8", "int8", ["vpdpbusd", "vpmaddwd"]),
        (f"{X86}sapphirerapids", "int8", "int8", ["vpmaddwd"]),
        (f"{ARM}neoverse-n1", "uint8", "int8", []),
        (f"{ARM}neoverse-n1", "int8", "int8", ["sdot"]),
        (f"{ARM}neoverse-v1", "uint8", "int8", ["usdot"]),
        (f"{X86}haswell", "float32", "float32", ["multiply-add"]),
        (
            f"{X86}haswell",
            *("float32", "bfloat16"),
            ["multiply-add", "multiply-add-bfloat16-weights"],
        ),
        (
            f"{X86}znver4",
            *("bfloat16", "bfloat16"),
            ["vdpbf16ps", "multiply-add", "multiply-add-bfloat16-weights"],
        ),
        (
            f"{X86}sapphirerapids",
            *("float16", "float16"),
            ["vfmadd231ph", "multiply-add", "multiply-add-float16-weights"],
        ),
        (f"{X86}haswell", "float64", "float64", []),
    ],
)
def test_dot_products_come_fastest_first(target, data, weights, expected):
    assert names(target, data, weights) == expected


@pytest.mark.parametrize(
    ("target", "data", "expected"),
    [(f"{X86}sapphirerapids", "bfloat16", ["tdpbf16ps"]), (f"{ARM}neoverse-v1", "int8", ["smmla"])],
)
def test_tile_products_are_those_of_the_types(target, data, expected, monkeypatch):
    # A system that refuses AMX to this process is none of this test's.
    monkeypatch.setattr(selection, "_is_permitted", lambda *_: True)
    assert names(target, data, data, tile_products_of) == expected


@pytest.fixture
def udot(tmp_path, monkeypatch):
    """The example of the documentation, installed."""
    blocks = re.findall(
        r"```python\n# my_package/(\w+)\.py\n(.*?)```", PLUGINS.read_text(), re.DOTALL
    )
    for name, code in blocks:
        if name == "udot":
            (tmp_path / "udot_of_the_documentation.py").write_text(code)
        elif "UDOT" in code:
            hooks = code
    monkeypatch.syspath_prepend(str(tmp_path))
    namespace = {}
    exec(hooks.replace("my_package.udot", "udot_of_the_documentation"), namespace)  # noqa: S102
    plugin = type(
        "Plugin", (), {"chameleon_instructions": staticmethod(namespace["chameleon_instructions"])}
    )()
    registry = Registry.from_plugins([plugin], with_installed=True)
    monkeypatch.setattr(Registry, "default", lambda: registry)
    return namespace["UDOT"]


def test_the_example_of_the_documentation_conforms_and_is_found(udot):
    target = f"{ARM}neoverse-n1"
    assert not check_instruction(udot, target)
    assert names(target, "uint8", "uint8") == ["udot"]


def test_what_is_installed_changes_nothing_that_this_package_serves(monkeypatch):
    broken = InstructionRecord(name="broken", summary="", factory="no_such_module_at_all:It")
    registry = Registry.from_plugins([plugin_of(instructions=[broken])], with_installed=True)
    monkeypatch.setattr(Registry, "default", lambda: registry)
    assert names(f"{X86}haswell", "uint8", "int8") == ["vpmaddwd"]


def test_a_record_has_to_be_true():
    record = InstructionRecord(
        name="vpmaddwd",
        summary="pairs of 16-bit integers, sums of 32 bits",
        architecture="x86_64",
        factory="chameleon_tvm._instructions.x86:Vpmaddwd",
    )
    with pytest.raises(AssertionError, match=r"the record's features are \[\], its class's"):
        check_instruction(record)
