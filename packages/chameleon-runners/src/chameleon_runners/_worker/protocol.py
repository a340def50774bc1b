"""Messages between a runner and its workers: JSON with a length and a checksum.

The checksum detects messages that a candidate damaged. The format is JSON and not pickle, so that a
damaged message runs no code.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from typing import Any

Message = dict[str, Any]

_HEADER = struct.Struct("!4sII")
_MAGIC = b"CHML"
_LARGEST = 64 << 20


class ProtocolError(Exception):
    """The bytes from a worker's pipe are not a valid message."""


def encode(message: Message) -> bytes:
    """The bytes of one message."""
    body = json.dumps(message).encode()
    return _HEADER.pack(_MAGIC, len(body), zlib.crc32(body)) + body


def send(descriptor: int, message: Message) -> None:
    """Write one message to a pipe."""
    data = memoryview(encode(message))
    while data:
        data = data[os.write(descriptor, data) :]


class Decoder:
    """Collects bytes, and returns complete messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Add bytes from a pipe, and return the messages that they complete."""
        self._buffer += data
        messages: list[Message] = []
        while len(self._buffer) >= _HEADER.size:
            magic, length, checksum = _HEADER.unpack_from(self._buffer)
            if magic != _MAGIC or length > _LARGEST:
                raise ProtocolError("a message starts with other bytes than it should")
            if len(self._buffer) < _HEADER.size + length:
                break
            body = bytes(self._buffer[_HEADER.size : _HEADER.size + length])
            del self._buffer[: _HEADER.size + length]
            if zlib.crc32(body) != checksum:
                raise ProtocolError("a message does not match its checksum")
            messages.append(_parse(body))
        return messages


def _parse(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except ValueError as error:
        raise ProtocolError("a message is not JSON") from error
    if not isinstance(message, dict):
        raise ProtocolError("a message is not an object")
    return message


def receive(descriptor: int, decoder: Decoder) -> list[Message] | None:
    """The messages that new bytes in a pipe complete; None if the pipe is closed."""
    data = os.read(descriptor, 1 << 16)
    return decoder.feed(data) if data else None
