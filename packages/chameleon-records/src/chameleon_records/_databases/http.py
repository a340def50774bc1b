"""Records over HTTP, read-only: an exported file, or a folder with its index."""

from __future__ import annotations

import http.client
import time
import urllib.request

import structlog

from chameleon_records._databases.parts import INDEX, SUFFIX, InMemoryDatabase, check_part, parts_of
from chameleon_records._format import RecordsError, Table, load

log = structlog.get_logger()

TIMEOUT = 10.0
"""Seconds after which a server that sends nothing counts as failed."""

TOTAL_TIMEOUT = 60.0
"""Largest number of seconds for one file, because a slow server may send single bytes for ever."""

LARGEST_BYTES = 256 << 20
"""Largest number of bytes to read: much more than any real database has, but safe for the
memory."""

_CHUNK = 1 << 16


def http_records(url: str) -> InMemoryDatabase:
    """Read the records at the URL of an exported file or of a folder."""
    table = Table()
    if url.endswith(SUFFIX):
        table.merge(load(_read(url, LARGEST_BYTES), url))
        return InMemoryDatabase(url, table)
    base = url.rstrip("/")
    left = LARGEST_BYTES
    for name in parts_of(_read(f"{base}/{INDEX}", left), f"{base}/{INDEX}"):
        address = f"{base}/{name}"
        try:
            content = check_part(name, _read(address, left), address)
            table.merge(load(content, address))
        except RecordsError as error:
            log.warning("records_left_out", part=address, problem=str(error))
            continue
        left -= len(content)
    return InMemoryDatabase(url, table)


def _read(url: str, most: int) -> bytes:
    request = urllib.request.Request(url, headers={"User-Agent": "chameleon"})  # noqa: S310 - the scheme is checked
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:  # noqa: S310
            content = _content(response, most)
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise RecordsError(
            f"cannot read {url}: {reason}",
            hint="See that the server is up and that the URL is right; a run goes on without it.",
        ) from error
    if len(content) > most:
        raise RecordsError(
            f"{url} is larger than {LARGEST_BYTES >> 20} MiB", hint="Prune what is hosted there."
        )
    return content


def _content(response: http.client.HTTPResponse, most: int) -> bytes:
    """The content of a server's answer, at most one byte more than ``most``."""
    ends, content = time.monotonic() + TOTAL_TIMEOUT, bytearray()
    while len(content) <= most and (chunk := response.read1(_CHUNK)):
        content += chunk
        if time.monotonic() > ends:
            raise TimeoutError(f"it was not whole after {TOTAL_TIMEOUT:.0f} s")
    return bytes(content)
