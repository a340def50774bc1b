"""A session with a server of TVM's RPC, opened with a time limit."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import structlog
from chameleon_core.plugin_api import DeviceLostError, Kernel, TargetError
from chameleon_system.api import temporary_folder
from chameleon_tvm.api import (
    CPU_FLUSH,
    DeviceBuffers,
    KernelLoader,
    Reported,
    ServerFacts,
    ask,
    ask_processor,
    check,
    check_output,
    device_kind,
    flush_of,
    remote_calls,
    ruins_context,
    smoke_test_for,
    telling_line,
    tvm,
    tvm_target,
)

from chameleon_runners._rpc.addresses import Address
from chameleon_runners._rpc.connection import close_session, connect

_log = structlog.get_logger()

_WATCH_SECONDS = 0.5
_SET_THREADS, _BIG_CORES = "runtime.config_threadpool", 1


class RpcSession:
    """A session with a server of TVM's RPC.

    Args:
        address: the address of the server.
        key: the key that the server accepts.
        lifetime: the seconds after which the server ends the session, also if a kernel hangs.
        deadline: the longest wait for the session in seconds.
    """

    def __init__(self, address: Address, key: str, *, lifetime: float, deadline: float) -> None:
        self.name = f"{address.host}:{address.port}"
        self.lifetime = lifetime
        self.over = False
        self._context_lost = False
        self._opened = self._used = time.monotonic()
        # The thread of ``give_back_when_idle`` may close the session between calls.
        self._using = threading.RLock()
        self._session = connect(address, key, lifetime=lifetime, deadline=deadline)
        self._loader: KernelLoader | None = None
        self._smoke_test: Kernel | None = None

    @property
    def left(self) -> float:
        """The seconds until the server ends the session."""
        return self._opened + self.lifetime - time.monotonic()

    def give_back_when_idle(self, seconds: float) -> None:
        """Close the session, in the background, after some seconds without use."""
        threading.Thread(target=self._watch, args=(seconds,), daemon=True).start()

    def touch(self) -> bool:
        """Mark the session as used now; return whether it can still be used."""
        with self._using:
            self._used = time.monotonic()
            return not (self.over or self._context_lost)

    def _watch(self, seconds: float) -> None:
        while not self.over:
            time.sleep(min(_WATCH_SECONDS, seconds / 4))
            # The lock is held during calls.
            if self._using.acquire(blocking=False):
                try:
                    if time.monotonic() - self._used > seconds:
                        self.close()
                finally:
                    self._using.release()

    def prepare(
        self, target: str, *, index: int, threads: int, cache_bytes: int, cooldown: float
    ) -> ServerFacts:
        """Check that the server can run a target's kernels, and prepare to load them."""
        kind = device_kind(tvm_target(target))
        with self.calls():
            device = self._session.device(kind, index)
            facts = self._ask(device, kind)
            check(self.name, facts, target, exists=bool(device.exist))
            if kind == "cpu":
                self._set_threads(threads)
            self._loader = KernelLoader(
                device=device,
                buffers=DeviceBuffers(device, cache_bytes),
                library=self._load_library,
                guard=self.calls,
                flush=flush_of(kind, has_preprocessor=self._has(CPU_FLUSH)),
                cooldown=cooldown,
            )
        self.try_out(target)
        return facts

    def try_out(self, target: str) -> None:
        """Run a tiny test function for a target on the device."""
        try:
            if self._smoke_test is None:
                with temporary_folder() as folder:
                    smoke_test_for(target).write(Path(folder))
                    self._smoke_test = self.load(Path(folder))
            (output,) = self._smoke_test.outputs()
        except (DeviceLostError, MemoryError, TimeoutError):
            raise
        except Exception as error:
            raise TargetError(
                f"{self.name} cannot run a tiny test function built for {target}: "
                f"{telling_line(error)}",
                hint="See that the target describes the device, and that both sides have the "
                "same version of apache-tvm (and a compiler there, if none is here).",
            ) from error
        check_output(output, self.name)

    def load(self, artifact: Path) -> Kernel:
        """Upload an exported kernel, and load it on the device."""
        if self._loader is None:
            raise RuntimeError("a kernel is loaded before the session is prepared")
        with self.calls():
            return self._loader.load(artifact)

    def facts(self, kind: str, index: int) -> ServerFacts:
        """Ask the server for facts such as its version of TVM, without a target."""
        with self.calls():
            return self._ask(self._session.device(kind, index), kind)

    def round_trip(self) -> float:
        """The seconds that an array takes to the device and back."""
        import numpy as np  # noqa: PLC0415 - only this method needs it

        sent = np.arange(256, dtype=np.float32)
        with self.calls():
            started = time.perf_counter()
            back = tvm.runtime.tensor(sent, device=self._session.cpu(0)).numpy()
            seconds = time.perf_counter() - started
        if not np.array_equal(sent, back):
            raise DeviceLostError(f"{self.name} returned other numbers than it was sent")
        return seconds

    @contextlib.contextmanager
    def calls(self) -> Iterator[None]:
        """A context for calls of the device, which only one thread can enter at a time.

        TVM's errors in it are raised as Chameleon's errors, such as ``DeviceLostError``.
        """
        with self._using:
            if self.over:
                raise DeviceLostError(f"the session with {self.name} is closed")
            try:
                with remote_calls(self.name):
                    yield
            except (DeviceLostError, TimeoutError):
                self.over = True
                raise
            except Exception as error:
                # The server starts a new process, with a new context of the GPU, per session.
                self._context_lost |= ruins_context(error)
                raise
            finally:
                self._used = time.monotonic()

    def close(self) -> None:
        """Close the session, so that other clients can use the device."""
        broken, self.over = self.over, True
        self._loader = self._smoke_test = None
        session, self._session = self._session, None
        if session is not None and not broken:
            # Another thread closes the session, because a server that hangs does not answer.
            thread = threading.Thread(target=close_session, args=(session,), daemon=True)
            thread.start()
            thread.join(1.0)

    def _ask(self, device: tvm.runtime.Device, kind: str) -> ServerFacts:
        """Ask the server for its facts, and its processor for what the server does not report."""

        def processor(triple: str) -> Reported | None:
            try:
                with remote_calls(self.name):
                    return ask_processor(triple, self._session.cpu(0), self._load_library)
            except DeviceLostError:
                raise
            except Exception as error:  # noqa: BLE001 - the server may lack a linker, for example
                _log.warning("processor_not_asked", server=self.name, problem=telling_line(error))
                return None

        return ask(self._session.get_function, device, kind, processor=processor)

    def _set_threads(self, threads: int) -> None:
        """Set the number of threads that kernels run with."""
        if not self._has(_SET_THREADS):
            return
        self._session.get_function(_SET_THREADS)(_BIG_CORES, threads)
        has = int(self._session.get_function("runtime.NumThreads")())
        if has < threads:
            raise TargetError(
                f"{self.name} runs kernels with {has} threads, but {threads} are required",
                hint=f"Start the server with TVM_NUM_THREADS={threads} (`chameleon serve "
                f"--threads {threads}`), or lower the runner's `threads`.",
            )

    def _has(self, function: str) -> bool:
        try:
            return self._session.get_function(function) is not None
        except (AttributeError, ValueError):
            return False

    def _load_library(self, path: Path) -> tvm.runtime.Module:
        # A new name each time, because a library of a known path is not loaded again.
        name = f"{os.urandom(8).hex()}{path.suffix}"
        loaded = None
        try:
            self._session.upload(bytearray(path.read_bytes()), target=name)
            loaded = self._session.load_module(name)
        finally:
            # Remove the file, because a board's memory is small.
            for left in (name, f"{name}.so") if path.suffix == ".tar" else (name,):
                try:
                    self._session.remove(left)
                except Exception as error:  # noqa: BLE001 - a lost connection, or no such file
                    # If loading failed too, its error says more.
                    if loaded is not None:
                        problem = telling_line(error)
                        _log.warning("file_stays_on_device", server=self.name, problem=problem)
        return loaded
