"""How many threads compute: what the caller says, then variables, then the machine."""

import os

import pytest
from chameleon_networks._artifact.load import load
from chameleon_system._cores import usable_cores
from marks import full

from .conftest import THREADS, in_child

USABLE = len(usable_cores())


def _threads(folder, *, threads=0, cores=USABLE, **variables):
    def chosen():
        for name in ("NETWORK_NUM_THREADS", "OMP_NUM_THREADS"):
            os.environ.pop(name, None)
        os.environ.update(variables)
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        return int(load(folder.path, threads=threads).threads)

    return int(in_child(chosen))


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, min(THREADS, USABLE)),
        ({"OMP_NUM_THREADS": "1"}, 1),
        full({"OMP_NUM_THREADS": "1,4"}, 1),
        ({"OMP_NUM_THREADS": "500"}, USABLE),
        ({"OMP_NUM_THREADS": "many"}, min(THREADS, USABLE)),
        full({"OMP_NUM_THREADS": ""}, min(THREADS, USABLE)),
        full({"OMP_NUM_THREADS": "-3"}, min(THREADS, USABLE)),
        ({"NETWORK_NUM_THREADS": "5", "OMP_NUM_THREADS": "1"}, 5),
        ({"NETWORK_NUM_THREADS": "0", "OMP_NUM_THREADS": "1"}, 1),
        full({"NETWORK_NUM_THREADS": "99999999999999999999"}, 1024),
    ],
)
def test_variables_are_followed(called, variables, wanted):
    assert _threads(called, **variables) == wanted
    assert _threads(called, threads=3, **variables) == 3


def test_no_more_threads_than_cores_unless_somebody_says_so(called):
    assert _threads(called, cores=1) == 1
    assert _threads(called, cores=1, OMP_NUM_THREADS="4,2") == 1
    assert _threads(called, cores=1, NETWORK_NUM_THREADS="4") == 4
