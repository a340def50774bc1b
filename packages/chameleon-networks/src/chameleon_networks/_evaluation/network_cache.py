"""Facts about a network, kept in the user's cache folder for later runs on this machine.

Importing a torch network takes longer than compiling it. Starting a framework to compute outputs
for the comparison takes longer too. Both results depend on the network's source, on versions and on
the processor alone, so a later process reads the results from files.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import cattrs
import chameleon_tvm
import numpy as np
from chameleon_core.plugin_api import Arrays
from chameleon_system.api import (
    cache_key,
    cache_path,
    open_atomic,
    read_cached,
    write_atomic,
    write_cached,
)
from numpy.typing import NDArray

from chameleon_networks._evaluation.messages import dump_arrays, read_arrays, read_batches
from chameleon_networks._evaluation.verify import SpecialInputs
from chameleon_networks._importers.imported_network import ImportedNetwork
from chameleon_networks._source_location import ImportedGraph

NETWORKS_FOLDER = "networks"
"""Folder in the user's cache folder with a folder of each network."""
_DISTRIBUTIONS = ("apache-tvm", "torch", "torchvision", "numpy", "onnx", "onnxruntime")
TITLE = "title.txt"
"""Name of the file with the network's name and shapes, for people."""
GRAPH = "graph"
"""Name of the fact that holds the network's Relax module."""


@attrs.frozen(kw_only=True)
class ReferenceOutputs:
    """The outputs that a framework computed for some inputs, as the reference of a network.

    Attributes:
        reference: Name of the framework.
        outputs: One list of arrays for each inference.
        special: The outputs for special inputs; None for inputs that the framework refuses.
        day: The day on which an earlier run had the framework compute them, as ``2026-11-25``; None
            if this run did.
    """

    reference: str
    outputs: Sequence[Arrays]
    special: Sequence[Arrays | None] = ()
    day: str | None = None


class NetworkCache:
    """The cached files about one network; one that cannot be read is computed again."""

    def __init__(self, folder: Path, title: str = "") -> None:
        self._folder = folder
        self._title = title

    def fact(self, name: str) -> tuple[Any, str] | None:
        """A cached fact as a JSON value, with the day on which it was cached; None without one."""

        def read(file: Path) -> tuple[Any, str]:
            value = json.loads(file.read_text(encoding="utf-8"))
            return value["value"], str(value["day"])

        return read_cached(self._folder / f"{name}.json", read)

    def arrays(self, name: str) -> Arrays | None:
        """The arrays that were kept beside a fact, or None."""
        return read_cached(self._folder / f"{name}.arrays", read_arrays)

    def keep_fact(self, name: str, value: Any, arrays: Sequence[NDArray[Any]] = ()) -> None:
        """Keep a value as JSON, and arrays beside it."""
        day = dt.datetime.now(tz=dt.UTC).date().isoformat()

        def write(file: Path) -> None:
            if arrays:
                with open_atomic(file.with_suffix(".arrays")) as stream:
                    dump_arrays(stream, arrays)
            write_atomic(file, json.dumps({"day": day, "value": value}))

        write_cached(self._folder / f"{name}.json", write)
        title = self._folder / TITLE
        if self._title and not title.exists():
            write_cached(title, lambda file: write_atomic(file, self._title))

    def answers(
        self, samples: Sequence[Arrays], special: Sequence[SpecialInputs] = ()
    ) -> ReferenceOutputs | None:
        """The framework's outputs that were kept for the inputs of some inferences, or None."""
        name = _answers_name([*samples, *(one.inputs for one in special)])
        known = self.fact(name)
        if known is None:
            return None
        value, day = known
        count = len(samples) + sum(value["special"])
        outputs = read_cached(self._folder / f"{name}.arrays", partial(read_batches, count=count))
        if not outputs:
            return None
        others = iter(outputs[len(samples) :])
        return ReferenceOutputs(
            reference=value["reference"],
            outputs=outputs[: len(samples)],
            special=[next(others) if answered else None for answered in value["special"]],
            day=day,
        )

    def store_outputs(
        self,
        answers: ReferenceOutputs,
        samples: Sequence[Arrays],
        special: Sequence[SpecialInputs] = (),
    ) -> None:
        """Keep a framework's answers; see ``answers``."""
        answered = [outputs for outputs in answers.special if outputs is not None]
        arrays = [array for outputs in (*answers.outputs, *answered) for array in outputs]
        facts = [outputs is not None for outputs in answers.special]
        value = {"reference": answers.reference, "special": facts}
        name = _answers_name([*samples, *(one.inputs for one in special)])
        self.keep_fact(name, value, arrays)

    def forget(self) -> None:
        """Remove all files of this network."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def graph(self) -> ImportedGraph | None:
        """The network as Relax has it, if it is known."""
        known = self.fact(GRAPH)
        arrays = self.arrays(GRAPH)
        if known is None or arrays is None:
            return None
        module = _relax_utils().restore_constants(known[0]["module"], arrays)
        return cattrs.structure({**known[0], "module": module}, ImportedGraph)

    def keep_graph(self, graph: ImportedGraph) -> None:
        """Keep the network as Relax has it, unless it is known."""
        if self.fact(GRAPH) is not None:
            return
        text, arrays = _relax_utils().extract_constants(graph.module)
        facts = attrs.asdict(attrs.evolve(graph, module=text))
        self.keep_fact(GRAPH, facts, [*arrays, np.zeros(0)])


def cache_of(network: ImportedNetwork, scratch: str = "") -> NetworkCache | None:
    """The cache of a network's source on this machine, or in ``scratch`` for one run."""
    if network.origin is None or not network.options.check:
        return NetworkCache(Path(scratch) / NETWORKS_FOLDER) if scratch else None
    shapes = sorted(network.shapes.items())
    folder = cache_path(NETWORKS_FOLDER, [_cache_key(), [network.origin, shapes]])
    words = [f"{name} {list(shape)}" for name, shape in shapes]
    return NetworkCache(folder, " ".join([network.options.title, *words]))


def _relax_utils() -> Any:
    from chameleon_networks._graph import relax_utils  # noqa: PLC0415 - needs TVM

    return relax_utils


def _cache_key() -> list[Any]:
    """Versions, code and machine that a network's reading and its answers depend on."""
    own = Path(__file__).parents[1]
    return cache_key(_DISTRIBUTIONS, (own, Path(chameleon_tvm.__file__).parent))


def _answers_name(samples: Sequence[Arrays]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in (array for inputs in samples for array in inputs):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.ubyte).data)
    return f"answers-{len(samples)}-{digest.hexdigest()}"
