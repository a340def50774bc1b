"""Compile random legal configurations of the CUDA templates with nvcc; needs no GPU.

`python benchmarks/cuda_compile.py --template conv2d --arch sm_80 --count 200` draws the
configurations evenly from the template's layers (`--layer` takes one), builds each to a cubin and
writes one line per candidate to `--output`, so that a run that was stopped goes on where it was;
`--seconds` ends a part of it. What it prints at the end is a JSON object over all lines: how many
were rejected before building, built, and failed after the check, with seconds and what ptxas says.
`--check` stops after TVM's own check and compiles nothing: the share of invalid configurations.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_core.errors import InvalidConfigurationError
from chameleon_core.plugins import NoOptions
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Builder
from chameleon_tvm.building.lowering import cuda_source
from chameleon_tvm.device.gpus import BFLOAT16_SINCE, capability, gpu_info
from chameleon_tvm.device.targets import TVMTargets, tvm_target
from chameleon_tvm.operators.specs import (
    BatchMatmulSpec,
    Conv2dSpec,
    DenseSpec,
    DepthwiseConv2dSpec,
    OperatorSpec,
)
from chameleon_tvm.spaces.template.options import TemplateOptions
from chameleon_tvm.spaces.template.provider import TemplateSpace

PTXAS = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores|Used (\d+) registers|(\d+) bytes smem"
)
ENTRY = re.compile(r"Compiling entry function '(\w+)'")
KERNEL = "main_kernel"
"""What TVM calls the kernel of a function."""
TOGETHER = 8
"""Candidates whose kernels are compiled in one file."""
_FUSED = {"bias": True, "activation": "relu"}


def _conv(ic: int, size: int, oc: int, kernel: int, stride: int = 1) -> Conv2dSpec:
    """A convolution at batch 1 in NCHW that keeps its size, but for the stride."""
    return Conv2dSpec(
        input=(1, ic, size, size),
        filters=oc,
        kernel=kernel,
        stride=stride,
        padding=kernel // 2,
    )


LAYERS: dict[str, dict[str, OperatorSpec]] = {
    "conv2d": {
        # ResNet-18's, in the order of the network.
        "r0": _conv(3, 224, 64, 7, 2),
        "r1": _conv(64, 56, 64, 3),
        "r2": _conv(64, 56, 64, 1),
        "r3": _conv(64, 56, 128, 3, 2),
        "r4": _conv(64, 56, 128, 1, 2),
        "r5": _conv(128, 28, 128, 3),
        "r6": _conv(128, 28, 256, 3, 2),
        "r7": _conv(128, 28, 256, 1, 2),
        "r8": _conv(256, 14, 256, 3),
        "r9": _conv(256, 14, 512, 3, 2),
        "r10": _conv(256, 14, 512, 1, 2),
        "r11": _conv(512, 7, 512, 3),
        # The paper's table 5, as in benchmarks/suites/layers-cpu.yaml; L6, L7 and L8 are r6, r9
        # and r11.
        "L1": _conv(64, 27, 192, 5),
        "L2": _conv(256, 13, 256, 3),
        "L3": _conv(64, 224, 64, 3),
        "L4": _conv(64, 112, 128, 3),
        "L5": _conv(128, 56, 256, 3),
    },
    "depthwise_conv2d": {
        # MobileNet-v2's, some of them.
        f"d{channels}": DepthwiseConv2dSpec(
            input=(1, channels, size, size), kernel=3, stride=stride, padding=1, **_FUSED
        )
        for channels, size, stride in ((32, 112, 1), (96, 112, 2), (144, 56, 1), (384, 14, 1))
    },
    "dense": {
        # BERT-base's at 128 tokens, and the classifier of ResNet-18 at batch 16.
        "bert": DenseSpec(input=(128, 768), units=3072, bias=True, activation="gelu"),
        "classifier": DenseSpec(input=(16, 512), units=1000, bias=True),
    },
    "batch_matmul": {
        # BERT-base's attention at 128 tokens.
        "scores": BatchMatmulSpec(a=(12, 128, 64), b=(12, 128, 64), transpose_b=True),
        "context": BatchMatmulSpec(a=(12, 128, 128), b=(12, 128, 64)),
    },
    # In half precision, on tensor cores.
    "tensor_core": {
        f"{dtype}_{name}": spec
        for dtype in ("float16", "bfloat16")
        for name, spec in {
            "bert": DenseSpec(
                input=(128, 768), units=3072, bias=True, activation="gelu", dtype=dtype
            ),
            "scores": BatchMatmulSpec(
                a=(12, 128, 64), b=(12, 128, 64), transpose_b=True, dtype=dtype
            ),
        }.items()
    },
    # The same for convolutions, some of ResNet-18's.
    "tensor_core_conv2d": {
        f"{dtype}_{name}": Conv2dSpec(
            input=(1, ic, size, size),
            filters=oc,
            kernel=kernel,
            stride=stride,
            padding=kernel // 2,
            layout="NHWC",
            dtype=dtype,
            **_FUSED,
        )
        for dtype in ("float16", "bfloat16")
        for name, ic, size, oc, kernel, stride in (
            ("r1", 64, 56, 64, 3, 1),
            ("r7", 128, 28, 256, 1, 2),
            ("r8", 256, 14, 256, 3, 1),
            ("r9", 256, 14, 512, 3, 2),
        )
    },
}
"""Templates and the layers that their configurations are drawn from."""


def compiled(sources: list[str], arch: str, folder: Path) -> list[dict[str, Any]]:
    """Compile kernels to cubins; of each what ptxas says, or ``error``.

    Starting nvcc takes as long as compiling a kernel: those with the same beginning share a file,
    unless one of them fails.
    """
    found: dict[int, dict[str, Any]] = {}
    groups: dict[str, list[int]] = {}
    for place, source in enumerate(sources):
        groups.setdefault(source[: _start(source)], []).append(place)
    for beginning, places in groups.items():
        text = beginning + "".join(
            re.sub(rf"\b{KERNEL}\b", f"kernel_{place}", sources[place][_start(sources[place]) :])
            for place in places
        )
        said = nvcc(text, arch, folder)
        if isinstance(said, str) and len(places) > 1:
            for place in places:
                found |= {place: compiled([sources[place]], arch, folder)[0]}
            continue
        for place in places:
            found[place] = {"error": said} if isinstance(said, str) else said[f"kernel_{place}"]
    return [found[place] for place in range(len(sources))]


def _start(source: str) -> int:
    """Where a source's kernel begins, after what all sources include and define."""
    return source.index('extern "C" __global__')


def nvcc(text: str, arch: str, folder: Path) -> dict[str, dict[str, Any]] | str:
    """Compile a file: what ptxas says of each of its kernels, or the first error."""
    (folder / "kernel.cu").write_text(text)
    compiler = shutil.which("nvcc")
    if compiler is None:
        raise SystemExit("there is no nvcc on PATH: install the CUDA toolkit, or pass --check")
    done = subprocess.run(
        [compiler, "-cubin", f"-arch={arch}", "-Xptxas=-v", "kernel.cu", "-o", "kernel.cubin"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    if done.returncode:
        lines = [line for line in said.splitlines() if "error" in line or "fatal" in line]
        return (lines or said.splitlines() or ["nvcc failed"])[0]
    kernels = {}
    _, *pieces = ENTRY.split(said)
    for name, piece in zip(pieces[::2], pieces[1::2], strict=True):
        found = {"stack_bytes": 0, "spill_bytes": 0, "registers": 0, "shared_bytes": 0}
        for stack, spill, registers, shared in PTXAS.findall(piece):
            fresh = zip(found, (stack, spill, registers, shared), strict=True)
            found.update({name: int(number) for name, number in fresh if number})
        kernels[name] = found
    return kernels


def lowered(builder: Builder, target: str, config: list[int]) -> tuple[dict[str, Any], str]:
    """What became of a configuration so far, and its source, empty where it has none."""
    started = time.perf_counter()
    try:
        program = builder.program(config)
    except InvalidConfigurationError as error:
        seconds = time.perf_counter() - started
        return {"outcome": "rejected", "why": str(error), "check_seconds": seconds}, ""
    checked = time.perf_counter()
    line: dict[str, Any] = {"outcome": "passed", "check_seconds": checked - started}
    try:
        source = cuda_source(program.function, tvm_target(target))
    except Exception as error:  # noqa: BLE001 - a build error is a result
        why = str(error).strip().splitlines()[-1]
        return {**line, "outcome": "failed", "why": why}, ""
    return {**line, "lower_seconds": time.perf_counter() - checked}, source


def candidates(
    builder: Builder, target: str, configs: list[list[int]], folder: Path, *, check: bool
) -> list[dict[str, Any]]:
    """Lines of the output: what became of configurations, and after how many seconds."""
    lines, sources = map(
        list, zip(*(lowered(builder, target, config) for config in configs), strict=True)
    )
    if check:
        return lines
    places = [place for place, source in enumerate(sources) if source]
    started = time.perf_counter()
    arch = str(tvm_target(target).attrs["arch"])
    found = compiled([sources[place] for place in places], arch, folder)
    seconds = (time.perf_counter() - started) / max(1, len(places))
    for place, said in zip(places, found, strict=True):
        lines[place] |= {"outcome": "built", "nvcc_seconds": seconds, **said}
        if "error" in said:
            lines[place] |= {"outcome": "failed", "why": said["error"]}
    return lines


def target_has_no_bfloat16(target: str) -> bool:
    """Whether the target's tensor cores are of the kind before sm_80's."""
    return capability(gpu_info(target).arch) < BFLOAT16_SINCE


def drawn(space: DesignSpace, count: int, seed: int) -> list[list[int]]:
    """A uniform sample of the legal configurations."""
    return space.sample(count, np.random.default_rng(seed)).tolist()


def work(options: argparse.Namespace) -> None:
    """Build what is missing, one line of the output each."""
    known = set()
    if options.output.exists():
        lines = map(json.loads, options.output.read_text().splitlines())
        known = {(line["layer"], line["arch"], line["number"]) for line in lines}
    target = TVMTargets(NoOptions()).resolve(f"cuda -arch={options.arch}")
    layers = LAYERS[options.template]
    names = [options.layer] if options.layer else list(layers)
    if target_has_no_bfloat16(target):
        names = [name for name in names if not name.startswith("bfloat16")]
    ends = time.monotonic() + options.seconds
    provider = TemplateSpace(TemplateOptions())
    with options.output.open("a") as output, tempfile.TemporaryDirectory() as made:
        for place, name in enumerate(names):
            share = options.count // len(names) + (place < options.count % len(names))
            task = layers[name].task(name, target)
            space, builder = provider.design_space(task), provider.builder(task, threads=1)
            configs = drawn(space, share, options.seed)
            missing = [n for n in range(len(configs)) if (name, options.arch, n) not in known]
            for first in range(0, len(missing), TOGETHER):
                numbers = missing[first : first + TOGETHER]
                if time.monotonic() > ends:
                    return
                some = [configs[number] for number in numbers]
                lines = candidates(builder, target, some, Path(made), check=options.check)
                for number, config, line in zip(numbers, some, lines, strict=True):
                    where = {"layer": name, "arch": options.arch, "number": number}
                    output.write(json.dumps({**where, "config": config, **line}) + "\n")
                output.flush()


def summary(path: Path) -> dict[str, Any]:
    """All lines of an output in one object."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    outcomes = Counter(line["outcome"] for line in lines)
    checked = outcomes["passed"] + outcomes["built"] + outcomes["failed"]
    result: dict[str, Any] = {
        "candidates": len(lines),
        "layers": sorted({line["layer"] for line in lines}),
        "archs": sorted({line["arch"] for line in lines}),
        "outcomes": dict(outcomes),
        "rejected_share": outcomes["rejected"] / len(lines) if lines else None,
        "failed_after_check_share": outcomes["failed"] / checked if checked else None,
        "reasons": dict(Counter(line["why"] for line in lines if "why" in line)),
    }
    for name in ("check_seconds", "lower_seconds", "nvcc_seconds", "registers"):
        numbers = [line[name] for line in lines if name in line]
        if numbers:
            result[name] = {"median": statistics.median(numbers), "max": max(numbers)}
    built = [line for line in lines if line["outcome"] == "built"]
    if built:
        result["spilling_share"] = sum(line["spill_bytes"] > 0 for line in built) / len(built)
    return result


def main() -> None:
    """Parse the arguments, build, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--template", choices=sorted(LAYERS), default="conv2d")
    parser.add_argument("--arch", default="sm_80")
    parser.add_argument("--layer", help="one layer; all of the template's where missing")
    parser.add_argument("--count", type=int, default=200, help="configurations in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so many")
    parser.add_argument("--check", action="store_true", help="compile nothing")
    parser.add_argument("--output", type=Path, default=Path("cuda_compile.jsonl"))
    options = parser.parse_args()
    work(options)
    print(json.dumps(summary(options.output), indent=2))


if __name__ == "__main__":
    main()
