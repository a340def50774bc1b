"""A delivered network as a wheel: installed by pip, imported under the network's name."""

import re
import sys
import zipfile

import pytest
from chameleon_core._errors import ConfigError
from chameleon_networks._artifact.writer import read_manifest, write_manifest
from chameleon_networks._export.bundles import write_wheel
from programs import completed

from ..runtime.conftest import alone, called  # noqa: F401, TID252 - a fixture of its folder

USE = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from importlib.metadata import requires, version
from resnet18 import load
with np.load(sys.argv[2]) as samples:
    data, wanted = (samples[name] for name in samples.files[:2])
assert np.array_equal(load()(data), wanted)
assert requires("resnet18") == ["numpy"]
print(version("resnet18"))
"""


@pytest.mark.full
def test_pip_installs_a_wheel_of_a_network(called, tmp_path):  # noqa: F811 - the fixture
    exported = write_wheel(called.path, tmp_path / "dist", "resnet18", "1.2")
    [wheel] = exported.files
    assert re.fullmatch(r"resnet18-1\.2\+[0-9a-f]{12}-py3-none-linux_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert "resnet18/objects.tar" not in names
        [metadata] = [name for name in names if name.endswith("METADATA")]
        assert b"CPU must have" in archive.read(metadata)
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", site]
    installed = completed([*pip, wheel], None, timeout=240)
    assert installed.returncode == 0, installed.stderr
    ended = alone(USE, site, called.samples)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.strip() == wheel.name.split("-")[1]
    with pytest.raises(ConfigError, match="already"):
        write_wheel(called.path, tmp_path / "dist", "resnet18", "1.2")


def test_a_cpu_that_lacks_a_feature_is_told_at_the_import(called, tmp_path):  # noqa: F811
    folder = called.copy(tmp_path / "network").path
    write_manifest(folder, {**read_manifest(folder), "cpu_flags": {"imaginary": "imaginary"}})
    [wheel] = write_wheel(folder, tmp_path, "resnet18", "1.2").files
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    ended = alone("import sys; sys.path.insert(0, sys.argv[1]); import resnet18", tmp_path / "site")
    assert "ImportError: this CPU lacks imaginary" in ended.stderr


def test_a_name_that_is_no_package_is_refused(called, tmp_path):  # noqa: F811
    with pytest.raises(ConfigError, match="cannot be called 'res-net'"):
        write_wheel(called.path, tmp_path, "res-net", "1.2")
