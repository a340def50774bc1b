"""A process that simulates a network: ``python -m chameleon_networks.quantize.simulating``.

Requests and replies are lines of JSON on standard input and output; arrays travel in files.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from chameleon_core.errors import ChameleonError, ConfigError
from chameleon_core.stages import Arrays
from chameleon_system.processes.answering import Answers, requests
from chameleon_tvm.words import first_line

from chameleon_networks.quantize import observing
from chameleon_networks.quantize.ranges import Affine
from chameleon_networks.quantize.reads import Network
from chameleon_networks.quantize.simulated import SimulatedNetwork
from chameleon_networks.running.samples import Sample
from chameleon_networks.running.serve import read_arrays, requested_network, write_arrays
from chameleon_networks.running.verify import magnitudes


class Server:
    """Answers requests about one network.

    Args:
        request: the network, as ``processes.request_of`` describes it, a ``target``, and
            ``names`` of the variables in the network that the parent has.

    Raises:
        ConfigError: the network is another one here.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        module, chains = requested_network(request).prepared
        if list(Network(module, chains).names.values()) != request["names"]:
            raise ConfigError(
                "another process reads the network differently from this one",
                hint="A network has to be the same whenever it is made: seed what is random in it.",
            )
        self._simulated = SimulatedNetwork(module, chains, request["target"])
        self._calibrator = observing.Calibrator(self._simulated)
        self._ranges: dict[str, Any] = {}
        self._samples: list[tuple[Sample, Arrays]] = []
        self._scales: tuple[float, ...] = ()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What is to be answered to a request."""
        return getattr(self, f"_{request['do']}")(request)  # type: ignore[no-any-return]

    def _describe(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"places": list(self._simulated.places)}

    def _observe(self, request: dict[str, Any]) -> dict[str, Any]:
        self._calibrator.observe(_inputs(request))
        return {}

    def _calibrate(self, request: dict[str, Any]) -> dict[str, Any]:
        found = self._calibrator.calibration()
        self._ranges = dict(found.ranges)
        write_arrays(Path(request["means"]), list(found.means.values()))
        ranges = {name: [one.scale, one.zero_point] for name, one in found.ranges.items()}
        return {
            "ranges": ranges,
            "method": found.method,
            "errors": dict(found.errors),
            "means": list(found.means),
        }

    def _recall(self, request: dict[str, Any]) -> dict[str, Any]:
        self._ranges = {
            name: Affine(scale=scale, zero_point=zero)
            for name, (scale, zero) in request["ranges"].items()
        }
        self._simulated.means = dict(zip(request["names"], _inputs(request), strict=True))
        return {}

    def _sample(self, request: dict[str, Any]) -> dict[str, Any]:
        kept = tuple((place, axis, extent) for place, axis, extent in request["kept"])
        sample = Sample(inputs=_inputs(request), kept=kept)
        expected = sample.cut(self._simulated.outputs(sample.inputs))
        self._samples.append((sample, expected))
        self._scales = magnitudes([expected for _, expected in self._samples])
        return {}

    def _error(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"value": max(self._error_of(request, *sample) for sample in self._samples)}

    def _error_of(self, request: dict[str, Any], sample: Sample, expected: Arrays) -> float:
        """The error of one sample; infinite where a type did not hold a number."""
        got = sample.cut(self._outputs_of(sample.inputs, request))
        found: float = observing.error_between(got, expected, self._scales)
        return math.inf if self._simulated.overflowed else found

    def _outputs(self, request: dict[str, Any]) -> dict[str, Any]:
        write_arrays(Path(request["outputs"]), self._outputs_of(_inputs(request), request))
        return {}

    def _outputs_of(self, inputs: Arrays, request: dict[str, Any]) -> Arrays:
        types = {int(place): kind for place, kind in request["types"].items()}
        found: Arrays = self._simulated.outputs(inputs, types, self._ranges)
        return found


def _inputs(request: dict[str, Any]) -> Arrays:
    return read_arrays(Path(request["inputs"]))


def main() -> None:
    """Serve until standard input ends."""
    answers = Answers()
    server: Server | None = None
    for request in requests():
        try:
            if server is None:
                server = Server(request)
                answer: dict[str, Any] = {}
            else:
                answer = server.answer(request)
        except ChameleonError as error:
            answer = {"problem": str(error), "hint": error.hint}
        except Exception as error:  # noqa: BLE001 - told to the parent, whatever it is
            answer = {"error": first_line(error)}
        answers.send(answer)


if __name__ == "__main__":
    main()
