"""What a winner became: its scheduled loops, and the code that is made of them."""

import pytest
from chameleon_tvm._building.remote.export import machine_code_context
from chameleon_tvm._quick_tvm import tvm
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.sketch.provider import SketchSpace
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace
from chameleon_tvm.api import Conv2dSpec, DenseSpec
from computing import resolved

ZEN4 = '{"keys": ["cpu"], "kind": "llvm", "mcpu": "znver4", "num-cores": 2}'
A100 = "nvidia/nvidia-a100"
CONVOLUTION = Conv2dSpec(input=[1, 16, 8, 8], filters=32, kernel=3, padding=1, layout="NHWC")


@pytest.mark.parametrize(
    "provider",
    [AutoSpace(AutoOptions()), SketchSpace(SketchOptions()), TemplateSpace(TemplateOptions())],
    ids=lambda provider: type(provider).__name__,
)
def test_a_winner_has_its_loops_and_its_assembly(provider):
    task = DenseSpec(input=[4, 64], units=48).task("t", ZEN4)
    config = provider.design_space(task).first_guesses[0].tolist()
    texts = provider.builder(task, threads=1).listings(config)
    assert set(texts) == {"TensorIR.py", "assembly.s"}
    assert "def main(" in texts["TensorIR.py"]
    compile(texts["TensorIR.py"], "TensorIR.py", "exec")
    assert "vfmadd" in texts["assembly.s"]


def test_on_another_processor_it_is_that_ones_assembly():
    texts = _listed("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76 -num-cores=4")
    assert "fmla" in texts["assembly.s"]


def test_on_a_gpu_it_is_the_source_of_its_kernels():
    texts = _listed(A100)
    assert set(texts) == {"TensorIR.py", "kernel.cu"}
    assert "__global__" in texts["kernel.cu"]


@pytest.mark.full
def test_after_an_export_of_the_same_process_it_is_still_listed():
    with machine_code_context(tvm.target.Target(A100)):
        texts = _listed(A100)
    assert _listed(A100) == texts


def _listed(target):
    task = CONVOLUTION.task("t", resolved(target))
    provider = TemplateSpace(TemplateOptions())
    [config, *_] = provider.design_space(task).first_guesses.tolist()
    return provider.builder(task, threads=1).listings(config)
