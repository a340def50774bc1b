"""Files of a network that OpenVINO and onnxruntime read.

``python -m chameleon_networks.serving.model_files REQUEST`` writes them: libraries that convert
and quantize networks keep threads and memory, which nobody needs once the files are there.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import structlog
from chameleon_core.dtypes import FLOAT32, INT8
from chameleon_core.stages import Arrays
from chameleon_system.processes.answering import Answers
from chameleon_system.processes.child import ChildProcess
from chameleon_system.processes.conversation import Conversation, Message
from chameleon_tvm.words import one_line

from chameleon_networks.frameworks.onnx_precisions import quantized_file
from chameleon_networks.frameworks.openvino_precisions import HINTS, model_of, quantized_model
from chameleon_networks.frameworks.reduced import asked_for, left_out_reduced
from chameleon_networks.frameworks.running import ONNXRUNTIME, OPENVINO, NetworkForms
from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.quantize.batches import batches_of
from chameleon_networks.running.processes import awaited
from chameleon_networks.running.requests import (
    batches_in,
    request_of,
    requested_network,
    write_arrays,
)

log = structlog.get_logger()

FRAMEWORKS = (ONNXRUNTIME, OPENVINO)
"""What reads a file alone, in a process without anything else of the network."""

_SECONDS = 1800.0
"""The files may take so long."""


@attrs.frozen(kw_only=True)
class ModelFile:
    """A network in a file.

    Attributes:
        framework: that reads it, one of ``FRAMEWORKS``.
        precision: that the network has, or that the framework is asked for.
        hint: the type that OpenVINO is told to compute in, by its name; None where it chooses.
        path: of the file.
    """

    framework: str
    precision: str
    hint: str | None
    path: str


def model_files(
    network: ImportedNetwork,
    names: Sequence[str],
    precisions: Sequence[str],
    calibrate: str | None,
    folder: Path,
) -> tuple[dict[str, ModelFile], dict[str, str]]:
    """Write a network for those that run it.

    Args:
        network: as its framework has it.
        names: those of ``FRAMEWORKS`` that run it in float32.
        precisions: in which all of them run it as well.
        calibrate: where inputs to calibrate with are from, as for ``batches_of``.
        folder: for the files, and for inputs to calibrate with.

    Returns:
        The files by what their contenders are called, and why others have none, by name.

    Raises:
        ChameleonError: inputs to calibrate with cannot be had.
    """
    chosen = asked_for(network.forms, precisions)
    left_out = left_out_reduced(network.forms, chosen)
    # A file that comes quantized is not quantized again.
    wanted = {name: (name, FLOAT32) for name in names}
    for one in chosen:
        if one.framework not in FRAMEWORKS:
            left_out[one.name] = "it runs in no process of its own from a file"
        elif one.name not in left_out:
            wanted[one.name] = (one.framework, one.precision)
    batches: list[Arrays] = []
    if any(one.calibrated and one.name in wanted for one in chosen):
        batches = list(batches_of(network, calibrate))
    write_arrays(folder / "calibration.npz", [array for inputs in batches for array in inputs])
    kinds = {(framework, precision == INT8) for framework, precision in wanted.values()}
    request = {
        "folder": str(folder),
        "kinds": sorted(kinds),
        "batches": len(batches),
        **request_of(network),
    }
    answer = {tuple(kind): found for kind, found in _answer(request)["files"]} if kinds else {}
    files = {}
    for name, (framework, precision) in wanted.items():
        found = answer[framework, precision == INT8]
        if "problem" in found:
            log.warning("network_not_run", by=name, problem=found["problem"])
            left_out[name] = found["problem"]
            continue
        files[name] = ModelFile(
            framework=framework,
            precision=network.precision_of(name) if name in names else precision,
            hint=HINTS.get(precision),
            path=found["path"],
        )
    return files, left_out


def _answer(request: Message) -> Message:
    return child_answer(
        "the process that writes files for others",
        "chameleon_networks.serving.model_files",
        request,
        seconds=_SECONDS,
    )


def child_answer(
    name: str,
    module: str,
    request: Mapping[str, Any],
    *,
    seconds: float,
    environment: Mapping[str, str] | None = None,
) -> Message:
    """What a fresh process answers to the one request that its command line has.

    Args:
        name: what it is called in messages.
        module: that it runs.
        request: JSON values.
        seconds: that it may take.
        environment: its variables; those of this process where None.

    Raises:
        ChameleonError: it says ``error``, died or hung.
    """
    with ChildProcess(
        module, [json.dumps(request)], environment=environment, stdout=subprocess.PIPE
    ) as child:
        return awaited(name, child, Conversation(child), seconds)


def _written(
    forms: NetworkForms, framework: str, batches: Sequence[Arrays] | None, at: Path
) -> str:
    """The file of a network, in int8 if there are inputs to calibrate with."""
    if framework == OPENVINO:
        openvino: Any = importlib.import_module("openvino")
        model = model_of(forms) if batches is None else quantized_model(forms, batches)
        # By itself it would round all weights to float16.
        openvino.save_model(model, at / "model.xml", compress_to_fp16=False)
        return str(at / "model.xml")
    if batches is not None:
        return quantized_file(forms, batches, at)
    source = forms.onnx()
    if isinstance(source, str):
        return source
    (at / "model.onnx").write_bytes(source)
    return str(at / "model.onnx")


def main() -> None:
    """Write the files that the command line asks for."""
    answers = Answers()
    request = json.loads(sys.argv[1])
    folder = Path(request["folder"])
    batches = batches_in(folder / "calibration.npz", request["batches"])
    files = []
    try:
        forms = requested_network(request).forms
        for framework, reduced in request["kinds"]:
            at = folder / f"{framework}-{INT8 if reduced else 'floats'}"
            at.mkdir()
            try:
                path = _written(forms, framework, batches if reduced else None, at)
                files.append(([framework, reduced], {"path": path}))
            except Exception as error:  # noqa: BLE001 - told to the parent, whatever it is
                files.append(([framework, reduced], {"problem": one_line(error)}))
        answers.send({"files": files})
    except Exception as error:  # noqa: BLE001 - likewise
        answers.send({"error": one_line(error)})


if __name__ == "__main__":
    main()
