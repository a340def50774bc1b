"""The loader delivered with a network goes by the processor's flags."""

import pytest
from chameleon_networks._artifact import load
from chameleon_tvm._device.cpus.features import LINUX_NAMES, flag_of


@pytest.mark.parametrize("architecture", sorted(LINUX_NAMES))
def test_it_knows_the_flag_of_every_feature(architecture, tmp_path, monkeypatch):
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(load, "CPUINFO", cpuinfo)
    names = LINUX_NAMES[architecture]
    manifest = {"cpu_flags": {name: flag_of(name) for name in names}}
    key = "Features" if architecture == "aarch64" else "flags\t"
    for left_out in names:
        flags = [flag for feature, flag in names.items() if feature != left_out]
        cpuinfo.write_text(f"processor\t: 0\n{key}\t: {' '.join(flags)}\n")
        assert load.refusal(manifest).startswith(f"this CPU lacks {left_out}, which")
    cpuinfo.write_text("processor : 0\n")
    assert load.refusal(manifest) == ""
