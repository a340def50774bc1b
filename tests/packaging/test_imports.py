"""Who may import whom, as docs/architecture.md says; read from the source, nothing is run."""

import re
import sys

import pytest
from imports import imports_in, modules_of

from .conftest import requirements

HEAVY = {
    *("tvm", "torch", "sklearn", "xgboost", "lightgbm", "scipy", "matplotlib", "onnx"),
    *("pyarrow", "safetensors"),
}
"""What the core never imports, and no module that is loaded before a stage is made."""

BOTH = {"chameleon_system", "chameleon_core"}
SIBLINGS = {
    "chameleon_system": set(),
    "chameleon_core": {"chameleon_system"},
    "chameleon_cli": BOTH,
    "chameleon_testing": {"chameleon_core"},
    "chameleon_tvm": {*BOTH, "chameleon_testing"},
    "chameleon_networks": {*BOTH, "chameleon_tvm", "chameleon_cli", "chameleon_bench"},
    "chameleon_explorers": {"chameleon_core"},
    "chameleon_cost_models": {"chameleon_core"},
    "chameleon_samplers": {"chameleon_core"},
    "chameleon_runners": {*BOTH, "chameleon_tvm"},
    "chameleon_bench": {*BOTH, "chameleon_cli"},
    "chameleon_records": {*BOTH, "chameleon_cli"},
    "chameleon_one_shot": {*BOTH, "chameleon_cli"},
    "chameleon_transforms": {
        *BOTH,
        *("chameleon_cli", "chameleon_tvm", "chameleon_networks"),
        *("chameleon_bench", "chameleon_testing"),
    },
}
HEAVY_ALLOWED = {
    "chameleon_system": set(),
    "chameleon_core": set(),
    "chameleon_cli": set(),
    "chameleon_testing": set(),
    "chameleon_tvm": {"tvm"},
    "chameleon_networks": {"tvm", "torch", "onnx"},
    "chameleon_explorers": {"torch"},
    "chameleon_cost_models": {"xgboost", "lightgbm", "scipy"},
    "chameleon_samplers": {"sklearn"},
    "chameleon_runners": {"torch", "tvm"},
    "chameleon_bench": {"scipy"},
    "chameleon_records": {"pyarrow"},
    "chameleon_one_shot": {"torch", "xgboost", "lightgbm", "pyarrow", "safetensors"},
    "chameleon_transforms": {"torch", "sklearn"},
}
ONLY_IN = {
    ("chameleon_bench", "scipy"): ("statistics/",),
    ("chameleon_bench", "chameleon_cli"): ("commands/", "pages/"),
    ("chameleon_records", "chameleon_cli"): ("commands/",),
    ("chameleon_records", "pyarrow"): ("tables/",),
    ("chameleon_records", "pandas"): ("tables/",),
    ("chameleon_one_shot", "chameleon_cli"): ("commands/",),
    ("chameleon_one_shot", "pyarrow"): ("dataset/format.py",),
    ("chameleon_transforms", "chameleon_bench"): ("search/report.py",),
    ("chameleon_transforms", "chameleon_cli"): ("commands/",),
    ("chameleon_transforms", "chameleon_testing"): ("testing.py",),
    ("chameleon_transforms", "sklearn"): ("data.py",),
    ("chameleon_networks", "chameleon_cli"): ("commands/",),
    ("chameleon_networks", "chameleon_bench"): ("commands/",),
    ("chameleon_tvm", "chameleon_testing"): ("testing/",),
    ("chameleon_networks", "torch"): (
        *("backends/", "importers/builtin/", "importers/torch/lowering/"),
    ),
    ("chameleon_networks", "onnx"): ("backends/", "importers/onnx/", "export/bundles.py"),
    ("chameleon_explorers", "torch"): ("ppo",),
    ("chameleon_runners", "torch"): ("baselines",),
    ("chameleon_runners", "tvm"): ("rpc/",),
}
DISTRIBUTIONS = {
    "attr": "attrs",
    "tvm": "apache-tvm",
    "tvm_ffi": "apache-tvm-ffi",
    "ruamel": "ruamel.yaml",
    "constraint": "python-constraint2",
    "sklearn": "scikit-learn",
}


FOR_TYPES = re.compile(r"^(if TYPE_CHECKING:\n)(?:(?: .*)?\n)+", re.MULTILINE)


def top(name):
    return name.partition(".")[0]


def sources(package):
    """The files of a package, and what each imports by statements that run, in functions too."""
    if package.modules is None:
        pytest.skip("it has no code")
    for file in sorted(package.modules.rglob("*.py")):
        # Libraries that are not required are imported by name.
        text = FOR_TYPES.sub(r"\1    pass\n", file.read_text()).replace("import_module", "load")
        assert not re.search(r"^ *from \.", text, re.MULTILINE), f"{file}: imports are absolute"
        yield file, {top(item.name) for item in imports_in(text)}


def test_a_package_imports_only_what_it_may(package):
    for file, imported in sources(package):
        own = package.modules.name
        siblings = {name for name in imported if name.startswith("chameleon_")}
        assert siblings <= SIBLINGS[own] | {own}, file
        assert imported & HEAVY <= HEAVY_ALLOWED[own], file
        path = file.relative_to(package.modules).as_posix()
        for name in imported:
            rooms = ONLY_IN.get((own, name), ("",))
            assert any(room in path for room in rooms), f"{file} imports {name}"


def test_a_package_declares_what_it_imports(package):
    declared = {needed.name for needed in requirements(package)} | {package.name}
    for file, imported in sources(package):
        for name in imported - set(sys.stdlib_module_names):
            ours = name.replace("chameleon_", "chameleon-tuner-").replace("_", "-")
            assert DISTRIBUTIONS.get(name, ours) in declared, f"{file} imports {name}"


def test_hooks_and_options_are_cheap_to_import(package):
    """They are imported by every command: through first-party modules, too, nothing heavy."""
    if package.hooks is None:
        pytest.skip("it brings no plugins")
    modules = modules_of(package.modules)
    pending = [name for name in modules if name.rpartition(".")[2] in {"hooks", "options"}]
    assert pending
    seen = set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        for item in imports_in(modules[name].read_text()):
            if not item.late:
                assert top(item.name) not in HEAVY | {"numpy"}, f"{name} imports {item.name}"
                either = (item.name, item.name.rpartition(".")[0])
                pending += [module for module in either if module in modules]
