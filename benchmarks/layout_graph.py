"""What of a network layouts are chosen for: convolutions, and the tensors between them.

Every convolution reads one layout and writes one; what is computed beside the convolutions has
one. Where two that are joined differ, their tensor is moved. Products of matrices, and what they
give, have no layout, and neither has an image of one pixel or of one channel.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.graph.moves import ELEMENTWISE, shape_of
from chameleon_networks.graph.relaxed import relax, tvm
from chameleon_tvm.operators.layouts import channel_block, with_rank
from chameleon_tvm.operators.specs import ConvolutionSpec
from layout_labels import Factor, least

FIRST, LAST = "NCHW", "NHWC"
IMAGE = 3
"""Axes of the least image: samples, channels, width."""

_BLOCKED = ELEMENTWISE | {
    f"relax.{name}"
    for name in (
        *("concat", "split", "nn.pad", "mean", "max", "min", "sum", "image.resize2d"),
        *("nn.max_pool2d", "nn.avg_pool2d", "nn.adaptive_avg_pool2d", "nn.adaptive_max_pool2d"),
    )
}
"""Operators that can be computed on blocks of channels as they are; others are not."""

Shape = tuple[int, ...]
Move = tuple[Shape, str, str]
"""The shape (N, C, spatial axes) of what is moved, its layout before and after."""
Seconds = Mapping[tuple[str, str], float]
"""Of a convolution by the layouts that it reads and writes; missing where it has none there."""


def bare(spec: ConvolutionSpec) -> ConvolutionSpec:
    """A convolution in NCHW without a name and without what follows it."""
    first = with_rank(FIRST, spec.rank)
    plain = {"bias": False, "residual": False, "activation": "none"}
    return attrs.evolve(spec, name="", weight=1, layout=first, output_layout=first, **plain)


def fits(layout: str, channels: int) -> bool:
    """Whether so many channels can be in a layout."""
    block = channel_block(layout)
    return not block or channels % block == 0


@attrs.frozen(kw_only=True)
class Convolution:
    """One convolution of a network.

    Attributes:
        spec: as ``bare`` returns it.
        name: of the operator that it is an occurrence of.
        read: variable of the layout that it reads.
        written: variable of the layout that it writes.
    """

    spec: ConvolutionSpec
    name: str
    read: str
    written: str


@attrs.frozen(kw_only=True)
class Tensor:
    """What lies between a variable that writes it and one that reads it.

    Attributes:
        shape: (N, C, spatial axes).
        written: variable of the layout that it is written in.
        read: variable of the layout that it is read in.
    """

    shape: Shape
    written: str
    read: str

    @property
    def moves(self) -> bool:
        """Whether its numbers have another order in another layout."""
        return self.shape[1] > 1 and math.prod(self.shape[2:]) > 1


@attrs.frozen(kw_only=True, eq=False)
class LayoutGraph:
    """Variables of layouts and what joins them.

    Attributes:
        layouts: those there are to choose from.
        allowed: by variable, those that it may have.
        convolutions: in the network's order.
        tensors: between variables.
        inputs: variables of convolutions that read an input of the network.
    """

    layouts: Sequence[str]
    allowed: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    convolutions: list[Convolution] = attrs.field(factory=list)
    tensors: list[Tensor] = attrs.field(factory=list)
    inputs: set[str] = attrs.field(factory=set)

    def moves(self) -> list[Move]:
        """The distinct moves there may be."""
        shapes = dict.fromkeys(one.shape for one in self.tensors if one.moves)
        return [
            (shape, before, after)
            for shape in shapes
            for before in self.layouts
            for after in self.layouts
            if before != after and fits(before, shape[1]) and fits(after, shape[1])
        ]

    def best(
        self,
        convolutions: Mapping[ConvolutionSpec, Seconds],
        moves: Mapping[Move, float],
        only: str | None = None,
    ) -> tuple[float, dict[str, str]]:
        """The least seconds, and the layout of each variable that has them.

        Args:
            convolutions: seconds, by what ``bare`` returns.
            moves: seconds.
            only: every variable has this layout where it may; but a convolution that reads an
                input of the network may read it as it comes.
        """
        sizes = dict.fromkeys(self.allowed, len(self.layouts))
        factors = [self._unary(name, only) for name in self.allowed]
        factors += [self._convolution(one, convolutions[one.spec]) for one in self.convolutions]
        factors += [self._tensor(one, moves) for one in self.tensors]
        seconds, labels = least(sizes, factors)
        return seconds, {name: self.layouts[label] for name, label in labels.items()}

    def _unary(self, name: str, only: str | None) -> Factor:
        allowed: Collection[str] = self.allowed[name]
        if only in allowed:
            allowed = {only, FIRST} if name in self.inputs else {only}
        table = [0.0 if one in allowed else math.inf for one in self.layouts]
        return Factor(variables=(name,), table=np.array(table))

    def _convolution(self, one: Convolution, seconds: Seconds) -> Factor:
        table = [[seconds.get((a, b), math.inf) for b in self.layouts] for a in self.layouts]
        return Factor(variables=(one.read, one.written), table=np.array(table))

    def _tensor(self, one: Tensor, moves: Mapping[Move, float]) -> Factor:
        def cost(before: str, after: str) -> float:
            if before == after or not one.moves:
                return 0.0
            return moves.get((one.shape, before, after), math.inf)

        table = [[cost(a, b) for b in self.layouts] for a in self.layouts]
        return Factor(variables=(one.written, one.read), table=np.array(table))


def graph_of(
    module: Any, chains: Sequence[FusedOperator], names: Sequence[str], layouts: Sequence[str]
) -> LayoutGraph:
    """The graph of a network that was prepared in NCHW.

    Args:
        module: what ``prepared`` returned.
        chains: its chains.
        names: of the operator of each chain.
        layouts: NHWC, NCHW and blocked ones.
    """
    reader = _Reader(LayoutGraph(layouts=layouts))
    reader.read(module["main"], chains, names)
    return reader.graph


class _Reader:
    def __init__(self, graph: LayoutGraph) -> None:
        self.graph = graph
        self._variables: dict[Any, str] = {}
        self._tuples: dict[Any, Any] = {}

    def read(self, function: Any, chains: Sequence[FusedOperator], names: Sequence[str]) -> None:
        for parameter in function.params:
            if _image(parameter):
                name = self._added(f"input {parameter.name}", (FIRST,))
                self._variables[parameter] = name
        named = {chain.last: (chain, name) for chain, name in zip(chains, names, strict=True)}
        members = {member for chain in chains for member in chain.members}
        inputs = set(self._variables.values())
        for block in function.body.blocks:
            for binding in block.bindings:
                if binding.var in named:
                    self._chain(*named[binding.var], inputs)
                elif binding.var not in members:
                    self._other(binding)
        for place, result in enumerate(self._tensors(function.body.body)):
            if result in self._variables:
                self._joined(result, self._added(f"output {place}", (FIRST,)))

    def _added(self, name: str, allowed: Sequence[str]) -> str:
        self.graph.allowed[name] = tuple(allowed)
        return name

    def _fitting(self, *channels: int, blocked: bool = True) -> list[str]:
        return [
            layout
            for layout in self.graph.layouts
            if (blocked or not channel_block(layout)) and all(fits(layout, c) for c in channels)
        ]

    def _chain(self, chain: FusedOperator, name: str, inputs: set[str]) -> None:
        spec = chain.spec
        if not isinstance(spec, ConvolutionSpec):
            return
        place = len(self.graph.convolutions)
        read = self._added(f"{place} reads", self._fitting(spec.input[1]))
        written = self._added(f"{place} writes", self._fitting(spec.output_channels))
        made = Convolution(spec=bare(spec), name=name, read=read, written=written)
        self.graph.convolutions.append(made)
        data, *residual = chain.inputs
        self._joined(data, read)
        if self._variables.get(data) in inputs:
            self.graph.inputs.add(read)
        for one in residual:
            self._joined(one, written)
        if _image(chain.last):
            self._variables[chain.last] = written

    def _other(self, binding: Any) -> None:
        value = binding.value
        if isinstance(value, relax.Tuple):
            self._tuples[binding.var] = value
            return
        if isinstance(value, relax.TupleGetItem):
            known = self._variables.get(value.tuple_value)
            if known is not None and _image(binding.var):
                self._variables[binding.var] = known
            return
        if not isinstance(value, relax.Call):
            return
        read = [one for each in value.args for one in self._tensors(each) if one in self._variables]
        if not read:
            return
        own = [binding.var] if _image(binding.var) else []
        channels = [shape_of(one)[1] for one in (*read, *own)]
        if isinstance(binding.var.ty, tvm.relax.TupleType):
            channels += [int(field.shape[1]) for field in binding.var.ty.fields]
        blocked = isinstance(value.op, tvm.ir.Op) and str(value.op.name) in _BLOCKED
        name = f"{binding.var.name} ({len(self.graph.allowed)})"
        self._added(name, self._fitting(*channels, blocked=blocked))
        for one in read:
            self._joined(one, name)
        if own or len(channels) > len(read):
            self._variables[binding.var] = name

    def _joined(self, tensor: Any, read: str) -> None:
        written = self._variables.get(tensor)
        if written is not None:
            self.graph.tensors.append(Tensor(shape=shape_of(tensor), written=written, read=read))

    def _tensors(self, expression: Any) -> Iterator[Any]:
        known = self._tuples.get(expression, expression)
        if isinstance(known, relax.Tuple):
            for field in known.fields:
                yield from self._tensors(field)
        elif isinstance(known, relax.Var):
            yield known


def _image(expression: Any) -> bool:
    shape = getattr(getattr(expression, "ty", None), "shape", None)
    return shape is not None and len(shape) >= IMAGE
