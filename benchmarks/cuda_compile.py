"""Compile random legal configurations of the CUDA templates with nvcc; needs no GPU.

    python benchmarks/cuda_compile.py --template conv2d --arch sm_80 --count 200
    python benchmarks/cuda_compile.py --template conv2d --check

The configurations are drawn evenly from the template's layers, and each is compiled to a cubin.
Those that TVM's check rejects are refused, and those that fail after it are wrong; of the others
it says what ptxas says. `--check` stops after the check and compiles nothing.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from case_suite import Suite, WrongAnswerError, main
from chameleon_core.plugin_api import Builder, NoOptions
from chameleon_tvm._building.lowering import cuda_source
from chameleon_tvm._device.gpus import BFLOAT16_SINCE, capability, gpu_info
from chameleon_tvm._device.targets import TVMTargets, tvm_target
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace
from chameleon_tvm.api import (
    BatchMatmulSpec,
    Conv2dSpec,
    DenseSpec,
    DepthwiseConv2dSpec,
    OperatorSpec,
)
from ruamel.yaml import YAML

PTXAS = re.compile(r"\d+ bytes spill stores|Used \d+ registers|\d+ bytes smem")
EXAMPLE = Path(__file__).parents[1] / "examples" / "resnet18_layers.yaml"
_FUSED = {"bias": True, "activation": "relu"}

RESNET18: dict[str, dict[str, Any]] = {
    one["conv2d"]["name"]: one["conv2d"]
    for one in YAML(typ="safe").load(EXAMPLE)["model"]["operators"]
}
"""Arguments of ResNet-18's convolutions, in NHWC."""

_HALVES = ("float16", "bfloat16")


def _products(dtype: str = "float32") -> dict[str, OperatorSpec]:
    """BERT-base's at 128 tokens: a dense layer, and the two of an attention."""
    return {
        "bert": DenseSpec(input=(128, 768), units=3072, bias=True, activation="gelu", dtype=dtype),
        "scores": BatchMatmulSpec(a=(12, 128, 64), b=(12, 128, 64), transpose_b=True, dtype=dtype),
        "context": BatchMatmulSpec(a=(12, 128, 128), b=(12, 128, 64), dtype=dtype),
    }


LAYERS: dict[str, dict[str, OperatorSpec]] = {
    "conv2d": {
        **{name: Conv2dSpec(**{**one, "layout": "NCHW"}) for name, one in RESNET18.items()},
        # The paper's table 5, as in benchmarks/suites/layers-cpu.yaml; L6, L7 and L8 are r6, r9
        # and r11.
        **{
            name: Conv2dSpec(
                input=(1, channels, size, size), filters=filters, kernel=kernel, padding=kernel // 2
            )
            for name, channels, size, filters, kernel in (
                ("L1", 64, 27, 192, 5),
                ("L2", 256, 13, 256, 3),
                ("L3", 64, 224, 64, 3),
                ("L4", 64, 112, 128, 3),
                ("L5", 128, 56, 256, 3),
            )
        },
    },
    "depthwise_conv2d": {
        # MobileNet-v2's, some of them.
        f"d{channels}": DepthwiseConv2dSpec(
            input=(1, channels, size, size), kernel=3, stride=stride, padding=1, **_FUSED
        )
        for channels, size, stride in ((32, 112, 1), (96, 112, 2), (144, 56, 1), (384, 14, 1))
    },
    "dense": {
        "bert": _products()["bert"],
        # The classifier of ResNet-18 at batch 16.
        "classifier": DenseSpec(input=(16, 512), units=1000, bias=True),
    },
    "batch_matmul": {name: _products()[name] for name in ("scores", "context")},
    # In half precision, on tensor cores.
    "tensor_core": {
        f"{dtype}_{name}": _products(dtype)[name]
        for dtype in _HALVES
        for name in ("bert", "scores")
    },
    "tensor_core_conv2d": {
        f"{dtype}_{name}": Conv2dSpec(**RESNET18[name], dtype=dtype, **_FUSED)
        for dtype in _HALVES
        for name in ("r1", "r7", "r8", "r9")
    },
}
"""Templates and the layers that their configurations are drawn from."""


class CudaSources(Suite):
    """Configurations of a template, by layer and number.

    Args:
        template: a key of ``LAYERS``.
        arch: of the GPU.
        count: of configurations in all, as a word.
        seed: of the draw, as a word.
        check: whether to compile nothing, if it is a word at all.
    """

    def __init__(self, template: str, arch: str, count: str, seed: str, check: str = "") -> None:
        self._layers, self._arch, self._check = LAYERS[template], arch, bool(check)
        self._count, self._seed = int(count), int(seed)
        self._compiler = shutil.which("nvcc")
        if self._compiler is None and not check:
            raise SystemExit("there is no nvcc on PATH: install the CUDA toolkit, or pass --check")

    @cached_property
    def _target(self) -> str:
        return TVMTargets(NoOptions()).resolve(f"cuda -arch={self._arch}")

    def cases(self) -> Mapping[str, str]:
        names = list(self._layers)
        if capability(gpu_info(self._target).arch) < BFLOAT16_SINCE:
            names = [name for name in names if not name.startswith("bfloat16")]
        numbers = (divmod(number, len(names)) for number in range(self._count))
        return {f"{names[place]}/{number}": names[place] for number, place in numbers}

    def run(self, case: str) -> str | None:
        name, _, number = case.partition("/")
        builder, configs = self._drawn(name)
        program = builder.program(configs[int(number)])
        try:
            source = cuda_source(program.function, tvm_target(self._target))
        except Exception as error:
            raise WrongAnswerError(str(error).strip().splitlines()[-1]) from error
        return None if self._check else self._compiled(source)

    @cache  # noqa: B019 - there is one suite in a process
    def _drawn(self, name: str) -> tuple[Builder, list[list[int]]]:
        """A layer's builder, and a uniform sample of its legal configurations."""
        task = self._layers[name].task(name, self._target)
        provider = TemplateSpace(TemplateOptions())
        space = provider.design_space(task)
        sample = space.sample(self._count, np.random.default_rng(self._seed))
        return provider.builder(task, threads=1), sample.tolist()

    def _compiled(self, source: str) -> str:
        """What ptxas says of a kernel.

        Raises:
            WrongAnswerError: nvcc does not compile it.
        """
        assert self._compiler is not None
        with tempfile.TemporaryDirectory() as made:
            Path(made, "kernel.cu").write_text(source, encoding="utf-8")
            flags = ["-cubin", f"-arch={self._arch}", "-Xptxas=-v", "-o", "kernel.cubin"]
            done = subprocess.run(
                [self._compiler, *flags, "kernel.cu"],
                cwd=made,
                check=False,
                capture_output=True,
                text=True,
            )
        said = done.stdout + done.stderr
        if done.returncode:
            lines = [line for line in said.splitlines() if "error" in line or "fatal" in line]
            raise WrongAnswerError((lines or said.splitlines() or ["nvcc failed"])[0])
        return ", ".join(PTXAS.findall(said))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--template", choices=sorted(LAYERS), default="conv2d")
    parser.add_argument("--arch", default="sm_80")
    parser.add_argument("--count", default="200", help="configurations in all")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--check", action="store_true", help="compile nothing")
    given, words = parser.parse_known_args()
    check = ("check",) if given.check else ()
    options = (given.template, given.arch, given.count, given.seed, *check)
    sys.exit(main("cuda_compile:CudaSources", words, options=options))
