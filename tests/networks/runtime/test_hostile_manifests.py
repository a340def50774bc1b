"""Manifests whose digest is right and whose content is not: a sentence, and nothing is run."""

import copy
import json
import shutil

import pytest
from chameleon_networks._artifact.load import digest_of, load
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import full

MARK = "import pathlib; pathlib.Path(__file__).with_name('ran').touch()\n"


def _write(folder, change):
    """Change a manifest, and make its digest right again."""
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest.pop("digest")
    change(manifest)
    file.write_text(json.dumps({**manifest, "digest": digest_of(manifest)}))


def _set(*path):
    *keys, last, value = path

    def change(manifest):
        for key in keys:
            manifest = manifest[key]
        if value is _set:
            del manifest[last]
        else:
            manifest[last] = value

    return change


def _more_constants(manifest):
    manifest["constants"] = [0] * 10_000


HUGE = 1 << 40
LIBRARIES = {
    "a module outside": _set("module", "../evil.so"),
    "an absolute module": _set("module", "/evil/evil.so"),
    "a module that is no text": _set("module", 7),
    "a module with a zero byte": _set("module", "network.so\0"),
    "a module that nobody vouches for": _set("module", "evil.so"),
    "no digest of the module": _set("files", "network.so", "sha256", _set),
    "no digest of the code": _set("files", "_library.py", _set),
    "a file outside": _set("files", "../evil.so", {"bytes": 0}),
    "a file with a zero byte": _set("files", "a\0b", {"bytes": 0}),
    "a file with half a letter": _set("files", "\ud800", {"bytes": 0}),
    "a file with a long name": _set("files", "a" * 5000, {"bytes": 0}),
    "files that are a list": _set("files", ["network.so"]),
    "no files": _set("files", _set),
    "a size that is text": _set("files", "network.so", "bytes", "many"),
    "a negative size": _set("files", "network.so", "bytes", -1),
    "no run time": _set("run_time", _set),
    "a run time of no kind": _set("run_time", ["library"]),
    "another run time": _set("run_time", "virtual machine"),
    "weights outside": _set("shared_weights", "../weights.bin"),
    "weights that are no text": _set("shared_weights", {}),
    "other kernels that are no text": _set("vectors", ["vectors"]),
    "levels that are no list": _set("levels", "x86-64-v3"),
    "levels without names": _set("levels", [{}]),
    "a level outside": _set("levels", [{"name": "own"}, {"name": "../evil"}]),
    "a level without code": _set("levels", [{"name": "own"}]),
    "negative constants": _set("constants", [-1] * 2),
    "large constants": _set("constants", [HUGE] * 2),
    "few constants": _set("constants", []),
    "many constants": _more_constants,
    "constants that are no list": _set("constants", 3),
    "constants that are no numbers": _set("constants", ["0", True]),
    "no inputs": _set("inputs", []),
    "inputs that are no list": _set("inputs", {"image": 1}),
    "an input without a shape": _set("inputs", 0, "shape", _set),
    "a small input": _set("inputs", 0, "shape", [1]),
    "a huge input": _set("inputs", 0, "shape", [HUGE] * 4),
    "a negative input": _set("inputs", 0, "shape", [-1, 3, 12, 12]),
    "an input of text": _set("inputs", 0, "shape", "1234"),
    "an input of fractions": _set("inputs", 0, "shape", [1.0, 3.0, 12.0, 12.0]),
    "a small output": _set("outputs", 0, "shape", [1]),
    "a huge output": _set("outputs", 0, "shape", [HUGE]),
    "narrow inputs": _set("inputs", 0, "dtype", "int8"),
    "narrow outputs": _set("outputs", 0, "dtype", "float16"),
    "outputs of objects": _set("outputs", 0, "dtype", "O"),
    "outputs of no type": _set("outputs", 0, "dtype", {}),
    "more outputs": lambda manifest: manifest["outputs"].append(manifest["outputs"][0]),
    "needs that are text": _set("needs", "apache-tvm"),
    "threads that are text": _set("threads", "2"),
}
MACHINES = {
    "no code": _set("files", "_machine.py", _set),
    "a huge input": _set("inputs", 0, "shape", [HUGE]),
    "a large input": _set("inputs", 0, "shape", [(1 << 31) - 1] * 4),
    "an input of objects": _set("inputs", 0, "dtype", "O"),
    "features that are a list": _set("cpu_flags", ["avx2"]),
    "flags that are lists": _set("cpu_flags", {"avx2": []}),
    "permissions of no kind": _set("permissions", 5),
    "another run time": _set("run_time", "library"),
}
BUCKETS = {
    "no digest of the code": _set("files", "_buckets.py", "sha256", _set),
    "a bucket outside": _set("buckets", 0, "folder", "../evil"),
    "an absolute bucket": _set("buckets", 0, "folder", "/evil"),
    "a bucket without a name": _set("buckets", 0, "name", _set),
    "buckets that are no list": _set("buckets", None),
    "no dimensions": _set("dimensions", _set),
    "axes that are no lists": _set("dimensions", 0, "axes", [1]),
    "axes that are too short": _set("dimensions", 0, "axes", [[0]]),
    "axes that are not there": _set("dimensions", 0, "axes", [[9, 9, 0]]),
    "outputs that are not there": _set("dimensions", 0, "outputs", [[9, 9, 1]]),
    "inputs of no kind": _set("inputs", 0, "dtype", "O"),
    "inputs of fractions": _set("buckets", 0, "inputs", [[2.5, 5]]),
}
CASES = [
    (kind, name, change)
    for kind, changes in (("called", LIBRARIES), ("interpreted", MACHINES), ("bucketed", BUCKETS))
    for name, change in changes.items()
]


@pytest.mark.parametrize(
    ("kind", "change"),
    [full(kind, change) if kind == "interpreted" else (kind, change) for kind, _, change in CASES],
    ids=[f"{kind}: {name}" for kind, name, _ in CASES],
)
def test_nothing_of_it_is_run(kind, change, request, tmp_path):
    folder = request.getfixturevalue(kind).copy(tmp_path / "network")
    trying = request.getfixturevalue("trying_tvm" if kind == "interpreted" else "trying")
    _write(folder.path, change)
    said = trying(folder)
    assert said.startswith("RuntimeError: "), said
    assert len(said) > 40, said


@pytest.mark.parametrize("name", ["_library.py", "_machine.py", "_buckets.py"])
def test_code_without_a_digest_is_not_run(called, tmp_path, name):
    folder = called.copy(tmp_path / "network").path
    (folder / name).write_text(MARK)

    def change(manifest):
        manifest["files"].pop(name, None)
        manifest["run_time"] = "virtual machine" if name == "_machine.py" else "library"
        if name == "_buckets.py":
            manifest.update(buckets=[], dimensions=[])

    _write(folder, change)
    with pytest.raises(RuntimeError, match=f"has no digest of {name}"):
        load(folder)
    assert not (folder / "ran").exists()


def test_a_folder_with_the_file_names_of_earlier_versions_loads(called, tmp_path, trying):
    folder = called.copy(tmp_path / "network")
    (folder.path / "_library.py").rename(folder.path / "library.py")
    (folder.path / "__init__.py").unlink()

    def change(manifest):
        del manifest["files"]["__init__.py"]
        manifest["files"]["library.py"] = manifest["files"].pop("_library.py")

    _write(folder.path, change)
    assert trying(folder) == "right"


def test_a_library_of_another_network_is_refused(called, operator, tmp_path, trying):
    folder = called.copy(tmp_path / "network")
    shutil.copy(operator.path / "kernel.so", folder.path / "network.so")
    known = json.loads((operator.path / "manifest.json").read_text())["files"]["kernel.so"]
    _write(folder.path, _set("files", "network.so", known))
    assert "is no library of a network" in trying(folder)
    assert trying(called) == "right"


@pytest.mark.parametrize("arguments", [{"threads": -1}, {"threads": 1 << 40}, {"instances": 0}])
def test_impossible_numbers_are_refused(called, arguments):
    with pytest.raises(ValueError, match="a network has 1 or more threads"):
        load(called.path, **arguments)
    with pytest.raises(RuntimeError, match="1 to 1024 instances"):
        load(called.path, instances=1025)


def test_any_number_of_threads_is_possible(called):
    assert load(called.path, threads=10**9).threads == 1024


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=4,
)


@settings(max_examples=25)
@given(data=st.data())
def test_any_value_gives_the_right_answer_or_a_sentence(scratch, trying, data):
    file = scratch.path / "manifest.json"
    text = file.read_text()
    manifest = copy.deepcopy(json.loads(text))
    keys = ("module", "run_time", "threads", "needs", "cpu_flags", "inputs", "outputs", "files")
    part, key = manifest, data.draw(st.sampled_from((*keys, "constants", "shared_weights")))
    while isinstance(part.get(key), dict) and part[key] and data.draw(st.booleans()):
        part, key = part[key], data.draw(st.sampled_from(sorted(part[key])))
    part[key] = data.draw(VALUES)
    manifest.pop("digest")
    file.write_text(json.dumps({**manifest, "digest": digest_of(manifest)}))
    try:
        said = trying(scratch)
    finally:
        file.write_text(text)
    assert said == "right" or said.startswith("RuntimeError: "), said


def test_a_run_folder_is_no_network_but_has_one(called, tmp_path):
    (tmp_path / "network").symlink_to(called.path)
    with pytest.raises(RuntimeError, match=f"the network is in {tmp_path}/network"):
        load(tmp_path)
