"""Requests, replies and array files with which processes share a network."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import attrs
import numpy as np
from chameleon_core.plugin_api import Arrays, ChameleonError, ConfigError, load_factory
from chameleon_system.api import AnswerStream, Message, pause_garbage_collection, read_requests
from chameleon_tvm.api import first_line
from numpy.typing import NDArray

from chameleon_networks._importers.imported_network import ImportedNetwork
from chameleon_networks._importers.sources import network_of
from chameleon_networks._shapes import converter


def describe_network(network: ImportedNetwork, *, reads: bool = False) -> Message:
    """The part of a request with a network's options, and with files of its exported programs."""
    # The other process has no run folder with the chosen layout, so the message contains it.
    options = attrs.evolve(network.options, layout=network.layout)
    return {
        "network": {
            "type": f"{type(options).__module__}:{type(options).__qualname__}",
            "options": attrs.asdict(options),
            "origin": network.origin,
            "programs": {} if reads else network.kept_programs(),
            "folder": network.programs_folder if reads else None,
        }
    }


def network_from(request: Message) -> ImportedNetwork:
    """Make the network of ``describe_network``, from files of other processes if any."""
    described = request["network"]
    kind: Any = load_factory(described["type"])
    network = network_of(converter().structure(described["options"], kind))
    network.programs = described["programs"]
    if network.origin != described["origin"]:
        raise ConfigError(
            "the file of the network has changed since the run read it",
            hint="Start a new run, with another output folder.",
        )
    return network


def preload(modules: Iterable[str]) -> None:
    """Import modules; a missing one is reported by the code that needs it."""
    for name in modules:
        with contextlib.suppress(ImportError), pause_garbage_collection():
            importlib.import_module(name)


def serve(answer: Callable[[Message], Message], answers: AnswerStream | None = None) -> None:
    """Answer requests in lines of JSON until standard input ends, exceptions with a message."""
    answers = answers or AnswerStream()
    for request in read_requests():
        try:
            reply = answer(request)
        except ChameleonError as error:
            reply = {"problem": str(error), "hint": error.hint}
        except ModuleNotFoundError as error:
            reply = {
                "problem": f"{error.name} is not installed",
                "hint": f"Install it: pip install {error.name}",
            }
        except Exception as error:  # noqa: BLE001 - the parent shows any error
            reply = {"error": first_line(error)}
        answers.send(reply)


def dump_arrays(stream: BinaryIO, arrays: Sequence[NDArray[Any]]) -> None:
    """Write the number of arrays, then each by ``np.save``, four times as fast as ``np.savez``."""
    for array in (np.array(len(arrays)), *arrays):
        np.save(stream, array)


def write_arrays(file: Path, arrays: Arrays) -> None:
    """Write arrays into a file, in order."""
    with file.open("wb") as stream:
        dump_arrays(stream, arrays)


def read_arrays(file: Path) -> Arrays:
    """The arrays of a file, in order."""
    with file.open("rb") as stream:
        return [np.load(stream) for _ in range(int(np.load(stream)))]


def write_batches(file: Path, batches: Sequence[Arrays]) -> None:
    """Write the inputs of several inferences to a file, one inference after another."""
    write_arrays(file, [array for inputs in batches for array in inputs])


def read_batches(file: Path, count: int) -> list[Arrays]:
    """Read the inputs of several inferences from a file that holds them one after another."""
    inputs = read_arrays(file)
    each = len(inputs) // max(1, count)
    return [inputs[first : first + each] for first in range(0, len(inputs), each or 1)]
