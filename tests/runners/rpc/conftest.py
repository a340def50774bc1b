"""A tracker and two servers of TVM's RPC on this machine, and what listens as they do not."""

import socket
import threading

import pytest
from chameleon_core._plugins.registry import Registry
from chameleon_core._task import Task
from chameleon_runners._rpc.addresses import Address
from chameleon_runners._rpc.supervision import RpcServerOptions, RpcServers, find_ports
from chameleon_runners._rpc.tracker import queues

from ..conftest import eventually  # noqa: TID252 - tests are no package

KEY = "tested"


def free_port():
    """A port of this machine that nobody listens on."""
    (port,) = find_ports("127.0.0.1", 0, 1)
    return port


@pytest.fixture(scope="module")
def serving():
    with RpcServers(RpcServerOptions(servers=2, key=KEY, threads=1)) as started:
        yield started


@pytest.fixture(scope="module")
def native():
    return str(Registry.default().create("targets", "tvm").resolve("native"))


@pytest.fixture(scope="module")
def task(native):
    return Task(name="behaviours", operator="behaviour", arguments={}, target=native, flop=1.0)


def free_servers(serving):
    return sum(queue.free for queue in queues(serving.address, timeout=60.0))


def settle(serving):
    """Wait until all servers are free again."""

    def all_are_free():
        serving.supervise()
        return free_servers(serving) == len(serving.servers)

    assert eventually(all_are_free), "the servers do not come back"


@pytest.fixture
def settled(serving):
    settle(serving)
    return serving


@pytest.fixture
def impostor():
    """Listens and answers everyone with some bytes: none hangs up, None says nothing."""
    with_sockets = []
    ended = threading.Event()

    def listen(answer):
        listening = socket.create_server(("127.0.0.1", 0))
        with_sockets.append(listening)

        def serve():
            while not ended.is_set():
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with_sockets.append(connection)
                if answer:
                    connection.sendall(answer)
                elif answer == b"":
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        return Address(host="127.0.0.1", port=listening.getsockname()[1])

    yield listen
    ended.set()
    for word in with_sockets:
        word.close()
