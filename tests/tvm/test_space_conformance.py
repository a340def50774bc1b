"""Our own space providers pass the checks that third parties' are given."""

import pytest
from chameleon_testing.conformance import check_space_provider
from chameleon_tvm.operators.specs import AttentionSpec, BatchMatmulSpec, Conv2dSpec, DenseSpec
from chameleon_tvm.spaces.sketch.options import SketchOptions
from chameleon_tvm.spaces.sketch.provider import SketchSpace
from chameleon_tvm.spaces.template.options import TemplateOptions
from chameleon_tvm.spaces.template.provider import TemplateSpace

ZEN4 = '{"keys": ["cpu"], "kind": "llvm", "mcpu": "znver4", "num-cores": 2}'
SPECS = [
    Conv2dSpec(input=[1, 16, 8, 8], filters=32, kernel=3, padding=1, layout="NHWC"),
    DenseSpec(input=[4, 64], units=48),
    BatchMatmulSpec(a=[2, 16, 32], b=[2, 32, 16]),
    AttentionSpec(query=[1, 2, 20, 16], key=[1, 2, 20, 16], value=[1, 2, 20, 16]),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
@pytest.mark.parametrize(
    "make", [lambda: TemplateSpace(TemplateOptions()), lambda: SketchSpace(SketchOptions())]
)
def test_it_conforms(make, spec):
    check_space_provider(make, spec.task("t", ZEN4))
