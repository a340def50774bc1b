"""TVM's untuned kernel computes what the operators say."""

import json

import attrs
import pytest
from chameleon_core.plugin_api import NoOptions
from chameleon_testing.conformance import check_baseline
from chameleon_tvm._baselines.untuned import UntunedBaseline
from chameleon_tvm.api import Conv2dSpec, DenseSpec, DepthwiseConv2dSpec

CPU = json.dumps({"kind": "llvm"})

SPECS = {
    "nchw": Conv2dSpec(input=(1, 8, 6, 6), filters=8, kernel=3, padding=1),
    "nhwc": Conv2dSpec(input=(1, 8, 6, 6), filters=8, kernel=3, padding=1, layout="NHWC"),
    "depthwise": DepthwiseConv2dSpec(input=(1, 8, 6, 6), kernel=3),
    "dense": DenseSpec(input=(3, 16), units=8),
}


def baseline():
    return UntunedBaseline(NoOptions())


@pytest.mark.parametrize("name", SPECS)
def test_it_computes_the_operator(name):
    check_baseline(baseline, SPECS[name].task(name, CPU))


@pytest.mark.parametrize(
    "change",
    [{"operator": "unheard_of"}, {"target": json.dumps({"kind": "cuda"})}, {"target": "not JSON"}],
)
def test_it_declines_what_it_cannot_do(change):
    task = SPECS["nchw"].task("nchw", CPU)
    assert baseline().supports(task)
    assert not baseline().supports(attrs.evolve(task, **change))


def test_asking_does_not_import_tvm(run_python):
    code = "import sys, chameleon_tvm._baselines.untuned; print('tvm' in sys.modules)"
    assert run_python(code).split() == ["False"]
