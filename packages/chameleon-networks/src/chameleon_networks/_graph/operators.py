"""Lists the operators to tune in a network, with their counts and owners in the user's model.

Passes rename variables, but keep the order of operators with the same kind and sizes (signature).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs
from chameleon_tvm.api import (
    AttentionSpec,
    BatchMatmulSpec,
    ConvolutionSpec,
    DenseSpec,
    OperatorSpec,
    identifier,
)

from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.matching_products import CONVOLUTION_RANKS
from chameleon_networks._graph.relax_utils import bindings_of, operator_name, relax, shape_of
from chameleon_networks._source_location import SourceLocation


def specs_of(fusions: Sequence[FusionGroup], find_owners: Sequence[str] = ()) -> list[OperatorSpec]:
    """The distinct operators of a network, named by their owners, with counts as weights."""
    counted = Counter(fusion.spec for fusion in fusions)
    first: dict[OperatorSpec, str] = {}
    for fusion, owner in zip(fusions, find_owners or [""] * len(fusions), strict=True):
        first.setdefault(fusion.spec, owner)
    names: Counter[str] = Counter()
    specs = []
    for position, (spec, weight) in enumerate(counted.items()):
        name = f"{first[spec] or f'{spec.kind}_{position}'} {spec.sizes}"
        # A module may be called twice, with different activations.
        names[identifier(name)] += 1
        calls = names[identifier(name)]
        again = f" ({calls})" if calls > 1 else ""
        specs.append(attrs.evolve(spec, name=name + again, weight=weight))
    return specs


def count_unfused_operators(module: Any, fusions: Sequence[FusionGroup]) -> dict[str, int]:
    """Count the operators outside of all fusion groups whose results are read, by name."""
    names = [operator_name(binding.value) for binding in _unfused_bindings(module, fusions)]
    return dict(Counter(name.removeprefix("relax.") for name in names if name))


def count_transposed_elements(module: Any, fusions: Sequence[FusionGroup]) -> int:
    """Count the elements that transposes outside of fusion groups move."""
    return sum(
        math.prod(shape_of(binding.value))
        for binding in _unfused_bindings(module, fusions)
        if operator_name(binding.value) == "relax.permute_dims"
    )


def _unfused_bindings(module: Any, fusions: Sequence[FusionGroup]) -> list[Any]:
    """The bindings of a network outside of all fusion groups that are still read."""
    function = module["main"]
    by_last = {fusion.last: fusion for fusion in fusions}
    read = set(relax.analysis.free_vars(function.body.body))
    bindings = []
    for binding in reversed(bindings_of(function)):
        if binding.var not in read:
            continue
        fusion = by_last.get(binding.var)
        for expression in (binding.value,) if fusion is None else fusion.inputs:
            read.update(relax.analysis.free_vars(expression))
        if fusion is None:
            bindings.append(binding)
    return bindings[::-1]


_CONVOLUTION, _PRODUCT = "convolution", "product"

_Fact = TypeVar("_Fact")


def find_owners(
    fusions: Sequence[FusionGroup], imported: Any, locations: Mapping[str, SourceLocation]
) -> list[str]:
    """The module or node of the user's model that each fusion group comes from, or "".

    Names of merged products are joined: ``attention.query+key+value``.
    """
    owners = _matched(fusions, _imported_signatures(imported, locations))
    return [
        _joined(names) if fusion.merged else next(iter(names), "")
        for fusion, names in zip(fusions, owners, strict=True)
    ]


def _joined(names: Sequence[str]) -> str:
    """Names of modules, all but the first without the parent that they share."""
    parent = f"{names[0].rpartition('.')[0]}." if names else ""
    return "+".join([*names[:1], *(name.removeprefix(parent) for name in names[1:])])


def find_data(fusions: Sequence[FusionGroup], imported: Any) -> list[Any | None]:
    """The first operand in the imported graph of each fusion group's first product, or None."""
    operands = [
        (signature, binding.value.args[0])
        for binding in bindings_of(imported["main"])
        for signature in _call_signatures(binding.value, binding.var)
    ]
    return [next(iter(data), None) for data in _matched(fusions, operands)]


def _matched(
    fusions: Sequence[FusionGroup], operators: Iterable[tuple[Hashable, _Fact]]
) -> list[list[_Fact]]:
    """The facts about each fusion group's operators, from those of the imported graph."""
    # It is not certain if passes changed the number of operators with the same signature.
    known: dict[Hashable, list[_Fact]] = defaultdict(list)
    for signature, fact in operators:
        known[signature].append(fact)
    signatures = [_imported_parts(fusion) for fusion in fusions]
    counted = Counter(signature for several in signatures for signature in several)
    turns = {key: iter(facts) for key, facts in known.items() if len(facts) == counted[key]}
    return [[next(turns[key]) for key in several if key in turns] for several in signatures]


def _imported_parts(fusion: FusionGroup) -> tuple[Hashable, ...]:
    """The signatures of a fusion group's operators in the imported graph."""
    if not fusion.merged:
        return signatures_of(fusion.spec)
    spec: Any = fusion.spec
    rows, features = spec.input
    return tuple(_product((rows,), features, units) for units in fusion.merged)


def _imported_signatures(
    imported: Any, locations: Mapping[str, SourceLocation]
) -> Iterator[tuple[Hashable, str]]:
    """Yield signatures and owners of convolutions, products and attentions, in order."""
    operators = []
    # An importer may emit several operators for one; only the last has a location.
    readers: dict[Any, str] = {}
    for binding in reversed(bindings_of(imported["main"])):
        value = binding.value
        location = locations.get(str(binding.var.name))
        owner = readers.get(binding.var, "") if location is None else location.owner
        readers.update(dict.fromkeys(relax.analysis.free_vars(value), owner))
        operators += [(key, owner) for key in reversed(_call_signatures(value, binding.var))]
    yield from reversed(operators)


def _call_signatures(call: Any, output: Any) -> tuple[Hashable, ...]:
    """The signatures of an operator in the imported graph; empty for other kinds."""
    name = operator_name(call)
    if name in CONVOLUTION_RANKS:
        strides = tuple(int(stride) for stride in call.attrs.strides)
        return ((_CONVOLUTION, shape_of(call.args[1]), strides, shape_of(output)),)
    if name == "relax.matmul":
        *rows, columns = shape_of(output)
        return (_product(rows, shape_of(call.args[0])[-1], columns),)
    if name.startswith("relax.nn.attention"):
        (batch, tokens, heads, features), (_, keys, _, _) = map(shape_of, call.args[:2])
        queries = (batch, heads, tokens)
        return _product(queries, features, keys), _product(queries, keys, shape_of(output)[-1])
    return ()


def _product(rows: Sequence[int], sums: int, columns: int) -> Hashable:
    return _PRODUCT, math.prod(rows), sums, columns


def signatures_of(spec: Any) -> tuple[Hashable, ...]:
    """The kind and sizes of each convolution or product that an operator contains, in order."""
    match spec:
        case ConvolutionSpec():
            return ((_CONVOLUTION, spec.filter_shape, spec.strides, spec.output_shape),)
        case DenseSpec():
            return (_product(spec.input[:1], spec.input[1], spec.units),)
        case BatchMatmulSpec():
            return (_product(spec.a[:2], spec.a[2], spec.columns),)
        case AttentionSpec():
            *rows, features = spec.query
            keys = spec.key[2]
            return _product(rows, features, keys), _product(rows, keys, spec.value[3])
    return ()
