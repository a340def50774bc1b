"""The frontends ``builtin``, ``torch`` and ``onnx``: a network's operators as tasks, and back."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_core.stages import Arrays, Delivery, Frontend
from chameleon_core.task import Task
from numpy.typing import NDArray

from chameleon_tvm.frontends.network_options import (
    BuiltinOptions,
    NetworkOptions,
    OnnxOptions,
    TorchOptions,
)
from chameleon_tvm.frontends.onnx_models import onnx_module
from chameleon_tvm.frontends.running import (
    ONNXRUNTIME,
    OPENVINO,
    TORCH,
    TORCH_COMPILE,
    Network,
    installed,
    onnx_bytes,
    onnx_session,
    openvino_network,
    torch_network,
)
from chameleon_tvm.frontends.torch_programs import (
    builtin_program,
    exported,
    loaded,
    torch_module,
)

if TYPE_CHECKING:
    from chameleon_tvm.graph.chains import Chain


class NetworkFrontend(Frontend):
    """One task per distinct fused convolution and matrix product of a network.

    Args:
        options: what all networks have.
    """

    def __init__(self, options: NetworkOptions) -> None:
        self.options = options

    @abstractmethod
    def relax_module(self) -> Any:
        """The network as a Relax ``IRModule`` with constant weights.

        Raises:
            ConfigError: it cannot be read; says where.
        """

    @abstractmethod
    def samples(self, rng: np.random.Generator) -> Arrays:
        """Random inputs, one array each."""

    @property
    @abstractmethod
    def rivals(self) -> tuple[str, ...]:
        """What else can run the network here; the first one is the reference."""

    @abstractmethod
    def rival(self, name: str, threads: int) -> Network:
        """The network run by something else.

        Args:
            name: one of ``rivals``.
            threads: it computes with.
        """

    @cached_property
    def imported(self) -> Any:
        """The network as its framework writes it; read once."""
        return self.relax_module()

    @cached_property
    def prepared(self) -> tuple[Any, list[Chain]]:
        """The network as it is tuned and compiled, and the chains in it.

        Raises:
            ConfigError: it cannot be read or converted.
        """
        from chameleon_tvm.graph.chains import chains_of  # noqa: PLC0415 - needs TVM
        from chameleon_tvm.graph.prepare import prepared  # noqa: PLC0415

        module = prepared(self.imported, self.options.layout)
        return module, chains_of(module)

    def tasks(self, target: str) -> list[Task]:
        from chameleon_tvm.graph.moves import shape_of  # noqa: PLC0415 - needs TVM
        from chameleon_tvm.graph.operators import specs_of  # noqa: PLC0415

        module, chains = self.prepared
        specs = specs_of(module, chains)
        if not specs:
            raise ConfigError(
                "the network has no convolution and no matrix product in float32",
                hint="Name the operators to tune under `model: {operators: [...]}`.",
            )
        names = dict(zip(dict.fromkeys(chain.spec for chain in chains), specs, strict=True))
        for chain in chains:
            if any(np.isnan(constant).any() for constant in chain.constants):
                raise ConfigError(
                    f"there is NaN among the weights of {names[chain.spec].name}, "
                    f"a {chain.spec.kind} that gives {list(shape_of(chain.last))}",
                    hint="What it computes could not be checked; mend the weights.",
                )
        return [spec.task(spec.name, target) for spec in specs]

    def deliver(self, delivery: Delivery) -> dict[str, Any] | None:
        from chameleon_tvm.graph.deliver import delivered  # noqa: PLC0415 - needs TVM

        return delivered(self, delivery)


class ProgramFrontend(NetworkFrontend):
    """A network that torch has; its export is what TVM reads."""

    @abstractmethod
    def read(self) -> Any:
        """The ``torch.export.ExportedProgram``.

        Raises:
            ConfigError: there is none.
        """

    @cached_property
    def program(self) -> Any:
        """What ``read`` returns; read once."""
        return self.read()

    def relax_module(self) -> Any:
        return torch_module(self.program)

    def samples(self, rng: np.random.Generator) -> Arrays:
        positional, _ = self.program.example_inputs
        return [_like(example.numpy(), rng) for example in positional]

    @property
    def rivals(self) -> tuple[str, ...]:
        return installed(TORCH, TORCH_COMPILE, ONNXRUNTIME, OPENVINO)

    def rival(self, name: str, threads: int) -> Network:
        if name == ONNXRUNTIME:
            return onnx_session(onnx_bytes(self.program), threads=threads)
        if name == OPENVINO:
            return openvino_network(self.program, threads=threads)
        return torch_network(self.program, compiled=name == TORCH_COMPILE, threads=threads)


class BuiltinFrontend(ProgramFrontend):
    """A network written in this package, with random weights.

    Args:
        options: which one.
    """

    options: BuiltinOptions

    def __init__(self, options: BuiltinOptions) -> None:
        super().__init__(options)

    def read(self) -> Any:
        return builtin_program(self.options.network, self.options.batch)


class TorchFrontend(ProgramFrontend):
    """A network of the user's in PyTorch.

    Args:
        options: where it is.
    """

    options: TorchOptions

    def __init__(self, options: TorchOptions) -> None:
        super().__init__(options)

    def read(self) -> Any:
        source = self.options.source
        return loaded(source) if source.endswith(".pt2") else exported(source)


class OnnxFrontend(NetworkFrontend):
    """A network in an ONNX file.

    Args:
        options: which file.
    """

    options: OnnxOptions

    def __init__(self, options: OnnxOptions) -> None:
        super().__init__(options)

    def relax_module(self) -> Any:
        return onnx_module(self.options.file, self.options.shapes)

    def samples(self, rng: np.random.Generator) -> Arrays:
        return [
            _like(np.zeros([int(e) for e in one.ty.shape], str(one.ty.dtype)), rng)
            for one in self.imported["main"].params
        ]

    @property
    def rivals(self) -> tuple[str, ...]:
        return (ONNXRUNTIME, *installed(OPENVINO))

    def rival(self, name: str, threads: int) -> Network:
        if name == OPENVINO:
            return openvino_network(self.options.file, threads=threads)
        return onnx_session(self.options.file, threads=threads)


def _like(example: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
    """Random numbers as an example's: normal ones, or whole ones not above the example's."""
    if np.issubdtype(example.dtype, np.floating):
        made: NDArray[Any] = rng.standard_normal(example.shape)
    else:
        made = rng.integers(0, int(example.max(initial=0)), example.shape, endpoint=True)
    return np.asarray(made.astype(example.dtype))
