"""PyTorch's own samples of its operators: OpInfo's ``op_db`` in float32, each sample as a network.

python benchmarks/torch_cases.py --samples 3    # three samples of each entry, drawn by a digest
python benchmarks/torch_cases.py                # all of them
python benchmarks/torch_cases.py --together 16  # so many samples at once, in a quarter of the time

Tensors among a sample's arguments are the network's inputs; everything else is a constant. A sample
counts as no network if it draws random numbers, if torch itself refuses it, if it changes an input
in place, or if an input or the result is no dense tensor of real numbers. Each other one is
exported, compiled untuned, delivered, loaded, and compared with torch. With ``--together`` samples
of an operator become one network. If that one fails, or an answer of it is wrong, each of them
becomes a network of its own. Torch's samples need the package ``expecttest``.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from functools import cached_property, partial
from itertools import islice
from typing import Any

import attrs
import numpy as np
import torch
from case_suite import NoNetworkError, Suite, WrongAnswerError, main
from chameleon_networks._backends.onnx_networks import untuned
from chameleon_networks._evaluation.special_inputs import casts_to_integers, integer_data
from chameleon_networks._graph.tvm_warnings import warnings_once
from chameleon_networks._importers.torch.lowering.importer import torch_graph
from chameleon_networks._importers.torch.programs import export_module
from hard_inputs import (
    NOT_FINITE,
    ROUNDINGS_APART,
    SPREADING,
    TOLERANCES,
    chooses_equally,
    difference,
    differences,
    hard_inputs,
    undefined,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree


class OpInfoCases(Suite):
    """Samples of operators.

    Args:
        samples: of each entry at most, as a word; 0 for all.
        together: samples of an entry that become one network, as a word.
        dtype: of the samples.
        hard: a word if each network also gets inputs of ``hard_inputs``.
    """

    inputs: int | None = None
    """So many tensors of a sample are inputs at most, and others are constants; None for all."""

    def __init__(
        self, samples: str, together: str = "1", dtype: str = "float32", hard: str = ""
    ) -> None:
        self._most, self._together = int(samples), int(together)
        self._dtype, self._hard = getattr(torch, dtype), hard
        self._last: tuple[str, list[Any]] = "", []
        self._answers: dict[str, Answers] = {}
        """Of cases whose network is one with that of an earlier case."""
        self._ahead: frozenset[str] = frozenset()

    @cached_property
    def entries(self) -> dict[str, Any]:
        """PyTorch's entries with samples, by name."""
        from torch.testing._internal import (  # noqa: PLC0415 - takes seconds
            common_methods_invocations as samples,
        )

        # It hides that an operator draws random numbers.
        samples.wrapper_set_seed = lambda function, *args, **kwargs: function(*args, **kwargs)
        return {
            ".".join(filter(None, (entry.name, entry.variant_test_name))): entry
            for entry in samples.op_db
            if self._dtype in entry.dtypes
        }

    def cases(self) -> Mapping[str, str]:
        cases = {}
        for name in self.entries:
            cases |= dict.fromkeys(self._drawn(name), _group(name))
        return cases

    def _drawn(self, name: str) -> list[str]:
        """The cases of an entry."""
        numbers = range(len(self._samples(name)))
        drawn = sorted(numbers, key=lambda number: _digest(f"{name}/{number}"))
        return [f"{name}/{number}" for number in sorted(drawn[: self._most or None])]

    def run(self, case: str) -> str | None:
        warnings.simplefilter("ignore")
        network = self.network(case)
        if self._together > 1:
            if case not in self._ahead:
                self._run_ahead(case)
            if case in self._answers:
                with suppress(WrongAnswerError):
                    return self._compare_all(self._answers[case])
        network.count = len(_expected(network))
        [answers] = self._run([network], case)
        return self._compare_all(answers)

    def _compare_all(self, answers: Answers) -> str | None:
        """Compare a sample's answers for all inputs; the remark about the usual ones."""
        remarks = []
        for label, (network, got) in answers.items():
            try:
                remarks.append(self.compare(got, _expected(network), network))
            except WrongAnswerError as error:
                if not label:
                    raise
                raise WrongAnswerError(f"with {label}, {error}") from error
        return remarks[0]

    def _run(self, networks: Sequence[Sampled], owner: str) -> list[Answers]:
        """Compile networks as one, and compute the answers of each for all of its inputs."""
        one = Beside(networks) if len(networks) > 1 else networks[0]
        graph = torch_graph(_program(one, owner)).module
        with warnings_once():
            compiled = self.compiler(graph)
        variants = [{"": network} for network in networks]
        if self._hard:
            spreading = re.search(SPREADING, owner) is not None
            variants = _hard_variants(networks, graph["main"], spreading=spreading)
        answers: list[Answers] = [{} for _ in networks]
        for label in dict.fromkeys(label for one in variants for label in one):
            members = [one.get(label, one[""]) for one in variants]
            outputs = iter(_computed(compiled, [x for each in members for x in each.inputs]))
            for kept, member, own in zip(answers, members, variants, strict=True):
                got = list(islice(outputs, member.count))
                if label in own:
                    kept[label] = member, got
        return answers

    def network(self, case: str) -> Sampled:
        """The network of a case.

        Raises:
            NoNetworkError: there is none.
        """
        name, _, number = case.rpartition("/")
        entry, sample = self.entries[name], self._samples(name)[int(number)]
        if "dropout" in name and sample.kwargs.get("training", True):
            raise NoNetworkError("it leaves out numbers as in training")
        if "empty" in name:
            raise NoNetworkError("its numbers are those that memory had before")
        if name == "histogramdd" and not all(map(_is_increasing, sample.args[0])):
            raise NoNetworkError("its bins do not increase, as torch requires")
        function = entry.op
        if name in {"svd", "linalg.svd"}:
            function = lambda *args, **kwargs: _products(entry.op(*args, **kwargs))  # noqa: E731
        return Sampled(function, (sample.input, *sample.args), sample.kwargs, self.inputs)

    def _run_ahead(self, case: str) -> None:
        """Compute answers of a case and of the next ones of its entry in one network."""
        drawn = self._drawn(case.rpartition("/")[0])
        start = drawn.index(case)
        self._ahead = frozenset(drawn[start : start + self._together])
        networks = {}
        for name in drawn[start : start + self._together]:
            with suppress(NoNetworkError):
                network = self.network(name)
                network.count = len(_expected(network))
                networks[name] = network
        self._answers = self._answered(networks)

    def _answered(self, networks: dict[str, Sampled]) -> dict[str, Answers]:
        """Answers of networks by case: in one network, or else in a quarter of them at a time."""
        if len(networks) <= 1:
            return {}  # whoever is to blame for an exception fails alone, too
        try:
            answers = self._run(list(networks.values()), next(iter(networks)))
            return dict(zip(networks, answers, strict=True))
        except Exception:  # noqa: BLE001 - of any of them
            cases, size = list(networks), -(-len(networks) // 4)
            parts = [cases[first : first + size] for first in range(0, len(cases), size)]
            answered: dict[str, Answers] = {}
            for part in parts:
                answered |= self._answered({name: networks[name] for name in part})
            return answered

    def compiler(self, graph: Any) -> Any:
        """A network that is compiled as ``compared`` asks for it."""
        return untuned(graph)

    def compare(self, got: list[Any], expected: list[Any], network: Any) -> str | None:
        """Compare results; a remark about those that are right, or None.

        Raises:
            WrongAnswerError: they differ.
        """
        return check_outputs(got, expected, network)

    def _samples(self, name: str) -> list[Any]:
        if self._last[0] != name:
            torch.manual_seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._last = name, self.samples_of(name)
        return self._last[1]

    def samples_of(self, name: str) -> list[Any]:
        """PyTorch's samples of an entry."""
        return list(self.entries[name].sample_inputs("cpu", self._dtype))


def compared(
    network: Any,
    owner: str,
    *,
    compiler: Callable[[Any], Any] = untuned,
    compare: Callable[[list[Any], list[Any], Any], str | None] | None = None,
) -> str | None:
    """Compare what a network gives with torch's own result.

    Args:
        network: a module with its ``inputs``.
        owner: its name.
        compiler: makes a function of arrays of a Relax ``IRModule``.
        compare: gets these outputs, torch's, and the network.

    Returns:
        A remark, or None.

    Raises:
        NoNetworkError: torch computes no such network.
        WrongAnswerError: the results differ.
        ChameleonError: the network is refused.
    """
    expected = _expected(network)
    got = _outputs(_program(network, owner), network.inputs, compiler)
    return (compare or check_outputs)(got, expected, network)


def _is_increasing(edges: Any) -> bool:
    """Whether edges of bins increase; if not, torch's result depends on its way of searching."""
    return not isinstance(edges, torch.Tensor) or bool((edges.diff() > 0).all())


def _products(factors: Any) -> tuple[Any, ...]:
    """Singular values, and products that are the same for all signs and bases of their vectors."""
    u, values, v = factors
    v = v if isinstance(factors, torch.return_types.linalg_svd) else v.mT
    count = values.shape[-1]
    product = u[..., :count] * values.unsqueeze(-2) @ v[..., :count, :]
    return product, values, u.mT @ u, v @ v.mT


def _digest(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()


def _group(name: str) -> str:
    """The name space of an operator."""
    space, _, rest = name.partition(".")
    known = {"nn", "linalg", "fft", "special", "masked", "signal", "_refs"}
    return space if rest and space in known else "torch"


class Sampled(torch.nn.Module):
    """A sample as a module, of which the tensors among the arguments are inputs.

    Attributes:
        inputs: copies of these, each in one piece.
        count: of torch's results, once they are known.
    """

    def __init__(self, function: Any, args: Any, kwargs: Any, most: int | None) -> None:
        super().__init__()
        self._function = function
        self._leaves, self._structure = pytree.tree_flatten((args, kwargs))
        self._indices = [
            index for index, leaf in enumerate(self._leaves) if isinstance(leaf, torch.Tensor)
        ][:most]
        self.inputs = tuple(_in_one_piece(self._leaves[index]) for index in self._indices)
        for index in self._indices:
            self._leaves[index] = None
        self.count = 0

    def forward(self, *tensors: Any) -> Any:
        """The function's result."""
        leaves = list(self._leaves)
        for index, tensor in zip(self._indices, tensors, strict=True):
            leaves[index] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self._structure)
        return self._function(*args, **kwargs)


Answers = dict[str, tuple[Sampled, list[Any]]]
"""A sample's answers by the label of its inputs, which is empty for the usual ones."""


def _hard_variants(
    networks: Sequence[Sampled], function: Any, *, spreading: bool
) -> list[dict[str, Sampled]]:
    """Samples with other inputs, as far as torch computes results for them."""
    data, casts = integer_data(function), casts_to_integers(function)
    variants, first = [], 0
    for network in networks:
        last = first + len(network.inputs)
        integers = {place - first for place in data if first <= place < last}
        arrays = [tensor.numpy() for tensor in network.inputs]
        shapes = [tensor.shape for tensor in _expected(network)]
        own = {"": network}
        for label, changed in hard_inputs(arrays, integers, casts=casts).items():
            other = copy(network)
            other.mixes, other.may_spread = spreading, label == NOT_FINITE and spreading
            other.casts = casts
            other.inputs = tuple(torch.from_numpy(np.asarray(array)) for array in changed)
            with suppress(NoNetworkError):
                if [x.shape for x in _expected(other)] == shapes:
                    own[label] = other
        variants.append(own)
        first = last
    return variants


class Beside(torch.nn.Module):
    """Samples beside each other, as one module.

    Attributes:
        inputs: of all of them.
    """

    def __init__(self, networks: Sequence[Sampled]) -> None:
        super().__init__()
        self._networks = torch.nn.ModuleList(networks)
        self._counts = [len(network.inputs) for network in networks]
        self.inputs = tuple(tensor for network in networks for tensor in network.inputs)

    def forward(self, *tensors: Any) -> list[Any]:
        """Their results."""
        left = iter(tensors)
        return [
            _tensors(network(*islice(left, count)))
            for network, count in zip(self._networks, self._counts, strict=True)
        ]


def _in_one_piece(tensor: Any) -> Any:
    """A copy of a tensor.

    Raises:
        NoNetworkError: it is none of dense real numbers.
    """
    _check_dense(tensor, "an input")
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def _check_dense(tensor: Any, what: str) -> None:
    if tensor.layout != torch.strided or tensor.is_nested:
        raise NoNetworkError(f"{what} is not dense")
    if tensor.is_complex() or tensor.is_quantized:
        raise NoNetworkError(f"{what} is {tensor.dtype}")


def _expected(network: Any) -> list[Any]:
    """Torch's result.

    Raises:
        NoNetworkError: there is none, or it is none of a network.
    """
    given = [tensor.clone() for tensor in network.inputs]
    state = torch.get_rng_state()
    try:
        with torch.no_grad():
            result = _tensors(network(*given))
    except Exception as error:
        raise NoNetworkError(f"torch refuses it: {' '.join(str(error).split())}") from error
    if not all(map(_same, given, network.inputs)):
        raise NoNetworkError("it changes an input in place")
    if not result:
        raise NoNetworkError("it gives no tensor")
    for tensor in result:
        _check_dense(tensor, "the result")
    if not torch.equal(state, torch.get_rng_state()):
        raise NoNetworkError("it draws random numbers")
    return result


def _tensors(result: Any) -> list[Any]:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _same(tensor: Any, other: Any) -> bool:
    return tensor.shape == other.shape and bool(
        torch.equal(tensor, other)
        or torch.allclose(tensor.double(), other.double(), rtol=0, atol=0, equal_nan=True)
    )


def _program(network: Any, owner: str) -> Any:
    return export_module(network.eval(), network.inputs, owner).in_shapes({})


def _outputs(program: Any, inputs: Any, compiler: Callable[[Any], Any]) -> list[Any]:
    """The outputs of a program that is compiled untuned and loaded as a delivered network is."""
    with warnings_once():
        network = compiler(torch_graph(program).module)
    return _computed(network, inputs)


def _computed(network: Any, inputs: Any) -> list[Any]:
    result = network(*(tensor.numpy() for tensor in inputs))
    return list(result) if isinstance(result, list | tuple) else [result]


def check_outputs(got: list[Any], expected: list[Any], network: Any) -> str | None:
    """Compare results, if need be with regard to torch's own rounding.

    Raises:
        WrongAnswerError: they differ.
    """
    if len(got) != len(expected):
        raise WrongAnswerError(f"{len(got)} outputs instead of {len(expected)}")
    wants = list(map(array_of, expected))
    right: _Exact | None = None
    remark = None
    for number, (have, wanted, want) in enumerate(zip(got, expected, wants, strict=True)):
        have = np.asarray(have)  # noqa: PLW2901
        if have.shape != want.shape:
            raise WrongAnswerError(f"output {number} has shape {have.shape}, not {want.shape}")
        dtype = str(wanted.dtype).removeprefix("torch.")
        if str(have.dtype) != dtype and dtype != "bfloat16":
            raise WrongAnswerError(f"output {number} is {have.dtype}, not {dtype}")
        tolerance = TOLERANCES.get(dtype, 0.0)
        if difference(have, want) <= tolerance:
            continue
        inputs = [array_of(tensor) for tensor in network.inputs]
        if want.dtype.kind == "i" and chooses_equally(inputs, wants, have, want):
            continue
        right = right or _Exact.of(network, wants)
        apart = right.difference(number, have)
        if not apart <= max(tolerance, ROUNDINGS_APART * right.own):
            if not apart <= ROUNDINGS_APART * right.of_rounded_inputs(number):
                error = f"output {number} differs by {apart:.3g}, torch's by {right.own:.3g}"
                raise WrongAnswerError(error)
            remark = "inputs that differ by less than a rounding change the result as much"
        else:
            remark = f"torch's own error is {right.own:.3g}"
    return remark


@attrs.frozen(eq=False, kw_only=True)
class _Exact:
    """Torch's results in float64, which tell rounding from mistakes.

    Attributes:
        network: computes them.
        wants: its results in its own dtype.
        outputs: those in float64, or ``wants`` if there are none.
        own: the largest difference between the two, in all outputs.
    """

    network: Any
    wants: list[Any]
    outputs: list[Any]
    own: float

    @classmethod
    def of(cls, network: Any, wants: list[Any]) -> _Exact:
        """Compute a network's results in float64."""
        outputs = _in_float64(network) or wants
        pairs = zip(wants, outputs, strict=True)
        own = max(difference(want, right, finite=True) for want, right in pairs)
        return cls(network=network, wants=wants, outputs=outputs, own=own)

    def difference(self, number: int, have: Any) -> float:
        """The largest difference of an output from the nearest result, where these are defined."""
        want, right = self.wants[number], self.outputs[number]
        known, spread = [want, right], getattr(self.network, "may_spread", False)
        with sdpa_kernel(SDPBackend.MATH):  # the faster kernels of attention skip NaN
            known.append(array_of(_expected(self.network)[number]))
        if spread:
            known.append(self._without_nan(number))
        apart = differences(have, *known, may_spread=spread)
        arbitrary = np.array(undefined(want, right) | _failed(self.network, apart.shape))
        if getattr(self.network, "casts", False) and want.dtype.kind == "i":
            # Languages leave open which integer replaces a float; x86 takes the least one.
            arbitrary |= want == np.iinfo(want.dtype).min
            arbitrary |= _apart_by_a_rounding(have, want)
        doubted = np.argwhere((apart > _NEAR) & ~arbitrary)[:_MOST_PLACES]
        for place in map(tuple, doubted):
            arbitrary[place] = self._is_left_over(number, place)
        return float(np.where(arbitrary, 0.0, apart).max(initial=0.0))

    def _is_left_over(self, number: int, place: tuple[int, ...]) -> bool:
        """Whether the result of a pointwise function changes with the one before it.

        Torch then returns memory that it has not written.
        """
        want, found = self.wants[number], set[str]()
        at = np.ravel_multi_index(place, want.shape) if place else 0
        others = np.flatnonzero(np.isfinite(want) & (want != want[place]))
        with suppress(Exception), torch.no_grad():  # it may be no pointwise function
            inputs = [x.expand(want.shape).reshape(-1) for x in self.network.inputs]
            for other in np.random.default_rng(0).permutation(others)[:_DRAWS_BEFORE]:
                chosen = [x[[other, other, at]] for x in inputs]
                before, _, result = array_of(_tensors(self.network(*chosen))[number])
                if before == want.reshape(-1)[other]:
                    found.add(str(result))
        return len(found) > 1

    def _without_nan(self, number: int) -> Any:
        """An output with numbers in the places that no NaN or infinity of an input changes.

        Torch multiplies some of them by zero.
        """
        filled = [
            _in_float64(self.network, lambda x, y=y: x.nan_to_num(y, y, y))  # type: ignore[misc]
            for y in (1.0, -3.0)
        ]
        one, other = (self.outputs if each is None else each for each in filled)
        return np.where(one[number] == other[number], one[number], self.outputs[number])

    def of_rounded_inputs(self, number: int) -> float:
        """How much rounding the inputs once more changes an output, if it does so smoothly."""
        want = self.outputs[number]
        if want.dtype.kind != "f":
            return 0.0

        def changed(share: float) -> float:
            torch.manual_seed(0)
            mixes = getattr(self.network, "mixes", False)
            jittered = partial(_jittered, share=share, whole=mixes)
            draws = [_in_float64(self.network, jittered) or self.outputs for _ in range(_DRAWS)]
            return max(difference(draw[number], want, finite=True) for draw in draws)

        whole = changed(1.0)
        return whole if changed(1 / 16) < whole / 4 else 0.0  # a jump would stay as it is


_DRAWS = 4
_DRAWS_BEFORE = 32
_MOST_PLACES = 64
_NEAR = 1e-3
"""Results that differ by less are rounded ones of the same number."""


def _jittered(x: Any, *, share: float, whole: bool) -> Any:
    """Numbers in float64 that differ from others by at most a share of half a unit of float32.

    Args:
        x: the others.
        share: of the unit.
        whole: whether the unit is that of the largest number, once for each of the two factors.
            No product of matrices and no factorization is more exact (Higham, Accuracy and
            Stability, sections 3.5 and 9.3).
    """
    size = np.abs(np.asarray(x.numpy(), np.float32))
    size = np.full_like(size, 2 * size[np.isfinite(size)].max(initial=0.0)) if whole else size
    unit = torch.from_numpy(np.asarray(np.spacing(size), np.float64))
    return x + share * unit * (torch.rand_like(x) - 0.5)


def _apart_by_a_rounding(have: Any, want: Any) -> Any:
    """Where large integers are apart by two roundings of the float64 that they come from."""
    ours, theirs = have.astype(np.float64), want.astype(np.float64)
    size = np.abs(theirs)
    return (size > _LARGEST_EXACT) & (np.abs(ours - theirs) <= 2 * np.spacing(size))


_LARGEST_EXACT = 2.0**53


def _failed(network: Any, shape: tuple[int, ...]) -> Any:
    """The places of matrices that torch could not factorize; it leaves something in them."""
    with torch.no_grad():
        info = getattr(network(*(x.clone() for x in network.inputs)), "info", None)
    failed = np.zeros((), bool) if info is None else info.numpy() != 0
    missing = len(shape) - failed.ndim
    return np.broadcast_to(failed.reshape((*failed.shape, *[1] * missing)), shape)


def array_of(tensor: Any) -> Any:
    """A tensor for NumPy, which lacks bfloat16."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _in_float64(network: Any, change: Callable[[Any], Any] = lambda x: x) -> list[Any] | None:
    """Torch's result in float64, if it has any, for inputs that ``change`` changes."""
    inputs = [change(x.double()) if x.is_floating_point() else x.clone() for x in network.inputs]
    torch.set_default_dtype(torch.float64)  # functions of integers compute in it
    try:
        with torch.no_grad():
            return list(map(array_of, _tensors(deepcopy(network).double()(*inputs))))
    except Exception:  # noqa: BLE001 - of torch's own; only a reason to allow more is lost
        return None
    finally:
        torch.set_default_dtype(torch.float32)


def run(suite: str) -> int:
    """Run a suite of samples from the command line.

    Args:
        suite: its class, as ``module:Class``.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--samples", default="0", help="of each entry, drawn by a digest")
    parser.add_argument("--together", default="1", help="samples of an entry in one network")
    parser.add_argument("--dtype", default="float32", help="of the samples")
    parser.add_argument("--hard", action="store_true", help="other inputs as well")
    given, words = parser.parse_known_args()
    options = [given.samples, given.together, given.dtype, "hard" if given.hard else ""]
    for usual in ("", "float32", "1"):
        if options[-1] != usual:
            break
        options.pop()
    return main(suite, words, options=options)


if __name__ == "__main__":
    sys.exit(run("torch_cases:OpInfoCases"))
