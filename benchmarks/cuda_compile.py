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
from chameleon_tvm.operators.specs import (
    BatchMatmulSpec,
    Conv2dSpec,
    DenseSpec,
    DepthwiseConv2dSpec,
    OperatorSpec,
)
from chameleon_tvm.spaces.cuda.source import cuda_source
from chameleon_tvm.spaces.template.options import TemplateOptions
from chameleon_tvm.spaces.template.provider import TemplateSpace
from chameleon_tvm.targets import TVMTargets, tvm_target

PTXAS = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores|Used (\d+) registers|(\d+) bytes smem"
)
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
    # The same in half precision, on tensor cores.
    "tensor_core": {
        "half_bert": DenseSpec(
            input=(128, 768), units=3072, bias=True, activation="gelu", dtype="float16"
        ),
        "half_scores": BatchMatmulSpec(
            a=(12, 128, 64), b=(12, 128, 64), transpose_b=True, dtype="float16"
        ),
    },
}
"""Templates and the layers that their configurations are drawn from."""


def compiled(source: str, arch: str, folder: Path) -> dict[str, Any]:
    """Compile a kernel to a cubin; what ptxas says of it, or ``error``."""
    (folder / "kernel.cu").write_text(source)
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise SystemExit("there is no nvcc on PATH: install the CUDA toolkit, or pass --check")
    done = subprocess.run(
        [nvcc, "-cubin", f"-arch={arch}", "-Xptxas=-v", "kernel.cu", "-o", "kernel.cubin"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    said = done.stdout + done.stderr
    if done.returncode:
        lines = [line for line in said.splitlines() if "error" in line or "fatal" in line]
        return {"error": (lines or said.splitlines() or ["nvcc failed"])[0]}
    found = {"stack_bytes": 0, "spill_bytes": 0, "registers": 0, "shared_bytes": 0}
    for stack, spill, registers, shared in PTXAS.findall(said):
        fresh = zip(found, (stack, spill, registers, shared), strict=True)
        found.update({name: int(number) for name, number in fresh if number})
    return found


def candidate(
    builder: Builder, target: str, config: list[int], folder: Path, *, check: bool
) -> dict[str, Any]:
    """One line of the output: what became of a configuration, and after how many seconds."""
    started = time.perf_counter()
    try:
        program = builder.program(config)
    except InvalidConfigurationError as error:
        return {
            "outcome": "rejected",
            "why": str(error),
            "check_seconds": time.perf_counter() - started,
        }
    checked = time.perf_counter()
    line: dict[str, Any] = {"outcome": "built", "check_seconds": checked - started}
    if check:
        return {**line, "outcome": "passed"}
    resolved = tvm_target(target)
    try:
        source = cuda_source(program.function, resolved)
    except Exception as error:  # noqa: BLE001 - a build error is a result
        return {**line, "outcome": "failed", "why": str(error).strip().splitlines()[-1]}
    lowered = time.perf_counter()
    said = compiled(source, str(resolved.attrs["arch"]), folder)
    line |= {
        "lower_seconds": lowered - checked,
        "nvcc_seconds": time.perf_counter() - lowered,
        **said,
    }
    if "error" in said:
        line |= {"outcome": "failed", "why": said["error"]}
    return line


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
    ends = time.monotonic() + options.seconds
    provider = TemplateSpace(TemplateOptions())
    with options.output.open("a") as output, tempfile.TemporaryDirectory() as made:
        for place, name in enumerate(names):
            share = options.count // len(names) + (place < options.count % len(names))
            task = layers[name].task(name, target)
            space, builder = provider.design_space(task), provider.builder(task, threads=1)
            for number, config in enumerate(drawn(space, share, options.seed)):
                if (name, options.arch, number) in known:
                    continue
                if time.monotonic() > ends:
                    return
                line = candidate(builder, target, config, Path(made), check=options.check)
                where = {"layer": name, "arch": options.arch, "number": number, "config": config}
                output.write(json.dumps({**where, **line}) + "\n")
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
