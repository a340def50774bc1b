"""Runs the network of this folder in ONNX Runtime 1.23 or later.

``session_options()`` returns the options for a session of ``model.onnx``, or of a larger ONNX file
that contains its node. ONNX Runtime's CPU provider computes all other nodes.
"""

from __future__ import annotations

import pathlib
import threading

import onnxruntime

PROVIDER = "ChameleonExecutionProvider"
LIBRARY = "onnxruntime_provider.so"

_FOLDER = pathlib.Path(__file__).absolute().parent
_registering = threading.Lock()


def session_options(*, threads: int = 0, instances: int = 1) -> onnxruntime.SessionOptions:
    """Register the provider of this folder, and make the options of a session that uses it.

    A session with these options looks for the libraries and weights of networks in this folder,
    wherever its ONNX file is. ONNX Runtime itself computes with one thread, which does not spin.

    Args:
        threads: Number of threads that compute one inference. 0 takes the value of the environment
            variable ``NETWORK_NUM_THREADS``, or else of ``OMP_NUM_THREADS``. If neither is set, 0
            takes the number that the network was measured with, but not more than the cores that
            this process may use.
        instances: Number of inferences of one session that may run at the same time.

    Raises:
        RuntimeError: ONNX Runtime is older than version 1.23.
    """
    if not hasattr(onnxruntime.SessionOptions, "add_provider_for_devices"):
        version = onnxruntime.__version__
        raise RuntimeError(f"this network needs ONNX Runtime 1.23 or later, not {version}")
    with _registering:
        if not _devices():
            onnxruntime.register_execution_provider_library(PROVIDER, str(_FOLDER / LIBRARY))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    own = {"threads": str(threads), "instances": str(instances), "folder": str(_FOLDER)}
    options.add_provider_for_devices(_devices(), own)
    return options


def _devices() -> list[onnxruntime.OrtEpDevice]:
    return [one for one in onnxruntime.get_ep_devices() if one.ep_name == PROVIDER]
