"""The runner ``ray``: a fleet whose builders and devices are on a Ray cluster."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from chameleon_core.errors import PluginError

from chameleon_runners.engine.workers import WorkerPool
from chameleon_runners.fleet.device_ref import DeviceRef
from chameleon_runners.fleet.runner import FleetRunner
from chameleon_runners.ray.options import RayOptions

if TYPE_CHECKING:
    from chameleon_runners.ray.cluster import Cluster


class RayRunner(FleetRunner):
    """Builds on a cluster's CPUs, measures on its devices, each in one actor's hands.

    Args:
        options: where the cluster is, and what a device is there.

    Raises:
        PluginError: Ray is not installed.
    """

    def __init__(self, options: RayOptions) -> None:
        if find_spec("ray") is None:
            raise PluginError(
                "the runner 'ray' needs Ray, which is not installed",
                hint="pip install 'chameleon-tuner-runners[ray]', in the version of the cluster",
            )
        super().__init__(options, self._device_refs_now, kind="ray")
        self._ray_options = options
        self._joined: Cluster | None = None

    def _device_refs_now(self) -> Sequence[DeviceRef]:
        return self._cluster.device_refs()

    @property
    def _cluster(self) -> Cluster:
        """The cluster, joined when first needed."""
        if self._joined is None:
            # Importing Ray takes half a second, which only those wait for who measure.
            from chameleon_runners.ray.cluster import Cluster  # noqa: PLC0415

            self._joined = Cluster(self._ray_options)
        return self._joined

    def _make_pool(self) -> WorkerPool:
        from chameleon_runners.ray.worker_pool import RayPool  # noqa: PLC0415 - imports Ray

        try:
            self._size = self._cluster.builders()
        except BaseException:
            if self._joined is not None:
                self._joined.close()
            raise
        return RayPool(self._cluster, start_timeout=self._options.start_timeout)
