"""Child processes of a process that has a network loaded."""

import copy
import threading

import numpy as np
import pytest
from chameleon_networks._artifact.load import load

from .conftest import alone, in_child
from .test_threads import inputs_of


@pytest.mark.parametrize("instances", [1, 3])
def test_parent_and_child_go_on(called, instances):
    with load(called.path, threads=2, instances=instances) as network:
        data, *_ = inputs_of(network)
        wanted = network(data)

        def call():
            return all(np.array_equal(network(data), wanted) for _ in range(5))

        assert in_child(call) == "True"
        assert call()
        # A child of a child, and one that closes what it inherited.
        assert in_child(lambda: in_child(call)) == "True"
        assert in_child(network.close) == "None"
        assert call()


@pytest.mark.full
def test_forks_in_the_middle_of_other_threads_calls(called):
    with load(called.path, threads=2, instances=2) as network:
        inputs = inputs_of(network)
        wanted = [network(data) for data in inputs]
        ending = threading.Event()
        wrong = []

        def busily(number):
            while not ending.is_set():
                if not np.array_equal(network(inputs[number]), wanted[number]):
                    wrong.append(number)

        def call():
            pairs = list(zip(inputs, wanted, strict=True)) * 3
            same = all(np.array_equal(network(data), array) for data, array in pairs)
            network.close()
            return same

        callers = [threading.Thread(target=busily, args=(number,)) for number in range(4)]
        for caller in callers:
            caller.start()
        try:
            assert {in_child(call) for _ in range(30)} == {"True"}
        finally:
            ending.set()
            for caller in callers:
                caller.join()
        assert wrong == []


def test_a_fork_while_a_bucket_is_loaded(bucketed):
    with np.load(bucketed.samples) as arrays:
        data, wanted = (arrays[name] for name in arrays.files[:2])
    network = load(bucketed.path)
    assert np.array_equal(copy.copy(network)(data), wanted)
    network._loading.acquire()  # as a thread that loads holds it
    assert in_child(lambda: np.array_equal(network(data), wanted)) == "True"


def test_a_fork_after_a_network_is_closed(called):
    network = load(called.path)
    network.close()
    assert (
        in_child(lambda: network(*inputs_of(network)[:1])) == "RuntimeError: the network is closed"
    )


def test_tvm_s_virtual_machine_says_that_it_does_not_survive(interpreted):
    network = load(interpreted.path)
    data, *_ = inputs_of(network)
    wanted = network(data)
    for action in (lambda: network(data), lambda: load(interpreted.path)):
        said = in_child(action)
        assert said.startswith("RuntimeError: TVM's virtual machine runs this network and does not")
    assert in_child(network.close) == "None"
    np.testing.assert_array_equal(network(data), wanted)


SCRIPT = """
import multiprocessing, runpy, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from load import load
with np.load(sys.argv[2]) as samples:
    data, wanted = (samples[name] for name in samples.files[:2])
if __name__ == "__main__":
    network = load()
    unnamed = runpy.run_path(sys.argv[1] + "/load.py")["load"]()
def inherited(_):
    return np.array_equal(network(data), wanted)
def loaded(_):
    return np.array_equal(load()(data), wanted)
def answer(pickled):
    return pickled(data)
if __name__ == "__main__":
    for way, function in (("fork", inherited), ("fork", loaded), ("spawn", loaded)):
        with multiprocessing.get_context(way).Pool(2) as pool:
            assert all(pool.map(function, range(4)))
            for sent in (network, unnamed):
                assert np.array_equal(pool.apply(answer, (sent,)), wanted)
    assert inherited(0)
"""


def test_pools_of_processes_of_either_kind(called, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ended = alone(script, called.path, called.samples)
    assert (ended.returncode, ended.stderr) == (0, "")
