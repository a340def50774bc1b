"""Networks that change their buffers: each call takes a state, and changes it in place."""

import copy
import json
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from chameleon_cli._main import run as command_line
from chameleon_core._errors import ConfigError, ExitCode
from chameleon_networks._artifact.load import flat
from chameleon_networks._compile.sequence.library import plan_memory
from chameleon_networks._compile.sequence.state import state_pairs
from chameleon_networks._export.bundles import write_c_bundle
from chameleon_networks._importers.torch.inference import check_program
from chameleon_networks._importers.torch.lowering.importer import torch_graph
from marks import full

from ..graph.sequence.conftest import deliverer  # noqa: TID252 - its helpers
from . import stateful

STEPS = 5


def _steps(example, seed):
    """Inputs of calls: random floats, tokens, and positions that count up."""
    generator = torch.Generator().manual_seed(seed)
    for step in range(STEPS):
        first, *others = example
        if first.is_floating_point():
            yield torch.randn(first.shape, generator=generator), *(x - step % 2 for x in others)
        else:
            yield torch.randint(50, (1, 1), generator=generator), torch.tensor([step])


def _initial(network, module):
    """A new state with the numbers of the module's buffers, and the names of the compiler."""
    program = check_program(torch.export.export(*module))
    _, keywords = program.example_inputs
    arrays = [array.numpy().copy() for array in keywords["new_state"].values()]
    return dict(zip(network.new_state(), arrays, strict=True))


@pytest.fixture(scope="module")
def delivered(tmp_path_factory):
    """Loads a torch network that is compiled without tuned kernels, once."""
    deliver, known = deliverer(tmp_path_factory.mktemp("state")), {}

    def load(name):
        if name not in known:
            module, example = getattr(stateful, name)()
            graph = torch_graph(check_program(torch.export.export(module, example)))
            known[name] = deliver(graph.module), module, example
        return known[name]

    return load


def _agrees(got, wanted):
    wanted = (
        flat([tensor.numpy() for tensor in wanted])
        if isinstance(wanted, tuple)
        else [wanted.numpy()]
    )
    for ours, theirs in zip(flat(got), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    [
        *("recurrent", "rows", "viewed"),
        *(full(name) for name in ("running_mean", "exchanged", "window", "decoder")),
    ],
)
def test_calls_with_two_states_agree_with_two_modules(name, delivered):
    network, module, example = delivered(name)
    run = network.run
    modules = [copy.deepcopy(module) for _ in range(2)]
    states = [_initial(run, (module, example)) for _ in range(2)]
    arrays = [list(state.values()) for state in states]
    for turn in zip(_steps(example, 1), _steps(example, 2), strict=True):
        for own, state, inputs in zip(modules, states, turn, strict=True):
            with torch.no_grad():
                wanted = own(*inputs)
            _agrees(run(*inputs, state=state), wanted)
    for own, state, first in zip(modules, states, arrays, strict=True):
        assert all(x is y for x, y in zip(state.values(), first, strict=True))
        _agrees(list(state.values()), tuple(own.buffers()))


@pytest.mark.parametrize(("name", "copied"), [("rows", [-1]), full("decoder", [])])
def test_only_rows_of_a_cache_are_written(name, copied, delivered):
    network, _, _ = delivered(name)
    sequence = network.compiled.executable.sequence
    caches = {old.storage: old for old, _ in state_pairs(sequence)}
    whole = set()
    for call in sequence.calls:
        for written in call.writes:
            if written.storage in caches:
                assert written.storage not in {read.storage for read in call.reads}
                assert sum(read.size for read in call.reads) < 0.8 * written.storage.size
                assert len(call.writes) == 1
                whole.add(written.storage)
    # The earlier value of one cache is an output, so its new value is another tensor.
    assert [position for position in plan_memory(sequence).copies if position < 0] == copied
    assert len(whole) == len(caches) - len(copied)


@pytest.mark.full
def test_greedy_tokens_are_those_of_the_module(delivered):
    network, module, _ = delivered("decoder")
    own, state = copy.deepcopy(module), network.run.new_state()
    ours = theirs = np.array([[1]])
    for position in range(own.length):
        place = np.array([position])
        with torch.no_grad():
            wanted = own(torch.from_numpy(theirs), torch.from_numpy(place)).numpy()
        theirs, ours = (
            logits[:, -1:].argmax(-1) for logits in (wanted, network.run(ours, place, state=state))
        )
        assert ours == theirs


def test_threads_with_their_own_states_do_not_disturb_each_other(delivered):
    network, _, example = delivered("decoder")
    answers = {}

    def generate(seed):
        state = network.run.new_state()
        answers[seed] = [network.run(*inputs, state=state) for inputs in _steps(example, seed)]

    for seed in (1, 2, 3):
        generate(seed)
    alone = dict(answers)
    threads = [threading.Thread(target=generate, args=(seed,)) for seed in alone]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, outputs in alone.items():
        np.testing.assert_array_equal(answers[seed], outputs)


def test_a_state_that_does_not_fit_is_refused(delivered):
    network, _, example = delivered("recurrent")
    run, state = network.run, network.run.new_state()
    first = next(iter(state))
    with pytest.raises(ValueError, match=r"network.new_state\(\)"):
        run(*example)
    for array, words in (
        (np.zeros((1, 15), np.float32), r"float32 \[1, 16\].* not float32 \[1, 15\]"),
        (np.zeros((1, 16)), r"not float64 \[1, 16\]"),
        (torch.zeros(1, 16), "not Tensor"),
        (np.zeros((1, 32), np.float32)[:, ::2], "contiguous"),
        (np.frombuffer(bytes(64), np.float32).reshape(1, 16), "writable"),
    ):
        with pytest.raises(ValueError, match=words):
            run(*example, state={**state, first: array})
    with pytest.raises(ValueError, match="has the state"):
        run(*example, state={first: state[first]})
    assert not any(array.any() for array in state.values())


def test_an_input_may_be_a_part_of_the_state(delivered):
    network, _, _ = delivered("exchanged")
    run = network.run
    state, same = run.new_state(), run.new_state()
    for part in state, same:
        for array in part.values():
            array[:] = np.arange(4)
    part = next(iter(state.values()))[1:3]
    apart = run(part.copy(), state=same)
    for ours, theirs in zip(flat(run(part, state=state)), flat(apart), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_network_without_state_has_none_to_make(tmp_path):
    program = torch.export.export(torch.nn.Linear(3, 3), (torch.zeros(1, 3),))
    run = deliverer(tmp_path)(torch_graph(check_program(program)).module).run
    with pytest.raises(ValueError, match="no state"):
        run.new_state()


_LATER = """
import pickle, sys
import numpy as np
from running_mean.network import load

state, inputs = pickle.load(sys.stdin.buffer)
outputs = load()(*inputs, state=state)
sys.stdout.buffer.write(pickle.dumps((outputs, state)))
"""


@pytest.mark.full
def test_a_run_delivers_a_state_that_another_process_continues(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    source = f"{stateful.__file__}:running_mean"
    (tmp_path / "p.yaml").write_text(
        f"model: {{torch: {{source: '{source}', compare: false}}}}\n"
        "target: native\nbaselines: []\nbudget: {measurements: 0}\n"
    )
    assert command_line(["run", "p.yaml", "-o", "running_mean"]) == ExitCode.OK
    assert command_line(["verify", "running_mean", "--json", "--trust-source"]) == ExitCode.OK
    value = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert [output["name"] for output in value["outputs"]][1:] == ["mean", "variance", "count"]
    assert value["batches"] == 6
    monkeypatch.syspath_prepend(tmp_path)
    from running_mean.network import load  # noqa: PLC0415 - it has just been made

    network, (module, example) = load(), stateful.running_mean()
    state = network.new_state()
    assert [*state] == ["mean", "variance", "count"]
    for inputs in _steps(example, 1):
        _agrees(network(*inputs, state=state), module(*inputs))
    given = [array.numpy() for array in example]
    process = subprocess.run(
        [sys.executable, "-c", _LATER],
        input=pickle.dumps((state, given)),
        capture_output=True,
        check=True,
        cwd=tmp_path,
    )
    outputs, later = pickle.loads(process.stdout)  # noqa: S301 - of the process above
    _agrees(outputs, module(*example))
    _agrees(list(later.values()), tuple(module.buffers()))


def test_a_changed_tensor_that_is_no_buffer_is_refused():
    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cache = torch.zeros(3)

        def forward(self, x):
            self.cache.add_(x)
            return self.cache * 2

    with pytest.raises(ConfigError, match="register it as buffer"):
        check_program(torch.export.export(Hidden(), (torch.ones(3),)))


def test_a_bundle_for_c_refuses_a_state(delivered, tmp_path):
    network, _, _ = delivered("recurrent")
    with pytest.raises(ConfigError, match="calls change its state"):
        write_c_bundle(network.folder, tmp_path, "recurrent")
