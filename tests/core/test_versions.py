"""The distributions of what a process has imported."""

import sys
from importlib import metadata

from chameleon_core import _versions as versions


def test_they_are_those_that_the_standard_library_finds_in_a_longer_time():
    names = {name.partition(".")[0] for name in sys.modules}
    brings = metadata.packages_distributions()
    assert versions.imported() == sorted({one for name in names for one in brings.get(name, ())})
    assert {"attrs", "numpy", "pytest"} <= set(versions.imported())
