"""The runner ``ray``: a fleet whose builders and devices are on a Ray cluster."""

from __future__ import annotations

from importlib.util import find_spec

from chameleon_core.plugin_api import PluginError

from chameleon_runners._engine.workers import WorkerPool
from chameleon_runners._fleet.runner import FleetRunner
from chameleon_runners._ray.options import RayOptions


class RayRunner(FleetRunner):
    """Builds on the CPUs of a Ray cluster, and measures on its devices, one actor per device."""

    def __init__(self, options: RayOptions) -> None:
        if find_spec("ray") is None:
            raise PluginError(
                "the runner 'ray' needs Ray, which is not installed",
                hint="install the cluster's version: `pip install ray==VERSION`",
            )
        # The devices are known only after the process has joined the cluster.
        super().__init__(options, list, kind="ray")
        self._ray_options = options

    def _make_pool(self) -> WorkerPool:
        # Importing Ray takes half a second.
        from chameleon_runners._ray import cluster, worker_pool  # noqa: PLC0415

        ray_cluster = cluster.Cluster(self._ray_options)
        try:
            self._size = ray_cluster.builders()
        except BaseException:
            ray_cluster.close()
            raise
        self._device_refs = lambda: ray_cluster.device_refs(self._target)
        return worker_pool.RayPool(ray_cluster, start_timeout=self._options.start_timeout)
