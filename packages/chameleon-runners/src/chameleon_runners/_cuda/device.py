"""A GPU of this machine as a device, used by one worker process at a time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import structlog
from chameleon_core.plugin_api import Device, Kernel
from chameleon_tvm.api import LocalDevice

from chameleon_runners._cuda.monitor import read_gpu_state
from chameleon_runners._cuda.options import CudaDeviceOptions
from chameleon_runners._cuda.vendor import read_vendor_recipe, vendor_kernel

_log = structlog.get_logger()


class CudaDevice(Device):
    """A GPU of this machine as a device that measures candidates.

    A faulty kernel makes the GPU unusable for its process, which a new one then replaces.
    """

    def __init__(self, options: CudaDeviceOptions) -> None:
        self._options = options
        self._device: LocalDevice | None = None

    def connect(self, target: str) -> dict[str, Any]:
        options = self._options
        # Number GPUs as the driver's tools do; CUDA's default order puts the fastest first.
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        self._device = LocalDevice(options.kind, options.index)
        facts = self._device.prepare(
            target, cache_bytes=options.cache_bytes, cooldown=options.cooldown
        )
        clocks = read_gpu_state(options.index).to_json() if options.kind == "cuda" else {}
        return {"name": f"{options.kind}:{options.index}", **facts.to_json(), **clocks}

    def load(self, artifact: Path) -> Kernel:
        recipe = read_vendor_recipe(artifact)
        if recipe is not None:
            return vendor_kernel(recipe, self._options.kind, self._options.index)
        return self._ready.load(artifact)

    def probe(self) -> None:
        self._ready.try_out()
        if self._options.kind == "cuda":
            state = read_gpu_state(self._options.index)
            if state.slowed_down:
                _log.warning("gpu_slowed_down", gpu=self._options.index, **state.values)

    def close(self) -> None:
        self._device = None

    @property
    def _ready(self) -> LocalDevice:
        if self._device is None:
            raise RuntimeError("the device is used before it is connected to")
        return self._device
