"""The explorer does what every explorer must."""

from chameleon_testing.suites import ExplorerSuite
from hill_climb.hooks import RECORD


class TestHillClimb(ExplorerSuite):
    """With the defaults of its options."""

    record = RECORD


class TestSingleStart(ExplorerSuite):
    """From the best configuration alone."""

    record = RECORD
    options = {"starts": 1}
