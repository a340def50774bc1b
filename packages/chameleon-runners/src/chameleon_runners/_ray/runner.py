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
        # Whose devices there are is known once the cluster was joined.
        super().__init__(options, list, kind="ray")
        self._ray_options = options

    def _make_pool(self) -> WorkerPool:
        # Importing Ray takes half a second, which only those wait for who measure.
        from chameleon_runners._ray import cluster, worker_pool  # noqa: PLC0415

        joined = cluster.Cluster(self._ray_options)
        try:
            self._size = joined.builders()
        except BaseException:
            joined.close()
            raise
        self._device_refs = lambda: joined.device_refs(self._target)
        return worker_pool.RayPool(joined, start_timeout=self._options.start_timeout)
