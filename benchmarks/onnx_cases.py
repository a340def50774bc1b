"""ONNX's own test cases: single nodes, simple networks, networks and operators out of PyTorch.

python benchmarks/onnx_cases.py                        # Chameleon, each case compiled untuned
python benchmarks/onnx_cases.py --engine onnxruntime   # the same cases with onnxruntime
python benchmarks/onnx_cases.py --engine emx_onnx_cgen.onnx_backend   # with any ONNX backend
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from case_suite import RefusedError, Suite, WrongAnswerError, main
from onnx import numpy_helper
from onnx.backend.test.runner import Runner

_KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


class OnnxCases(Suite):
    """The cases of the installed version of ``onnx``.

    Args:
        engine: a key of ``ENGINES``, or a module that implements ONNX's backend interface.
    """

    def __init__(self, engine: str) -> None:
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
            self.compare(got, expected, given)
        return remark

    def prepared(self, model: Any) -> Any:
        """A function of a model's inputs that gives its outputs, and a remark or None."""
        return self._engine(model)

    def compare(self, got: Any, expected: Any, case: Any) -> None:
        """Compare the outputs of a case.

        Raises:
            WrongAnswerError: they differ.
        """
        _compare(got, expected, case.rtol, case.atol)


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
    constants = {one.name for one in model.graph.initializer}
    names = [one.name for one in model.graph.input if one.name not in constants]
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


ENGINES = {"chameleon": chameleon, "onnxruntime": _onnxruntime}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--engine", default="chameleon")
    given, words = parser.parse_known_args()
    sys.exit(main("onnx_cases:OnnxCases", words, options=(given.engine,)))
