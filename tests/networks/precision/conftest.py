"""How small networks are made, run, and delivered as if they took given times."""

import json
from collections.abc import Mapping
from functools import partial

import pytest
from chameleon_core.plugin_api import Delivery, Frontend
from chameleon_networks._compile.compile import compile_baseline
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._compile.prepared_networks import prepared_network
from chameleon_networks._delivery.mixed_precision import decisions as settling
from chameleon_networks._delivery.mixed_precision import delivery as delivering
from chameleon_networks._frontends.bucketed import make_frontend
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.fusion_groups import candidate_specs
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.relax_utils import relax, tvm
from chameleon_networks._precision.typed_networks import TypedNetworks
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions

from ..modules import module_of  # noqa: TID252 - shared by folders

SPACE = AutoSpace(AutoOptions())


class NoTrials(Frontend.Trials):
    """What a frontend settles with where nothing can be measured."""

    seconds = 1.0
    measures_hardware = False

    def __init__(self, target):
        self.target = target

    def best_seconds(self, task, guesses, *, seconds_to_beat=0.0):
        del task, guesses, seconds_to_beat


@pytest.fixture(scope="module")
def networks(tiny):
    return TypedNetworks(*prepared_network(tiny), None)


@pytest.fixture(scope="session")
def asked(tiny):
    """A new frontend of the network that a pipeline asks for a precision."""

    def frontend(precision):
        result = NetworkFrontend(type(tiny)(tiny.options))
        result.compute_in(precision)
        return result

    return frontend


def _kernels(networks, target, **seconds):
    """Kernels of a network's operators, each of which takes some seconds in each type."""
    winners = {}
    for kind, each in seconds.items():
        fusions = networks.fusions if kind == "float32" else networks.uniform(kind).fusions
        for index, fusion in enumerate(fusions):
            task = next(candidate_specs(fusion, target)).task(f"{index} {kind}", target)
            winners[task.key] = Delivery.Winner(task=task, config=(0,), seconds=each)
    return Kernels(winners, None, target)


@pytest.fixture(scope="session")
def kernels_taking():
    """See ``_kernels``."""
    return _kernels


@pytest.fixture(scope="module", autouse=True)
def _weights_of_eight_bits():
    """Types are the same whatever this machine's CPU; ``test_seven_bits.py`` undoes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settling, "narrow_weights_pay", lambda _: False)
        yield


@pytest.fixture(scope="session")
def trials(target):
    """What a frontend settles with."""
    return NoTrials(target)


def _delivered(
    target, network, settled, folder, precision, *, alone=0.5, in_network=None, together=0.5
):
    """Deliver a network whose operators in int8 take another share of the time in float32.

    Args:
        target: the resolved target.
        network: the network; if that is for several shapes, one of torch.
        settled: what ``decide`` returned.
        folder: the delivery's.
        precision: as a pipeline says.
        alone: that share, of operators as measured alone; or by their type.
        in_network: the same of an operator in a network, given its place among those that are
            not in float32 there, and how many these are; None for what it is alone.
        together: the same of whole networks.
    """

    def median_seconds(processes, *_, **__):
        return {p.name: 1.0 if p.name == "float32" else together for p in processes}

    def kernel_seconds_in_networks(variants, *_, **__):
        return [_seconds(variant, alone, in_network) for variant in variants]

    frontend = make_frontend(network.options)
    frontend.compute_in(precision)
    frontend.restore(settled)
    winners = []
    for task in frontend.tasks(target):
        config = tuple(map(int, SPACE.design_space(task).first_guesses[0]))
        seconds = 1e-3 * (_share(alone, task.arguments["dtype"]) if task.alternative_of else 1.0)
        winners.append(Delivery.Winner(task=task, config=config, seconds=seconds))
    delivery = Delivery(target=target, winners=winners, space=SPACE, folder=folder, threads=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivering, "median_seconds", median_seconds)
        patch.setattr(delivering, "kernel_seconds_in_networks", kernel_seconds_in_networks)
        result = frontend.deliver(delivery)
    return result, folder


def _share(alone, dtype):
    return alone[dtype] if isinstance(alone, Mapping) else alone


def _seconds(variant, alone, in_network):
    """Seconds of the tasks of a network, each of which occurs once in it."""
    tasks = json.loads((variant.folder / "manifest.json").read_text())["tasks"]
    reduced = {
        task["name"]: task["arguments"]["dtype"]
        for task in tasks
        if task["arguments"]["dtype"] != "float32"
    }
    seconds = {task["name"]: 1e-3 for task in tasks}
    for number, (name, dtype) in enumerate(reduced.items()):
        own = _share(alone, dtype) if in_network is None else in_network(number, len(reduced))
        seconds[name] = 1e-3 * own
    return seconds


@pytest.fixture(scope="session")
def delivered_in(target):
    """Delivers a network in types; see ``_delivered``."""
    return partial(_delivered, target)


@pytest.fixture(scope="session")
def network_of():
    """A prepared module whose main computes ``build(emit, *inputs)``, and its fusions."""

    def network(build, *shapes):
        module = prepare_module(module_of(build, *shapes), "NHWC")
        return module, find_fusions(module)

    return network


@pytest.fixture(scope="session")
def ran():
    """Outputs of a module as TVM compiles it by itself."""

    def run(module, *inputs):
        # Code that runs once is not worth optimising: that takes longer than all the rest.
        executable = compile_baseline(module, '{"kind": "llvm", "opt-level": 0}')
        machine = relax.VirtualMachine(executable, tvm.cpu())
        result = machine["main"](*(tvm.runtime.tensor(tensor) for tensor in inputs))
        return [tensor.numpy() for tensor in (result if hasattr(result, "__len__") else [result])]

    return run
