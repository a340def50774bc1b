import json

import attrs
import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._task import Task
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm._operators.prim_functions import loaded_function
from chameleon_tvm._operators.primfunc_spec import PrimFuncSpec
from chameleon_tvm._quick_tvm import tvm
from chameleon_tvm._spaces.loops.trees import structural_equal
from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.sketch.provider import SketchSpace
from computing import require_reference, resolved
from marks import full

GOOD = """
import numpy as np
from tvm import te
from tvm.script import tirx as T

def scaled_product():
    a = te.placeholder((8, 16), "float32", name="a")
    b = te.placeholder((16, 32), "float32", name="b")
    k = te.reduce_axis((0, 16), name="k")
    c = te.compute((8, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return te.create_prim_func([a, b, te.compute((8, 32), lambda i, j: c[i, j] * 2, name="d")])

def expected(a, b):
    return 2 * (a @ b)

def wrong(a, b):
    return a @ b

def number():
    return 3

def broken():
    raise ValueError("no such thing")

constant = 4

def blockless():
    @T.prim_func(s_tir=True)
    def main(a: T.Buffer((4,), 'float32')):
        for i in range(4):
            a[i] = T.float32(1)
    return main
"""


@pytest.fixture
def target():
    return resolved("llvm -mcpu=native -num-cores=2")


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(GOOD)
    return str(path)


def made(source, target, function="scaled_product", **options):
    return PrimFuncSpec(name="mine", source=f"{source}:{function}", **options).task("mine", target)


def test_a_function_becomes_a_task_that_survives_json(source, target):
    task = made(source, target, constants=("b",))
    again = Task(**json.loads(json.dumps(task.to_json())))
    assert again.key == task.key
    operator = operator_of(again)
    assert operator.constants == frozenset({1})
    assert [array.shape for array in operator.inputs()] == [(8, 16), (16, 32)]
    assert task.flop == 2 * 8 * 16 * 32 + 8 * 32


def test_the_task_is_the_same_when_made_again(source, target):
    assert made(source, target).key == made(source, target).key


@pytest.mark.parametrize("named", [True, full(False)])
def test_candidates_match_either_reference(source, target, named):
    task = made(source, target, reference=f"{source}:expected" if named else "")
    provider = SketchSpace(SketchOptions(start=3))
    builder = provider.builder(task, threads=1)
    expected, _ = builder.reference()
    a, b = operator_of(task).inputs()
    np.testing.assert_allclose(expected[0], 2 * (a.astype(float) @ b), rtol=1e-4, atol=1e-4)
    require_reference(builder, provider.design_space(task).first_guesses)


def test_a_reference_needs_none_of_the_users_files(source, target, tmp_path):
    task = made(source, target, reference=f"{source}:expected")
    (tmp_path / "mine.py").unlink()
    operator = operator_of(task)
    assert operator.reference(operator.inputs())[0].shape == (8, 32)


@pytest.mark.parametrize(
    ("function", "says", "helps"),
    [
        ("missing", "has no 'missing'", "scaled_product"),
        ("number", "not a PrimFunc", "create_prim_func"),
        ("constant", "gives a int", "create_prim_func"),
        ("broken", "no such thing", "without arguments"),
        ("blockless", "cannot schedule", "blocks"),
    ],
)
def test_what_is_no_primfunc_is_a_sentence(source, target, function, says, helps):
    with pytest.raises(ConfigError, match=says) as caught:
        made(source, target, function)
    assert helps in caught.value.hint


def test_a_missing_file_is_a_sentence(target):
    with pytest.raises(ConfigError, match=r"no file nowhere\.py") as caught:
        made("nowhere.py", target)
    assert "working directory" in caught.value.hint


def test_a_file_that_cannot_be_imported_is_a_sentence(tmp_path, target):
    path = tmp_path / "bad.py"
    path.write_text("import nonsense_that_is_not_there\n")
    with pytest.raises(ConfigError, match="nonsense_that_is_not_there"):
        made(str(path), target)


def test_a_source_that_names_no_function_is_a_sentence():
    with pytest.raises(ConfigError, match="does not name a function"):
        PrimFuncSpec(name="mine", source="mine.py")


def test_an_unknown_constant_is_a_sentence(source, target):
    with pytest.raises(ConfigError, match="'z' is no input") as caught:
        made(source, target, constants=("z",))
    assert "a, b" in caught.value.hint


@pytest.mark.parametrize("text", ["", "{", "3", '{"root_index": 9, "nodes": []}'])
def test_a_function_that_is_none_is_a_sentence(source, target, text):
    task = made(source, target)
    damaged = attrs.evolve(task, arguments={**task.arguments, "function": text})
    with pytest.raises(ConfigError, match="the function of task 'mine' cannot be read") as caught:
        operator_of(damaged).prim_func()
    assert "another version of TVM" in caught.value.hint


def test_functions_of_earlier_versions_of_tvm_are_read(source, target):
    function = operator_of(made(source, target)).prim_func()
    text = tvm.ir.save_json(function)
    # TVM's names before all variables became ``ir.Var``; see tvm/ir/json_compact.py.
    earlier = text.replace('"ir.Var"', '"tirx.Var"').replace('"ir.prim.', '"tirx.')
    assert earlier != text
    assert structural_equal(loaded_function(earlier), function)
    with pytest.raises(ValueError, match="Expecting"):
        loaded_function(text[:100])
