"""Random graphs and operators of ONNX, language models, torch's samples: a part of each suite."""

import case_suite
import numpy as np
import pytest

reference = pytest.importorskip("onnx.reference")

import attribute_cases  # noqa: E402 - needs onnx
import graph_cases  # noqa: E402 - needs onnx


@pytest.mark.parametrize("seed", range(0, 2000, 250))
def test_a_graph_has_the_outputs_of_its_nodes_each_time(seed):
    model, inputs, expected = graph_cases.Graph(seed).model()
    assert len(model.graph.node) == 3 + seed % 10
    got = reference.ReferenceEvaluator(model).run(None, inputs)
    assert all(np.array_equal(*pair) for pair in zip(got, expected, strict=True))
    assert graph_cases.Graph(seed).model()[0] == model


def test_an_operator_is_the_same_each_time():
    cases = list(attribute_cases.AttributeCases("300").cases())
    drawn = {case: attribute_cases.drawn_model(case) for case in cases[::10]}
    for case, (model, inputs, _) in drawn.items():
        assert [node.op_type for node in model.graph.node] == [case.partition("/")[0]]
        again, feeds, _ = attribute_cases.drawn_model(case)
        assert again == model
        assert all(np.array_equal(feeds[name], value) for name, value in inputs.items())


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("suite", "option", "fraction", "library"),
    [
        ("attribute_cases:AttributeCases", "3000", 0.02, "onnx"),
        ("graph_cases:GraphCases", "2000", 0.02, "onnx"),
        ("model_cases:of_library", "transformers", 0.06, "transformers"),
        ("torch_cases:OpInfoCases", "0", 0.002, "expecttest"),
        ("module_cases:ModuleCases", "0", 0.02, "expecttest"),
    ],
)
def test_a_fraction_of_all_cases_is_right(monkeypatch, suite, option, fraction, library):
    pytest.importorskip(library)
    monkeypatch.setenv("CHAMELEON_RECORDS", "none")
    names = case_suite.suite_of(suite, (option,)).cases()
    drawn = [name for name in names if case_suite.is_drawn(name, fraction)]
    outcomes = list(case_suite.outcomes(suite, (option,), drawn, seconds=120))
    good = {case_suite.RIGHT, case_suite.REFUSED, case_suite.NO_NETWORK}
    assert [one for one in outcomes if one.kind not in good] == []
    networks = [one for one in outcomes if one.kind != case_suite.NO_NETWORK]
    refused = [one for one in networks if one.kind == case_suite.REFUSED]
    assert len(refused) <= max(1, len(networks) // 10) < len(networks)
