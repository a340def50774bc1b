"""Several delivered folders in one process, imported as packages, by path, or the old way."""

import shutil

import pytest

from .conftest import alone

USERS = ("library", "machine", "buckets", "vectors")
"""Modules of the user, with names that files of a delivered folder had."""

TRY = """
import importlib.util, multiprocessing, sys
import numpy as np
folders, samples = sys.argv[1:4], sys.argv[4:]

def is_right(network, file):
    with np.load(file) as arrays:
        data, wanted = (arrays[name] for name in arrays.files[:2])
    return np.array_equal(network(data), wanted)
"""
CHECK = """
def all_right(_=None):
    return all(map(is_right, networks, samples))

if __name__ == "__main__":
    import library, machine, buckets, vectors
    assert {module.own for module in (library, machine, buckets, vectors)} == {1}
    assert all_right()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert all(pool.map(all_right, range(4)))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for network, file in zip(networks, samples):
            assert pool.apply(is_right, (network, file))
"""
PACKAGES = """
sys.path.insert(0, folders[0].rpartition("/")[0])
if __name__ == "__main__":
    from first import load
    from second import load as load_second
    from first.load import load as same
    assert same is load
    spec = importlib.util.spec_from_file_location("newer", folders[2] + "/load.py")
    newer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(newer)
    networks = [load(), load_second(), newer.load()]
"""
FROM_LOAD = """
if __name__ == "__main__":
    functions = []
    for folder in folders:
        sys.path.insert(0, folder)
        from load import load
        functions.append(load)
    networks = [function() for function in functions]
"""


@pytest.mark.parametrize("way", [PACKAGES, FROM_LOAD], ids=["packages", "from load"])
def test_each_folder_loads_its_own_network(way, called, bucketed, operator, tmp_path):
    """Two networks and another version of the first, in one process, its forks and its children."""
    folders = [tmp_path / "a" / "first", tmp_path / "a" / "second", tmp_path / "b" / "first"]
    delivered = [called, bucketed, operator]
    for own, folder in zip(delivered, folders, strict=True):
        shutil.copytree(own.path, folder)
    program = tmp_path / "program" / "service.py"
    program.parent.mkdir()
    program.write_text(TRY + way + CHECK)
    for name in USERS:
        (program.parent / f"{name}.py").write_text("own = 1\n")
    ended = alone(program, *folders, *(own.samples for own in delivered))
    assert (ended.returncode, ended.stderr) == (0, "")


PACKING = """
import importlib, sys
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
for folder in sys.argv[1:]:
    sys.path.insert(0, folder)
    from pack import pack_weights
    assert pack_weights.__code__.co_filename == folder + "/pack.py"
    package = importlib.import_module(folder.rpartition("/")[2])
    assert package.pack_weights.__code__.co_filename == folder + "/pack.py"
    assert package.load.__code__.co_filename == folder + "/load.py"
"""


def test_each_operator_packs_its_own_weights(operator, tmp_path):
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        shutil.copytree(operator.path, folder)
    ended = alone(PACKING, *folders)
    assert (ended.returncode, ended.stderr) == (0, "")
