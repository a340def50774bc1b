"""TVM's error texts mean a lost device, too little memory or time, or a bad kernel."""

import pytest
from chameleon_core._errors import DeviceLostError, TargetError
from chameleon_tvm._building.remote.failures import meaning, remote_calls, ruins_context

# As apache-tvm 0.27 wrote them when servers were killed, kernels crashed and sessions expired.
LOST = [
    "Check failed: (code == RPCCode::kReturn) is false: code=kShutdown",
    "Socket SockChannel::Recv Error:Connection reset by peer",
    "Socket SockChannel::Send Error:Broken pipe",
]
MEMORY = [
    "RPCError: Error caught from RPC call:\nMemoryError: std::bad_alloc",
    "CUDA: Check failed: e == cudaSuccess: cudaErrorMemoryAllocation: out of memory",
]
OWN = [
    "RPCError: Error caught from RPC call:\nboom in RPCEndpoint, connection reset by the kernel",
    "Assert fail: T.Cast(...), argument 0 has another shape",
    "ValueError: the kernel raised",
]


@pytest.mark.parametrize("text", LOST)
def test_broken_connections_are_lost_devices(text):
    meant = meaning(RuntimeError(text), "board:1")
    assert isinstance(meant, DeviceLostError)
    assert "board:1" in str(meant)


@pytest.mark.parametrize("text", MEMORY)
def test_memory_that_ran_out(text):
    assert isinstance(meaning(RuntimeError(text), "board:1"), MemoryError)


def test_a_session_that_expired():
    text = "RPCSessionTimeoutError: Your 6.0s session has expired, try to increase"
    assert isinstance(meaning(RuntimeError(text), "board:1"), TimeoutError)


def test_another_version_of_the_protocol_names_both():
    text = "Server 1.2.3.4: server protocol=0.8.0, client protocol=0.9.0"
    meant = meaning(RuntimeError(text), "board:1")
    assert isinstance(meant, TargetError)
    assert "0.8.0" in str(meant)
    assert "0.9.0" in str(meant)


@pytest.mark.parametrize("text", OWN)
def test_everything_else_is_the_candidates_own(text):
    error = RuntimeError(text)
    assert meaning(error, "board:1") is error
    with pytest.raises(RuntimeError) as raised, remote_calls("board:1"):
        raise error
    assert raised.value is error


def test_errors_that_were_told_before_stay():
    error = TargetError("told")
    with pytest.raises(TargetError) as raised, remote_calls("board:1"):
        raise error
    assert raised.value is error


@pytest.mark.parametrize(
    ("text", "ruined"),
    [
        ("CUDAError: an illegal memory access was encountered", True),
        ("CUDA_ERROR_LAUNCH_FAILED", True),
        ("cudaErrorMemoryAllocation: out of memory", False),
        ("Assert fail: shape", False),
    ],
)
def test_faults_that_spoil_a_context(text, ruined):
    assert ruins_context(RuntimeError(text)) is ruined
