"""Serves the page of a run while the run goes on, and updates the page as records change."""

from __future__ import annotations

import errno
import html
import json
import string
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Self

import attrs
import structlog
from chameleon_core.api import RunFile, RunView
from chameleon_core.plugin_api import ChameleonError, TargetError

from chameleon_bench._pages.run_page import page_of
from chameleon_bench._pages.run_record import run_record

log = structlog.get_logger()

_SHARE = 0.05
"""The share of one core that making pages may take, since kernels may be timed on this machine."""

_LOOK_SECONDS = 0.5
"""The least number of seconds between two looks at the folder."""

_FOLLOW = string.Template(Path(__file__).with_name("follow.html").read_text(encoding="utf-8"))


_PAGE = string.Template(
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>$title</title></head>\n'
    "<body><main><p>$said</p></main></body></html>\n"
)
"""The page that is served if the run's page cannot be made."""


@attrs.frozen(kw_only=True)
class Look:
    """The state of a run folder at the moment when it was read.

    Attributes:
        version: A string that changes whenever the contents of the page change.
        state: The state of the run; ``unreadable`` if its records cannot be read.
        ended: Whether no process works on the run any more.
        because: Why the run failed or cannot be read; otherwise empty.
    """

    version: str
    state: str
    ended: bool
    because: str = ""

    @property
    def sentence(self) -> str:
        """The state of the run as a sentence."""
        because = f": {self.because}" if self.because else ""
        return f"the run {'has ended:' if self.ended else 'is'} {self.state}{because}"


@attrs.frozen(kw_only=True)
class LivePage:
    """A page of a run that is kept to answer further requests without making it again.

    Attributes:
        version: The version of the run folder that the page shows.
        made_at: The time when the page was made, in seconds of a monotonic clock.
        cost: The seconds that making the page took.
    """

    version: str
    text: str
    made_at: float
    cost: float


class LiveRun:
    """A run folder whose page is served.

    Each look opens the records read-only and closes them, so that no lock stays.

    Args:
        clock: A monotonic clock in seconds.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._making = threading.Lock()
        self._looking = threading.Lock()
        self._looked: tuple[float, Look] | None = None
        self._page: LivePage | None = None

    def look(self) -> Look:
        """The current state of the run folder."""
        with self._looking:
            now = self._clock()
            if self._looked is None or now - self._looked[0] >= _LOOK_SECONDS:
                self._looked = (now, _look(self._folder))
            return self._looked[1]

    def version(self) -> str:
        """The version of the page that the browser would get now."""
        page, look = self._page, self.look()
        return page.version if page is not None and not self._due(page, look) else look.version

    def page(self) -> str:
        """The HTML of the run's page, made again if the run has changed."""
        with self._making:
            look = self.look()
            if self._page is None or self._due(self._page, look):
                started = self._clock()
                text = _made(self._folder, look)
                now = self._clock()
                self._page = LivePage(
                    version=look.version, text=text, made_at=now, cost=now - started
                )
            return self._page.text

    def _due(self, page: LivePage, look: Look) -> bool:
        if page.version == look.version:
            return False
        # Making a page cannot disturb a run that has ended.
        return look.ended or self._clock() - page.made_at >= page.cost / _SHARE


def _look(folder: Path) -> Look:
    try:
        with RunView(folder) as run:
            standing = run.standing
            state = (standing.state, run.store.measured, run.seconds, _written(folder))
    except ChameleonError as error:
        return Look(
            version=f"unreadable {error}", state="unreadable", ended=False, because=str(error)
        )
    return Look(
        version=" ".join(map(str, state)),
        state=str(standing.state),
        ended=standing.ended,
        because=standing.because,
    )


def _written(folder: Path) -> tuple[int, int]:
    """Numbers that change if the event log grows or if another run replaces the run."""
    try:
        return (folder / RunFile.EVENTS).stat().st_size, (folder / RunFile.RECORDS).stat().st_ino
    except OSError:
        return 0, 0


def _made(folder: Path, look: Look) -> str:
    said = ""
    try:
        text = str(page_of(run_record(folder)))
    except ChameleonError as error:
        said = str(error)
    except Exception as error:
        # Any program may have written the records. The error becomes a page too, because only a
        # page reloads itself.
        log.exception("run_page_not_made", run=str(folder))
        said = f"the page cannot be made: {type(error).__name__}: {error}"
    if said:
        text = _PAGE.substitute(title=html.escape(folder.name), said=html.escape(said))
    added = _FOLLOW.substitute(version=html.escape(look.version, quote=True))
    head, end, tail = text.rpartition("</body>")
    return f"{head}{added}{end}{tail}" if end else f"{text}{added}"


LOOPBACK = "127.0.0.1"

_NAMES = (LOOPBACK, "localhost")
"""The host names that the server accepts in the header ``Host``.

Any other name may belong to another web page that points its own name to this machine, to read the
run's page (DNS rebinding).
"""

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class PageServer:
    """Serves a run's page on this machine's loopback address, as a context manager."""

    def __init__(self, run: LiveRun, *, port: int = 0) -> None:
        handler = type("_RunHandler", (_Handler,), {"run": run})
        try:
            self._server = _Server((LOOPBACK, port), handler)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            why = "another program listens on it" if in_use else error.strerror or error
            raise TargetError(
                f"cannot serve on port {port} of {LOOPBACK}: {why}",
                hint="Name another port with --port, or use --port 0 for any free port.",
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def port(self) -> int:
        """The port of the server."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The address to open in a browser."""
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
    # On Linux, a port can then be reused right after another server has closed it, but not before.
    allow_reuse_address = True
    # Newer versions of Python would share the port with another server of the same user.
    allow_reuse_port = False

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class has them
        """Log an error in a request, unless the browser only closed the connection."""
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            log.warning("request_failed", error=f"{type(error).__name__}: {error}")


class _Handler(BaseHTTPRequestHandler):
    run: ClassVar[LiveRun]
    server_version = "chameleon"
    sys_version = ""
    timeout = 30
    """Seconds after which a silent connection is closed."""

    def do_GET(self) -> None:
        if not self._asked_by_name():
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this is not the host that was asked for")
            return
        path = self.path.partition("?")[0]
        if path == "/":
            self._answer(HTTPStatus.OK, "text/html; charset=utf-8", self.run.page())
        elif path == "/state":
            look = self.run.look()
            state = {"state": look.state, "ended": look.ended, "sentence": look.sentence}
            state["version"] = self.run.version()
            self._answer(HTTPStatus.OK, "application/json", json.dumps(state))
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
        """Answer a request that failed with one line of text."""
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
        """Log a request for debugging only, because stderr is for the command's own messages."""
        log.debug("request_answered", request=format % args)
