"""Runs generated CUDA source on the CPU: compiled as C++, every thread of a block a fiber.

So what is checked is the very text that nvcc compiles: indices, barriers, predicates, vectors.
Out-of-bounds and misaligned accesses end the program (address and undefined-behaviour sanitizers).
"""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from chameleon_tvm._building.lowering import cuda_source
from chameleon_tvm._device.targets import tvm_target
from programs import completed

HEADER = Path(__file__).with_name("emulation.h")
_KERNEL = re.compile(r"__global__ void __launch_bounds__\((\d+)\) (\w+)\(([^)]*)\) \{")
_FLAGS = [
    "-std=c++17",
    "-O1",
    "-fno-strict-aliasing",
    "-fsanitize=address,alignment,bounds",
    "-fno-sanitize-recover=all",
    "--param=asan-stack=0",
    "-w",
]


_DYNAMIC = re.compile(r"extern __shared__ __align__\(64\) (\w+) (\w+)\[\];")


def kernel_only(source):
    """The source from its kernel's definition on, (threads, name, {parameter name: type})."""
    definition = _KERNEL.search(source)
    parameters = {}
    for parameter in definition[3].split(","):
        kind, *_, name = parameter.split()
        parameters[name.lstrip("*").removesuffix("_ptr")] = kind
    start = source.rindex("extern", 0, definition.start())
    # What a launch gives a size has none that C++ could know.
    text = _DYNAMIC.sub(
        r"auto \2 = reinterpret_cast<\1*>(emulation::dynamic_shared);", source[start:]
    )
    return text, int(definition[1]), definition[2], parameters


def emulate(source, blocks, arrays, out, folder):
    """Run a kernel with threads in ascending and in descending order.

    Args:
        source: CUDA source of one kernel.
        blocks: of the launch.
        arrays: parameter name to array; those the kernel writes hold what they start with.
        out: name of the output.
        folder: for temporary files.

    Returns:
        The output of either order.
    """
    text, threads, name, parameters = kernel_only(source)
    missing = [p for p in parameters if p not in arrays]
    assert not missing, f"the kernel has parameters {list(parameters)}"
    declared = []
    for parameter, kind in parameters.items():
        array = np.ascontiguousarray(arrays[parameter])
        (folder / parameter).write_bytes(array.tobytes())
        read = f'emulation::read_file("{parameter}", {array.nbytes})'
        declared.append(f"static auto {parameter} = static_cast<{kind}>({read});")
    width = 32 if "threadIdx.y" in text else threads
    call = f"[] {{ {name}({', '.join(parameters)}); }}"
    (folder / "kernel.cpp").write_text(
        "\n".join(
            [
                f'#include "{HEADER}"',
                text,
                *declared,
                "int main(int, char** argv) {",
                "  bool descending = argv[1][0] == 'd';",
                f"  emulation::launch({blocks}, {width}, {threads}, descending, {call});",
                f'  emulation::write_file("written", {out}, {arrays[out].nbytes});',
                "}\n",
            ]
        )
    )
    compiled = [shutil.which("g++"), *_FLAGS, "kernel.cpp", "-o", "kernel"]
    completed(compiled, cwd=folder)
    results = []
    for order in ("ascending", "descending"):
        completed(["./kernel", order], cwd=folder, timeout=240)
        written = np.fromfile(folder / "written", arrays[out].dtype)
        results.append(written.reshape(arrays[out].shape))
    return results


@pytest.fixture(name="emulate")
def _emulate():
    """``emulate``, where there is a C++ compiler."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++ to compile the emulation with")
    return emulate


@pytest.fixture
def nvcc(tmp_path):
    """Compiles a function to machine code, where there is nvcc."""
    compiler = shutil.which("nvcc")
    if compiler is None:
        pytest.skip("there is no nvcc")

    def compiled(function, target):
        (tmp_path / "kernel.cu").write_text(cuda_source(function, tvm_target(target)))
        command = [compiler, "-cubin", f"-arch={json.loads(target)['arch']}", "kernel.cu"]
        completed(command, cwd=tmp_path)

    return compiled
