"""A sample of other people's test suites, delivered for each kind of CPU in each precision.

    python benchmarks/kinds.py                                # what has no outcome yet
    python benchmarks/kinds.py --kinds 'AMX,Zen 4' --only 'int8/.*conv'  # a part of it
    python benchmarks/kinds.py --page docs/suites.md          # puts the table into a page

Each case is compiled with first guesses and run for its results. On x86 that happens in a process
that reads another /proc/cpuinfo, so that the CPU in question is this machine's; see other_cpu.c,
which also computes AMX's instructions on a CPU without AMX. What other code needs, this machine has
to have. Code for aarch64 is linked as a bundle for C, and run by qemu; it needs Debian's packages
qemu-user-static and g++-aarch64-linux-gnu.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from case_suite import (
    NO_NETWORK,
    REFUSED,
    RIGHT,
    NoNetworkError,
    Outcome,
    Outcomes,
    Suite,
    WrongAnswerError,
    is_drawn,
    outcomes,
    put,
    results,
)
from chameleon_core._errors import ChameleonError
from chameleon_core.plugin_api import NoOptions
from chameleon_networks._artifact.load import load
from chameleon_networks._artifact.writer import manifest_of, write_artifact
from chameleon_networks._compile.compile import compile_network
from chameleon_networks._evaluation.verify import QUANTIZED_TOLERANCE, ROUNDINGS, compare_outputs
from chameleon_networks._export.bundles import write_c_bundle
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.fusion_groups import with_fastest_specs
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.tvm_warnings import warnings_once
from chameleon_networks._importers.options import DEFAULT
from chameleon_networks._precision.typed_networks import TypedNetworks
from chameleon_networks._quantize.simulated_network import SimulatedNetwork, first_guess_kernels
from chameleon_networks._quantize.simulation_process import Calibrator
from chameleon_system._processor import own_architecture
from chameleon_tvm._device.cpus.features import (
    LINUX_NAMES,
    host_features,
    llvm_target,
    target_features,
)
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm._types import BFLOAT16, FLOAT16, FLOAT32, INT8, STORAGE
from onnx_cases import OnnxCases, chameleon
from torch_cases import OpInfoCases, array_of

PRECISIONS = (FLOAT32, BFLOAT16, FLOAT16, INT8)

TILES = frozenset({"amx-tile", "amx-int8", "amx-bf16"})
"""What other_cpu.c computes on a CPU without tiles."""
_SPARED = frozenset({"amx-fp16", "avx512fp16", "avx512vp2intersect", "sse4a"})
"""Features that code for a kind goes without if this machine lacks them: others stand in."""
_X86 = "x86_64-linux-gnu"
_ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=generic -mattr=+dotprod,+i8mm,+bf16,+fullfp16"
_COMPILER, _EMULATORS = "aarch64-linux-gnu-g++", ("qemu-aarch64-static", "qemu-aarch64")
_LIBRARIES = "/usr/aarch64-linux-gnu"
SOURCE = Path(__file__).with_name("other_cpu.c")
"""Lets a process run code for another x86 CPU."""
_SECONDS = 60.0
_TOLERANCES = {INT8: QUANTIZED_TOLERANCE}
"""Accepted |difference| over the largest |expected|; of others as of networks in half precision."""


@attrs.frozen(kw_only=True)
class Kind:
    """A kind of CPU. Its vendor, family and model are those that CPUID tells on x86.

    Attributes:
        mcpu: LLVM's name of an x86 CPU of that kind; empty for aarch64.
        vendor: such as ``AuthenticAMD``.
        family: with the extended family.
        model: with the extended model.
    """

    mcpu: str = ""
    vendor: str = "GenuineIntel"
    family: int = 6
    model: int = 0

    @property
    def target(self) -> str:
        """The target to compile for; asked outside the processes of ``environment``."""
        if not self.mcpu:
            return _ARM
        lacking = (target_features(llvm_target(self.mcpu, triple=_X86)) & _SPARED) - host_features()
        left_out = ",".join(f"-{name}" for name in sorted(lacking))
        return f"llvm -mcpu={self.mcpu}" + (f" -mattr={left_out}" if left_out else "")

    @functools.cached_property
    def features(self) -> frozenset[str]:
        """LLVM's names of what an x86 CPU of the kind has, among those that Linux shows."""
        return target_features(llvm_target(self.mcpu, triple=_X86)) & LINUX_NAMES["x86_64"].keys()

    @property
    def cpuinfo(self) -> str:
        """Content of ``/proc/cpuinfo`` of an x86 CPU of the kind."""
        flags = " ".join(sorted(LINUX_NAMES["x86_64"][name] for name in self.features))
        numbers = f"cpu family : {self.family}\nmodel : {self.model}"
        return f"vendor_id : {self.vendor}\n{numbers}\nflags : {flags}\n"

    def missing_flags(self) -> str:
        """What is missing here to run code for it; empty if nothing is."""
        if self.mcpu:
            if own_architecture() != "x86_64":
                return "an x86 CPU"
            computed = TILES if emulates_tiles() else frozenset()
            return ", ".join(sorted(self.features - _SPARED - host_features() - computed))
        programs = (_COMPILER, *_EMULATORS[:1])
        if shutil.which(_COMPILER) and _emulator():
            return ""
        return " or ".join(programs)

    def environment(self, folder: Path) -> dict[str, str]:
        """Variables of processes that compile and run code for it.

        Args:
            folder: for files that the processes read.

        Raises:
            ChameleonError: something is missing here.
        """
        if lacking := self.missing_flags():
            raise ChameleonError(
                f"code for {self.mcpu or 'aarch64'} does not run here: {lacking} is missing",
                hint="Choose others with --kinds.",
            )
        if not self.mcpu:
            return {"CXX": _COMPILER}
        library, cpuinfo = folder / "other_cpu.so", folder / "cpuinfo"
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
        subprocess.run(command, check=True)
        cpuinfo.write_text(self.cpuinfo, encoding="utf-8")
        return {"LD_PRELOAD": str(library), "OTHER_CPUINFO": str(cpuinfo)}


_AMD = "AuthenticAMD"
KINDS: Mapping[str, Kind] = {
    "AVX2": Kind(mcpu="haswell", model=63),
    "AVX-512": Kind(mcpu="skylake-avx512", model=85),
    "VNNI": Kind(mcpu="cascadelake", model=85),
    "BF16": Kind(mcpu="cooperlake", model=85),
    "AMX": Kind(mcpu="sapphirerapids", model=143),
    "masked AMX": Kind(mcpu="sapphirerapids", model=167),
    "AMX-FP16": Kind(mcpu="graniterapids", model=173),
    "Zen 2": Kind(mcpu="znver2", vendor=_AMD, family=23, model=49),
    "Zen 3": Kind(mcpu="znver3", vendor=_AMD, family=25, model=1),
    "Zen 4": Kind(mcpu="znver4", vendor=_AMD, family=25, model=17),
    "Zen 5": Kind(mcpu="znver5", vendor=_AMD, family=26, model=2),
    "aarch64": Kind(),
}
"""Kinds of CPU, most by the name of what each is the first to have. A hypervisor masks the model of
``masked AMX``, so that only its flags tell what it is."""


def emulates_tiles() -> bool:
    """Whether other_cpu.c computes AMX's instructions, which this machine's CPU then lacks."""
    return "amx-tile" not in host_features()


def _emulator() -> str | None:
    return next(filter(None, map(shutil.which, _EMULATORS)), None)


class KindNetwork:
    """A network with first guesses for a kind of CPU; compiled by its first call.

    Args:
        graph: a Relax ``IRModule``, as an importer gives it.
        kind: a key of ``KINDS``.
        target: of the kind.
        precision: one of ``PRECISIONS``.
    """

    def __init__(self, graph: Any, kind: str, target: str, precision: str) -> None:
        self._graph = graph
        self._kind, self._target, self._precision = KINDS[kind], target, precision
        self._folder = tempfile.TemporaryDirectory(prefix="chameleon-kind-")
        self._network: Any = None

    def __call__(self, *inputs: Any) -> Any:
        """The outputs for inputs, which ranges of eight bits are from.

        Raises:
            NoNetworkError: none of its operators is computed in the precision.
        """
        if self._network is None:
            with warnings_once():
                self._network = self._compiled(inputs)
        return self._network(*inputs)

    def _compiled(self, inputs: Sequence[Any]) -> Any:
        target = TVMTargets(NoOptions()).resolve(self._target)
        module = prepare_module(self._graph, DEFAULT)
        fusions = find_fusions(module)
        if self._precision != FLOAT32:
            able = TypedNetworks(module, fusions, None).reducible(self._precision)
            if not able:
                raise NoNetworkError(f"no operator of it is computed in {self._precision}")
            ranges, means = None, {}
            if self._precision == INT8:
                here = target if self._kind.mcpu else TVMTargets(NoOptions()).resolve("native")
                simulated = SimulatedNetwork(module, fusions, here)
                calibrator = Calibrator(simulated)
                calibrator.observe([np.asarray(array) for array in inputs])
                calibration = calibrator.calibration()
                ranges, means = calibration.ranges, calibration.means
            networks = TypedNetworks(module, fusions, ranges, means)
            typed = networks.of(dict.fromkeys(able, self._precision))
            module, fusions = typed.module, typed.fusions
        kernels = first_guess_kernels(
            with_fastest_specs(fusions, target), target, AutoSpace(AutoOptions())
        )
        network = compile_network(module, fusions, kernels, target)
        manifest = {
            **manifest_of(module, fusions, kernels, target, 1),
            **network.facts,
        }
        folder = Path(self._folder.name)
        write_artifact(folder, network.executable, manifest)
        if self._kind.mcpu:
            return load(folder, threads=2)
        return Emulated(folder, manifest)


class Emulated:
    """A network for aarch64 as a program for C that an emulator runs.

    Args:
        folder: of the network, which was linked for aarch64.
        manifest: of it.

    Raises:
        NoNetworkError: it runs in TVM's run time alone.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self._folder, self._manifest = folder / "bundle", manifest
        try:
            write_c_bundle(folder, self._folder, "net")
        except ChameleonError as error:
            raise NoNetworkError(f"it has no bundle for C: {error}") from error
        flags = ["-std=c++17", "-O1", "-o", "example", "main.cpp", "-L.", "-lnet"]
        subprocess.run([_COMPILER, *flags], cwd=self._folder, check=True)

    def __call__(self, *inputs: Any) -> Any:
        """The outputs for inputs."""
        names = []
        for number, (array, wanted) in enumerate(
            zip(inputs, self._manifest["inputs"], strict=True)
        ):
            names.append(f"input{number}.raw")
            given = np.ascontiguousarray(array, wanted["dtype"])
            (self._folder / names[-1]).write_bytes(given.tobytes())
        emulator = _emulator()
        assert emulator is not None
        libraries = ["-L", _LIBRARIES, "-E", f"LD_LIBRARY_PATH={self._folder}", "-cpu", "max"]
        program = ["./example", "weights.bin", *names, "--runs", "1", "--threads", "2"]
        done = subprocess.run(
            [emulator, *libraries, *program],
            cwd=self._folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        if done.returncode:
            raise RuntimeError(f"the emulator ends with {done.returncode}: {done.stderr}")
        outputs = [
            np.load(self._folder / f"output{number}.npy")
            for number in range(len(self._manifest["outputs"]))
        ]
        return outputs[0] if len(outputs) == 1 else outputs


def _check_reduced(got: Sequence[Any], expected: Sequence[Any], precision: str) -> None:
    """Compare outputs in reduced precision.

    Raises:
        WrongAnswerError: they are further off than roundings explain.
    """
    tolerance = _TOLERANCES.get(precision) or ROUNDINGS * STORAGE[precision].rounding
    arrays = [[np.asarray(array, np.float64) for array in side] for side in (got, expected)]
    check = compare_outputs(*arrays, tolerance=tolerance)
    if check.problem is not None:
        raise WrongAnswerError(check.problem)


class _KindCases(Suite):
    """Cases of another suite for a kind of CPU, named after a precision and the case.

    All inputs but the first are constants, as weights are.

    Args:
        kind: a key of ``KINDS``.
        target: of the kind; cases that are only listed need none.
    """

    def __init__(self, kind: str, target: str, *words: str) -> None:
        super().__init__(*words)
        self._kind, self._target, self._precision = kind, target, FLOAT32
        self._network: KindNetwork | None = None

    def cases(self) -> Mapping[str, str]:
        cases = super().cases()
        return {
            f"{precision}/{case}": f"{self._kind}, {precision}"
            for precision in PRECISIONS
            for case in cases
        }

    def run(self, case: str) -> str | None:
        self._precision, _, name = case.partition("/")
        self._network = None
        remark = super().run(name)
        if self._network is None:
            raise RuntimeError(f"the suite compiled {case} for this machine, not for {self._kind}")
        return remark

    def drawn_by(self, case: str) -> str:
        """What a case is drawn by the digest of: its name without the precision."""
        return case.partition("/")[2]

    def compiler(self, graph: Any) -> KindNetwork:
        """A network of the case that is run."""
        self._network = KindNetwork(graph, self._kind, self._target, self._precision)
        return self._network


class OnnxKindCases(_KindCases, OnnxCases):
    """ONNX's cases for a kind of CPU."""

    def __init__(self, kind: str, target: str = "") -> None:
        super().__init__(kind, target, "chameleon")

    def prepared(self, model: Any) -> Any:
        return chameleon(model, compiler=self.compiler, inputs=1)

    def compare(self, got: Any, expected: Any, case: Any) -> None:
        if self._precision == FLOAT32:
            super().compare(got, expected, case)
        else:
            _check_reduced(got, expected, self._precision)


class OpInfoKindCases(_KindCases, OpInfoCases):
    """A sample of each of torch's operators for a kind of CPU."""

    inputs = 1

    def __init__(self, kind: str, target: str = "") -> None:
        super().__init__(kind, target, "1")

    def drawn_by(self, case: str) -> str:
        # By the digest with the number the sample was drawn among those of its operator.
        return super().drawn_by(case).rpartition("/")[0]

    def compare(self, got: list[Any], expected: list[Any], network: Any) -> str | None:
        if self._precision == FLOAT32:
            return super().compare(got, expected, network)
        _check_reduced(got, list(map(array_of, expected)), self._precision)
        return None


_CLASSES = {f"kinds:{one.__name__}": one for one in (OnnxKindCases, OpInfoKindCases)}
SUITES = tuple(_CLASSES)
"""Suites as a child process is asked for them."""

_PRODUCTS = re.compile(
    r"conv|gemm|matmul|linear|addm|bmm|baddb|einsum|attention|lstm|gru|rnn|mv|inner|tensordot",
    re.IGNORECASE,
)
_MORE = 5
"""Cases that may have products are drawn so many times as often as others."""


def drawn(suite: str, kind: str, fraction: float) -> dict[str, str]:
    """The cases of a suite that are run, with their groups."""
    cases: _KindCases = _CLASSES[suite](kind)
    return {
        case: group
        for case, group in cases.cases().items()
        if is_drawn(cases.drawn_by(case), fraction * (_MORE if _PRODUCTS.search(case) else 1))
    }


def run_kind(
    suite: str, kind: str, cases: Sequence[str], seconds: float = _SECONDS
) -> Iterator[Outcome]:
    """Run cases of a suite for a kind of CPU.

    Args:
        suite: one of ``SUITES``.
        kind: a key of ``KINDS``.
        cases: their names.
        seconds: limit of each.

    Raises:
        ChameleonError: code for it does not run here.
    """
    with tempfile.TemporaryDirectory(prefix="chameleon-kinds-") as folder:
        environment, words = KINDS[kind].environment(Path(folder)), (kind, KINDS[kind].target)
        yield from outcomes(suite, words, cases, seconds=seconds, environment=environment)


def main() -> int:
    """Run what has no outcome yet, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kinds", default=",".join(KINDS), help="with commas")
    parser.add_argument("--only", default="", help="regular expression that cases' names match")
    parser.add_argument("--fraction", type=float, default=0.03, help="of cases, by a digest")
    parser.add_argument("--out", type=Path, default=Path("runs/kinds"), help="folder of outcomes")
    parser.add_argument("--again", default="", help="kinds of outcomes to run again, with commas")
    parser.add_argument("--page", type=Path, help="page of Markdown to put the table into")
    given = parser.parse_args()
    again = set(filter(None, given.again.split(",")))
    groups: dict[str, str] = {}
    found: dict[str, Outcome] = {}
    for kind, suite in itertools.product(given.kinds.split(","), SUITES):
        cases = drawn(suite, kind, given.fraction)
        name = f"{suite.rpartition(':')[2]}-{kind}"
        kept = Outcomes(given.out / f"{name}.jsonl")
        left = [
            case
            for case in cases
            if re.search(given.only, case)
            and (case not in kept.by_case or kept.by_case[case].kind in again)
        ]
        if lacking := KINDS[kind].missing_flags():
            print(f"{name}: code for it does not run here without {lacking}", file=sys.stderr)
            left = []
        for outcome in run_kind(suite, kind, left) if left else ():
            kept.add(outcome)
            shown = f"{name} {outcome.case}: {outcome.kind} {outcome.reason}"
            print(shown, file=sys.stderr, flush=True)
        for case, group in cases.items():
            if case in kept.by_case:
                groups[f"{name} {case}"] = group
                found[f"{name} {case}"] = kept.by_case[case]
    text = results(groups, found, 10)
    print(text)
    if given.page:
        put(given.page, "kinds", text)
    return int(any(one.kind not in (RIGHT, REFUSED, NO_NETWORK) for one in found.values()))


if __name__ == "__main__":
    # Suites raise the errors of the module that they import, which this one is not.
    sys.exit(__import__(Path(__file__).stem).main())
