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


def test_importing_tvm_leaves_its_ffi_and_the_collector_as_they_were():
    program = (
        "import gc, sys\n"
        "sys.modules['torch'] = None\n"
        "from tvm_ffi import core, registry\n"
        "before = registry.list_global_func_names, registry.get_global_func\n"
        "types = core._object_type_key_to_index\n"
        "import chameleon_tvm._quick_tvm as quick\n"
        "assert before == (registry.list_global_func_names, registry.get_global_func)\n"
        "assert types is core._object_type_key_to_index\n"
        "assert gc.isenabled()\n"
        "names = registry.list_global_func_names()\n"
        "with quick.cache_function_names():\n"
        "    assert registry.list_global_func_names() == names\n"
        "    registry.register_global_func('chameleon.test', abs)\n"
        "    assert registry.list_global_func_names() == registry.list_global_func_names()\n"
        "    assert 'chameleon.test' in registry.list_global_func_names()\n"
        "with quick.check_types_in_python():\n"
        "    assert core._object_type_key_to_index('chameleon.NoSuchType') is None\n"
        "    assert core._object_type_key_to_index('ir.IRModule') is not None\n"
    )
    assert loaded(program, "tvm") == ["tvm"]


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


def test_steps_of_schedules_are_not_checked_in_python_and_refuse_what_does_not_fit():
    program = (
        "from chameleon_tvm._quick_tvm import Schedule, te, tvm\n"
        "assert not any(hasattr(one, '__wrapped__') for one in vars(Schedule).values())\n"
        "x = te.placeholder((8,), 'float32', 'x')\n"
        "y = te.compute((8,), lambda i: x[i] + 1.0, 'y')\n"
        "made = Schedule(tvm.IRModule({'main': te.create_prim_func([x, y])}))\n"
        "outer, inner = made.split(made.get_loops(made.get_sblock('y'))[0], [2, 4])\n"
        "try:\n"
        "    made.fuse(outer, 'no loop')\n"
        "except Exception as error:\n"
        "    assert 'AssertionError' not in type(error).__name__\n"
        "else:\n"
        "    raise SystemExit('a string was taken for a loop')\n"
    )
    assert loaded(program, "tvm") == ["tvm"]


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
