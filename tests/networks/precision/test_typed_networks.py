"""Networks of one type whose weights are sketched tell the same of operators as rounded ones."""

import pytest
from chameleon_core.plugin_api import NoOptions
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._graph.fusion_groups import with_fastest_specs
from chameleon_networks._precision.typed_networks import TypedNetworks
from chameleon_networks._quantize.eligibility import dtypes_with_same_data, find_eligible
from chameleon_tvm._device.targets import TVMTargets

pytestmark = pytest.mark.usefixtures("forked_networks")


@pytest.mark.parametrize("kind", ["bfloat16", "float16", "int8", "int7"])
@pytest.mark.parametrize("cpu", ["haswell", "znver4"])
def test_a_sketch_has_the_operators_of_the_network(tiny, kind, cpu):
    target = TVMTargets(NoOptions()).resolve(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
    networks = TypedNetworks(*prepared_network(tiny), None)
    types = {
        i: v
        for v in dtypes_with_same_data(kind)
        for i in find_eligible(networks.fusions, v).indices
    }
    sketched, rounded = networks.uniform(kind), networks.of(types)
    assert sketched.replacements == rounded.replacements
    # Whether weights are small enough for a faster instruction is told by their numbers.
    specs = [[c.spec for c in with_fastest_specs(n.fusions, target)] for n in (sketched, rounded)]
    assert specs[0] == specs[1]
