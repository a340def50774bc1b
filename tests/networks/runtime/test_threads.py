"""Several threads in one network, and threads that are in a call while it is closed."""

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from chameleon_networks._artifact.load import load
from chameleon_networks._delivery.deliver import replace
from chameleon_networks._graph.relax_utils import relax
from marks import full

from ..graph.sequence.conftest import deliverer  # noqa: TID252 - its helpers
from ..modules import module_of  # noqa: TID252 - shared by folders
from .conftest import alone

RNG = np.random.default_rng(0)
CALLERS = 8


def together(actions):
    """Run actions at the same time, each in a thread; the errors of those that failed."""
    errors = []

    def work(action):
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - looked at by the caller
            errors.append(error)

    threads = [threading.Thread(target=work, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(240)
        assert not thread.is_alive()
    return errors


def inputs_of(network):
    """Inputs of different scale, so that a mix-up of callers shows."""
    [(_, shape, dtype, _)] = network.inputs
    return [
        (RNG.standard_normal(shape) * 10.0**scale).astype(dtype) for scale in range(-4, CALLERS - 4)
    ]


@pytest.mark.parametrize("kind", ["called", "interpreted"])
@pytest.mark.parametrize(("instances", "threads"), [(1, 2), (2, 3), (8, 1), (8, 2 * CALLERS)])
def test_callers_get_the_answers_of_their_own_inputs(kind, instances, threads, request):
    folder = request.getfixturevalue(kind)
    with load(folder.path, threads=threads, instances=instances) as network:
        inputs = inputs_of(network)
        wanted = [network(data) for data in inputs]

        def call(number):
            for _ in range(25):
                np.testing.assert_array_equal(network(inputs[number]), wanted[number])

        assert together([lambda number=n: call(number) for n in range(CALLERS)]) == []


def test_buckets_may_be_called_by_threads_first(bucketed):
    with np.load(bucketed.samples) as arrays:
        samples = [arrays[name] for name in arrays.files]
    with load(bucketed.path) as network:

        def call():
            for data, wanted in zip(samples[::2], samples[1::2], strict=True):
                np.testing.assert_array_equal(network(data), wanted)

        assert together([call] * CALLERS) == []
    with pytest.raises(RuntimeError, match="the network is closed"):
        network(samples[0])


@pytest.mark.parametrize("kind", ["called", "interpreted"])
def test_a_network_is_closed_while_threads_call_it(kind, request):
    folder = request.getfixturevalue(kind)
    for _ in range(5):
        network = load(folder.path, threads=2, instances=2)
        data, *_ = inputs_of(network)
        wanted = network(data)
        began = threading.Barrier(CALLERS + 1)

        def call(network=network, data=data, wanted=wanted):
            began.wait()  # noqa: B023 - of this turn
            while True:
                np.testing.assert_array_equal(network(data), wanted)

        def close(network=network):
            began.wait()  # noqa: B023 - of this turn
            network.close()
            network.close()

        errors = together([call] * CALLERS + [close])
        assert {str(error) for error in errors} == {"the network is closed"}
        assert {type(error) for error in errors} == {RuntimeError}


def _state():
    """Threads, file descriptors, mappings and memory of this process."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    counts = [len(list(Path("/proc/self", name).iterdir())) for name in ("task", "fd")]
    maps = len(Path("/proc/self/maps").read_text().splitlines())
    return counts[0], counts[1], maps, resident


@pytest.mark.parametrize("closing", [full("close"), full("with"), "forget"])
def test_nothing_is_left_of_closed_networks(called, closing):
    def use():
        network = load(called.path, threads=3, instances=2)
        network(data)
        if closing == "close":
            network.close()
        elif closing == "with":
            with network:
                pass

    with load(called.path) as network:
        data, *_ = inputs_of(network)
    del network
    for _ in range(20):
        use()
    before = _state()
    for _ in range(60):
        use()
    after = _state()
    assert after[:2] == before[:2]
    assert after[2] <= before[2] + 4
    assert after[3] <= before[3] + (4 << 20)


def test_a_folder_is_loaded_again_after_another_network_took_its_place(called, tmp_path):
    module = module_of(lambda emit, x: emit(relax.op.add(x, x)), ((3,), "float32"))
    newer = deliverer(tmp_path)(module)
    folder = called.copy(tmp_path / "network").path
    old = load(folder)
    data, *_ = inputs_of(old)
    wanted = old(data)
    replace(newer.folder, folder)
    # The system would take the library that it knows by this path.
    new = load(folder)
    np.testing.assert_array_equal(new(np.ones(3, np.float32)), np.full(3, 2, np.float32))
    np.testing.assert_array_equal(old(data), wanted)


DAEMON = """
import sys, threading, time
import numpy as np
sys.path.insert(0, sys.argv[1])
from load import load
network = load(threads=2)
data = np.load(sys.argv[2])["arr_0"]
def call():
    while True:
        network(data)
for _ in range(3):
    threading.Thread(target=call, daemon=True).start()
time.sleep(0.2)
"""


def test_a_process_may_end_while_threads_are_in_a_call(called):
    for _ in range(3):
        ended = alone(DAEMON, called.path, called.samples)
        assert (ended.returncode, ended.stderr) == (0, "")


RELATIVE = """
import os, pathlib, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
os.chdir(pathlib.Path(sys.argv[1]).parent)
from load import load
network = load(pathlib.Path(sys.argv[1]).name)
os.chdir("/")
with np.load(sys.argv[2]) as samples:
    arrays = [samples[name] for name in samples.files]
for data, wanted in zip(arrays[::2], arrays[1::2]):
    assert np.array_equal(network(data), wanted)
print(sorted(name for name in sys.modules if name in ("tvm", "torch")))
"""


@pytest.mark.parametrize("kind", ["called", "bucketed"])
def test_the_working_folder_may_change_after_loading(kind, request):
    folder = request.getfixturevalue(kind)
    ended = alone(RELATIVE, folder.path, folder.samples)
    assert (ended.stdout, ended.stderr) == ("[]\n", "")
