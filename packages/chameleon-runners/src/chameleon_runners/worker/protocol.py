"""Messages between runner and worker: JSON with a length and a checksum.

JSON rather than pickle, and a checksum. The writer shares a process with candidates that may
scribble over memory or file descriptors: the reader must notice, and run no code.
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
    """Bytes came through the pipe that are no message."""


def encode(message: Message) -> bytes:
    """The bytes of one message."""
    body = json.dumps(message).encode()
    return _HEADER.pack(_MAGIC, len(body), zlib.crc32(body)) + body


def send(descriptor: int, message: Message) -> None:
    """Write one message completely.

    Raises:
        OSError: nobody reads any more.
    """
    data = memoryview(encode(message))
    while data:
        data = data[os.write(descriptor, data) :]


class Decoder:
    """Collects bytes and hands out whole messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Add bytes and return the messages they complete.

        Raises:
            ProtocolError: the bytes are not a message.
        """
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
    """Wait for bytes and return the messages they complete; None at the end of the stream."""
    data = os.read(descriptor, 1 << 16)
    return decoder.feed(data) if data else None
