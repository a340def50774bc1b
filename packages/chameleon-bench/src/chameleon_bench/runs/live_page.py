"""The page of a run as it is served while the run goes on: made anew as its records change."""

from __future__ import annotations

import html
import string
import threading
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import structlog
from chameleon_core.errors import ChameleonError
from chameleon_core.run_folder import EVENTS, RECORDS
from chameleon_core.run_view import RunView

from chameleon_bench.pages.run_page import page_of
from chameleon_bench.pages.run_record import run_record

log = structlog.get_logger()

_SHARE = 0.05
"""Of one core, what making pages may take: kernels are timed on the same machine."""

_LOOK_SECONDS = 0.5
"""The folder is looked at no more often, however many pages are open."""

_FOLLOW = string.Template(Path(__file__).with_name("follow.html").read_text(encoding="utf-8"))


_PAGE = string.Template(
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>$title</title></head>\n'
    "<body><main><p>$said</p></main></body></html>\n"
)
"""Takes the place of a page that cannot be made."""


@attrs.frozen(kw_only=True)
class Look:
    """What a look at a run folder says.

    Attributes:
        version: of what a page would show; another one where that has changed.
        state: how far the run is; ``unreadable`` where its records cannot be read.
        ended: whether no process works on it.
        because: why it failed, or cannot be read; else empty.
    """

    version: str
    state: str
    ended: bool
    because: str = ""

    @property
    def sentence(self) -> str:
        """The state of the run in words."""
        because = f": {self.because}" if self.because else ""
        return f"the run {'has ended:' if self.ended else 'is'} {self.state}{because}"


@attrs.frozen(kw_only=True)
class LivePage:
    """A page that was made.

    Attributes:
        version: of what it shows.
        text: the page.
        made_at: when it was made, on the monotonic clock, in seconds.
        cost: seconds that making it took.
    """

    version: str
    text: str
    made_at: float
    cost: float


class LiveRun:
    """A run folder that is looked at, and never written to.

    Each look opens the records for reading alone and closes them again, so that no lock outlives
    it; a reader of a write-ahead log never waits for its writer nor makes it wait. Safe for
    several threads.

    Args:
        folder: the run's.
        clock: seconds that only grow.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._making = threading.Lock()
        self._looking = threading.Lock()
        self._looked: tuple[float, Look] | None = None
        self._page: LivePage | None = None

    def look(self) -> Look:
        """How far the run is now."""
        with self._looking:
            now = self._clock()
            if self._looked is None or now - self._looked[0] >= _LOOK_SECONDS:
                self._looked = (now, _look(self._folder))
            return self._looked[1]

    def version(self) -> str:
        """Of the page that one gets now; the last one's until another may be made."""
        page, look = self._page, self.look()
        return page.version if page is not None and not self._due(page, look) else look.version

    def page(self) -> str:
        """The page, made anew where the run has changed and enough time has passed."""
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
        # A run that has ended is not disturbed any more.
        return look.ended or self._clock() - page.made_at >= page.cost / _SHARE


def _look(folder: Path) -> Look:
    try:
        with RunView(folder) as run:
            standing = run.standing
            told = (standing.state, run.store.measured, run.seconds, _written(folder))
    except ChameleonError as error:
        return Look(
            version=f"unreadable {error}", state="unreadable", ended=False, because=str(error)
        )
    return Look(
        version=" ".join(map(str, told)),
        state=str(standing.state),
        ended=standing.ended,
        because=standing.because,
    )


def _written(folder: Path) -> tuple[int, int]:
    """What tells one state of the event log, or another run in the same folder."""
    try:
        return (folder / EVENTS).stat().st_size, (folder / RECORDS).stat().st_ino
    except OSError:
        return 0, 0


def _made(folder: Path, look: Look) -> str:
    said = ""
    try:
        text = str(page_of(run_record(folder)))
    except ChameleonError as error:
        said = str(error)
    except Exception as error:
        # Records may be anybody's. A page without what loads it again would stay for good.
        log.exception("the page of a run cannot be made", run=str(folder))
        said = f"the page cannot be made: {type(error).__name__}: {error}"
    if said:
        text = _PAGE.substitute(title=html.escape(folder.name), said=html.escape(said))
    added = _FOLLOW.substitute(version=html.escape(look.version, quote=True))
    head, end, tail = text.rpartition("</body>")
    return f"{head}{added}{end}{tail}" if end else f"{text}{added}"
