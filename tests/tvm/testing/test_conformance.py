"""The checks of operators and templates find what is wrong, and pass what is right."""

import attrs
import numpy as np
import pytest
from chameleon_core import plugin_api as plugins
from chameleon_core.api import Registry
from chameleon_core.plugin_api import Choice, DesignSpace
from chameleon_testing.suites.base import outcomes
from chameleon_tvm._instructions.neon import Sdot
from chameleon_tvm._operators.base import Operator, seeded_array
from chameleon_tvm._operators.spec import OperatorSpec
from chameleon_tvm._quick_tvm import te
from chameleon_tvm._spaces.template.base import ScheduledTemplate
from chameleon_tvm.api import AttentionSpec, BatchMatmulSpec, Conv2dSpec, DenseSpec
from chameleon_tvm.testing.conformance import check_operator, check_template
from chameleon_tvm.testing.suites import InstructionSuite, OperatorSuite, TemplateSuite
from computing import NATIVE

SPECS = [
    Conv2dSpec(input=[1, 16, 8, 8], filters=32, kernel=3, padding=1, layout="NHWC"),
    DenseSpec(input=[4, 64], units=48, bias=True, activation="relu"),
    BatchMatmulSpec(a=[2, 16, 32], b=[2, 32, 16]),
    AttentionSpec(query=[1, 2, 20, 16], key=[1, 2, 20, 16], value=[1, 2, 20, 16]),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_our_own_conform(spec):
    task = spec.task("t", NATIVE)
    check_operator(task)
    check_template(task, count=2)


@attrs.frozen(kw_only=True)
class DoubleSpec(OperatorSpec):
    kind = "double"
    extent: int = 32

    @property
    def flop(self):
        return float(self.extent)


class Double(Operator):
    """Twice its input; what it gets wrong is in its class attributes."""

    factor = 2.0
    draws = 0

    def inputs(self):
        Double.draws += 1
        return [seeded_array((self.spec.extent,), "float32", 0)]

    def reference(self, inputs):
        return [self.factor * inputs[0].astype(np.float64)]

    def prim_func(self):
        data = te.placeholder((self.spec.extent,), name="data")
        return te.create_prim_func([data, te.compute(data.shape, lambda i: 2 * data[i], name="b")])


class Wrong(Double):
    factor = 3.0


class Unsettled(Double):
    def inputs(self):
        return [row + Double.draws for row in super().inputs()]


class Careless(Double):
    def reference(self, inputs):
        inputs[0] *= 2
        return inputs


class Misplaced(Double):
    constants = frozenset({3})


class DoubleTemplate(ScheduledTemplate):
    def space(self):
        return DesignSpace([Choice(name="vector", options=(4, 8, 16))])

    def apply(self, schedule, values):
        (loop,) = schedule.get_loops("b")
        _, inner = schedule.split(loop, [None, values["vector"]])
        schedule.vectorize(inner)


class WrongTemplate(DoubleTemplate):
    """Computes every output but those of the vectors after the first."""

    def function(self, values):
        extent = values["vector"]
        data = te.placeholder((self.operator.spec.extent,), name="data")
        some = te.compute(data.shape, lambda i: te.if_then_else(i < extent, 2 * data[i], 0.0))
        return te.create_prim_func([data, some])


@pytest.fixture
def install(monkeypatch):
    """Registers an operator and its template as an installed plugin would."""

    def installed(operator, template=DoubleTemplate):
        class Plugin:
            @plugins.hookimpl
            def chameleon_operators(self):
                yield operator_record(operator)

            @plugins.hookimpl
            def chameleon_templates(self):
                yield template_record(template)

        registry = Registry.from_plugins([Plugin()], with_installed=True)
        monkeypatch.setattr(Registry, "default", lambda: registry)
        return DoubleSpec().task("t", NATIVE)

    return installed


def test_a_third_party_s_conform(install):
    task = install(Double)
    check_operator(task)
    check_template(task)


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (Wrong, "operator 'double', without a schedule: outputs differ by"),
        (Unsettled, "its inputs differ from process to process"),
        (Careless, "its reference changes its inputs"),
        (Misplaced, "one of its constants is not an input"),
    ],
)
def test_an_operator_that_breaks_its_contract_is_told_so(install, operator, message):
    with pytest.raises(AssertionError, match=message):
        check_operator(install(operator))


def test_a_template_that_computes_something_else_is_told_so(install):
    message = r"template of operator 'double', configuration \[\d\]: outputs differ by"
    with pytest.raises(AssertionError, match=message):
        check_template(install(Double, WrongTemplate))


def operator_record(operator):
    return plugins.OperatorRecord(
        summary="odd", arguments=DoubleSpec, factory=f"{__name__}:{operator.__name__}"
    )


def template_record(template):
    return plugins.TemplateRecord(
        name="double",
        summary="odd",
        operators=("double",),
        targets=("llvm",),
        factory=f"{__name__}:{template.__name__}",
    )


def failures(suite, **attributes):
    result = outcomes(suite, attributes)
    return {row.name: row.failure for row in result if row.failure is not None}


def test_a_suite_finds_a_wrong_operator_and_one_that_is_not_installed(install):
    install(Wrong)
    result = failures(OperatorSuite, record=operator_record(Wrong), spec=DoubleSpec())
    assert "outputs differ by" in result["function"]
    result = failures(OperatorSuite, record=operator_record(Double), spec=DoubleSpec())
    assert "no process would find it" in result["function"]


def test_a_suite_finds_a_wrong_template(install):
    install(Double, WrongTemplate)
    record = template_record(WrongTemplate)
    result = failures(TemplateSuite, record=record, spec=DoubleSpec())
    assert "outputs differ by" in result["configurations"]
    skipped = [row.skipped for row in outcomes(TemplateSuite, {"record": record}) if row.skipped]
    assert "set the suite's attribute 'spec'" in skipped[0]


class Unheard(Sdot):
    mnemonics = ("unheard",)


def test_a_suite_finds_a_wrong_instruction():
    record = plugins.InstructionRecord(
        name="sdot",
        summary=Unheard.summary,
        architecture="aarch64",
        features=("dotprod",),
        factory=f"{__name__}:Unheard",
    )
    target = "llvm -mtriple=aarch64-linux-gnu -mcpu=generic -mattr=+dotprod"
    result = failures(InstructionSuite, record=record, target=target)
    assert "none of unheard in its code" in result["meaning"]
