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


def request_of(network: ImportedNetwork, *, reads: bool = False) -> Message:
    """Make the part of a request that describes a network, for ``requested_network``.

    The part has the class and the values of the network's options. It also has the files of
    exported programs, by the name of the attribute that holds each program.

    Args:
        network: The imported network.
        reads: Whether the other process should read the network's source, and write the files of
            exported programs for this process. The request then has the folder for these files
            instead of the files' paths.
    """
    # Another process has no run folder to recall a layout from.
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


def requested_network(request: Message) -> ImportedNetwork:
    """Make the network that a request from ``request_of`` describes.

    Parts that another process kept in files, such as exported programs, are read from these files.

    Raises:
        ConfigError: The source has changed since ``request_of`` described it.
    """
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
    """Import modules. If one is missing, whatever needs it says so better."""
    for name in modules:
        with contextlib.suppress(ImportError), pause_garbage_collection():
            importlib.import_module(name)


def serve(answer: Callable[[Message], Message], answers: AnswerStream | None = None) -> None:
    """Answer requests in lines of JSON until standard input ends.

    If an answer raises an exception, the reply is a message about it.

    Args:
        answer: A function that computes the reply to a request.
        answers: The channel of the replies, if standard output was redirected before.
    """
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
        except Exception as error:  # noqa: BLE001 - told to the parent, whatever it is
            reply = {"error": first_line(error)}
        answers.send(reply)


def save_arrays(stream: BinaryIO, arrays: Sequence[NDArray[Any]]) -> None:
    """Write arrays into an open file: their number, then one after another as ``np.save`` does.

    ``np.savez`` takes four times as long, because a zip file has checksums.
    """
    for array in (np.array(len(arrays)), *arrays):
        np.save(stream, array)


def write_arrays(file: Path, arrays: Arrays) -> None:
    """Write arrays into a file, in order."""
    with file.open("wb") as stream:
        save_arrays(stream, arrays)


def read_arrays(file: Path) -> Arrays:
    """The arrays of a file, in order."""
    with file.open("rb") as stream:
        return [np.load(stream) for _ in range(int(np.load(stream)))]


def write_batches(file: Path, batches: Sequence[Arrays]) -> None:
    """Write the inputs of several inferences to a file, one inference after another.

    Args:
        file: The file to write.
        batches: The inputs of each inference.
    """
    write_arrays(file, [array for inputs in batches for array in inputs])


def batches_in(file: Path, count: int) -> list[Arrays]:
    """Read the inputs of several inferences from a file that holds them one after another.

    Args:
        file: A file that ``write_arrays`` wrote.
        count: Number of inferences.
    """
    inputs = read_arrays(file)
    each = len(inputs) // max(1, count)
    return [inputs[first : first + each] for first in range(0, len(inputs), each or 1)]
