"""The tracker's client: what it reads, and that nothing makes it wait for ever."""

import json
import struct

import pytest
from chameleon_core._errors import ConfigError, DeviceLostError, TargetError
from chameleon_runners._rpc import tracker
from chameleon_runners._rpc.addresses import Address
from chameleon_runners._rpc.tracker import ServerState, probe_server, queues, request

from .conftest import KEY, free_port

MAGIC = struct.pack("<i", 0x2F271)


def framed(value):
    body = json.dumps(value).encode()
    return MAGIC + struct.pack("<i", len(body)) + body


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("10.0.0.1:9190", "10.0.0.1", 9190), ("[::1]:1", "::1", 1), (" board:65535 ", "board", 65535)],
)
def test_addresses(text, host, port):
    address = Address.parse(text)
    assert (address.host, address.port) == (host, port)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("text", ["", "host", "host:", ":9190", "host:x", "host:0", "host:65536"])
def test_no_addresses(text):
    with pytest.raises(ConfigError, match="no address"):
        Address.parse(text)


@pytest.mark.full
def test_what_a_tracker_has(settled):
    (queue,) = queues(settled.address, timeout=60.0)
    assert queue.key == KEY
    assert queue.free == 2
    assert [row.port for row in queue.servers] == sorted(s.address.port for s in settled.servers)


def test_servers_at_a_proxy_are_found_under_their_keys(impostor):
    document = {
        "server_info": [
            {"key": "server:proxy[board,phone]", "addr": ["10.0.0.1", 9090]},
            {"key": "server:board", "addr": ["10.0.0.2", 9091]},
        ],
        "queue_info": {"board": {"free": 4, "pending": 0}, "phone": {"free": 0, "pending": 1}},
    }
    board, phone = queues(impostor(framed([0, document])), timeout=60.0)
    assert [row.key for row in (board, phone)] == ["board", "phone"]
    assert [str(server) for server in board.servers] == ["10.0.0.1:9090", "10.0.0.2:9091"]
    assert [row.devices for row in (board, phone)] == [4, 1]
    assert board.proxied
    assert phone.proxied


@pytest.mark.full
def test_a_grant_is_for_one_of_the_servers(settled):
    grant = request(settled.address, KEY, priority=1, timeout=60.0)
    assert grant.address.port in {row.address.port for row in settled.servers}
    assert grant.key.startswith(KEY)


@pytest.mark.full
def test_a_free_server_answers_a_call(settled):
    state, seconds = probe_server(settled.servers[0].address, timeout=60.0)
    assert state is ServerState.FREE
    assert seconds < 60.0


def test_nobody_listens():
    address = Address(host="127.0.0.1", port=free_port())
    with pytest.raises(DeviceLostError, match="no tracker answers") as raised:
        queues(address, timeout=60.0)
    assert "chameleon serve" in raised.value.hint
    assert probe_server(address, timeout=60.0)[0] is ServerState.GONE


def test_a_tracker_that_greets_and_says_nothing_more(impostor, monkeypatch):
    greeting = [MAGIC]

    def receive(*_):
        if not greeting:
            raise TimeoutError
        return greeting.pop()

    monkeypatch.setattr(tracker, "_receive", receive)
    with pytest.raises(DeviceLostError, match="in time"):
        queues(impostor(MAGIC), timeout=60.0)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        MAGIC + struct.pack("<i", -5),
        MAGIC + struct.pack("<i", 1 << 30),
        MAGIC + struct.pack("<i", 4) + b"}{}{",
        framed([0, {}]),
        framed([0, {"server_info": [{"key": "server:a"}], "queue_info": {}}]),
        framed([0, {"server_info": [], "queue_info": ["key"]}]),
        framed([-1, None]),
        framed(7),
    ],
)
def test_not_a_tracker(impostor, answer):
    address = impostor(answer)
    with pytest.raises(TargetError) as raised:
        queues(address, timeout=0.3 if answer is None else 60.0)
    assert f"{address} is no tracker" in str(raised.value)
    assert raised.value.hint


@pytest.mark.full
def test_a_server_is_no_tracker(settled):
    with pytest.raises(TargetError, match="is no tracker"):
        queues(settled.servers[0].address, timeout=60.0)


def test_a_silent_server_counts_as_busy(impostor):
    assert probe_server(impostor(None), timeout=0.2)[0] is ServerState.BUSY
