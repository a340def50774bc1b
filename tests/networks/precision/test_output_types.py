"""One operator in eight bits that writes its output in different types in one network."""

import numpy as np
from chameleon_core.plugin_api import Delivery
from chameleon_networks._artifact.load import load
from chameleon_networks._artifact.writer import manifest_of, write_artifact
from chameleon_networks._compile.compile import compile_network
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._evaluation.profile import kernel_seconds
from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._precision.typed_networks import TypedNetworks
from chameleon_networks._quantize.ranges import Affine
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions

SHAPE = (1, 8, 6, 6)
CONVOLUTIONS = 3


def _network(emit, x):
    """Convolutions of one shape, one after the other."""
    rng = np.random.default_rng(0)
    for _ in range(CONVOLUTIONS):
        weight = relax.const(rng.standard_normal((8, 8, 3, 3)).astype("float32") / 8)
        x = emit(relax.op.nn.conv2d(x, weight, padding=1))
    return x


def test_each_output_is_of_the_type_that_its_reader_reads(
    network_of, target, tmp_path, monkeypatch
):
    module, fusions = network_of(_network, SHAPE)
    networks = TypedNetworks(module, fusions, None)
    networks._ranges = dict.fromkeys(networks._ranges, Affine.between(-8.0, 8.0))
    typed = networks.of({0: "int8", 1: "int8"})
    specs = [fusion.spec for fusion in typed.fusions]
    assert [s.output_dtype for s in specs[:2]] == ["uint8", "float32"]
    space = AutoSpace(AutoOptions())
    winners = {}
    for spec, name in ((specs[0], "one int8"), (specs[2], "one")):
        task = spec.task(name, target)
        config = tuple(map(int, space.design_space(task).first_guesses[0]))
        winners[task.key] = Delivery.Winner(task=task, config=config, seconds=1.0)
    kernels = Kernels(winners, space, target).adapted(typed.fusions)
    assert [kernels.task_of(c).name for c in typed.fusions] == ["one int8", "one int8", "one"]
    network = compile_network(typed.module, typed.fusions, kernels, target)
    manifest = manifest_of(typed.module, typed.fusions, kernels, target, 1) | network.facts
    write_artifact(tmp_path / "types", network.executable, manifest)
    plain = compile_network(module, fusions, Kernels({}, space, target), target)
    manifest = manifest_of(module, fusions, Kernels({}, space, target), target, 1)
    write_artifact(tmp_path / "plain", plain.executable, manifest)
    x = np.random.default_rng(1).standard_normal(SHAPE).astype("float32")
    output, wanted = (load(tmp_path / name)(x) for name in ("types", "plain"))
    assert 1e-4 < np.abs(output - wanted).max() / np.abs(wanted).max() < 0.1
    rows = kernel_seconds(str(tmp_path / "types"), [x])
    calls = {row.name: row.calls for row in rows if row.tuned}
    assert calls == {"one int8": 2, "one": 1}, "both functions are told of by their task"
