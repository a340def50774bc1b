"""Answers of LLVM are kept, and a pipeline is looked at without importing TVM."""

import json

import attrs
import pytest
from chameleon_core._errors import TargetError
from chameleon_core.plugin_api import NoOptions
from chameleon_system import _disk_cache as keeping
from chameleon_system._files import user_cache_folder
from chameleon_system._processor import Processor, this_processor
from chameleon_tvm._device import file_cache
from chameleon_tvm._device.cpus.features import (
    architecture_of,
    cpu_architecture,
    cpu_features,
    target_features,
)
from chameleon_tvm._device.cpus.naming import native_masking, native_name
from chameleon_tvm._device.file_cache import cached_in_file
from chameleon_tvm._device.targets import TVMTargets, tvm_target
from chameleon_tvm._instructions.selection import refused_permissions
from chameleon_tvm._spaces.template.arithmetic import describe_arithmetic

LOOK = """
import sys
from chameleon_cli._main import run
assert run(["validate", sys.argv[1]]) == 0
print("tvm" in sys.modules, "torch" in sys.modules)
"""

PIPELINE = {
    "model": {"operators": [{"conv2d": {"input": [1, 8, 8, 8], "filters": 8, "kernel": 3}}]},
    "target": "native",
}


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.full
def test_the_second_look_at_a_pipeline_imports_no_tvm(everything, run_python, tmp_path):
    file = tmp_path / "pipeline.yaml"
    file.write_text(json.dumps({**PIPELINE, "output": str(tmp_path / "run")}))
    first, second = (run_python(LOOK, file).splitlines() for _ in range(2))
    assert first[-1] == "True False"
    assert second[-1] == "False False"
    assert first[:-1] == second[:-1]


DESCRIBE = """
import json, sys
from chameleon_core.api import Registry
from chameleon_core._plugins.factory import load_factory
print(json.dumps(load_factory(Registry.default().record("targets", "tvm").machine)()))
print("tvm" in sys.modules)
"""


@pytest.mark.full
def test_the_second_report_of_a_machine_imports_no_tvm(run_python):
    first, second = (run_python(DESCRIBE).splitlines() for _ in range(2))
    assert (first[1], second[1]) == ("True", "False")
    assert first[0] == second[0]
    facts = json.loads(first[0])
    target = TVMTargets(NoOptions()).resolve("native")
    assert facts["target"] == f"llvm {native_name().command_line()}"
    assert facts["kernels"] == describe_arithmetic(target)
    assert facts["refused"] == refused_permissions(target)
    assert facts["model_number"] == native_masking()


def test_an_answer_is_kept_for_the_same_question_and_surroundings(monkeypatch):
    asked = []

    @cached_in_file(lambda answer: answer != "none")
    def answer(text):
        asked.append(text)
        return text

    assert [answer(text) for text in ("one", "one", "two", "none", "none")] == [
        *("one", "one", "two", "none", "none")
    ]
    assert asked == ["one", "two", "none", "none"]
    for file in (user_cache_folder() / "targets").iterdir():
        file.write_text("{")
    assert answer("one") == "one"
    assert asked[4:] == ["one"]
    monkeypatch.setattr(file_cache, "_cache_key", lambda: ["another version"])
    answer("one")
    assert asked[5:] == ["one"]


def test_two_model_numbers_share_no_answer(monkeypatch):
    """LLVM's guess of the name follows from the number, which hypervisors may change."""
    processor = this_processor() or Processor(architecture="x86_64")
    monkeypatch.setattr(keeping, "this_processor", lambda: processor)
    model = attrs.evolve(processor, model=processor.model + 1)
    before = keeping.cache_key.__wrapped__((), ())
    monkeypatch.setattr(keeping, "this_processor", lambda: model)
    assert keeping.cache_key.__wrapped__((), ()) != before


def test_errors_are_not_kept():
    for _ in range(2):
        with pytest.raises(TargetError, match="no target kind"):
            TVMTargets(NoOptions()).resolve("llmv")


@pytest.mark.parametrize(
    "text",
    [
        "native",
        "llvm -mcpu=znver4",
        "llvm -mcpu=haswell -mattr=-fma",
        '{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}',
    ],
)
def test_a_canonical_target_says_what_the_object_of_tvm_says(text):
    target = TVMTargets(NoOptions()).resolve(text)
    assert cpu_features(target) == target_features(tvm_target(target))
    assert cpu_architecture(target) == architecture_of(tvm_target(target))
