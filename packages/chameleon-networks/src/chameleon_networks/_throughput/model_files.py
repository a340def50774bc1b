"""Writes files of a network that OpenVINO and ONNX Runtime read.

``python -m chameleon_networks._throughput.model_files`` writes them in a separate process. The
libraries that convert and quantize networks keep threads and memory, which end with the process.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import structlog
from chameleon_core.plugin_api import FLOAT32, Arrays
from chameleon_system.api import Message
from chameleon_tvm.api import INT8, one_line

from chameleon_networks._evaluation import messages
from chameleon_networks._evaluation.processes import WorkerProcess
from chameleon_networks._frameworks import AS_IT_COMES
from chameleon_networks._frameworks.inference import (
    ONNXRUNTIME,
    OPENVINO,
    NetworkForms,
    openvino_model,
)
from chameleon_networks._frameworks.reduced_precision import (
    HINTS,
    default_precision,
    missing_packages,
    quantized_file,
    quantized_model,
    select_frameworks,
)
from chameleon_networks._importers.imported_network import ImportedNetwork
from chameleon_networks._quantize.calibration_batches import batches_of

log = structlog.get_logger()

FRAMEWORKS = (ONNXRUNTIME, OPENVINO)
"""Frameworks that run a network from its file alone, in a separate process."""

_MODULE = "chameleon_networks._throughput.model_files"
_SECONDS = 1800.0
"""Limit for writing the files."""


@attrs.frozen(kw_only=True)
class ModelFile:
    """A network in a file that a framework reads.

    Attributes:
        framework: The framework that reads the file, one of ``FRAMEWORKS``.
        precision: The precision that the network in the file has, or that the framework is asked
            for.
        hint: The dtype that OpenVINO is told to compute in, by OpenVINO's name. None if OpenVINO
            chooses.
    """

    framework: str
    precision: str
    hint: str | None
    path: str


def write_model_files(
    network: ImportedNetwork,
    names: Sequence[str],
    precisions: Sequence[str],
    calibrate: str | None,
    folder: Path,
) -> tuple[dict[str, ModelFile], dict[str, str]]:
    """The files by framework and precision, and the reasons why others have none."""
    chosen = select_frameworks(network.forms, precisions or (AS_IT_COMES,))
    if not precisions:
        chosen = [reduced for reduced in chosen if reduced.framework in names]
    left_out = missing_packages(network.forms, chosen)
    # A file that comes quantized is not quantized again.
    wanted = {name: (name, FLOAT32) for name in names}
    for reduced in chosen:
        if reduced.framework not in FRAMEWORKS:
            left_out[reduced.name] = "it runs in no process of its own from a file"
        elif reduced.name not in left_out:
            wanted[reduced.name] = (reduced.framework, reduced.precision)
    batches: list[Arrays] = []
    if any(reduced.calibrated and reduced.name in wanted for reduced in chosen):
        batches = list(batches_of(network, calibrate))
    messages.write_batches(folder / "calibration.arrays", batches)
    kinds = {(framework, precision == INT8) for framework, precision in wanted.values()}
    request = {
        "folder": str(folder),
        "kinds": sorted(kinds),
        "batches": len(batches),
        **messages.describe_network(network),
    }
    answer = _answer(request) if kinds else {}
    files = {}
    for name, (framework, precision) in wanted.items():
        reply = answer[framework, precision == INT8]
        unasked = precision == AS_IT_COMES and not precisions
        if unasked and (reply.get("default", FLOAT32) == FLOAT32 or network.quantized):
            continue
        if "problem" in reply:
            log.warning("network_not_run", by=name, problem=reply["problem"])
            left_out[name] = reply["problem"]
            continue
        files[name] = ModelFile(
            framework=framework,
            precision=network.precision_of(name) if name in names else precision,
            hint=HINTS.get(precision),
            path=reply["path"],
        )
    return files, left_out


def _answer(request: Message) -> dict[tuple[str, bool], dict[str, str]]:
    """Have a process write the files, and return the ``path`` or the ``problem`` of each."""
    with WorkerProcess(
        "what writes files for others", request, module=_MODULE, threads=0, start_seconds=_SECONDS
    ) as process:
        return {(name, reduced): file for (name, reduced), file in process.answer["files"]}


def _written(
    forms: NetworkForms, framework: str, batches: Sequence[Arrays] | None, at: Path
) -> str:
    """Write the file of a network for one framework, in int8 if calibration inputs are given."""
    if framework == OPENVINO:
        openvino: Any = importlib.import_module("openvino")
        model = openvino_model(forms) if batches is None else quantized_model(forms, batches)
        # By default, OpenVINO would round all weights to float16.
        openvino.save_model(model, at / "model.xml", compress_to_fp16=False)
        return str(at / "model.xml")
    return forms.onnx_file(at) if batches is None else quantized_file(forms, batches, at)


def write_requested_files(request: Message) -> Message:
    """Write the files that a request lists."""
    folder = Path(request["folder"])
    batches = messages.read_batches(folder / "calibration.arrays", request["batches"])
    forms = messages.network_from(request).forms
    files = []
    for framework, reduced in request["kinds"]:
        at = folder / f"{framework}-{INT8 if reduced else 'floats'}"
        at.mkdir()
        try:
            path = _written(forms, framework, batches if reduced else None, at)
            reply = {"path": path, "default": default_precision(framework)}
        except Exception as error:  # noqa: BLE001 - the parent shows any error
            reply = {"problem": one_line(error)}
        files.append(([framework, reduced], reply))
    return {"files": files}


if __name__ == "__main__":
    messages.serve(write_requested_files)
