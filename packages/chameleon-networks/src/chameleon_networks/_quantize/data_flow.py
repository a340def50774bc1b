"""Finds the dtype in which each tensor is read if some fusion groups have reduced dtypes.

An output has the dtype if all its readers do. Inputs and outputs of data movement share one format.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import FLOAT32, ConfigError
from chameleon_tvm.api import COMPUTE, FusedSpec, StorageType

from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.propagate_quantization import is_data_movement
from chameleon_networks._graph.quantization import QParams
from chameleon_networks._graph.relax_utils import bindings_of, relax, users_of
from chameleon_networks._quantize.ranges import Affine


@attrs.frozen(kw_only=True)
class TensorFormat:
    """The dtype, scale and zero point in which an operator reads a tensor.

    Attributes:
        storage: The dtype.
        affine: The scale and the zero point of an integer dtype. None for other dtypes.
    """

    storage: StorageType
    affine: Affine | None = None

    def qparams(self, source: Any) -> QParams:
        """The quantization parameters that round a tensor to this format."""
        if self.affine is None:
            return QParams(source=source, dtype=self.storage.name)
        return QParams(
            source=source,
            dtype=self.storage.name,
            scale=np.array([self.affine.scale], np.float32),
            zero_point=np.array([self.affine.zero_point], np.int64),
        )


class DataFlow:
    """The readers of each tensor of a prepared network.

    Attributes:
        names: A unique name for each variable.
        bindings: The bindings of the function ``main``, in order.
    """

    def __init__(self, module: Any, fusions: Sequence[FusionGroup]) -> None:
        function = module["main"]
        self.bindings = bindings_of(function)
        self.names = _unique_names([*function.params, *(binding.var for binding in self.bindings)])
        self.fusions = fusions
        self.users = users_of(function)
        self.fusion_at = {
            member: i for i, fusion in enumerate(fusions) for member in fusion.members
        }
        self._operand_of = {
            (reader, operand): index
            for index in range(len(fusions))
            for operand, readers in self.operands(index)
            for reader in readers
        }

    def operands(self, index: int) -> Sequence[tuple[Any, tuple[Any, ...]]]:
        """The variables that a fusion group multiplies, each with the bindings that read it."""
        fusion = self.fusions[index]
        readers = fusion.readers or [fusion.members[:1]] * len(fusion.operands)
        pairs = zip(fusion.operands, readers, strict=True)
        return [pair for pair in pairs if isinstance(pair[0], relax.Var)]

    def multiplied_by(self, reader: Any, tensor: Any) -> int | None:
        """The fusion group that multiplies a tensor in a binding, or None if it only adds it."""
        return self._operand_of.get((reader, tensor))

    def residual(self, index: int) -> tuple[Any, Any] | None:
        """The residual that a fusion group adds, and the binding that reads the residual."""
        fusion = self.fusions[index]
        if not isinstance(fusion.spec, FusedSpec) or len(fusion.inputs) == 1:
            return None
        read = fusion.inputs[1]
        # The first member reads the data, which may be the same tensor.
        reader = next(
            user.var
            for user in self.users[read]
            if user is not None
            and self.fusion_at.get(user.var) == index
            and not user.var.same_as(fusion.members[0])
        )
        return read, reader

    def moved_pairs(self) -> Iterator[tuple[Any, Any]]:
        """Yield inputs and outputs of data movement, which need the same range, as pairs."""
        fields: dict[Any, Sequence[Any]] = {}
        for binding in self.bindings:
            read = [
                tensor
                for variable in relax.analysis.free_vars(binding.value)
                for tensor in fields.get(variable, (variable,))
            ]
            if isinstance(binding.value, relax.Tuple):
                fields[binding.var] = read
            elif binding.var not in self.fusion_at and is_data_movement(binding.value):
                for variable in read:
                    yield variable, binding.var


def _unique_names(variables: Sequence[Any]) -> dict[Any, str]:
    named: dict[Any, str] = {}
    names: set[str] = set()
    for variable in variables:
        name = str(variable.name)
        while name in names:
            name += "'"
        names.add(name)
        named[variable] = name
    return named


class ReadFormats:
    """The format in which each tensor is read, if some operators have reduced dtypes.

    Attributes:
        reduced_outputs: Indices of the fusion groups that write their output in their reduced
            dtype, because all readers read it so.
        of: For each binding's variable, the format of each tensor that it does not read in float32.
    """

    def __init__(
        self, network: DataFlow, types: Mapping[int, str], ranges: Mapping[str, Affine]
    ) -> None:
        self._network = network
        # int7 and int8 have the same data.
        data = {index: COMPUTE[dtype].data for index, dtype in types.items()}
        self._types = {index: storage for index, storage in data.items() if storage.name != FLOAT32}
        self._ranges = ranges
        self._formats: dict[Any, TensorFormat | None] = {}
        self.reduced_outputs: set[int] = set()
        self.of: dict[Any, dict[Any, TensorFormat]] = defaultdict(dict)
        # In reverse order, all readers of a tensor are visited before it.
        for binding in reversed(network.bindings):
            self._formats[binding.var] = self._common_format(binding.var)
            index = network.fusion_at.get(binding.var)
            if index is not None and binding.var.same_as(network.fusions[index].last):
                self._decide_output(index)
        self._record_formats()

    def format_in(self, storage: StorageType, variable: Any) -> TensorFormat | None:
        """The format of a tensor in a dtype, or None if int8 lacks its range."""
        if not storage.whole:
            return TensorFormat(storage=storage)
        affine = self._ranges.get(self._network.names[variable])
        return None if affine is None else TensorFormat(storage=storage, affine=affine)

    def _decide_output(self, index: int) -> None:
        """Decide whether a fusion group's output has its dtype, once all readers are known."""
        storage = self._types.get(index)
        if storage is None:
            return
        fusion = self._network.fusions[index]
        added = self._network.residual(index)
        formats = [self.format_in(storage, tensor) for tensor in (fusion.last, *(added or ())[:1])]
        if None not in formats and self._formats[fusion.last] == formats[0]:
            self.reduced_outputs.add(index)

    def _record_formats(self) -> None:
        for index, storage in self._types.items():
            fusion = self._network.fusions[index]
            for operand, readers in self._network.operands(index):
                for reader in readers:
                    self.of[reader][operand] = self._required_format(storage, operand)
            if index not in self.reduced_outputs:
                continue
            added = self._network.residual(index)
            if added is not None:
                read, reader = added
                self.of[reader][read] = self._required_format(storage, read)
            for user in self._network.users[fusion.last]:
                if user.var not in self._network.fusion_at:
                    self.of[user.var][fusion.last] = self._required_format(storage, fusion.last)

    def _required_format(self, storage: StorageType, variable: Any) -> TensorFormat:
        format_in = self.format_in(storage, variable)
        if format_in is None:
            raise ConfigError(
                f"there is no range for the network's tensor {self._network.names[variable]!r}, "
                f"which is to be read in {storage.name}",
                hint="Calibrate the very network whose operators get types.",
            )
        return format_in

    def _common_format(self, variable: Any) -> TensorFormat | None:
        """The format in which all readers read a tensor, or None for float32."""
        formats = {self._format_read_by(user, variable) for user in self._network.users[variable]}
        return formats.pop() if len(formats) == 1 else None

    def _format_read_by(self, user: Any, variable: Any) -> TensorFormat | None:
        if user is None:
            return None
        index = self._network.multiplied_by(user.var, variable)
        if index is not None:
            storage = self._types.get(index)
            return None if storage is None else self.format_in(storage, variable)
        index = self._network.fusion_at.get(user.var)
        if index is not None:
            return self._residual_format(index, variable)
        if not is_data_movement(user.value):
            return None
        moved_pairs = self._formats[user.var]
        if moved_pairs is None or isinstance(variable.ty, relax.TupleType):
            return moved_pairs
        return moved_pairs if self.format_in(moved_pairs.storage, variable) == moved_pairs else None

    def _residual_format(self, index: int, variable: Any) -> TensorFormat | None:
        """The format in which a fusion group adds a residual, or None for float32."""
        added = self._network.residual(index)
        if index not in self.reduced_outputs or added is None or not added[0].same_as(variable):
            return None
        return self.format_in(self._types[index], variable)
