"""Serves the page of a run to browsers on this machine, and to nobody else."""

from __future__ import annotations

import errno
import json
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self

import structlog
from chameleon_core.errors import TargetError

from chameleon_bench.runs.live_page import LiveRun

log = structlog.get_logger()

LOOPBACK = "127.0.0.1"

_NAMES = (LOOPBACK, "localhost")
"""Hosts that a browser on this machine asks for. With any other name in the header ``Host``, a
page of somebody else's has had its own name point here (DNS rebinding), to read what is served."""

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class PageServer:
    """Serves a run's page on loopback while this context lasts.

    Args:
        run: what is served.
        port: 0 for any that is free.

    Raises:
        TargetError: nothing can listen on the port.
    """

    def __init__(self, run: LiveRun, *, port: int = 0) -> None:
        handler = type("_RunHandler", (_Handler,), {"run": run})
        try:
            self._server = _Server((LOOPBACK, port), handler)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = "another program listens on it" if taken else error.strerror or error
            raise TargetError(
                f"cannot serve on port {port} of {LOOPBACK}: {why}",
                hint="Name another with --port, or --port 0 for any that is free.",
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        """The port."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """What to open in a browser."""
        return f"http://{LOOPBACK}:{self.port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # On Linux this lets a port be taken again right after it was given back, never one in use.
    allow_reuse_address = True
    # Newer versions of Python would share a port with another server of the same user's.
    allow_reuse_port = False

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - its
        """Log what went wrong; a browser that closes its connection is nothing to tell."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            log.warning("a request failed", error=f"{type(error).__name__}: {error}")


class _Handler(BaseHTTPRequestHandler):
    run: ClassVar[LiveRun]
    server_version = "chameleon"
    sys_version = ""
    timeout = 30
    """Seconds after which a connection that says nothing is closed."""

    def do_GET(self) -> None:
        if not self._asked_by_name():
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this is not the host that was asked for")
            return
        path = self.path.partition("?")[0]
        if path == "/":
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", self.run.page())
        elif path == "/state":
            look = self.run.look()
            told = {"state": look.state, "ended": look.ended, "sentence": look.sentence}
            told["version"] = self.run.version()
            self._answer(HTTPStatus.OK, "application/json", json.dumps(told))
        elif path == "/favicon.ico":  # browsers ask for it and count a refusal as an error
            self._answer(HTTPStatus.NO_CONTENT, "image/x-icon", "")
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is nothing but / and /state")

    do_HEAD = do_GET  # noqa: N815 - the name that http.server calls
    """Answers with headers alone; ``_answer`` knows."""

    def _asked_by_name(self) -> bool:
        host = self.headers.get_all("Host") or []
        port = self.server.server_address[1]  # type: ignore[index]
        return len(host) == 1 and host[0].lower() in {f"{name}:{port}" for name in _NAMES}

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse in one line of text.

        ``http.server`` answers 501 to a method that has no function here; 405 says which have.
        """
        del explain
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD", Allow="GET, HEAD")
        else:
            self._refuse(HTTPStatus(code), message or "")

    def _refuse(self, status: HTTPStatus, why: str, **headers: str) -> None:
        self._answer(status, "text/plain; charset=utf-8", f"{why}\n", **headers)

    def _answer(self, status: HTTPStatus, kind: str, text: str, **headers: str) -> None:
        content = text.encode()
        self.send_response(status)
        named = {"Content-Type": kind, "Content-Length": str(len(content)), **_HEADERS, **headers}
        for name, value in named.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Log requests for who debugs; stderr belongs to what the command says."""
        log.debug("request", what=format % args)
