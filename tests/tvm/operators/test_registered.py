"""Operators and templates of plugins beside this package's own."""

import attrs
import pytest
from chameleon_core._errors import ConfigError, ExitCode, PluginError
from chameleon_core._pipeline.load import from_dict
from chameleon_core._pipeline.nodes import PipelineError
from chameleon_core._task import Task
from chameleon_core.api import Registry
from chameleon_core.plugin_api import OperatorRecord, TemplateRecord, hookimpl
from chameleon_tvm._operators.base import is_operator, operator_of
from chameleon_tvm._operators.matmul import Dense
from chameleon_tvm._operators.spec import OperatorSpec
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm._spaces.template.matmul import DenseTemplate
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import template_of
from chameleon_tvm.api import DenseSpec
from synthetic import plugin_of

HERE = __name__
ZEN4 = '{"kind": "llvm", "mcpu": "znver4", "num-cores": 2}'
CUDA = '{"kind": "cuda", "arch": "sm_90"}'


@attrs.frozen(kw_only=True)
class SquareSpec(OperatorSpec):
    kind = "square"
    size: int

    @property
    def flop(self):
        return 2.0 * self.size**3

    def dense(self, target):
        return DenseSpec(input=(self.size, self.size), units=self.size).task("t", target)


class Square(Dense):
    """A product of two square matrices, as a third party might register it."""

    def __init__(self, task):
        self.described = SquareSpec.of(task)
        super().__init__(self.described.dense(task.target))


class SquareTemplate(DenseTemplate):
    def __init__(self, task, options):
        super().__init__(SquareSpec.of(task).dense(task.target), options)


class OtherDense(DenseTemplate):
    """A template for an operator that this package brings."""


def broken(task, options):
    raise KeyError("knobs")


class Plugin:
    def __init__(self, *templates):
        self.templates = templates

    @hookimpl
    def chameleon_operators(self):
        yield OperatorRecord(summary="", arguments=SquareSpec, factory=f"{HERE}:Square")

    @hookimpl
    def chameleon_templates(self):
        for name, factory in self.templates:
            yield TemplateRecord(
                name=name,
                summary="",
                operators=("dense",) if factory == "OtherDense" else ("square",),
                targets=("llvm",),
                factory=f"{HERE}:{factory}",
            )


@pytest.fixture
def install(monkeypatch):
    """Makes plugins found as installed ones are."""

    def installed(*plugins):
        registry = Registry.from_plugins(plugins, with_installed=True)
        assert not registry.errors
        monkeypatch.setattr(Registry, "default", lambda: registry)
        return registry

    return installed


def square(target=ZEN4):
    return SquareSpec(size=64).task("mine", target)


def test_an_operator_that_nobody_registers_is_a_sentence(install):
    install()
    assert not is_operator("square")
    with pytest.raises(ConfigError, match="task 'mine': there is no operator 'square'") as caught:
        operator_of(square())
    assert "installed operators: attention, batch_matmul, conv1d" in caught.value.hint


def test_an_operator_of_a_plugin_is_rebuilt_from_its_task(install):
    install(Plugin(("square", "SquareTemplate")))
    assert is_operator("square")
    result = operator_of(Task(**square().to_json()))
    assert isinstance(result, Square)
    assert result.described.size == 64
    auto = AutoSpace(AutoOptions())
    assert auto.design_space(square()).fingerprint == auto.design_space(result.task).fingerprint
    assert auto.builder(square(), threads=1).template.__class__ is SquareTemplate


def test_arguments_of_a_plugin_s_operator_are_read_and_written(install, tmp_path):
    registry = install(Plugin(("square", "SquareTemplate")))
    document = {
        "model": {"operators": [{"square": {"size": 8}}, {"dense": {"input": [2, 4], "units": 3}}]},
        "target": "llvm",
    }
    pipeline = from_dict(document, registry=registry)
    assert [type(spec) for spec in pipeline.model.options.operators] == [SquareSpec, DenseSpec]
    assert pipeline.document["model"]["operators"][0] == {
        "square": {"name": "", "weight": 1, "size": 8}
    }
    assert from_dict(pipeline.document, registry=registry).digest == pipeline.digest
    with pytest.raises(ConfigError, match=r"unknown entry 'sqare' .* did you mean 'square'"):
        from_dict({**document, "model": {"operators": [{"sqare": {}}]}}, registry=registry)


def test_an_operator_of_a_broken_plugin_is_answered_with_what_broke():
    broken = plugin_of(operators=OSError("no libsquare"))
    registry = Registry.from_plugins([("square-dist", broken)], with_installed=True)
    document = {"model": {"operators": [{"square": {"size": 8}}]}, "target": "llvm"}
    with pytest.raises(ConfigError, match="unknown entry 'square'") as caught:
        from_dict(document, registry=registry)
    assert "of 'square-dist' failed in chameleon_operators: OSError" in caught.value.hint
    assert caught.value.exit_code == ExitCode.PLUGIN


def test_two_templates_of_an_operator_are_told_apart_by_the_pipeline(install):
    install(Plugin(("one", "SquareTemplate"), ("two", "SquareTemplate")))
    with pytest.raises(PluginError, match="the templates 'one' and 'two' are for") as caught:
        template_of(square())
    assert caught.value.hint == "choose one: `space: {name: template, templates: [one]}`"
    assert isinstance(template_of(square(), TemplateOptions(templates=("two",))), SquareTemplate)


def test_an_own_operator_keeps_its_template_unless_the_pipeline_names_another(install):
    install(("their-dist", Plugin(("dense", "OtherDense"))))
    task = DenseSpec(input=(8, 64), units=64).task("t", ZEN4)
    assert type(template_of(task)) is DenseTemplate
    named = TemplateOptions(templates=("their-dist:dense",))
    assert type(template_of(task, named)) is OtherDense
    auto = AutoSpace(AutoOptions(templates=named.templates))
    assert type(auto.builder(task, threads=1).template) is OtherDense
    # On targets and for operators that it is not for, the own one stays.
    assert template_of(attrs.evolve(task, target=CUDA), named).__module__.endswith(
        "cuda.tensor_core"
    )
    with pytest.raises(PluginError, match="unknown template 'dens'; did you mean 'dense'"):
        template_of(task, TemplateOptions(templates=("dens",)))


def test_a_template_that_is_not_for_the_target_or_fails_is_a_sentence(install):
    install(Plugin(("square", "SquareTemplate")))
    with pytest.raises(ConfigError, match=r"templates are for llvm targets, and .* 'mine' is"):
        template_of(square(CUDA))
    install(Plugin(("square", "broken")))
    with pytest.raises(PluginError, match="template 'square' cannot be made: KeyError: 'knobs'"):
        template_of(square())


def test_the_option_leaves_the_pipelines_of_earlier_runs_as_they_were(install):
    registry = install()
    model = {"operators": [{"dense": {"input": [2, 4], "units": 3}}]}

    def space(written):
        document = {"model": model, "target": "llvm", "space": written}
        return from_dict(document, registry=registry).document["space"]

    assert "templates" not in space("template")
    assert space({"name": "template", "templates": ["dense"]})["templates"] == ["dense"]
    assert "templates" not in space("auto")


@pytest.mark.parametrize("space", ["template", "auto"])
def test_an_unknown_template_is_found_before_anything_runs(install, space):
    document = {
        "model": {"operators": [{"dense": {"input": [2, 4], "units": 3}}]},
        "target": "llvm",
        "space": {"name": space, "templates": ["dense", "dens"]},
    }
    with pytest.raises(
        PipelineError, match="unknown template 'dens'; did you mean 'dense'"
    ) as answer:
        from_dict(document, registry=install())
    assert len(answer.value.problems) == 1
    assert "installed templates: " in answer.value.hint
