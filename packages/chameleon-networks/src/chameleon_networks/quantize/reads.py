"""The forms in which a network's tensors are read if some of its chains have types of their own.

A chain in a type reads its data in it; products of two tensors and attention read both sides in it.
Its output has the type as well exactly if every reader reads it so. Such a chain reads its residual
in the type, too.

Max-pooling, concatenations and other moves or selections of numbers give the same before and after
rounding. So tensors on both sides share one form, and the move is computed on the small type.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from chameleon_core.errors import ConfigError
from chameleon_tvm.operators.specs import FusedSpec
from chameleon_tvm.types import COMPUTE, FLOAT32, StorageType

from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.graph.moving import is_carrying
from chameleon_networks.graph.relaxed import bindings_of, relax, users_of
from chameleon_networks.quantize.ranges import Affine


@attrs.frozen(kw_only=True)
class Form:
    """How a tensor's numbers are rounded for those who read it.

    Attributes:
        kind: the type.
        affine: of whole numbers; None for other types.
    """

    kind: StorageType
    affine: Affine | None = None


class Network:
    """The readers of each tensor in a prepared network.

    Args:
        module: what ``prepared`` returned.
        chains: its chains.

    Attributes:
        names: a name for each variable that no other one has.
        bindings: of ``main``, in order.
    """

    def __init__(self, module: Any, chains: Sequence[FusedOperator]) -> None:
        function = module["main"]
        self.bindings = bindings_of(function)
        self.names = _names([*function.params, *(binding.var for binding in self.bindings)])
        self.chains = chains
        self.users = users_of(function)
        self.chain_at = {
            member: index for index, chain in enumerate(chains) for member in chain.members
        }
        self._operand_of = {
            (reader, operand): index
            for index in range(len(chains))
            for operand, readers in self.operands(index)
            for reader in readers
        }

    def operands(self, index: int) -> Sequence[tuple[Any, tuple[Any, ...]]]:
        """The operands of a chain, each with the variables of the bindings that read it for that.

        Attention may have bindings in front of the chain's members that read them. Only variables
        count: a constant is no tensor of the network.
        """
        chain = self.chains[index]
        readers = chain.readers or [chain.members[:1]] * len(chain.operands)
        pairs = zip(chain.operands, readers, strict=True)
        return [pair for pair in pairs if isinstance(pair[0], relax.Var)]

    def multiplying(self, reader: Any, tensor: Any) -> int | None:
        """The chain that a binding reads a tensor for as what it multiplies; None for others."""
        return self._operand_of.get((reader, tensor))

    def residual(self, index: int) -> tuple[Any, Any] | None:
        """The tensor that a chain adds, and its member that reads it; None if it adds nothing."""
        chain = self.chains[index]
        if not isinstance(chain.spec, FusedSpec) or len(chain.inputs) == 1:
            return None
        read = chain.inputs[1]
        # The first member reads the data, which may be the very same tensor.
        reader = next(
            user.var
            for user in self.users[read]
            if user is not None
            and self.chain_at.get(user.var) == index
            and not user.var.same_as(chain.members[0])
        )
        return read, reader

    def carried(self) -> Iterator[tuple[Any, Any]]:
        """Pairs of variables whose second holds nothing but numbers of the first.

        A tuple holds several tensors, the outputs of the network for one, that have nothing to do
        with each other. So an operator that moves numbers of a tuple is paired with its tensors.
        """
        fields: dict[Any, Sequence[Any]] = {}
        for binding in self.bindings:
            read = [
                tensor
                for variable in relax.analysis.free_vars(binding.value)
                for tensor in fields.get(variable, (variable,))
            ]
            if isinstance(binding.value, relax.Tuple):
                fields[binding.var] = read
            elif binding.var not in self.chain_at and is_carrying(binding.value):
                for variable in read:
                    yield variable, binding.var


def _names(variables: Sequence[Any]) -> dict[Any, str]:
    named: dict[Any, str] = {}
    names: set[str] = set()
    for variable in variables:
        name = str(variable.name)
        while name in names:
            name += "'"
        names.add(name)
        named[variable] = name
    return named


class Reads:
    """The forms in which a network's tensors are read.

    Args:
        network: the network.
        types: of chains, by place; others stay as they are.
        ranges: of tensors that are read in int8, by name.

    Attributes:
        narrow: places of chains whose output is written in their type.
        of: for the variable of a binding, what the binding reads in some form.

    Raises:
        ConfigError: a tensor that has to be read in int8 has no range.
    """

    def __init__(
        self, network: Network, types: Mapping[int, str], ranges: Mapping[str, Affine]
    ) -> None:
        self._network = network
        # Types that differ by their weights alone read the same.
        data = {index: COMPUTE[kind].data for index, kind in types.items()}
        self._types = {index: kind for index, kind in data.items() if kind.name != FLOAT32}
        self._ranges = ranges
        self._known: dict[Any, Form | None] = {}
        self.narrow: set[int] = set()
        self.of: dict[Any, dict[Any, Form]] = defaultdict(dict)
        # Whoever reads a tensor comes after it: from the end on, all readers are known.
        for binding in reversed(network.bindings):
            self._known[binding.var] = self._read_as(binding.var)
            index = network.chain_at.get(binding.var)
            if index is not None and binding.var.same_as(network.chains[index].last):
                self._settle(index)
        self._settle_all()

    def form(self, kind: StorageType, variable: Any) -> Form | None:
        """A tensor's form in a type; None if it has no range."""
        if not kind.whole:
            return Form(kind=kind)
        affine = self._ranges.get(self._network.names[variable])
        return None if affine is None else Form(kind=kind, affine=affine)

    def _settle(self, index: int) -> None:
        """Decide about a chain's output, when all its readers are known."""
        kind = self._types.get(index)
        if kind is None:
            return
        chain = self._network.chains[index]
        added = self._network.residual(index)
        forms = [self.form(kind, tensor) for tensor in (chain.last, *(added or ())[:1])]
        if None not in forms and self._known[chain.last] == forms[0]:
            self.narrow.add(index)

    def _settle_all(self) -> None:
        for index, kind in self._types.items():
            chain = self._network.chains[index]
            for operand, readers in self._network.operands(index):
                for reader in readers:
                    self.of[reader][operand] = self._certain(kind, operand)
            if index not in self.narrow:
                continue
            added = self._network.residual(index)
            if added is not None:
                read, reader = added
                self.of[reader][read] = self._certain(kind, read)
            for user in self._network.users[chain.last]:
                if user.var not in self._network.chain_at:
                    self.of[user.var][chain.last] = self._certain(kind, chain.last)

    def _certain(self, kind: StorageType, variable: Any) -> Form:
        form = self.form(kind, variable)
        if form is None:
            raise ConfigError(
                f"there is no range for the network's tensor {self._network.names[variable]!r}, "
                f"which is to be read in {kind.name}",
                hint="Calibrate the very network whose operators get types.",
            )
        return form

    def _read_as(self, variable: Any) -> Form | None:
        """The form in which all readers read a tensor; None if they differ, or one has none."""
        forms = {self._reader(user, variable) for user in self._network.users[variable]}
        return forms.pop() if len(forms) == 1 else None

    def _reader(self, user: Any, variable: Any) -> Form | None:
        if user is None:
            return None
        index = self._network.multiplying(user.var, variable)
        if index is not None:
            kind = self._types.get(index)
            return None if kind is None else self.form(kind, variable)
        index = self._network.chain_at.get(user.var)
        if index is not None:
            return self._added_as(index, variable)
        if not is_carrying(user.value):
            return None
        carried = self._known[user.var]
        if carried is None or isinstance(variable.ty, relax.TupleType):
            return carried
        return carried if self.form(carried.kind, variable) == carried else None

    def _added_as(self, index: int, variable: Any) -> Form | None:
        """The form in which a chain adds a tensor; None if it is float32, or no residual."""
        added = self._network.residual(index)
        if index not in self.narrow or added is None or not added[0].same_as(variable):
            return None
        return self.form(self._types[index], variable)
