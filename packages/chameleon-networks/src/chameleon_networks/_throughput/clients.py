"""Runs client threads that call one network at the same time: ``python clients.py REQUEST``.

To measure what a user's process would, this program imports nothing of Chameleon: only NumPy and
the framework of the network. The request and the answer are JSON.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

import numpy as np

Arrays = list[np.ndarray[Any, Any]]
Call = Callable[[Arrays], Arrays]
Request = Mapping[str, Any]
"""A request or an answer, as JSON values."""

State = dict[str, np.ndarray[Any, Any]]

Calls = tuple[list[Call], str | None]
"""A function for each client, and the dtype that the framework reports to compute in."""

WARM_UP = 3
"""Number of calls of each client that do not count."""


def load_network(request: Request) -> Calls:
    """Load a delivered network once by its ``load.py``, as users do, for all clients."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, request["path"])
    loader: Any = importlib.import_module("load")
    network = loader.load(
        request["path"], threads=request["threads"], instances=request["instances"]
    )

    buffers = getattr(network, "state", ())

    def call(kept: State, inputs: Arrays) -> Arrays:
        if not buffers:
            return flat(network(*inputs))
        first = len(inputs) - len(buffers)
        for spec, array in zip(buffers, inputs[first:], strict=True):
            kept.setdefault(spec.source, array.copy())
        return [*flat(network(*inputs[:first], state=kept)), *kept.values()]

    def flat(outputs: Any) -> Arrays:
        if hasattr(loader, "flat"):
            return cast("Arrays", loader.flat(outputs))
        return outputs if isinstance(outputs, list) else [outputs]  # of an earlier version

    # Each client has a state of its own, which its first call makes.
    return [partial(call, {}) for _ in range(request["streams"])], None


def compile_openvino(request: Request) -> Calls:
    """Compile a model with OpenVINO once, with an inference request for each client."""
    openvino: Any = importlib.import_module("openvino")
    settings = {"PERFORMANCE_HINT": request["mode"]}
    if request["mode"] == "THROUGHPUT":
        settings["PERFORMANCE_HINT_NUM_REQUESTS"] = request["streams"]
    if request["threads"]:
        settings["INFERENCE_NUM_THREADS"] = request["threads"]
    if request["hint"]:
        settings["INFERENCE_PRECISION_HINT"] = request["hint"]
    compiled = openvino.Core().compile_model(request["path"], "CPU", settings)

    def call(inference: Any, inputs: Arrays) -> Arrays:
        outputs = inference.infer(inputs, share_inputs=True)
        return [np.asarray(outputs[output]) for output in compiled.outputs]

    clients = range(request["streams"])
    precision = str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
    return [partial(call, compiled.create_infer_request()) for _ in clients], precision


def open_onnxruntime(request: Request) -> Calls:
    """Open a model in ONNX Runtime, whose sessions the clients share."""
    runtime: Any = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = request["threads"]
    sessions = [
        runtime.InferenceSession(request["path"], options, providers=["CPUExecutionProvider"])
        for _ in range(request["sessions"])
    ]
    names = [tensor.name for tensor in sessions[0].get_inputs()]

    def call(session: Any, inputs: Arrays) -> Arrays:
        outputs: Arrays = session.run(None, dict(zip(names, inputs, strict=True)))
        return outputs

    clients = range(request["streams"])
    return [partial(call, sessions[client % len(sessions)]) for client in clients], None


CALLS: dict[str, Callable[[Request], Calls]] = {
    "network": load_network,
    "openvino": compile_openvino,
    "onnxruntime": open_onnxruntime,
}
"""Functions that open a network for the clients, by name."""


_BUSY = """
import os, sys
while os.getppid() == int(sys.argv[1]):
    for _ in range(10**6):
        pass
"""
"""A program that computes as long as its parent process lives."""


@contextlib.contextmanager
def busy_processes(neighbours: int) -> Iterator[None]:
    """Keep cores busy by processes of this session, to which Linux may grant time as a group."""
    # If each process had its own session, Linux would divide the time of the cores differently.
    command = [sys.executable, "-c", _BUSY, str(os.getpid())]
    with contextlib.ExitStack() as stack:
        for _ in range(neighbours):
            stack.callback(stack.enter_context(subprocess.Popen(command)).kill)
        yield


def torch_preprocessing() -> Callable[[], Any]:
    """A torch operation on all threads, such as resizing an image, that runs before each call."""
    torch: Any = importlib.import_module("torch")
    image = torch.rand(1, 3, 480, 640)
    return partial(
        torch.nn.functional.interpolate, image, size=(224, 224), mode="bilinear", antialias=True
    )


def run_clients(request: Request) -> Request:
    """Let several clients call a network at the same time for some seconds."""
    step = torch_preprocessing() if request.get("torch") else None
    with np.load(request["inputs"]) as stored:
        inputs = [stored[f"arr_{number}"] for number in range(len(stored.files))]
    calls, precision = CALLS[request["by"]](request)
    # OpenVINO's first inference sets up parts of its module, and two threads at once wait for ever.
    outputs = calls[0](inputs)
    if "outputs" in request:
        np.savez(request["outputs"], *outputs)
    start = threading.Barrier(len(calls))

    def client(call: Call) -> tuple[float, float, list[float]]:
        try:
            for _ in range(WARM_UP):
                call(inputs)
        except BaseException:
            start.abort()
            raise
        start.wait()
        latencies: list[float] = []
        start_time = ended = time.perf_counter()
        while not latencies or ended - start_time < request["seconds"]:
            if step is not None and request.get("before"):
                step()
            called = time.perf_counter()
            call(inputs)
            ended = time.perf_counter()
            latencies.append(ended - called)
        return start_time, ended, latencies

    with busy_processes(request.get("neighbours", 0)), ThreadPoolExecutor(len(calls)) as pool:
        clients = [pool.submit(client, call) for call in calls]
        # The error of a client that failed says more than the errors of clients that waited for it.
        failed = [future.exception() for future in clients if future.exception() is not None]
        for exc in sorted(failed, key=lambda exc: isinstance(exc, threading.BrokenBarrierError)):
            raise exc  # type: ignore[misc] # none of them is None
    times = [future.result() for future in clients]
    return {
        "latencies": [seconds for _, _, latencies in times for seconds in latencies],
        "seconds": max(ended for _, ended, _ in times)
        - min(start_time for start_time, _, _ in times),
        "precision": precision,
        "variables": sorted(os.environ),
    }


def main() -> None:
    """Answer the request of the command line on standard output."""
    # The answer has the standard output to itself: libraries print what they like.
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        answer = run_clients(json.loads(sys.argv[1]))
    except Exception as error:  # noqa: BLE001 - the parent shows any error
        words = str(error).strip().splitlines()
        answer = {"error": f"{type(error).__name__}: {words[0] if words else 'no message'}"}
    print(json.dumps(answer), file=stream, flush=True)


if __name__ == "__main__":
    main()
