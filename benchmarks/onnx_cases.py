"""ONNX's own test cases: single nodes, simple networks, networks and operators out of PyTorch.

python benchmarks/onnx_cases.py                        # Chameleon, each case compiled untuned
python benchmarks/onnx_cases.py --engine onnxruntime   # the same cases with onnxruntime
python benchmarks/onnx_cases.py --engine provider      # with Chameleon's provider in onnxruntime
python benchmarks/onnx_cases.py --engine emx_onnx_cgen.onnx_backend   # with any ONNX backend
python benchmarks/onnx_cases.py --hard                 # with inputs of hard_inputs.py as well

With hard inputs, answers are compared with those of ONNX's reference evaluator in float32 and in
float64, and with those of onnxruntime. An answer is right if it is near one of them.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import runpy
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from case_suite import RefusedError, Suite, WrongAnswerError, main
from hard_inputs import (
    NOT_FINITE,
    ROUNDINGS_APART,
    SPREADING,
    TOLERANCES,
    difference,
    hard_inputs,
)
from onnx import numpy_helper
from onnx.backend.test.runner import Runner
from onnx.reference import ReferenceEvaluator

_KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


class OnnxCases(Suite):
    """The cases of the installed version of ``onnx``.

    Args:
        engine: a key of ``ENGINES``, or a module that implements ONNX's backend interface.
        hard: a word if each case also gets inputs of ``hard_inputs``.
    """

    def __init__(self, engine: str, hard: str = "") -> None:
        self._hard = hard
        self._engine = ENGINES.get(engine) or partial(
            _backend, importlib.import_module(engine).run_model
        )

    @cached_property
    def _cases(self) -> dict[str, Any]:
        from onnx.backend.test.loader import load_model_tests  # noqa: PLC0415 - takes seconds

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {
                f"{kind}/{one.name}": one for kind in _KINDS for one in load_model_tests(kind=kind)
            }

    def _case(self, name: str) -> Any:
        """A case by its name; of all cases of nodes, only those of like names are made for it."""
        kind, _, case = name.partition("/")
        if "_cases" not in vars(self) and kind == "node" and case in (few := _node_cases(case)):
            return few[case]
        return self._cases[name]

    def cases(self) -> Mapping[str, str]:
        return {name: _group(name, one) for name, one in self._cases.items()}

    def run(self, case: str) -> str | None:
        given = self._case(case)
        model = _model(given)
        run = self.prepared(model)
        remark = None
        for inputs, expected in _samples(given, model):
            got, remark = run(inputs)
            try:
                self.compare(got, expected, given)
            except WrongAnswerError as error:
                feeds = dict(zip(_input_names(model), inputs, strict=True))
                if not self._hard or not (right := _opinions(model, feeds)):
                    raise
                _compare_all(model, feeds, got, right)
                remark = f"a reference agrees, unlike ONNX's test: {error}"
            if self._hard:
                self._run_hard(model, run, inputs)
        return remark

    def _run_hard(self, model: Any, run: Any, inputs: list[Any]) -> None:
        """Compare the outputs for hard inputs, as far as ONNX's reference evaluator has any."""
        if not all(isinstance(array, np.ndarray) for array in inputs):
            return
        names = _input_names(model)
        fixed = (run(inputs)[1] or "").split("values of ")[-1].split(", ")
        free = [place for place, name in enumerate(names) if name not in fixed]
        nodes = {node.op_type for node in model.graph.node}
        indexed = any(re.search(_INDEXED, name) for name in nodes)
        data = {place for place in free if inputs[place].dtype.kind in "iu" and not indexed}
        hard = hard_inputs(inputs, data, casts=bool(nodes & _CASTS))
        for label, changed in hard.items():
            if label == NOT_FINITE and any(re.search(_NAN_IGNORING, name) for name in nodes):
                continue
            arrays = [changed[i] if i in free else inputs[i] for i in range(len(inputs))]
            feeds = dict(zip(names, arrays, strict=True))
            right = _opinions(model, feeds)
            if not right:
                continue
            got, _ = run(arrays)
            spreading = re.search(SPREADING, " ".join(nodes), re.IGNORECASE) is not None
            try:
                may_spread = label == NOT_FINITE and spreading
                _compare_all(model, feeds, got, right, may_spread=may_spread)
            except WrongAnswerError as error:
                raise WrongAnswerError(f"with {label}, {error}") from error

    def prepared(self, model: Any) -> Any:
        """A function of a model's inputs that gives its outputs, and a remark or None."""
        return self._engine(model)

    def compare(self, got: Any, expected: Any, case: Any) -> None:
        """Compare the outputs of a case.

        Raises:
            WrongAnswerError: they differ.
        """
        _compare(got, expected, case.rtol, case.atol)


_CASTS = frozenset({"Cast", "CastLike", "QuantizeLinear", "DynamicQuantizeLinear"})
_NAN_IGNORING = "Pool|RoiAlign|^Attention$"
"""Operators in which the evaluator leaves out NaN, or replaces it by 0."""

_NORMALIZATIONS = tuple(
    f"{name}Normalization" for name in ("Layer", "RMS", "Group", "MeanVariance")
)
"""Operators that the evaluator computes in float32 unless their definitions replace them."""

_INDEXED = "LSTM|GRU|RNN|ReverseSequence|Gather|Scatter"
"""Operators that read lengths of sequences or indices."""


def _opinions(model: Any, feeds: Mapping[str, Any]) -> list[list[Any]]:
    """Outputs of the reference evaluator, in float64, and of onnxruntime.

    None at all if the evaluator refuses the inputs.
    """
    opinions = []
    for evaluate in (_evaluated, _evaluated_in_double, _in_session):
        copies = {name: array.copy() for name, array in feeds.items()}
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                opinions.append(list(evaluate(model, copies)))
        except Exception:  # noqa: BLE001 - of any class, as the inputs are not what it expects
            if not opinions:
                break
            if evaluate is _evaluated_in_double:
                opinions.append(opinions[0])
    return opinions


def _compare_all(
    model: Any,
    feeds: Mapping[str, Any],
    got: list[Any],
    right: list[list[Any]],
    *,
    may_spread: bool = False,
) -> None:
    """Compare all outputs with those of ``_opinions``.

    Raises:
        WrongAnswerError: one differs from all of them.
    """
    for number, outputs in enumerate(zip(got, *right, strict=True)):
        rounding = partial(_of_rounded_inputs, model, feeds, number)
        arrays = map(np.asarray, outputs)
        _compare_hard(number, *arrays, may_spread=may_spread, rounding=rounding)


def _input_names(model: Any) -> list[str]:
    """Names of the inputs that are no constants."""
    constants = {one.name for one in model.graph.initializer}
    return [one.name for one in model.graph.input if one.name not in constants]


def _of_rounded_inputs(model: Any, feeds: Mapping[str, Any], number: int) -> float:
    """How much less than a rounding of the inputs changes an output, if it does so smoothly."""
    rng = np.random.default_rng(0)

    def outputs(share: float) -> Any:
        changed = {
            name: x + share * np.spacing(np.abs(x)) * (rng.random(x.shape) - 0.5)
            if x.dtype.kind == "f"
            else x
            for name, x in feeds.items()
        }
        return np.asarray(list(_evaluated_in_double(model, changed))[number])

    def effect(share: float) -> float:
        draws = [difference(outputs(share), exact, finite=True) for _ in range(_DRAWS)]
        return max(draws)

    with np.errstate(all="ignore"):
        exact = outputs(0.0)
        whole = effect(1.0)
        return whole if effect(_SMALL_SHARE) < whole / 4 else 0.0  # a jump would stay as it is


_DRAWS = 4
_SMALL_SHARE = 1 / 256


def _compare_hard(
    number: int, have: Any, *right: Any, may_spread: bool, rounding: Callable[[], float]
) -> None:
    """Compare an output with those of ``_opinions``, if need be with regard to ``rounding``.

    Raises:
        WrongAnswerError: it differs from all of them.
    """
    if any(other.shape != have.shape for other in right):
        return  # they disagree about more than numbers
    tolerance = TOLERANCES.get(have.dtype.name, 0.0)
    if have.dtype.kind not in "biu":
        right = tuple(other.astype(np.float64) for other in right)
        have = have.astype(np.float64)
    own = difference(right[0], right[1], finite=True)
    apart = difference(have, *right, may_spread=may_spread)
    if apart <= max(tolerance, ROUNDINGS_APART * own):
        return
    if not apart <= ROUNDINGS_APART * (rounding() if tolerance else 0.0):
        raise WrongAnswerError(
            f"output {number} differs by {apart:.3g}, the evaluator's by {own:.3g}"
        )


def _evaluated(model: Any, feeds: Mapping[str, Any]) -> Any:
    return ReferenceEvaluator(model).run(None, feeds)


def _evaluated_in_double(model: Any, feeds: Mapping[str, Any]) -> Any:
    """Outputs of a model whose numbers in float16 and float32 are replaced by float64."""
    double = onnx.inliner.inline_selected_functions(
        model, [("", name) for name in _NORMALIZATIONS], inline_schema_functions=True
    )
    wide = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16}
    for tensor in _tensors(double.graph):
        if tensor.data_type in wide:
            array = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for attribute in (one for node in double.graph.node for one in node.attribute):
        if attribute.name == "to" and attribute.i in wide:
            attribute.i = onnx.TensorProto.DOUBLE
    inputs = {
        name: array.astype(np.float64) if array.dtype.kind == "f" else array
        for name, array in feeds.items()
    }
    return ReferenceEvaluator(double).run(None, inputs)


def _tensors(graph: Any) -> Any:
    yield from graph.initializer
    yield from (one.t for node in graph.node for one in node.attribute if one.HasField("t"))


def _in_session(model: Any, feeds: Mapping[str, Any]) -> Any:
    return _onnxruntime(model)(list(feeds.values()))[0]


def _node_cases(name: str) -> dict[str, Any]:
    """The cases of nodes in the modules that may define a case, and in those imported before."""
    from onnx.backend.test.case import node  # noqa: PLC0415 - takes long

    plain = name.removeprefix("test_").replace("_", "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.iter_modules(node.__path__, f"{node.__name__}."):
            operator = module.name.rpartition(".")[2].replace("_", "")
            if not module.ispkg and plain.startswith(operator[:6]):  # names of cases abbreviate
                importlib.import_module(module.name)
    return {one.name: one for one in node._NodeTestCases}  # noqa: SLF001 - as its loader does


def _model(case: Any) -> Any:
    return case.model or onnx.load(Path(case.model_dir, "model.onnx"))


def _group(name: str, case: Any) -> str:
    """The kind of a case; those of nodes by whether all inputs and outputs are numbers."""
    kind = name.partition("/")[0]
    if kind != "node":
        return kind
    graph = _model(case).graph
    kinds = [one.type for one in (*graph.input, *graph.output)]
    numbers = all(
        one.WhichOneof("value") == "tensor_type"
        and one.tensor_type.elem_type != onnx.TensorProto.STRING
        for one in kinds
    )
    return "nodes of tensors of numbers" if numbers else "nodes of sequences, optionals, strings"


def _samples(case: Any, model: Any) -> list[tuple[list[Any], ...]]:
    if case.data_sets is not None:
        return [tuple(list(map(_array, part)) for part in parts) for parts in case.data_sets]
    return [
        tuple(
            _read(folder, word, infos)
            for word, infos in (("input", model.graph.input), ("output", model.graph.output))
        )
        for folder in sorted(Path(case.model_dir).glob("test_data_set_*"))
    ]


def _array(value: Any) -> Any:
    """Numbers of a case, which are a message where NumPy has no such type."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _read(folder: Path, word: str, infos: Any) -> list[Any]:
    values = []
    for place in range(len(list(folder.glob(f"{word}_*.pb")))):
        raw = (folder / f"{word}_{place}.pb").read_bytes()
        kind = infos[place].type.WhichOneof("value")
        proto, read = _READ[kind]
        values.append(read(proto.FromString(raw)))
    return values


_READ = {
    "tensor_type": (onnx.TensorProto, numpy_helper.to_array),
    "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
    "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
}


def _compare(got: Any, expected: Any, rtol: float, atol: float) -> None:
    """Compare as ONNX's own runner does.

    Raises:
        WrongAnswerError: they differ.
    """
    try:
        Runner.assert_similar_outputs(expected, got, rtol, atol)
    except AssertionError as error:
        raise WrongAnswerError(" ".join(str(error).split())) from error


def chameleon(model: Any, **options: Any) -> Any:
    """A network of Chameleon's backend; options are those of ``ChameleonRep``."""
    from chameleon_networks._backends.onnx_networks import prepare  # noqa: PLC0415 - needs TVM

    rep = prepare(model, **options)

    def run(inputs: Any) -> Any:
        outputs = rep.run(inputs)
        fixed = ", ".join(rep.fixed)
        return outputs, f"compiled for the values of {fixed}" if fixed else None

    return run


def _provided(graph: Any) -> Any:
    """A network that onnxruntime runs with Chameleon's provider."""
    import onnxruntime  # noqa: PLC0415 - for this engine alone
    from chameleon_networks._backends.onnx_networks import untuned  # noqa: PLC0415 - needs TVM
    from chameleon_networks._export.bundles import write_onnx_file  # noqa: PLC0415

    network = untuned(graph)
    with tempfile.TemporaryDirectory() as scratch:
        file, package, *_ = write_onnx_file(Path(network.again.args[0]), Path(scratch)).files
        options = runpy.run_path(str(package))["session_options"]()
        session = onnxruntime.InferenceSession(str(file), options)

    def run(*inputs: Any) -> list[Any]:
        arrays = [np.asarray(x, spec.dtype) for x, spec in zip(inputs, network.inputs, strict=True)]
        names = [one.name for one in session.get_inputs()]
        return session.run(None, dict(zip(names, map(_ort_value, arrays), strict=True)))

    return run


def _ort_value(value: Any) -> Any:
    """An input as onnxruntime takes it: no scalars, and no types that NumPy lacks."""
    import onnxruntime  # noqa: PLC0415 - for this engine alone

    if not isinstance(value, np.ndarray | np.generic):
        return value
    array = np.asarray(value)
    # It takes numbers of less than a byte in another form.
    if not array.dtype.name.startswith(("bfloat16", "float8")):
        return array
    kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, kind)


def _of_type(value: Any, output: Any) -> Any:
    """An output in its own type: onnxruntime gives numbers of 8 bits as bytes."""
    kind = onnx.helper.tensor_dtype_to_np_dtype(output.type.tensor_type.elem_type or 1)
    bytes_of = isinstance(value, np.ndarray) and value.dtype == np.uint8
    return value.view(kind) if bytes_of and kind.name.startswith("float8") else value


def onnxruntime_session(model: Any) -> Any:
    """A model in onnxruntime, which logs nothing.

    Raises:
        Exception: onnxruntime does not take it.
    """
    import onnxruntime  # noqa: PLC0415 - for this engine alone

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _onnxruntime(model: Any) -> Any:
    names = _input_names(model)
    try:
        session = onnxruntime_session(model)
    except Exception as error:
        raise RefusedError(" ".join(str(error).split())) from error

    def run(inputs: Any) -> Any:
        given = [_ort_value(value) for value in inputs]
        try:
            outputs = session.run(None, dict(zip(names, given, strict=True)))
        except Exception as error:
            raise RefusedError(" ".join(str(error).split())) from error
        return [_of_type(*pair) for pair in zip(outputs, model.graph.output, strict=True)], None

    return run


def _backend(run_model: Callable[[Any, Any], Any], model: Any) -> Any:
    """A model in another backend; its exceptions count as refusals."""

    def run(inputs: Any) -> Any:
        try:
            return run_model(model, inputs), None
        except Exception as error:
            raise RefusedError(" ".join(str(error).split())) from error

    return run


ENGINES = {
    "chameleon": chameleon,
    "onnxruntime": _onnxruntime,
    "provider": partial(chameleon, compiler=_provided),
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--engine", default="chameleon")
    parser.add_argument("--hard", action="store_true", help="other inputs as well")
    given, words = parser.parse_known_args()
    options = (given.engine, "hard") if given.hard else (given.engine,)
    sys.exit(main("onnx_cases:OnnxCases", words, options=options))
