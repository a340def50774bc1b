"""Who may import whom, as docs/architecture.md says; read from the source, nothing is run."""

from __future__ import annotations

import ast
import sys

import pytest
from packaging.requirements import Requirement

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
    ("chameleon_transforms", "chameleon_bench"): ("search/figure.py",),
    ("chameleon_transforms", "chameleon_cli"): ("commands/",),
    ("chameleon_transforms", "chameleon_testing"): ("testing.py",),
    ("chameleon_transforms", "sklearn"): ("data.py",),
    ("chameleon_networks", "chameleon_cli"): ("commands/",),
    ("chameleon_networks", "chameleon_bench"): ("commands/",),
    ("chameleon_tvm", "chameleon_testing"): ("testing/",),
    ("chameleon_networks", "torch"): ("importers/builtin/", "importers/torch/lowering/"),
    ("chameleon_networks", "onnx"): ("importers/onnx/models", "importers/onnx/quantized"),
    ("chameleon_explorers", "torch"): ("ppo",),
    ("chameleon_runners", "torch"): ("baselines",),
    ("chameleon_runners", "tvm"): ("rpc/",),
}
DISTRIBUTIONS = {
    "attr": "attrs",
    "tvm": "apache-tvm",
    "tvm_ffi": "apache-tvm-ffi",
    "ruamel": "ruamel.yaml",
    "sklearn": "scikit-learn",
}


def imports(file, *, in_functions=True):
    """Names of the modules that a file imports."""
    pending = [ast.parse(file.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute"
            yield node.module
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
        elif in_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            pending += ast.iter_child_nodes(node)


def top(name):
    return name.partition(".")[0]


def sources(package):
    if package.modules is None:
        pytest.skip("it has no code")
    return sorted(package.modules.rglob("*.py"))


def test_a_package_imports_only_what_it_may(package):
    for file in sources(package):
        own = package.modules.name
        found = {top(name) for name in imports(file)}
        siblings = {name for name in found if name.startswith("chameleon_")}
        assert siblings <= SIBLINGS[own] | {own}, file
        assert found & HEAVY <= HEAVY_ALLOWED[own], file
        path = file.relative_to(package.modules).as_posix()
        for name in found:
            rooms = ONLY_IN.get((own, name), ("",))
            assert any(room in path for room in rooms), f"{file} imports {name}"


def test_a_package_declares_what_it_imports(package):
    project = package.project
    optional = project.get("optional-dependencies", {}).values()
    texts = [*project["dependencies"], *(text for one in optional for text in one)]
    declared = {Requirement(text).name for text in texts} | {project["name"]}
    for file in sources(package):
        for name in {top(one) for one in imports(file)} - set(sys.stdlib_module_names):
            ours = name.replace("chameleon_", "chameleon-tuner-").replace("_", "-")
            assert DISTRIBUTIONS.get(name, ours) in declared, f"{file} imports {name}"


def test_hooks_and_options_are_cheap_to_import(package):
    """They are imported by every command: through first-party modules, too, nothing heavy."""
    src = package.folder / "src"
    pending = [f for f in sources(package) if f.name in {"hooks.py", "options.py"}]
    if package.hooks is None:
        pytest.skip("it brings no plugins")
    seen = set()
    while pending:
        file = pending.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in imports(file, in_functions=False):
            assert top(name) not in HEAVY | {"numpy"}, f"{file} imports {name}"
            if top(name) == package.modules.name:
                path = src / name.replace(".", "/")
                pending += [
                    one for one in (path.with_suffix(".py"), path / "__init__.py") if one.exists()
                ]
    assert seen
