"""Stops runs after so much was measured, as a user's signal does."""

import pytest
from chameleon_core._loop.interruption import Interruption, RunInterrupted
from chameleon_core._loop.run import run_pipeline
from chameleon_core.plugin_api import hookimpl


class StopAfter:
    """Asks a run to stop after so many measurements or batches; never, if neither is given.

    With ``here``, the runner is told in this thread: where the clock is virtual, it has no other.
    """

    def __init__(self, measurements=None, *, batches=None, here=False):
        self.interruption = Interruption()
        self._left = {"measurements": measurements, "batches": batches}
        self._localize = here

    @hookimpl
    def chameleon_measured(self, event):
        self._count("measurements")

    @hookimpl
    def chameleon_batch_measured(self, event):
        self._count("batches")

    def _count(self, what):
        if self._left[what] is not None:
            self._left[what] -= 1
            if self._left[what] == 0:
                self.interruption.request()
                if self._localize:
                    self.interruption.soft()


def interrupted(pipeline, stop, *listeners):
    """Run a pipeline that is stopped before its end, and return the error that says so."""
    with pytest.raises(RunInterrupted) as caught:
        run_pipeline(pipeline, listeners=[*listeners, stop], interruption=stop.interruption)
    return caught.value
