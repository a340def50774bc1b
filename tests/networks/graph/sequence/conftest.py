"""Relax networks of a few operators: compiled without a tuner's kernels, loaded, and compared."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core._loop.end.delivery import guesses_of
from chameleon_core.plugin_api import Delivery, NoOptions
from chameleon_networks._artifact.load import load
from chameleon_networks._artifact.writer import manifest_of, write_artifact
from chameleon_networks._compile.compile import CompiledNetwork, compile_network
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.fusion_groups import with_fastest_specs
from chameleon_networks._graph.operators import specs_of
from chameleon_networks._graph.prepare import prepare_module
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions

TARGET = TVMTargets(NoOptions()).resolve("native")
THREADS = 2


@attrs.frozen(kw_only=True, eq=False)
class Delivered:
    """A network in a folder.

    Attributes:
        run: the loaded network.
        compiled: its kernels and calls.
        folder: where it is.
    """

    run: Callable[..., Any]
    compiled: CompiledNetwork
    folder: Path

    @property
    def kernels(self):
        """Names of the kernels in the order of their calls."""
        return [call.kernel for call in self.compiled.executable.sequence.calls]


def deliverer(base):
    """What compiles modules into folders in a folder.

    A module may get a random configuration or the first guess of every task, of a space with some
    options. One that is ``ready`` was prepared before.
    """

    def deliver(module, *, layout="NCHW", seed=None, guesses=False, ready=False, **options):
        module = module if ready else prepare_module(module, layout)
        fusions = find_fusions(module)
        space = AutoSpace(AutoOptions(**options))
        winners = {}
        if seed is not None or guesses:
            rng = np.random.default_rng(seed)
            for spec in specs_of(with_fastest_specs(fusions, TARGET)):
                task = spec.task(spec.name, TARGET)
                configs = space.design_space(task)
                [config, *_] = guesses_of(configs) if guesses else configs.sample(1, rng)
                indices = tuple(int(index) for index in config)
                winners[task.key] = Delivery.Winner(task=task, config=indices, seconds=1e-3)
        kernels = Kernels(winners, space, TARGET)
        result = compile_network(module, fusions, kernels, TARGET)
        folder = base / f"network{len(list(base.iterdir()))}"
        manifest = manifest_of(module, fusions, kernels, TARGET, THREADS) | result.facts
        write_artifact(folder, result.executable, manifest)
        return Delivered(run=load(folder), compiled=result, folder=folder)

    return deliver
