"""A network and its records, applied and compiled by TVM alone."""

import numpy as np
import pytest
from chameleon_core.plugin_api import Delivery
from chameleon_networks._export.metaschedule import NETWORK_MODULE, write_metaschedule
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._importers.options import BuiltinOptions
from chameleon_networks._importers.sources import BuiltinNetwork
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.sketch.provider import SketchPlan, SketchSpace

COMPILE = """
import sys
sys.modules["torch"] = None  # TVM starts faster without it
from pathlib import Path
import numpy as np
import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms

folder, target = sys.argv[1], tvm.target.Target(sys.argv[2])
module = tvm.ir.load_json(Path(folder, "network.json").read_text())
database = ms.database.JSONDatabase(work_dir=folder)
with target, database, tvm.transform.PassContext(opt_level=3):
    module = relax.transform.MetaScheduleApplyDatabase()(module)
    functions = [f for _, f in module.functions_items() if isinstance(f, tvm.tirx.PrimFunc)]
    print(len(functions), sum(bool(f.attrs.get("tirx.is_scheduled")) for f in functions))
    module = relax.transform.SplitLayoutRewritePreproc()(module)
    module = relax.transform.FoldConstant()(module)
    machine = relax.VirtualMachine(relax.build(module, target), tvm.cpu())
got = machine["main"](tvm.runtime.tensor(np.load(f"{folder}/input.npy")))
got = got if isinstance(got, tvm.runtime.Tensor) else got[0]  # a network of torch gives a tuple
want = np.load(f"{folder}/want.npy")
print(abs(got.numpy() - want).max() / abs(want).max())
print([name for name in sys.modules if name.startswith("chameleon")])
"""
OPTIONS = SketchOptions(rewrite_sums=False, start=0)


def _winner(task):
    """A random configuration that is a program."""
    plan = SketchPlan(task, operator_of(task), OPTIONS)
    for row in plan.space.sample(64, np.random.default_rng(0)).tolist():
        if (config := plan.resolved(tuple(row))) is not None:
            return Delivery.Winner(task=task, config=config, seconds=1e-3)
    raise AssertionError("no configuration is a program")


LARGER = [pytest.param(name, marks=pytest.mark.long) for name in ("resnet_small", "bert_small")]


@pytest.mark.full
@pytest.mark.parametrize("network", ["tiny", *LARGER])
def test_tvm_alone_compiles_the_network(network, tiny, target, tmp_path, run_python):
    imported = tiny if network == "tiny" else BuiltinNetwork(BuiltinOptions(network=network))
    winners = [_winner(task) for task in NetworkFrontend(imported).tasks(target)[-4:]]
    exported = write_metaschedule(
        winners, SketchSpace(OPTIONS), OPTIONS, tmp_path, network=imported
    )
    assert tmp_path / NETWORK_MODULE in exported.files
    inputs = imported.samples(np.random.default_rng(0))
    [want] = imported.framework(imported.frameworks[0], 1)(inputs)
    np.save(tmp_path / "input.npy", inputs[0])
    np.save(tmp_path / "want.npy", want)
    counts, error, modules = run_python(COMPILE, tmp_path, target).splitlines()
    workloads, scheduled = counts.split()
    assert workloads == scheduled != "0"
    assert float(error) < 1e-4
    assert modules == "[]"
