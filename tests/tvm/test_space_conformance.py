"""Our own space providers pass the checks that third parties' are given."""

from functools import partial

import pytest
from chameleon_testing.conformance import check_space_provider
from chameleon_tvm import api as specs
from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.sketch.provider import SketchSpace
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace
from computing import NATIVE, X86, resolved

ZEN4 = '{"keys": ["cpu"], "kind": "llvm", "mcpu": "znver4", "num-cores": 2}'
TILES = resolved(f"{X86}sapphirerapids -num-cores=2")
SM_80 = '{"arch": "sm_80", "kind": "cuda"}'
INT8 = {"dtype": "int8", "output_dtype": "uint8"}
LAYER = {"input": [1, 16, 8, 8], "filters": 32, "kernel": 3, "padding": 1, "layout": "NHWC"}
TEMPLATES = partial(TemplateSpace, TemplateOptions())
STORED = ("direct", "bfloat16_weights", "float16_weights")
SPECS = [
    specs.Conv2dSpec(**LAYER),
    specs.DenseSpec(input=[4, 64], units=48),
    specs.BatchMatmulSpec(a=[2, 16, 32], b=[2, 32, 16]),
    specs.AttentionSpec(query=[1, 2, 20, 16], key=[1, 2, 20, 16], value=[1, 2, 20, 16]),
]


@pytest.mark.full
@pytest.mark.parametrize(
    ("make", "spec", "target"),
    [
        *((TEMPLATES, spec, ZEN4) for spec in SPECS),
        *((partial(SketchSpace, SketchOptions()), spec, ZEN4) for spec in SPECS),
        (TEMPLATES, specs.Conv2dSpec(**LAYER, **INT8), NATIVE),
        (TEMPLATES, specs.DepthwiseConv2dSpec(input=[1, 16, 8, 8], kernel=3, **INT8), NATIVE),
        (TEMPLATES, specs.DenseSpec(input=[4, 64], units=48, dtype="int8"), NATIVE),
        (TEMPLATES, specs.Conv2dSpec(**{**LAYER, "input": [1, 64, 14, 14]}, **INT8), TILES),
        (
            partial(TemplateSpace, TemplateOptions(algorithms=STORED, max_error=None)),
            specs.DenseSpec(input=[1, 512], units=96, bias=True, activation="relu"),
            resolved(f"{X86}haswell"),
        ),
        (
            partial(TemplateSpace, TemplateOptions(algorithms=("direct", "winograd2"))),
            specs.Conv2dSpec(**LAYER),
            NATIVE,
        ),
        (TEMPLATES, SPECS[2], SM_80),
        (TEMPLATES, specs.BatchMatmulSpec(a=[2, 32, 32], b=[2, 32, 16], dtype="float16"), SM_80),
        (TEMPLATES, specs.Conv2dSpec(**{**LAYER, "padding": 0}, dtype="bfloat16"), SM_80),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_it_conforms(make, spec, target):
    check_space_provider(make, spec.task("t", target))
