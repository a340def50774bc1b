"""Imported networks compiled without tuning, and loaded as a delivered network is."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from chameleon_core.errors import ChameleonError
from chameleon_core.plugins import NoOptions
from chameleon_tvm.device.targets import TVMTargets

from chameleon_networks.compile.compile import compiled
from chameleon_networks.compile.uncompilable import no_kernels
from chameleon_networks.graph.chains import chains_of
from chameleon_networks.graph.prepare import prepared
from chameleon_networks.importers.options import DEFAULT
from chameleon_networks.package.load import load
from chameleon_networks.package.package import manifest_of, write_package


def untuned(graph: Any, threads: int = 1) -> Any:
    """A network as a function of arrays, for this machine.

    Args:
        graph: a Relax ``IRModule``, as an importer gives it.
        threads: that compute an inference.

    Raises:
        ChameleonError: it cannot be compiled, or loaded.
    """
    target = TVMTargets(NoOptions()).resolve("native")
    module = prepared(graph, DEFAULT)
    chains, none = chains_of(module), no_kernels(target)
    executable = compiled(module, chains, none, target).executable
    with tempfile.TemporaryDirectory(prefix="chameleon-untuned-") as folder:
        manifest = {**manifest_of(module, chains, none, target, threads), "untuned": {}}
        write_package(Path(folder), executable, manifest)
        try:
            return load(folder)
        except RuntimeError as error:
            raise ChameleonError(f"the compiled network cannot be loaded: {error}") from error
