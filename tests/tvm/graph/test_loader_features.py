"""The loader delivered with a network goes by the processor's flags."""

import pytest
from chameleon_tvm.cpus.features import LINUX_NAMES
from chameleon_tvm.graph import load


@pytest.fixture
def cpuinfo(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "CPUINFO", tmp_path / "cpuinfo")
    return tmp_path / "cpuinfo"


@pytest.mark.parametrize("architecture", sorted(LINUX_NAMES))
def test_it_knows_the_flag_of_every_feature(architecture, cpuinfo, monkeypatch):
    monkeypatch.setattr(load.platform, "machine", lambda: architecture)
    names = LINUX_NAMES[architecture]
    key = "Features" if architecture == "aarch64" else "flags\t"
    for left_out in names:
        flags = [flag for feature, flag in names.items() if feature != left_out]
        cpuinfo.write_text(f"processor\t: 0\n{key}\t: {' '.join(flags)}\n")
        assert load.lacking_features(sorted(names)) == [left_out]


def test_without_flags_llvm_is_asked(cpuinfo):
    assert load.lacking_features(["fma4", "sse2"]) in (["fma4"], ["fma4", "sse2"])
    cpuinfo.write_text("processor : 0\n")
    assert "fma4" in load.lacking_features(["fma4"])
