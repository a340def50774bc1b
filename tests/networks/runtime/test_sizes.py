"""Calls of any size in C: the buckets, padded inputs and cut outputs of the loader in Python."""

import ctypes
import itertools
from pathlib import Path

import numpy as np
import pytest
from chameleon_networks._artifact.buckets import Buckets, after
from chameleon_networks._c_runtime import linking
from chameleon_networks._export import bundles
from hypothesis import given, settings
from hypothesis import strategies as st

from .test_pool import COMPILER, DRIVER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")

ROWS, COLUMNS, BATCHES = (3, 5, 9), (3, 8), (1, 4)
SMALLER, LARGEST = (5, 8, 4), (9, 8, 4)
STEPS = (5, 2), (-2, 2)
TENSORS = {
    "inputs": [("x", "float32"), ("ids", "int16"), ("fixed", "float64")],
    "outputs": [("same", "float32"), ("fewer", "int64"), ("one", "bool")],
}


def shapes(rows, columns, batch):
    """The shapes of the inputs, and of the outputs."""
    return {
        "inputs": [[rows, batch, columns, 2], [batch, rows], [3]],
        "outputs": [[batch, columns, 3 * rows], [after(STEPS, rows), 2], []],
    }


MANIFEST = {
    **{
        key: [{"name": name, "dtype": dtype, "shape": []} for name, dtype in tensors]
        for key, tensors in TENSORS.items()
    },
    "format": bundles.FORMAT,
    "threads": 1,
    "cpu_features": [],
    "dimensions": [
        {
            "name": "rows",
            "buckets": ROWS,
            "axes": [[0, 0, 1.5], [1, 1, -7.0]],
            "outputs": [[0, 2, 3], [1, 0, 1, *STEPS]],
        },
        {"name": "the columns", "buckets": COLUMNS, "axes": [[0, 2, 0.0]], "outputs": [[0, 1, 1]]},
        {
            "name": "batch",
            "buckets": BATCHES,
            "axes": [[0, 1, None], [1, 0, None]],
            "outputs": [[0, 0, 1]],
        },
    ],
    "buckets": [
        {
            "name": str(extents),
            "folder": str(extents),
            **shapes(*extents),
            # Without tiles, this bucket is left out, and the largest one has other kernels.
            "needs_tiles": extents == SMALLER,
            "is_open": extents in {SMALLER, LARGEST},
        }
        for extents in itertools.product(ROWS, COLUMNS, BATCHES)
    ],
}


def read_manifest(folder):
    """The manifest of a bucket's folder, or of its kernels with vectors."""
    manifest = {"constants": [0]}
    if folder.name in {str(SMALLER), str(LARGEST)}:
        manifest["permissions"] = ["amx"]
    if folder.name == str(LARGEST):
        manifest["vectors"] = "vectors"
    return manifest


@pytest.fixture(scope="module")
def described():
    """The manifest from which a library is linked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundles, "_check", lambda *_: None)
        patch.setattr(bundles, "read_manifest", read_manifest)
        sized = bundles._sized(Path(), MANIFEST)
    assert [bucket["tiles"] for bucket in sized["buckets"]] == [*[0] * 10, 1, 1, -1]
    assert sized["permissions"] == []
    return sized


def test_a_library_needs_tiles_if_no_other_bucket_takes_a_call(monkeypatch):
    monkeypatch.setattr(bundles, "_check", lambda *_: None)
    for without, needed in ((SMALLER, []), (LARGEST, ["amx"])):
        permissions = {str(without): ["amx"]}

        def own(folder, permissions=permissions):
            return {"constants": [0], "permissions": permissions.get(folder.name, [])}

        monkeypatch.setattr(bundles, "read_manifest", own)
        assert bundles._sized(Path(), MANIFEST)["permissions"] == needed


@pytest.fixture(scope="module")
def library(described, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sizes")
    (folder / "net.h").write_text(linking.filled("header.h", described, "net"))
    sequences = [f"const struct sequence sequence_{n};" for n in range(len(described["buckets"]))]
    names = [linking._names(described, "net"), *sequences, ""]
    (folder / "names.h").write_text("\n".join(names))
    sources = DRIVER.with_name("sizes_test.c"), linking.SOURCES / "sizes.c"
    for source in sources:
        linking.compile_c(source, folder / f"{source.stem}.o", folder)
    objects = [str(folder / f"{source.stem}.o") for source in sources]
    linking.run_compiler("-shared", *objects, "-o", str(folder / "sizes.so"))
    loaded = ctypes.CDLL(str(folder / "sizes.so"))
    loaded.last_sentence.restype = ctypes.c_char_p
    return loaded


def pointers(arrays):
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def filled(rng, key, own):
    """Random arrays for all inputs, or all outputs."""
    return [
        np.array(rng.integers(0, 2 if dtype == "bool" else 100, shape)).astype(dtype)
        for (_, dtype), shape in zip(TENSORS[key], own[key], strict=True)
    ]


def called_in_c(library, described, extents, inputs, kernels):
    """The outputs of a call, or the sentence of its error."""
    sizes = (ctypes.c_int64 * len(extents))(*extents)
    memory = np.empty(library.memory_size(), np.uint8)
    wanted = shapes(*extents)["outputs"]
    valid = [[max(extent, 0) for extent in shape] for shape in wanted]
    outputs = [np.zeros(s, t) for s, (_, t) in zip(valid, TENSORS["outputs"], strict=True)]
    arrays = pointers([*inputs, *outputs])
    inside = (ctypes.c_void_p * len(arrays))()
    number = library.begin(sizes, arrays, memory.ctypes.data_as(ctypes.c_void_p), inside)
    if number < 0:
        return library.last_sentence().decode()
    bucket = described["buckets"][number]
    assert bucket["tiles"] in {0, 1 if ctypes.c_int.in_dll(library, "has_tiles").value else -1}
    tensors = [pair for pairs in TENSORS.values() for pair in pairs]
    views = [
        np.ctypeslib.as_array(
            ctypes.cast(pointer, ctypes.POINTER(ctypes.c_uint8)),
            (int(np.prod(shape)) * np.dtype(dtype).itemsize,),
        )
        .view(dtype)
        .reshape(shape)
        for pointer, shape, (_, dtype) in zip(
            inside, [*bucket["inputs"], *bucket["outputs"]], tensors, strict=True
        )
    ]
    made = kernels(bucket["name"])(*views[: len(inputs)])
    for view, output in zip(views[len(inputs) :], made, strict=True):
        view[...] = output
    library.end(arrays, inside)
    shape = (ctypes.c_int64 * 4)()
    for place, (own, output) in enumerate(zip(wanted, outputs, strict=True), len(inputs)):
        assert library.shape(place, sizes, shape) == output.nbytes
        assert list(shape[: len(own)]) == own
    return outputs


@settings(deadline=None)
@given(
    extents=st.tuples(st.integers(0, 10), st.integers(0, 9), st.integers(0, 5)),
    has_tiles=st.booleans(),
    seed=st.integers(0, 9),
)
def test_a_call_in_c_has_the_bucket_and_the_outputs_of_python(
    library, described, extents, has_tiles, seed
):
    rng = np.random.default_rng(seed)
    inputs = filled(rng, "inputs", shapes(*extents))
    seen = []

    def kernels(name):
        def run(*padded):
            seen.append((name, [array.tobytes() for array in padded]))
            [bucket] = [own for own in MANIFEST["buckets"] if own["name"] == name]
            return filled(np.random.default_rng(seed), "outputs", bucket)

        return run

    ctypes.c_int.in_dll(library, "has_tiles").value = has_tiles
    usable = [own for own in MANIFEST["buckets"] if has_tiles or not own["needs_tiles"]]
    usable = [{**own, "is_open": False} for own in usable]  # what is not a network computes all
    network = Buckets({**MANIFEST, "buckets": usable}, kernels)
    result = called_in_c(library, described, extents, inputs, kernels)
    if isinstance(result, str):
        rows, columns, batch = extents
        names = [
            *([f"rows is {rows}, and the network takes 1 to 9"] if not 0 < rows < 10 else []),
            *([f"the columns is {columns}, and"] if not 0 < columns < 9 else []),
            *([f"batch is {batch}, and the network takes 1 or 4"] if batch not in BATCHES else []),
            *(["is too small, since outputs are empty"] if rows < ROWS[0] else []),
        ]
        assert any(name in result for name in names), (result, extents)
        with pytest.raises(ValueError, match=r"no bucket takes|outputs are empty"):
            network(*inputs)
        return
    for own, wanted in zip(result, network(*inputs), strict=True):
        assert own.tobytes() == wanted.tobytes()
    in_c, in_python = seen
    assert in_c == in_python
