"""Every analytical feature of a template tells of one loop or buffer."""

import pytest
from chameleon_core._plugins.registry import Registry

CPU, GPU = (
    '{"kind": "llvm", "mcpu": "znver3", "keys": ["cpu"]}',
    '{"kind": "cuda", "arch": "sm_80"}',
)


@pytest.mark.parametrize(
    ("kind", "target", "arguments"),
    [
        ("conv2d", CPU, {"input": (1, 64, 28, 28), "filters": 64, "kernel": 3, "padding": 1}),
        ("dense", CPU, {"input": (64, 64), "units": 64}),
        ("dense", GPU, {"input": (64, 64), "units": 64}),
    ],
)
def test_all_features_are_grouped(kind, target, arguments):
    registry = Registry.default()
    resolved = registry.create("targets", "tvm").resolve(target)
    (record,) = (row.record for row in registry.entries("operators") if row.record.name == kind)
    task = record.arguments(**arguments).task("t", resolved)
    block = registry.create("spaces", "auto").design_space(task).features_block
    assert len(block.groups) > 1
    assert sorted(name for _, columns in block.groups for name in columns) == sorted(block.names)
