"""A device of this machine that one worker process uses: a GPU, or the CPU if there is no GPU."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from chameleon_core.plugin_api import DeviceLostError, Kernel, TargetError
from chameleon_system.api import temporary_folder

from chameleon_tvm._building.kernel import CPU_FLUSH, device_kind
from chameleon_tvm._building.remote.buffers import DeviceBuffers
from chameleon_tvm._building.remote.facts import ServerFacts, check, query_local
from chameleon_tvm._building.remote.failures import remote_calls, ruins_context
from chameleon_tvm._building.remote.kernels import CudaEvents, KernelLoader, flush_of
from chameleon_tvm._building.remote.smoke_test import check_output, smoke_test_for
from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._quick_tvm import tvm

_FAULT_STATUS = 86
"""Exit status of a worker whose GPU context has become unusable."""


class LocalDevice:
    """A device of this machine that runs exported kernels.

    Args:
        index: Index of the device among those of its kind.
    """

    def __init__(self, kind: str, index: int) -> None:
        self.name = f"{kind}:{index}"
        self._kind = kind
        self._index = index
        self._target = ""
        self._loader: KernelLoader | None = None
        self._smoke_test: Kernel | None = None

    def prepare(self, target: str, *, cache_bytes: int, cooldown: float) -> ServerFacts:
        """Check that the device exists and runs kernels of a target, and prepare to load kernels.

        Args:
            target: The canonical target.
            cache_bytes: Bytes of inputs to keep on the device at most.
            cooldown: Pause between the repeats of a kernel, in seconds.

        Raises:
            TargetError: The device does not exist, or cannot run the target's kernels.
            DeviceLostError: The device computes wrong numbers.
        """
        kind = device_kind(tvm_target(target))
        if kind != self._kind:
            raise TargetError(
                f"the target is for a {kind} device, and the runner measures on {self._kind}",
                hint="Change `target:`, or the runner.",
            )
        device = tvm.runtime.device(self._kind, self._index)
        facts = query_local(device, self._kind)
        if not device.exist:
            raise self._missing()
        check(self.name, facts, target, exists=True)
        flush = tvm.get_global_func(CPU_FLUSH, allow_missing=True) is not None
        self._loader = KernelLoader(
            device=device,
            buffers=DeviceBuffers(device, cache_bytes),
            library=lambda path: tvm.runtime.load_module(str(path)),
            guard=self._calls,
            flush=flush_of(self._kind, has_preprocessor=flush),
            cooldown=cooldown,
            events=CudaEvents(device) if self._kind == "cuda" else None,
        )
        self._target = target
        self.try_out()
        return facts

    def try_out(self) -> None:
        """Run a tiny test function on the device, to check that the device works.

        Raises:
            TargetError: The device cannot load the function.
            DeviceLostError: The result is wrong.
        """
        if self._smoke_test is None:
            with temporary_folder() as folder:
                smoke_test_for(self._target).write(Path(folder))
                try:
                    self._smoke_test = self.load(Path(folder))
                except (DeviceLostError, MemoryError):
                    raise
                except Exception as error:
                    raise TargetError(
                        f"{self.name} cannot load a tiny test function: {error}",
                        hint="See that the driver is recent enough for the CUDA toolkit that "
                        "compiles here, and that the target is the device's.",
                    ) from error
        (output,) = self._smoke_test.outputs()
        check_output(output, self.name)

    def load(self, artifact: Path) -> Kernel:
        """Load an artifact as a kernel on the device."""
        if self._loader is None:
            raise RuntimeError("a kernel is loaded before the device is prepared")
        with self._calls():
            return self._loader.load(artifact)

    @contextlib.contextmanager
    def _calls(self) -> Iterator[None]:
        try:
            with remote_calls(self.name):
                yield
        except Exception as error:
            if ruins_context(error):
                # After the error of this kernel, every later call in this process would fail.
                sys.stderr.write(f"{error}\n")
                sys.stderr.flush()
                os._exit(_FAULT_STATUS)
            raise

    def _missing(self) -> TargetError:
        if tvm.get_global_func(f"device_api.{self._kind}", allow_missing=True) is None:
            return TargetError(
                f"TVM cannot use {self._kind} devices here: its runtime for them does not load",
                hint="Install the device's driver (for CUDA: libcuda.so.1, and a CUDA runtime of "
                "the version that this apache-tvm was built with).",
            )
        return TargetError(
            f"there is no device {self.name} here",
            hint="See that `nvidia-smi` lists it and that CUDA_VISIBLE_DEVICES does not hide it.",
        )
