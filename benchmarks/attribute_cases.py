"""Operators of ONNX one by one, with random attributes, shapes, dtypes and versions.

python benchmarks/attribute_cases.py --cases 3000
python benchmarks/attribute_cases.py --cases 3000 --only '^Resize/'

Each case is compiled untuned. Its outputs have to agree with those of ONNX's reference evaluator
or, where that fails or says something else, with those of onnxruntime.
"""

from __future__ import annotations

import argparse
import sys
import warnings
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import attribute_arrays
import attribute_layers
import attribute_numbers
import numpy as np
import onnx
from attribute_draws import Draw, Known
from case_suite import NoNetworkError, Suite, WrongAnswerError, main
from chameleon_networks._backends.onnx_networks import prepare
from graph_cases import checked_model, infos_of, problem_of, witness_of
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

_VERSIONS = (26, 26, 26, 24, 23, 21, 18, 17, 13, 11, 9)
"""Of the standard, up to onnxruntime's; each has other operators, attributes and defaults."""
_TRIES = 60

_FAMILIES = {
    **attribute_layers.FAMILIES,
    **attribute_arrays.FAMILIES,
    **attribute_numbers.FAMILIES,
}


class AttributeCases(Suite):
    """Operators, named by their kind and a number; both are the seed.

    Args:
        count: of cases, as a word.
    """

    def __init__(self, count: str) -> None:
        self._count = int(count)

    def cases(self) -> Mapping[str, str]:
        names = [(family, kind) for family, one in _FAMILIES.items() for kind in one]
        # All operators have as many cases, and families of few operators twice as many.
        few = {family for family, one in _FAMILIES.items() if len(one) < 8}
        turns = [*names, *(pair for pair in names if pair[0] in few)]
        drawn = [(*turns[number % len(turns)], number) for number in range(self._count)]
        return {f"{kind}/{number}": family for family, kind, number in drawn}

    def run(self, case: str) -> str | None:
        model, inputs, expected = drawn_model(case)
        got = prepare(model).run(inputs)
        problems = _problems(got, expected)
        if not any(problems):
            return None
        others = _problems(got, witness_of(model, inputs))
        wrong = [f"{a}; onnxruntime: {b}" for a, b in zip(problems, others, strict=True) if a and b]
        if wrong:
            raise WrongAnswerError(wrong[0])
        return f"onnxruntime agrees: {next(filter(None, problems))}"


def _problems(got: Any, expected: Any) -> list[str | None]:
    """How each output differs from the expected one, which may have failed."""
    if expected is None:
        return ["it fails"] * len(got)
    return [problem_of([have], [want]) for have, want in zip(got, expected, strict=True)]


def drawn_model(case: str) -> tuple[Any, dict[str, Any], list[Any] | None]:
    """The model of a case, its inputs, and the reference's outputs, or None if it fails.

    Raises:
        NoNetworkError: no draw is one that the standard takes.
    """
    kind = case.partition("/")[0]
    draws = next(one[kind] for one in _FAMILIES.values() if kind in one)
    draw = Draw(zlib.crc32(case.encode()))
    for _ in range(_TRIES):
        version = draw.one(*_VERSIONS)
        try:
            model, inputs = _model(kind, draws(draw), version, draw)
        except Exception:  # noqa: BLE001, S112 - whatever is raised at what ONNX does not take
            continue
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                copies = {name: value.copy() for name, value in inputs.items()}
                expected = list(map(np.asarray, ReferenceEvaluator(model).run(None, copies)))
        except Exception:  # noqa: BLE001 - an error of the evaluator, or of the case
            expected = None
        known = expected or witness_of(model, inputs)
        if known is None or (0 not in _extents(inputs.values()) and 0 in _extents(known)):
            continue  # also a window that is larger than the image
        pairs = list(zip(model.graph.output, known, strict=True))
        if not all(_is_inferred(*pair) for pair in pairs):
            continue
        for info, value in pairs:
            # Those of a function's outputs are not inferred.
            number = info.type.tensor_type.elem_type
            info.CopyFrom(helper.make_tensor_value_info(info.name, number, value.shape))
        return model, inputs, expected
    raise NoNetworkError("no draw is one that the standard takes")


def _model(kind: str, operator: Any, version: int, draw: Draw) -> tuple[Any, dict[str, Any]]:
    """A model of one node, which ONNX has checked, and its inputs.

    Raises:
        Exception: the standard does not take it.
    """
    schema = onnx.defs.get_schema(kind, version, "")
    attributes = {name: value for name, value in operator.attributes.items() if value is not None}
    feeds: dict[str, Any] = {}
    constants: list[Any] = []
    names: list[str] = []
    for place, given in enumerate(operator.inputs):
        if isinstance(given, Known) and place >= schema.max_input:
            value = np.asarray(given.value).tolist()
            attributes[given.name] = value
            continue
        if given is None or (place >= schema.max_input):
            names.append("")
            continue
        names.append(f"x{place}")
        # Parameters are inputs as well as constants.
        if isinstance(given, Known):
            constants.append(
                numpy_helper.from_array(np.asarray(given.value, given.kind), names[-1])
            )
        elif feeds and draw.yes():
            constants.append(numpy_helper.from_array(np.asarray(given), names[-1]))
        else:
            feeds[names[-1]] = np.asarray(given)
    while names and not names[-1]:
        names.pop()
    outputs = [f"y{place}" for place in range(operator.outputs)]
    node = helper.make_node(kind, names, outputs, **attributes)
    results = list(map(helper.make_empty_tensor_value_info, outputs))
    model = checked_model([node], infos_of(feeds), results, constants, version=version)
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = model.ir_version, {"": version}
    # A whole model is not checked before its outputs have shapes.
    onnx.checker.check_node(node, context)
    return model, feeds


def _is_inferred(info: Any, value: Any) -> bool:
    """Whether an output has the extents that ONNX infers, as far as it does."""
    dims = info.type.tensor_type.shape.dim
    pairs = zip(dims, value.shape, strict=False)
    return all(dim.dim_value == extent for dim, extent in pairs if dim.HasField("dim_value"))


def _extents(arrays: Iterable[Any]) -> set[int]:
    """The extents that arrays have."""
    return {extent for array in arrays for extent in array.shape}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--cases", default="3000", help="how many")
    given, words = parser.parse_known_args()
    sys.exit(main("attribute_cases:AttributeCases", words, options=(given.cases,)))
