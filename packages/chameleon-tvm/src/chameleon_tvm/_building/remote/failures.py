"""Classifies errors that TVM raised in calls of a remote device.

A lost device, full memory or an ended session becomes an error of its own class. All other errors
were caused by the candidate, and stay as they are.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from chameleon_core.plugin_api import ChameleonError, DeviceLostError, TargetError

from chameleon_tvm._words import telling_line

_SERVER_ERROR = "Error caught from RPC call"
_EXPIRED = re.compile(r"RPCSessionTimeoutError|session has expired", re.IGNORECASE)
_MEMORY = re.compile(
    r"out of memory|bad_alloc|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY"
    r"|cannot allocate memory|OutOfResource",
    re.IGNORECASE,
)
_VERSIONS = re.compile(r"server protocol=\s*([^,\s]+),\s*client protocol=\s*([^,\s]+)")
_LOST_CONNECTION = re.compile(
    r"connection (?:reset|refused|closed|aborted|timed out)|broken pipe|transport endpoint"
    r"|connection was (?:reset|closed)|channel closes|socket error|SocketError|TCPSocket"
    r"|rpc_socket|rpc_channel|RPCEndpoint|rpc_endpoint|unexpected end|kShutdown"
    r"|no route to host|network is unreachable|bad file descriptor",
    re.IGNORECASE,
)
_STICKY_ERROR = re.compile(
    r"illegal memory access|illegal instruction|unspecified launch failure|misaligned address"
    r"|launch timed out|device-side assert|hardware stack|invalid program counter"
    r"|CUDA_ERROR_(?:ILLEGAL|LAUNCH|MISALIGNED|HARDWARE|ASSERT|INVALID_PC)|launch failure",
    re.IGNORECASE,
)


@contextlib.contextmanager
def remote_calls(name: str) -> Iterator[None]:
    """Translate TVM's errors into errors that say whether the device or the candidate failed.

    The translation holds while the context lasts. Errors that the candidate caused stay as they
    are.

    Args:
        name: Name of the device, for messages.

    Raises:
        DeviceLostError: The connection broke.
        TimeoutError: The server ended the session because it lasted too long.
        MemoryError: The device's memory is full.
        TargetError: The server speaks another version of the protocol.
    """
    try:
        yield
    except (ChameleonError, MemoryError):
        raise
    except Exception as error:
        translated = meaning(error, name)
        if translated is error:
            raise
        raise translated from error


def meaning(error: Exception, name: str) -> Exception:
    """Convert an error of TVM to the error that it really means, such as a lost device.

    An error that the candidate caused is returned unchanged.

    Args:
        error: The error that TVM raised.
        name: Name of the device, for messages.
    """
    text = str(error)
    versions = _VERSIONS.search(text)
    if versions is not None:
        return TargetError(
            f"{name} runs another TVM: its RPC protocol is {versions[1]}, ours {versions[2]}",
            hint="Install the same version of apache-tvm on both sides.",
        )
    if _EXPIRED.search(text):
        return TimeoutError(f"{name} ended the session because it lasted too long")
    if _MEMORY.search(text):
        return MemoryError(f"out of memory on {name}: {telling_line(error)}")
    # If the server itself reports an error, the connection still works.
    connection_broke = _SERVER_ERROR not in text and _LOST_CONNECTION.search(text)
    if connection_broke or isinstance(error, (ConnectionError, EOFError)):
        return DeviceLostError(
            f"the connection to {name} broke: {telling_line(error)}",
            hint="The kernel may have crashed the server, or the device went away.",
        )
    return error


def ruins_context(error: BaseException) -> bool:
    """Whether a GPU is unusable for this process after an error.

    If so, the worker process must be replaced.

    Args:
        error: The error that a call of the GPU raised.
    """
    return _STICKY_ERROR.search(str(error)) is not None
