"""Requests, replies and array files with which processes share a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.arrays import Arrays
from chameleon_core.errors import ChameleonError
from chameleon_core.plugins.factory import load_factory
from chameleon_system.processes.answering import Answers, Message, requests
from chameleon_tvm.words import first_line

from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.importers.sources import network_of
from chameleon_networks.shapes import converter


@attrs.frozen(kw_only=True)
class NetworkRequest:
    """A network described by JSON values, from which another process makes the network again.

    Attributes:
        type: The class of the network's options, as ``module:Class``.
        options: The values of these options.
        programs: Files of programs that were exported from the network, by the name of the
            attribute that holds each program.
    """

    type: str
    options: Mapping[str, Any]
    programs: Mapping[str, str]

    @classmethod
    def of(cls, network: ImportedNetwork) -> NetworkRequest:
        """Describe a network of this process for another process."""
        # Another process has no run folder to recall a layout from.
        options = attrs.evolve(network.options, layout=network.layout)
        return cls(
            type=f"{type(options).__module__}:{type(options).__qualname__}",
            options=attrs.asdict(options),
            programs=network.kept_programs(),
        )

    def network(self) -> ImportedNetwork:
        """Make the network, from the files in ``programs`` if there are any."""
        kind: Any = load_factory(self.type)
        network = network_of(converter().structure(self.options, kind))
        network.programs = self.programs
        return network


def request_of(network: ImportedNetwork) -> Message:
    """Make the part of a request that describes a network, for ``requested_network``."""
    return {"network": attrs.asdict(NetworkRequest.of(network))}


def requested_network(request: Message) -> ImportedNetwork:
    """Make the network that ``request_of`` described."""
    return NetworkRequest(**request["network"]).network()


def serve(answer: Callable[[Message], Message]) -> None:
    """Answer requests until standard input ends. If an answer fails, the reply is a message."""
    answers = Answers()
    for request in requests():
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


def write_arrays(file: Path, arrays: Arrays) -> None:
    """Write arrays into a file, in order."""
    np.savez(file, *arrays)


def read_arrays(file: Path) -> Arrays:
    """The arrays of a file, in order."""
    with np.load(file) as stored:
        return [stored[f"arr_{number}"] for number in range(len(stored.files))]


def batches_in(file: Path, count: int) -> list[Arrays]:
    """Read the inputs of several inferences from a file that holds them one after another.

    Args:
        file: A file that ``write_arrays`` wrote.
        count: Number of inferences.
    """
    inputs = read_arrays(file)
    each = len(inputs) // max(1, count)
    return [inputs[first : first + each] for first in range(0, len(inputs), each or 1)]
