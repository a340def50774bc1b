"""What importing this package brings along: time that every command and every worker pays."""

import sys

import pytest
from programs import completed


def loaded(statements, *modules):
    """Which of the modules a fresh interpreter has loaded after some statements."""
    program = f"{statements}\nimport sys\nprint(*[m for m in {modules!r} if sys.modules.get(m)])"
    return completed([sys.executable, "-c", program]).stdout.split()


def test_tvm_comes_without_torch_and_leaves_it_importable():
    statements = "import chameleon_tvm._quick_tvm\nimport sys\nassert 'torch' not in sys.modules"
    assert loaded(statements, "tvm", "torch") == ["tvm"]


STEPS_AND_NAMES = """
import gc, sys
sys.modules["torch"] = None
from tvm_ffi import core, registry
before = registry.list_global_func_names, registry.get_global_func
types = core._object_type_key_to_index
import chameleon_tvm._quick_tvm as quick
from chameleon_tvm._quick_tvm import Schedule, te, tvm
assert before == (registry.list_global_func_names, registry.get_global_func)
assert types is core._object_type_key_to_index
assert gc.isenabled()
names = registry.list_global_func_names()
with quick.cache_function_names():
    assert registry.list_global_func_names() == names
    registry.register_global_func("chameleon.test", abs)
    assert registry.list_global_func_names() == registry.list_global_func_names()
    assert "chameleon.test" in registry.list_global_func_names()
with quick.check_types_in_python():
    assert core._object_type_key_to_index("chameleon.NoSuchType") is None
    assert core._object_type_key_to_index("ir.IRModule") is not None
# Steps of schedules are not checked in Python, and refuse what does not fit.
assert not any(hasattr(one, "__wrapped__") for one in vars(Schedule).values())
x = te.placeholder((8,), "float32", "x")
y = te.compute((8,), lambda i: x[i] + 1.0, "y")
made = Schedule(tvm.IRModule({"main": te.create_prim_func([x, y])}))
outer, inner = made.split(made.get_loops(made.get_sblock("y"))[0], [2, 4])
try:
    made.fuse(outer, "no loop")
except Exception as error:
    assert "AssertionError" not in type(error).__name__
else:
    raise SystemExit("a string was taken for a loop")
"""


def test_importing_tvm_changes_the_checks_of_its_schedules_alone():
    assert loaded(STEPS_AND_NAMES, "tvm") == ["tvm"]


NAMES_IN_SCRIPTS = """
import sys
sys.modules["torch"] = None
{}
import tvm
from tvm.ir import Op, _ffi_api
for name in sorted(map(str, Op.list_op_names())):
    print(name, Op.get(name).get_attr("TScriptPrinterName"))
try:
    Op.get("tirx.no_such_operator")
except Exception as error:
    assert "no_such_operator" in str(error)
else:
    raise SystemExit("there is an operator that nobody registered")
print(type(_ffi_api.GetOp).__name__, type(_ffi_api.RegisterOpAttr).__name__)
"""


@pytest.mark.full
def test_operators_are_named_in_scripts_as_tvm_alone_names_them(run_python):
    alone = run_python(NAMES_IN_SCRIPTS.format(""))
    assert alone.count("\n") > 1000
    assert "s_tir.ldg32" in alone
    assert run_python(NAMES_IN_SCRIPTS.format("import chameleon_tvm._quick_tvm")) == alone


def test_workers_load_no_plugins_for_the_operators_and_templates_of_this_package():
    statements = (
        "from chameleon_tvm._operators.base import operator_of\n"
        "from chameleon_tvm._operators.matmul_specs import DenseSpec\n"
        "from chameleon_tvm._spaces.auto import AutoSpace\n"
        "from chameleon_tvm._spaces.options import AutoOptions\n"
        'target = \'{"kind": "llvm", "mcpu": "znver4"}\'\n'
        "task = DenseSpec(input=(8, 64), units=64).task('t', target)\n"
        "AutoSpace(AutoOptions()).builder(task, threads=1)\n"
    )
    hooks = "chameleon_core.hooks", "chameleon_samplers.hooks", "chameleon_runners.hooks"
    assert loaded(statements, "tvm", *hooks) == ["tvm"]
