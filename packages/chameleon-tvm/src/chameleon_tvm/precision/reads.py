"""In which form a network's tensors are read when some of its chains have types of their own.

A chain in a type reads its data in it. What it writes is in that type as well exactly where every
reader reads it so, and in bfloat16 always, since that is what such operators write; such a chain
reads its residual in the type, too. Max-pooling, concatenations and what else moves or selects
numbers gives the same whether it is done before or after rounding, so that tensors on both sides of
it share one form: it is computed on the small type then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from chameleon_core.errors import ConfigError

from chameleon_tvm.graph.chains import Chain
from chameleon_tvm.graph.relaxed import relax, tvm
from chameleon_tvm.precision.eligibility import BFLOAT16, INT8
from chameleon_tvm.precision.ranges import Affine

_CARRYING = frozenset(
    f"relax.{name}"
    for name in (
        *("reshape", "permute_dims", "squeeze", "expand_dims", "flatten", "strided_slice"),
        *("concat", "split", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d"),
    )
)
"""Operators whose numbers are all among those that they read."""


@attrs.frozen(kw_only=True)
class Form:
    """How a tensor's numbers are rounded for those who read it.

    Attributes:
        kind: the type.
        affine: of eight bits; None for other types.
    """

    kind: str
    affine: Affine | None = None


class Network:
    """Who reads what in a prepared network.

    Args:
        module: what ``prepared`` returned.
        chains: its chains.

    Attributes:
        names: a name for each variable that no other one has.
        bindings: of ``main``, in order.
    """

    def __init__(self, module: Any, chains: Sequence[Chain]) -> None:
        function = module["main"]
        self.bindings = [one for block in function.body.blocks for one in block.bindings]
        self.names = _names([*function.params, *(one.var for one in self.bindings)])
        self.chains = chains
        self.users: dict[Any, list[Any]] = defaultdict(list)
        for binding in self.bindings:
            for variable in relax.analysis.free_vars(binding.value):
                self.users[variable].append(binding)
        for variable in relax.analysis.free_vars(function.body.body):
            self.users[variable].append(None)
        self.chain_at = {
            member: place for place, chain in enumerate(chains) for member in chain.members
        }

    def data(self, place: int) -> Any:
        """What a chain reads first: its data."""
        return self.chains[place].inputs[0]

    def residual(self, place: int) -> tuple[Any, Any] | None:
        """What a chain adds, and its member that reads it; None where it adds nothing."""
        chain = self.chains[place]
        if len(chain.inputs) == 1:
            return None
        read = chain.inputs[1]
        # The first member reads the data, which may be the very same tensor.
        reader = next(
            user.var
            for user in self.users[read]
            if user is not None
            and self.chain_at.get(user.var) == place
            and not user.var.same_as(chain.members[0])
        )
        return read, reader

    def carried(self) -> Iterator[tuple[Any, Any]]:
        """Pairs of variables of which the second holds nothing but numbers of the first."""
        for binding in self.bindings:
            if binding.var not in self.chain_at and is_carrying(binding.value):
                for variable in relax.analysis.free_vars(binding.value):
                    yield variable, binding.var


def is_carrying(value: Any) -> bool:
    """Whether an expression moves or selects numbers, and computes none."""
    if isinstance(value, relax.TupleGetItem | relax.Tuple):
        return True
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return False
    return str(value.op.name) in _CARRYING


def _names(variables: Sequence[Any]) -> dict[Any, str]:
    named: dict[Any, str] = {}
    taken: set[str] = set()
    for variable in variables:
        name = str(variable.name)
        while name in taken:
            name += "'"
        taken.add(name)
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
        written: the forms of what chains compute and write so, whoever reads it, by variable.
        of: for the variable of a binding, what the binding reads in some form.

    Raises:
        ConfigError: a tensor that has to be read in int8 has no range.
    """

    def __init__(
        self, network: Network, types: Mapping[int, str], ranges: Mapping[str, Affine]
    ) -> None:
        self._network = network
        self._types = types
        self._ranges = ranges
        self._known: dict[Any, Form | None] = {}
        self.narrow: set[int] = set()
        self.written = {
            network.chains[place].last: Form(kind=kind)
            for place, kind in types.items()
            if kind == BFLOAT16
        }
        self.of: dict[Any, dict[Any, Form]] = defaultdict(dict)
        # Whoever reads a tensor comes after it: from the end on, all readers are known.
        for binding in reversed(network.bindings):
            self._known[binding.var] = self._read_as(binding.var)
            place = network.chain_at.get(binding.var)
            if place is not None and binding.var.same_as(network.chains[place].last):
                self._settle(place)
        self._settle_all()

    def form(self, kind: str, variable: Any) -> Form | None:
        """A tensor's form in a type; None where it has no range."""
        if kind != INT8:
            return Form(kind=kind)
        affine = self._ranges.get(self._network.names[variable])
        return None if affine is None else Form(kind=kind, affine=affine)

    def _settle(self, place: int) -> None:
        """Decide about a chain's output, when all its readers are known."""
        kind = self._types.get(place)
        if kind is None:
            return
        chain = self._network.chains[place]
        added = self._network.residual(place)
        forms = [self.form(kind, one) for one in (chain.last, *(added or ())[:1])]
        alike = None not in forms and self._known[chain.last] == forms[0]
        if alike or chain.last in self.written:
            self.narrow.add(place)

    def _settle_all(self) -> None:
        for place, kind in self._types.items():
            chain = self._network.chains[place]
            data = self._network.data(place)
            self.of[chain.members[0]][data] = self._certain(kind, data)
            if place not in self.narrow:
                continue
            added = self._network.residual(place)
            if added is not None:
                read, reader = added
                self.of[reader][read] = self._certain(kind, read)
            if chain.last in self.written:
                continue
            for user in self._network.users[chain.last]:
                if user.var not in self._network.chain_at:
                    self.of[user.var][chain.last] = self._certain(kind, chain.last)

    def _certain(self, kind: str, variable: Any) -> Form:
        found = self.form(kind, variable)
        if found is None:
            raise ConfigError(
                f"there is no range for the network's tensor {self._network.names[variable]!r}, "
                f"which is to be read in {kind}",
                hint="Calibrate the very network whose operators get types.",
            )
        return found

    def _read_as(self, variable: Any) -> Form | None:
        """The form in which all readers read a tensor; None where they differ, or one has none."""
        forms = {self._reader(user, variable) for user in self._network.users[variable]}
        return forms.pop() if len(forms) == 1 else None

    def _reader(self, user: Any, variable: Any) -> Form | None:
        if user is None:
            return None
        place = self._network.chain_at.get(user.var)
        if place is None:
            if not is_carrying(user.value):
                return None
            carried = self._known[user.var]
            if carried is None or isinstance(variable.ty, relax.TupleType):
                return carried
            ours = self.form(carried.kind, variable)
            return carried if ours == carried else None
        kind = self._types.get(place)
        if kind is None:
            return None
        data = user.var.same_as(self._network.chains[place].members[0])
        return self.form(kind, variable) if data or place in self.narrow else None
