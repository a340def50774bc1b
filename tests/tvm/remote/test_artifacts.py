"""An artifact says everything about itself, and notices when it was damaged."""

import json

import numpy as np
import pytest
from chameleon_tvm._building.remote import artifact
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

ARRAYS = hnp.arrays(
    dtype=st.sampled_from(["float32", "float16", "int8", "int64", "bool"]),
    shape=hnp.array_shapes(max_dims=4, max_side=5),
)


@given(array=ARRAYS)
def test_inputs_come_back_as_they_were(tmp_path_factory, array):
    folder = tmp_path_factory.mktemp("artifact")
    argument = artifact.store_input(folder, array)
    back = artifact.load_input(folder, argument)
    assert back.dtype == array.dtype
    assert back.tobytes() == np.ascontiguousarray(array).tobytes()
    assert argument.shape == array.shape


def test_equal_inputs_have_one_file(tmp_path):
    first = np.arange(12, dtype=np.float32).reshape(3, 4)
    same = (
        artifact.store_input(tmp_path, first),
        artifact.store_input(tmp_path, first.copy(order="F")),
    )
    other = artifact.store_input(tmp_path, first.reshape(4, 3))
    assert same[0] == same[1]
    assert other.digest != same[0].digest, "the shape is part of what it is"
    assert len(list(tmp_path.iterdir())) == 2


def test_damage_is_noticed(tmp_path):
    argument = artifact.store_input(tmp_path, np.zeros(64, np.float32))
    path = tmp_path / f"{argument.digest}.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        artifact.load_input(tmp_path, argument)


def test_a_recipe_comes_back(tmp_path):
    inputs = (artifact.store_input(tmp_path, np.ones(3, np.float32)),)
    outputs = tuple(artifact.output_arguments([((2, 3), "float32")]))
    recipe = artifact.Recipe(
        target="{}", library="kernel.so", arguments=(*inputs, *outputs), task={"name": "t"}
    )
    artifact.write_recipe(tmp_path, recipe)
    assert artifact.read_recipe(tmp_path) == recipe
    assert json.loads((tmp_path / artifact.RECIPE).read_text())["library"] == "kernel.so"
    assert recipe.inputs == inputs
    assert recipe.outputs == (artifact.Argument(shape=(2, 3), dtype="float32"),)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', '{"format": 99}', '{"format": 1, "target": 3}']
)
def test_a_recipe_of_another_kind_is_refused(tmp_path, text):
    (tmp_path / artifact.RECIPE).write_text(text)
    with pytest.raises(ValueError, match=r".+"):
        artifact.read_recipe(tmp_path)
