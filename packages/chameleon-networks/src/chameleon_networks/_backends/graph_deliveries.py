"""Delivers networks for graphs of ``torch.compile`` into the user's cache folder."""

from __future__ import annotations

import contextlib
import copy
import fcntl
import functools
import hashlib
import importlib.util
import io
import json
import operator
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import structlog
import torch
from chameleon_core.api import local_plugins, words
from chameleon_core.plugin_api import ExitCode, records_location
from chameleon_system.api import (
    AMX,
    cache_key,
    describe_status,
    pause_garbage_collection,
    request_permission,
    user_cache_folder,
    write_atomic,
)
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch._ops import OpOverloadPacket

from chameleon_networks._backends import FallbackError
from chameleon_networks._backends.idle_run import idle_run_process

log = structlog.get_logger()

_OURS = ("chameleon-tuner-networks", "chameleon-tuner-tvm", "chameleon-tuner-one-shot")
_DISTRIBUTIONS = ("apache-tvm", "torch", *_OURS)
_PROGRAM = "graph.pt2"
_RESULT = "best.json"
"""``RunFile.BEST`` of ``chameleon_core``, whose import takes .1 s of a first call."""
_NOT_SHARED = "records_not_shared"
"""The warning of a run whose record database cannot be opened, read or written."""
_LONGEST = 400
"""Number of characters of an import's or a run's error that a reason gives."""
_LOOK_SECONDS = 0.02
_END_SECONDS, _IDLE_END_SECONDS = 5.0, 120.0
"""Limits for the end of a run, which adds its measurements to the record database. At low priority,
it may wait long for a core."""

_FORM = 5
"""The form of the folders in the cache. Other forms have other digests. In networks up to form 4, a
clamp may be a ReLU."""


_READ = {"aten", "higher_order", "prims", "quantized_decomposed", "torch_nn", "torchvision"}
_READ |= {"transformers"}
"""Namespaces with operators that networks may have. Others may have them only in terms of these."""
_NAMED = {"torch", "_operator", "builtins", "math"}
"""Packages with functions that their names and the versions identify."""


class Delivery:
    """The compiled network of one torch graph, in Chameleon's cache folder.

    Args:
        seconds: Wall-clock limit of tuning in seconds. With None, nothing is measured.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        arguments: Sequence[Tensor],
        weights: Collection[int],
        *,
        seconds: float | None,
        records: str | None = None,
    ) -> None:
        self.graph = graph = _in_operators(graph, arguments)
        self._arguments, self._weights = arguments, weights
        self._records = records_location(records)
        _remove_abandoned(user_cache_folder() / "torch")
        self.digest = digest_of(graph, arguments, weights)
        self._home = user_cache_folder() / "torch" / self.digest
        self._limit(seconds)

    def _limit(self, seconds: float | None) -> None:
        self._seconds = seconds
        name = "predicted" if seconds is None else f"tuned-{seconds:g}s"
        if self._records is not None:  # other records may give another network, or be refused
            name += f"-{hashlib.blake2b(self._records.encode(), digest_size=4).hexdigest()}"
        self._folder = self._home / name
        self._program = self._folder / _PROGRAM
        self._network = self._folder / "run" / "network"
        self._refusal = self._folder / "refused.txt"
        self._forget: Callable[[], None] | None = None
        self._used = contextlib.ExitStack()

    def predicted(self) -> Self:
        """The delivery of the same graph for which nothing is measured."""
        delivery = copy.copy(self)
        delivery._limit(None)  # noqa: SLF001 - the object is of this class
        return delivery

    def is_there(self) -> bool:
        """Whether the cache has the network."""
        return (self._network / "manifest.json").exists()

    def prepare(self, *, exported: Delivery | None = None, whole: bool = False) -> None:
        """Write the graph as a file of ``torch.export``, and the pipeline file that compiles it."""
        if self._refusal.exists():
            raise FallbackError(self._refusal.read_text(encoding="utf-8"))
        self._folder.mkdir(parents=True, exist_ok=True)
        if exported is not None:
            with contextlib.suppress(OSError):  # otherwise the graph is exported again
                os.link(exported._program, self._program)  # noqa: SLF001 - the object is of this class
        if not self._program.exists():
            graph_exports = _exports()
            program = graph_exports.exported(self.graph, self._arguments, self._weights)
            content = io.BytesIO()  # on a full disk, torch's own writer ends the process
            torch.export.save(program, content)
            write_atomic(self._program, content.getvalue())
            if whole and self._seconds is None:
                try:
                    self._forget = graph_exports.kept_program(self._program, program)
                except FallbackError as error:
                    reason = str(error)[:_LONGEST]
                    write_atomic(self._refusal, reason)
                    raise FallbackError(reason) from error
        # No other process removes the graph while this process lives.
        with contextlib.suppress(OSError):  # ``_deliver`` exports a removed graph again
            fcntl.flock(self._used.enter_context(self._program.open("rb")), fcntl.LOCK_SH)
        budget: dict[str, Any] = {"measurements": 0}
        if self._seconds is not None:
            budget = {"measurements": 10_000, "scope": "network", "wall_time": self._seconds}
        # With ``check``, the run finds in the cache what this process has kept. A process to which
        # the system refuses AMX has another digest.
        check = self._forget is not None
        options = {"source": self._program.name, "compare": False, "check": check, "vectors": False}
        pipeline = {
            "model": {"torch": options},
            "target": "native",
            "scheduler": "gradient",
            "baselines": [],
            "budget": budget,
            "output": "run",
        }
        if self._seconds is None and importlib.util.find_spec("chameleon_one_shot") is not None:
            pipeline["preset"] = "one-shot"  # predicted kernels are faster than first guesses
        if self._records is not None:
            pipeline["records"] = self._records
        write_atomic(self._folder / "pipeline.yaml", json.dumps(pipeline))

    def folder(self, *, nice: bool = False) -> Path:
        """Return the folder of the delivered network in the cache."""
        with self._used:
            if self.is_there():
                self._program.unlink(missing_ok=True)  # it may have been prepared meanwhile
                return self._network
            self._folder.mkdir(parents=True, exist_ok=True)
            with (self._folder / "lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # waits while another process delivers it
                if not self.is_there():
                    self._deliver(nice=nice)
        return self._network

    def _deliver(self, *, nice: bool) -> None:
        if self._refusal.exists():
            self.prepare()  # raises the stored error again
        if nice and not self._program.exists():  # calls go on meanwhile, and may change weights
            digest = digest_of(self.graph, self._arguments, self._weights)
            if digest != self.digest:
                raise FallbackError("weights have changed, and the exported graph was removed")
        log.info("compiling_graph", folder=str(self._folder))
        if (self._folder / "run" / _RESULT).exists():  # the network was damaged and removed
            shutil.rmtree(self._folder / "run")
        try:
            with idle_run_process(self._folder, idle=nice) as child:
                with pause_garbage_collection():  # the objects of torch and TVM stay
                    self.prepare(whole=not nice)
                    assert child.stdin is not None  # noqa: S101 - standard input is a pipe
                    with contextlib.suppress(BrokenPipeError):  # its log says why it has ended
                        child.stdin.write(os.fsencode(self._folder.absolute()) + b"\n")
                        child.stdin.flush()
                # Nobody reads the listings and the report that follow the result.
                result = self._folder / "run" / _RESULT
                while not (child.wait(_LOOK_SECONDS) or (result.exists() and self.is_there())):
                    pass
                status = child.stop(_IDLE_END_SECONDS if nice else _END_SECONDS)
        finally:
            self._program.unlink(missing_ok=True)
            if self._forget is not None:
                self._forget()
        if warning := re.search(rf"{_NOT_SHARED} +(.*)", child.log):
            log.warning(_NOT_SHARED, run=warning[1])
        if self.is_there():
            return
        reason = f"chameleon run ended with {describe_status(status)}: {_error_in(child.log)}"
        if status in {ExitCode.USAGE, ExitCode.NO_VALID_RESULT}:
            shutil.rmtree(self._folder / "run", ignore_errors=True)
            write_atomic(self._refusal, reason)
        raise FallbackError(reason)


@functools.cache
def _remove_abandoned(cache: Path) -> None:
    """Remove exported graphs, with all weights, that killed processes have left in the cache."""
    for file in cache.glob(f"*/*/{_PROGRAM}"):
        with (
            contextlib.suppress(OSError),  # a locked file is in use
            file.with_name("lock").open("w") as lock,
            file.open("rb") as graph,
        ):
            for locked in (lock, graph):
                fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.unlink()


def _exports() -> Any:
    """The module that exports graphs; its imports take long, and most processes do not need it."""
    from chameleon_networks._backends import graph_exports  # noqa: PLC0415

    return graph_exports


def _error_in(log: str) -> str:
    """The error of a run in one line, from the end of its output."""
    _, error, rest = f"\n{log}".rpartition("\nerror: ")
    line = words.in_one_line(rest)
    return line[:_LONGEST] if error else line[-_LONGEST:]


def digest_of(graph: fx.GraphModule, arguments: Sequence[Tensor], weights: Collection[int]) -> str:
    """A digest of a graph with its weights, shapes, versions, plugins, CPU and threads."""
    digest = hashlib.blake2b(digest_size=16)
    cores, threads = len(os.sched_getaffinity(0)), torch.get_num_threads()
    # A plugin that is not installed may replace a distribution.
    facts = [
        _FORM,
        cache_key(_DISTRIBUTIONS, ()),
        local_plugins.paths(),
        cores,
        threads,
        bool(request_permission(AMX)),
    ]
    facts.append(torch.get_default_dtype())  # the graph may make tensors of it
    digest.update(repr(facts).encode())
    for name, module in graph.named_modules():
        if not isinstance(module, fx.GraphModule):
            raise FallbackError(f"it calls a module of its own, {name}")
        for call in {node.target for node in module.graph.nodes}:
            if getattr(call, "namespace", "aten") not in _READ and not call._can_decompose():  # noqa: SLF001
                raise FallbackError(
                    f"it calls the custom operator {call}, which cannot be compiled"
                )
        digest.update(f"{name} {module.code}".encode())
        for target, value in _constants(module):
            digest.update(f"{target} {value.dtype} {value.shape} {value.stride()}".encode())
            digest.update(bytes_of(value))
    for index, value in enumerate(arguments):
        if value.layout != torch.strided:
            raise FallbackError("an argument is sparse")
        facts = [value.dtype, value.shape, value.stride(), index in weights]
        digest.update(repr(facts).encode())
        if index in weights:
            digest.update(bytes_of(value))
    return digest.hexdigest()


def _in_operators(graph: fx.GraphModule, arguments: Sequence[Tensor]) -> fx.GraphModule:
    """The graph in operators of torch, if the names of its calls do not tell what they compute."""
    modules = [module for module in graph.modules() if isinstance(module, fx.GraphModule)]
    nodes = [node for module in modules for node in module.graph.nodes]
    if not any(node.op == "call_function" and _is_open(node.target) for node in nodes):
        return graph
    return _exports().in_operators(graph, arguments)


def _is_open(target: Any) -> bool:
    """Whether a name stands for several overloads, or for a function that torch does not define."""
    if isinstance(target, OpOverloadPacket):
        return str(target).partition(".")[0] not in _READ
    return str(getattr(target, "__module__", None) or "torch").partition(".")[0] not in _NAMED


def _constants(module: fx.GraphModule) -> Iterator[tuple[str, Tensor]]:
    for node in module.graph.find_nodes(op="get_attr"):
        value = operator.attrgetter(str(node.target))(module)
        if isinstance(value, Tensor):
            yield str(node.target), value
        elif not isinstance(value, nn.Module):
            raise FallbackError(f"it reads {node.target}, which is no tensor")


def bytes_of(value: Tensor) -> memoryview:
    """The bytes of a tensor's numbers, in the order of its axes."""
    numbers: NDArray[np.uint8] = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return numbers.data
