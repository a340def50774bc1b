"""A network as it was read, and its framework's answers, are kept on a machine and recalled."""

import json
import signal
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import attrs
import numpy as np
import onnx
import pytest
import torch
from chameleon_core._errors import ChameleonError, ConfigError
from chameleon_core.plugin_api import Delivery
from chameleon_networks._checks.check import CheckReport
from chameleon_networks._comparison import baselines
from chameleon_networks._compile import compile  # noqa: A004 - the name of a module
from chameleon_networks._compile.unsupported_operator import empty_kernels
from chameleon_networks._delivery.delivery_steps import DeliverySteps
from chameleon_networks._evaluation import network_cache
from chameleon_networks._evaluation.messages import (
    describe_network,
    network_from,
    read_arrays,
    write_arrays,
)
from chameleon_networks._evaluation.network_cache import NetworkCache, ReferenceOutputs, cache_of
from chameleon_networks._evaluation.processes import PendingImport, importer_process
from chameleon_networks._frontends import network as network_frontend
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.relax_utils import extract_constants, relax, restore_constants, tvm
from chameleon_networks._importers.onnx import models
from chameleon_networks._importers.options import BuiltinOptions, OnnxOptions, TorchOptions
from chameleon_networks._importers.sources import (
    BuiltinNetwork,
    OnnxNetwork,
    TorchNetwork,
    network_of,
)
from chameleon_networks._importers.torch import programs
from chameleon_system import _disk_cache as kept_files
from chameleon_tvm._quick_tvm import tirx
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions
from structlog.testing import capture_logs

from ..modules import module_of  # noqa: TID252 - shared by folders
from ..onnx_files import onnx_file  # noqa: TID252 - shared by folders

SMALL = BuiltinOptions(network="resnet_small")


@pytest.fixture
def unmeasured(forked_networks, target, tmp_path):
    """A delivery with what there is before anything is measured."""
    return Delivery(
        target=target,
        winners=(),
        space=AutoSpace(AutoOptions()),
        folder=tmp_path / "network",
        threads=1,
    )


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_large_constants_keep_their_dtype(dtype):
    numbers = np.linspace(0, 2**40, 2000).astype(dtype)
    module = module_of(lambda _emit, _x: relax.op.negative(relax.const(numbers, dtype)), (1,))
    again = restore_constants(*extract_constants(module))
    tvm.ir.assert_structural_equal(again, module)


def kept_under(name):
    return NetworkCache((kept_files.user_cache_folder() / "networks") / name)


def keeping(network):
    """A network that keeps its graph, as a run reads it."""
    network.kept = cache_of(network)
    return network


def test_a_second_process_reads_the_same_network_without_torch(monkeypatch):
    read = keeping(BuiltinNetwork(SMALL))
    samples = read.samples(np.random.default_rng(0))
    read.keep()
    monkeypatch.setattr(programs, "builtin_program", None)  # calling it fails
    again = keeping(BuiltinNetwork(SMALL))
    assert again.input_names() == read.input_names()
    assert again.half is None
    [ours], [theirs] = again.samples(np.random.default_rng(0)), samples
    np.testing.assert_array_equal(ours, theirs)
    assert str(again.imported) == str(read.imported)
    assert again.graph.locations == read.graph.locations
    assert again.graph.operators == read.graph.operators
    pairs = [find_fusions(prepare_module(network.imported, "NHWC")) for network in (again, read)]
    for one, other in zip(*pairs, strict=True):
        assert one.spec == other.spec
        for mine, same in zip(one.constants.arrays, other.constants.arrays, strict=True):
            np.testing.assert_array_equal(mine, same)


def test_options_that_make_another_network_have_files_of_their_own():
    keeping(BuiltinNetwork(SMALL)).keep()
    for change, same in (
        ({"compare": False}, True),
        ({"layout": "NCHW"}, True),
        ({"batch": 2}, False),
    ):
        kept = cache_of(BuiltinNetwork(attrs.evolve(SMALL, **change)))
        assert (kept.graph() is not None) is same, change


def test_changed_bytes_and_changed_code_make_another_network(tmp_path, monkeypatch):
    file = tmp_path / "network.pt2"
    options = TorchOptions(source=str(file))

    def saved(width):
        program = torch.export.export(torch.nn.Linear(8, width), (torch.zeros(1, 8),))
        torch.export.save(program, file)
        return keeping(TorchNetwork(options))

    saved(4).keep()
    known = cache_of(TorchNetwork(options))
    assert known.graph() is not None
    changed = cache_of(saved(5))
    assert changed.graph() is None
    saved(4).keep()
    monkeypatch.setattr(network_cache, "_cache_key", lambda: ["another version"])
    updated = cache_of(TorchNetwork(options))
    assert updated.graph() is None


def test_the_bytes_of_an_onnx_file_and_of_its_external_data_name_its_network(tmp_path, monkeypatch):
    text = (
        "(float[1, 8, 6, 6] x) => (float[1, 16, 6, 6] y) { y = Conv <pads = [1, 1, 1, 1]> (x, w) }"
    )
    rng = np.random.default_rng(0)
    file = onnx_file(tmp_path / "one.onnx", text, w=rng.standard_normal((16, 8, 3, 3), np.float32))
    outside = tmp_path / "outside.onnx"
    onnx.save(onnx.load(file), outside, save_as_external_data=True, location="w", size_threshold=0)

    def network(path):
        return keeping(OnnxNetwork(OnnxOptions(source=str(path))))

    reads = {path: network(path) for path in (file, outside)}
    for read in reads.values():
        read.keep()
    monkeypatch.setattr(models, "onnx_graph", None)  # calling it fails
    for path, read in reads.items():
        again = network(path)
        assert str(again.imported) == str(read.imported)
        assert again.input_names() == ["x"]
        [ours], [theirs] = (n.samples(np.random.default_rng(0)) for n in (again, read))
        np.testing.assert_array_equal(ours, theirs)
        [one], [other] = (find_fusions(prepare_module(n.imported, "NCHW")) for n in (again, read))
        np.testing.assert_array_equal(one.constants.arrays[0], other.constants.arrays[0])
    assert reads[file].origin != reads[outside].origin
    (tmp_path / "w").write_bytes(bytes(16 * 8 * 3 * 3 * 4))
    assert network(outside).kept.graph() is None
    (tmp_path / "w").unlink()
    assert network(outside).kept is None


def test_nothing_is_kept_of_code_of_the_user_nor_without_a_check():
    assert cache_of(network_of(TorchOptions(source="net.py:make"))) is None
    assert cache_of(network_of(TorchOptions(source="missing.pt2"))) is None
    assert cache_of(network_of(attrs.evolve(SMALL, check=False))) is None


def test_answers_are_those_of_the_same_inputs():
    kept, rng = kept_under("a network"), np.random.default_rng(0)
    samples = [[rng.standard_normal((2, 3))] for _ in range(2)]
    outputs = [[2 * inputs[0], inputs[0][:1]] for inputs in samples]
    assert kept.answers(samples) is None
    kept.store_outputs(ReferenceOutputs(reference="torch", outputs=outputs), samples)
    known = kept_under("a network").answers(samples)
    assert (known.reference, known.day is None) == ("torch", False)
    np.testing.assert_equal(known.outputs, outputs)
    assert kept.answers([[samples[0][0] + 1], samples[1]]) is None
    assert kept_under("another network").answers(samples) is None


def test_a_damaged_file_is_as_none():
    read = keeping(BuiltinNetwork(SMALL))
    read.keep()
    [arrays] = (kept_files.user_cache_folder() / "networks").glob("*/graph.arrays")
    content = arrays.read_bytes()
    for size in (len(content) // 2, 0):
        arrays.write_bytes(content[:size])
        assert read.kept.graph() is None
    arrays.write_bytes(content)
    arrays.with_suffix(".json").write_text("{")
    assert read.kept.graph() is None


def test_those_used_least_recently_make_room(monkeypatch):
    for name in ("first", "second"):
        kept_under(name).keep_fact("value", name)
    monkeypatch.setattr(kept_files, "_LARGEST_CACHE", 1)
    kept_under("third").keep_fact("value", "third")
    known = [kept_under(name).fact("value") for name in ("first", "second", "third")]
    assert [fact and fact[0] for fact in known] == [None, None, "third"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    kept = kept_under("a network")
    kept.keep_fact("value", 1)
    assert kept.fact("value") is None


@pytest.mark.full
def test_a_later_delivery_is_compared_with_the_answers_of_the_first_one(unmeasured, monkeypatch):
    options = attrs.evolve(SMALL, compare=False)

    def delivered():
        return NetworkFrontend(BuiltinNetwork(options)).deliver(unmeasured)

    first = delivered()
    assert (first.failure, first.reference, first.reference_day) == (None, "torch", None)
    monkeypatch.setattr(baselines, "framework_process", None)  # calling it fails
    again = delivered()
    assert (again.failure, again.reference, again.reference_day is None) == (None, "torch", False)
    assert again.max_relative_error == first.max_relative_error
    [file] = (kept_files.user_cache_folder() / "networks").glob("*/answers-*.arrays")
    write_arrays(file, [1.5 * array for array in read_arrays(file)])
    last = delivered()  # torch in float64 decides
    assert last.failure is None
    assert "torch is wrong: torch float64 agrees with the network" in last.disagreement
    assert last.max_relative_error < 1e-5


@pytest.mark.full
def test_a_delivery_is_compared_with_the_answers_of_the_check(unmeasured, monkeypatch):
    frontend = NetworkFrontend(BuiltinNetwork(attrs.evolve(SMALL, compare=False)))
    frontend.check(unmeasured.target, unmeasured.threads, None)
    monkeypatch.setattr(baselines, "framework_process", None)  # calling it fails
    result = frontend.deliver(unmeasured)
    assert (result.failure, result.reference, result.reference_day) == (None, "torch", None)


def test_a_network_is_checked_once_on_a_machine(monkeypatch, target):
    checked = []

    def tried(*arguments):
        checked.append(arguments[1:])
        return CheckReport(layout="NHWC", max_relative_error=1e-7, reference="torch")

    monkeypatch.setattr(network_frontend, "tried", tried)
    first = NetworkFrontend(BuiltinNetwork(SMALL)).check(target, 2, None)
    second = NetworkFrontend(BuiltinNetwork(SMALL)).check(target, 2, None)
    assert len(checked) == 1
    assert "earlier run" not in first["summary"]
    assert f"an earlier run saw on {second['day']}" in second["summary"]
    NetworkFrontend(BuiltinNetwork(SMALL)).check(target, 1, None)
    unknown = SimpleNamespace(origin=None, options=TorchOptions(source="net.py:f"), layout="NHWC")
    for _ in range(2):
        NetworkFrontend(unknown).check(target, 2, None)
    assert len(checked) == 4


def test_a_network_is_checked_again_after_a_crash(monkeypatch, target):
    reports = [CheckReport(layout="NCHW", refused={"NHWC": "SIGKILL"}, crashed=True)]
    reports += [CheckReport(layout="NHWC"), None]
    monkeypatch.setattr(network_frontend, "tried", lambda *_: reports.pop(0))
    layouts = [
        NetworkFrontend(BuiltinNetwork(SMALL)).check(target, 2, None)["layout"] for _ in "abc"
    ]
    assert (layouts, reports) == (["NCHW", "NHWC", "NHWC"], [None])


def test_the_same_functions_are_compiled_once_on_a_machine(tiny, tmp_path, monkeypatch, target):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    module = prepare_module(tiny.imported, "NCHW")
    fusions, none = find_fusions(module), empty_kernels(target)

    def objects():
        return compile.compile_network(module, fusions, none, target).executable.kernels()

    first = objects()
    monkeypatch.setattr(compile.tvm, "compile", None)  # calling it fails
    assert objects() == first
    [file] = (kept_files.user_cache_folder() / compile.OBJECT_CACHE).iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(TypeError):
        objects()
    file.write_bytes(whole)
    assert objects() == first
    monkeypatch.setattr(compile, "_cache_key", lambda: ["another version"])
    with pytest.raises(TypeError):
        objects()


def test_functions_that_differ_in_the_order_of_arguments_are_kept_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    a, b = (tirx.decl_buffer([8], "float32", name) for name in ("a", "b"))
    i = tirx.Var("i", "int32")

    copied = tirx.BufferStore(b, tirx.BufferLoad(a, [i]), [i])
    body = tirx.For(i, 0, 8, tirx.ForKind.SERIAL, copied)
    for number, parameters in enumerate(([a, b], [a, b], [b, a], [b, a], [a, b])):
        functions = {"copy": tirx.PrimFunc(parameters, body)}
        order = b"a to b" if parameters[0] is a else b"b to a"
        # Only if the order changed, they are compiled.
        compiles = (lambda *_, order=order: order) if number in {0, 2, 4} else None
        monkeypatch.setattr(compile, "_compile_in_threads", compiles)
        with ThreadPoolExecutor(1) as pool:
            assert compile._object_files(functions, "llvm", pool) == order


@pytest.mark.full
@pytest.mark.parametrize("check", [True, False])
def test_another_process_reads_a_network_and_then_runs_it(check, tmp_path, monkeypatch, unmeasured):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # What is kept without a check is of this run alone.
    options = attrs.evolve(SMALL, compare=False, check=check)
    network = BuiltinNetwork(options)
    reader = importer_process(network)
    assert reader is not None
    frontend = NetworkFrontend(network, PendingImport(network, reader, unmeasured.threads))
    assert importer_process(network) is None
    programs_kept: list[set[str]] = []
    keep = DeliverySteps.keep

    def keep_too(steps: DeliverySteps) -> None:
        programs_kept.append(set(reader.programs()))
        keep(steps)

    monkeypatch.setattr(DeliverySteps, "keep", keep_too)
    monkeypatch.setattr(programs, "builtin_program", None)  # calling it fails
    monkeypatch.setattr(baselines, "framework_process", None)
    result = frontend.deliver(unmeasured)
    assert (result.failure, result.reference, result.reference_day) == (None, "torch", None)
    assert result.max_relative_error < 1e-5
    assert programs_kept == [{"program"}]
    # Nobody else asked for the program.
    assert not network.programs
    assert (kept_files.user_cache_folder() / "networks").exists() == check


def test_a_process_reads_no_other_file_than_the_run(tmp_path):
    file = tmp_path / "network.pt2"

    def save(width):
        program = torch.export.export(torch.nn.Linear(8, width), (torch.zeros(1, 8),))
        torch.export.save(program, file)

    save(4)
    request = json.loads(json.dumps(describe_network(TorchNetwork(TorchOptions(source=str(file))))))
    assert network_from(request).input_names() == ["input"]
    save(5)
    with pytest.raises(ConfigError, match="has changed since the run read it"):
        network_from(request)


FUNCTION = """
import torch

def make():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU()), torch.randn(2, 8)
"""


@pytest.mark.full
def test_another_process_makes_the_network_of_a_function_once(tmp_path, monkeypatch, unmeasured):
    (tmp_path / "net.py").write_text(FUNCTION)
    network = TorchNetwork(TorchOptions(source=f"{tmp_path}/net.py:make", compare=False))
    reader = importer_process(network)
    assert reader is not None
    monkeypatch.setattr(programs, "export_source", None)  # calling it fails
    monkeypatch.setattr(baselines, "framework_process", None)
    pending = PendingImport(network, reader, unmeasured.threads)
    result = NetworkFrontend(network, pending).deliver(unmeasured)
    assert (result.failure, result.reference) == (None, "torch")
    assert result.max_relative_error < 1e-5


@pytest.mark.full
def test_a_network_is_read_here_if_the_other_process_dies(tmp_path, monkeypatch, unmeasured):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    network = BuiltinNetwork(attrs.evolve(SMALL, compare=False))
    reader = importer_process(network)
    assert reader is not None
    reader._child.signal(signal.SIGKILL)
    frontend = NetworkFrontend(network, PendingImport(network, reader, unmeasured.threads))
    assert frontend.reader is None
    assert frontend.deliver(unmeasured).failure is None


def test_no_process_reads_what_needs_no_torch(tmp_path):
    assert importer_process(OnnxNetwork(OnnxOptions(source=str(tmp_path / "net.onnx")))) is None


def test_what_another_process_logs_is_logged_and_its_failure_is_no_error():
    def reader(**answer):
        return SimpleNamespace(opened=lambda: None, answer=answer)

    def failed():
        raise ChameleonError("it cannot be read")

    known = reader(messages=[{"event": "left_out", "log_level": "warning", "what": "chance"}])
    with capture_logs() as messages:
        assert network_frontend._finished(known) is known
    assert messages == [{"event": "left_out", "log_level": "warning", "what": "chance"}]
    known.opened = failed
    assert network_frontend._finished(known) is None
