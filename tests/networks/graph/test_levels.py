"""A delivered folder has kernels for further levels of CPUs, and loading chooses among them."""

import json
import logging
import re
import runpy
import shutil
import sys
import zipfile
from operator import attrgetter
from pathlib import Path

import attrs
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from chameleon_core._errors import ExitCode
from chameleon_core.api import RunView
from chameleon_core.plugin_api import ChameleonError, ConfigError, Delivery
from chameleon_networks._artifact.load import check_cpu, check_files, load
from chameleon_networks._artifact.writer import read_manifest, write_manifest
from chameleon_networks._c_runtime.linking import run_compiler
from chameleon_networks._compile.sequence.repacking import repacking_of
from chameleon_networks._compile.sequence.weights import read_weights
from chameleon_networks._delivery import levels, other_kernels
from chameleon_networks._delivery.disassembly import foreign_instructions
from chameleon_networks._delivery.levels import target_of_level
from chameleon_networks._export.bundles import write_c_bundle, write_onnx_file, write_wheel
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._importers.options import OnnxOptions
from chameleon_networks._importers.sources import OnnxNetwork
from chameleon_system._processor import own_architecture
from chameleon_system.api import user_cache_folder
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm.api import host_features
from onnx import numpy_helper
from programs import completed
from torch.nn import functional

pytestmark = pytest.mark.skipif(own_architecture() != "x86_64", reason="the levels are of x86 CPUs")

EMULATOR = shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
LEVELS = ("x86-64-v2", "x86-64-v3")
OTHER = "bdver4"
"""Has instructions that only CPUs of AMD had, until Zen."""

IMAGE = np.random.default_rng(0).standard_normal((1, 3, 8, 8), np.float32)
RUN = """
import logging, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
from network import load
logging.basicConfig()
network = load()
np.save(sys.argv[3], network(np.load(sys.argv[2])))
print(network.level)
"""


def _delivered(tiny, target, folder, levels=(*LEVELS, OTHER), **facts):
    frontend = NetworkFrontend(OnnxNetwork(attrs.evolve(tiny.options, levels=levels)))
    # Of weights for Winograd's algorithms, no other order can be made.
    space = AutoSpace(AutoOptions(algorithms=("direct",)))
    winners = [
        Delivery.Winner(
            task=task,
            config=tuple(space.design_space(task).first_guesses[0].tolist()),
            seconds=1e-3,
        )
        for task in frontend.tasks(target)
    ]
    delivery = Delivery(
        target=target, winners=winners, space=space, folder=folder, threads=2, **facts
    )
    return frontend.deliver(delivery)


@pytest.fixture(scope="module")
def result(tiny, target, tmp_path_factory):
    result = _delivered(tiny, target, tmp_path_factory.mktemp("levels") / "network")
    assert result.failure is None
    return result


@pytest.fixture
def folder(result, tmp_path):
    return shutil.copytree(result.folder, tmp_path / "network")


@pytest.fixture(scope="module")
def wanted(tiny):
    """The outputs of torch."""
    graph = onnx.load(tiny.options.source).graph
    arrays = {one.name: numpy_helper.to_array(one).copy() for one in graph.initializer}
    one, two, three, last = map(torch.from_numpy, arrays.values())
    x = functional.relu(functional.conv2d(torch.from_numpy(IMAGE), one, padding=1))
    x = functional.relu(functional.conv2d(x, two, padding=1, stride=2))
    x = functional.relu(functional.conv2d(x, three))
    return functional.linear(functional.max_pool2d(x, 2).flatten(1), last).numpy()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Sets variables of the environment, of which one names an empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return monkeypatch


FEATURES = {"x86-64-v2": {"sse4.2"}, "x86-64-v3": {"avx2", "fma", "bmi2", "movbe"}}


def _skip_unless_here(level):
    if not host_features() >= FEATURES[level]:
        pytest.skip(f"this CPU is no {level}")


def _check(outputs, wanted):
    assert np.abs(outputs - wanted).max() < 1e-5 * np.abs(wanted).max()


@pytest.mark.full
def test_the_manifest_says_how_each_level_was_checked(result, target):
    own, *rows = read_manifest(Path(result.folder))["levels"]
    assert own == {"name": json.loads(target)["mcpu"], "checked": "tuned"}
    assert {row["name"] for row in rows} == {*LEVELS, OTHER}
    for row in rows:
        runs = host_features() >= FEATURES.get(row["name"], {"xop"})
        assert row["checked"] == ("measured" if runs else "never run")
        assert (row["seconds"] is not None) == runs
    assert f"{OTHER}: never run, since this CPU lacks fma4, " in result.levels


@pytest.mark.full
@pytest.mark.parametrize("level", LEVELS)
def test_a_level_computes_what_torch_does(result, wanted, level, cache, caplog):
    _skip_unless_here(level)
    cache.setenv("NETWORK_LEVEL", level)
    for _ in range(2):  # the first load packs the weights, and the second one maps them
        with load(result.folder) as network:
            assert network.level == level
            _check(network(IMAGE), wanted)
    own = [record for record in caplog.records if record.name == "chameleon.network"]
    chosen, packed, again = (record.getMessage() for record in own)
    assert {record.levelno for record in own} == {logging.WARNING}
    assert chosen == again
    assert chosen.endswith(f"runs its kernels for {level}, because NETWORK_LEVEL names it")
    [kept] = (user_cache_folder() / "weights").iterdir()
    assert packed.endswith(f": its weights are packed for these kernels, and kept in {kept}")


@pytest.mark.full
@pytest.mark.usefixtures("cache")
def test_onnx_runtime_logs_that_weights_are_packed(result, wanted, tmp_path, capfd):
    _skip_unless_here("x86-64-v2")
    write_onnx_file(Path(result.folder), tmp_path)
    model = onnx.load(tmp_path / "model.onnx")
    [text] = [one for one in model.graph.node[0].attribute if one.name == "ep_cache_context"]
    lines = text.s.splitlines(keepends=True)
    text.s = lines[0] + b"".join(line for line in lines if b"x86-64-v2" in line)
    onnx.save(model, tmp_path / "model.onnx")
    options = runpy.run_path(str(tmp_path / "__init__.py"))["session_options"]()
    for is_first in (True, False):
        session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), options)
        [taken] = session.get_inputs()
        _check(session.run(None, {taken.name: IMAGE})[0], wanted)
        assert ("its weights are packed for these" in capfd.readouterr().err) == is_first


@pytest.mark.full
def test_the_tuned_kernels_run_where_they_can(result, wanted, caplog):
    with load(result.folder) as network:
        assert network.level == ""
        _check(network(IMAGE), wanted)
    assert not caplog.records


@pytest.mark.full
@pytest.mark.parametrize(
    ("level", "words"),
    [
        (OTHER, f"in none of its levels: {OTHER}: this CPU lacks .*xop"),
        ("x86-64-v9", "NETWORK_LEVEL is 'x86-64-v9', and the levels are .*, x86-64-v2"),
    ],
)
def test_a_level_that_cannot_run_is_refused(result, level, words, monkeypatch):
    check_cpu(Path(result.folder))
    monkeypatch.setenv("NETWORK_LEVEL", level)
    with pytest.raises(RuntimeError, match=words):
        load(result.folder)
    with pytest.raises(ImportError, match=words):
        check_cpu(Path(result.folder))


@pytest.mark.full
def test_weights_are_in_the_file_once(result):
    constants = read_weights(Path(result.folder) / "weights.bin")
    own = sum(
        constants[number].nbytes for number in read_manifest(Path(result.folder))["constants"]
    )
    # Constants of layers without tuned kernels may have another order.
    assert sum(constant.nbytes for constant in constants) <= 1.05 * own


@pytest.mark.full
def test_a_wheel_names_the_features_of_the_lowest_level(result, tmp_path):
    [wheel] = write_wheel(Path(result.folder), tmp_path, "net", "1.0").files
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith("METADATA")]
        text = archive.read(metadata).decode()
        assert {"net/_levels.py", "net/x86-64-v2/network.so"} <= set(archive.namelist())
    features = "popcnt, sse, sse2, sse3, sse4.1, sse4.2, ssse3"
    assert f"The CPU must have: {features}." in text


@pytest.mark.full
@pytest.mark.usefixtures("cache")
def test_a_bundle_for_c_holds_the_level_that_is_asked_for(result, wanted, tmp_path):
    _skip_unless_here("x86-64-v2")
    bundle = tmp_path / "net"
    write_c_bundle(Path(result.folder), bundle, "net", "x86-64-v2")
    links = ("-std=c++17", "-L.", "-lnet", "-Wl,-rpath,$ORIGIN", "-o", "example")
    completed([shutil.which("g++") or "c++", "main.cpp", *links], cwd=bundle)
    np.save(bundle / "image.npy", IMAGE)
    words = (EMULATOR, "-cpu", "Nehalem") if EMULATOR else ()
    completed([*words, "./example", "weights.bin", "image.npy"], cwd=bundle)
    _check(np.load(bundle / "output0.npy"), wanted)


@pytest.mark.full
def test_damage_to_a_level_is_noticed(folder):
    check_files(folder)
    with (folder / "x86-64-v2" / "network.so").open("r+b") as library:
        library.write(b"damaged")
    with pytest.raises(RuntimeError, match=r"x86-64-v2/network.so was changed"):
        check_files(folder)


def _emulated(cpu, folder, tmp_path):
    if EMULATOR is None:
        pytest.skip("there is no qemu-x86_64 (Debian's package qemu-user-static)")
    inputs, outputs = tmp_path / "inputs.npy", tmp_path / "outputs.npy"
    np.save(inputs, IMAGE)
    words = [EMULATOR, "-cpu", cpu, sys.executable, "-c", RUN, folder.parent, inputs, outputs]
    return completed(words, None), outputs


@pytest.mark.full
@pytest.mark.parametrize(("cpu", "level"), [("Nehalem", "x86-64-v2"), ("Haswell", "x86-64-v3")])
def test_an_emulated_cpu_runs_its_level(folder, wanted, cpu, level, tmp_path):
    # QEMU emulates neither AVX-512 nor AMX, and shows the /proc/cpuinfo of its host.
    done, outputs = _emulated(cpu, folder, tmp_path)
    assert done.stdout.split() == [level], done.stderr
    assert f"runs its kernels for {level}, because this CPU lacks" in done.stderr
    _check(np.load(outputs), wanted)


@pytest.mark.full
def test_a_cpu_of_no_level_is_told_and_runs_nothing(folder, tmp_path):
    manifest = read_manifest(folder)
    rows = [row for row in manifest["levels"] if row["name"] != "x86-64-v2"]
    write_manifest(folder, {**manifest, "levels": rows})
    done, _ = _emulated("Nehalem", folder, tmp_path)
    assert done.returncode == 1
    words = r"RuntimeError: this machine can run the network in none of its levels: .*x86-64-v3:"
    assert re.search(words, done.stderr), done.stderr


@pytest.mark.full
def test_wrong_outputs_of_a_level_are_not_delivered(tiny, target, tmp_path, monkeypatch):
    def lying(*arguments):
        found = repacking_of(*arguments)
        return found and attrs.evolve(found, rows=np.array([found.rows[0], found.rows[1][::-1]]))

    monkeypatch.setattr(other_kernels, "repacking_of", lying)
    result = _delivered(tiny, target, tmp_path / "network")
    assert result.failure is None
    assert "x86-64-v2: it is not delivered, since its outputs are wrong" in result.levels
    assert not (tmp_path / "network" / "x86-64-v2").exists()


@pytest.mark.full
def test_a_level_takes_the_fastest_kernels_of_other_runs(tiny, target, tmp_path, command_line):
    _skip_unless_here("x86-64-v2")
    onnx_options = {"source": str(tiny.options.source), "layout": "NHWC", "compare": False}
    common = {
        "space": {"name": "auto", "algorithms": ["direct"]},
        "records": str(tmp_path / "records.sqlite"),
        "runner": {"name": "local", "threads": 2},
        "baselines": [],
    }
    runs = {
        "other": (json.loads(target_of_level(target, "x86-64-v2")), 3, {}),
        "own": ("native", 1, {"levels": ["x86-64-v2"]}),
    }
    for name, (where, measurements, more) in runs.items():
        document = {
            "model": {"onnx": {**onnx_options, **more}},
            "target": where,
            "budget": {"measurements": measurements},
            "output": str(tmp_path / name),
            **common,
        }
        (tmp_path / f"{name}.yaml").write_text(json.dumps(document))
        done = command_line("run", tmp_path / f"{name}.yaml")
        assert done.returncode == ExitCode.OK, done.stderr
    with RunView(tmp_path / "other") as view:
        fastest = {
            row.stored.task.key: min(row.measurements, key=attrgetter("cost")).config
            for row in view.operators
        }
    delivered = tmp_path / "own" / "network"
    for _ in range(2):
        _, row = read_manifest(delivered)["levels"]
        assert row["recorded"] == len(fastest)
        tasks = read_manifest(delivered / "x86-64-v2")["tasks"]
        assert {task["key"]: tuple(task["config"]) for task in tasks} == fastest
        # It has no database.
        assert command_line("compile", tmp_path / "own").returncode == ExitCode.OK


@pytest.mark.full
def test_first_guesses_replace_kernels_of_other_runs_that_are_wrong(
    tiny, target, tmp_path, monkeypatch
):
    add, space = levels._add, AutoSpace(AutoOptions(algorithms=("direct",)))

    def slow(task):
        return [tuple(space.design_space(task).first_guesses[-1].tolist())]

    def failing(steps, folder, name, level, chosen):
        configs = {winner.config for winner in chosen.kernels.winners.values()}
        if any(slow(winner.task)[0] in configs for winner in chosen.kernels.winners.values()):
            raise ChameleonError("its outputs are wrong")
        return add(steps, folder, name, level, chosen)

    monkeypatch.setattr(levels, "_add", failing)
    result = _delivered(tiny, target, tmp_path / "network", ("x86-64-v2",), recorded=slow)
    _, row = read_manifest(tmp_path / "network")["levels"]
    assert row["name"] == "x86-64-v2"
    assert "recorded" not in row
    assert "other runs" not in result.levels


@pytest.mark.full
def test_instructions_that_a_level_lacks_are_found_in_its_code(result, target):
    library = Path(result.folder) / "x86-64-v3" / "network.so"
    try:
        foreign = foreign_instructions(library, target_of_level(target, "x86-64-v2"))
    except ChameleonError:
        pytest.skip("there is no objdump")
    assert {"avx", "fma"} <= set(foreign.values())
    assert foreign_instructions(library, target_of_level(target, "x86-64-v3")) == {}


CODE = {
    "tdpbf16ps %tmm0, %tmm1, %tmm2": "amx-tile",
    "{vex} vpdpbusd %xmm0, %xmm1, %xmm2": "avxvnni",
    "vpdpbusd %zmm0, %zmm1, %zmm2": "avx512vnni",
    "vdpbf16ps %ymm0, %ymm1, %ymm2": "avx512bf16",
    "vaddph %zmm0, %zmm1, %zmm2": "avx512fp16",
    "vcvtph2ps %xmm0, %ymm1": "f16c",
    "vcvtps2ph $0, %zmm0, %ymm1": "avx512f",
    "vpermb %zmm0, %zmm1, %zmm2": "avx512vbmi",
    "vaddps %xmm16, %xmm1, %xmm2": "avx512f",
    "kmovw %k1, %eax": "avx512f",
    "vfmadd231ps %xmm0, %xmm1, %xmm2": "fma",
    "vpaddd %ymm0, %ymm1, %ymm2": "avx2",
    "vpermilps $0, %ymm0, %ymm1": "avx",
    "vmovups (%rax), %xmm0": "avx",
    "andnl %eax, %ebx, %ecx": "bmi",
    "shlx %eax, %ebx, %ecx": "bmi2",
    "lzcnt %eax, %ebx": "lzcnt",
    "movbe (%rax), %ebx": "movbe",
    "popcnt %eax, %ebx": "popcnt",
    "pcmpgtq %xmm0, %xmm1": "sse4.2",
    "pmulld %xmm0, %xmm1": "sse4.1",
    "pshufb %xmm0, %xmm1": "ssse3",
    "haddps %xmm0, %xmm1": "sse3",
    "andnps %xmm0, %xmm1": "",
    "pmaxsw %xmm0, %xmm1": "",
    "tzcnt %eax, %ebx": "",
}
"""Instructions, and the feature beyond SSE2 that each needs."""


@pytest.mark.full
def test_an_instruction_needs_a_feature(target, tmp_path):
    level = target_of_level(target, "x86-64")
    for number, (instruction, feature) in enumerate(CODE.items()):
        source, library = tmp_path / f"{number}.s", tmp_path / f"{number}.so"
        source.write_text(f"{instruction}\n")
        try:
            run_compiler("-shared", "-nostdlib", "-o", str(library), str(source))
            foreign = foreign_instructions(library, level)
        except ChameleonError:
            pytest.skip("there is no objdump, or the assembler is old")
        assert list(foreign.values()) == [feature] * bool(feature), instruction


@pytest.mark.parametrize(
    ("level", "words"),
    [
        ("i386", "the level 'i386' is no CPU that runs code for the target: the CPU 'i386'"),
        ("neoverse-n1", "the level 'neoverse-n1' is no CPU that runs code for the target: LLVM"),
        ("x86-64", "the level 'x86-64' is the target itself"),
    ],
)
def test_validate_refuses_a_level_that_is_none(tiny, level, words, tmp_path, command_line):
    model = {"onnx": {"source": str(tiny.options.source), "levels": ["x86-64-v2", level]}}
    file = tmp_path / "p.yaml"
    file.write_text(json.dumps({"model": model, "target": "llvm -mcpu=x86-64"}))
    assert command_line("validate", "--quick", file).returncode == ExitCode.OK
    done = command_line("validate", file)
    assert done.returncode == ExitCode.USAGE
    assert words in done.stderr


def test_a_level_that_is_named_twice_is_refused():
    with pytest.raises(ConfigError, match="a level is in 'levels' twice"):
        OnnxOptions(source="net.onnx", levels=("haswell", "haswell"))
