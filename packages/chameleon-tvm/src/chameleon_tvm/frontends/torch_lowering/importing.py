"""TVM's importer of PyTorch programs with more operators, and with the place of what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chameleon_core.errors import ConfigError
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from chameleon_tvm.frontends.torch_lowering import arithmetic, images, indexing
from chameleon_tvm.frontends.torch_lowering.decompositions import decomposed
from chameleon_tvm.graph.relaxed import relax
from chameleon_tvm.places import Place
from chameleon_tvm.words import WAY_OUT, first_line

CONVERTERS = {**arithmetic.CONVERTERS, **indexing.CONVERTERS, **images.CONVERTERS}


def imported(program: Any) -> tuple[Any, dict[str, Place]]:
    """An exported program as a Relax module with constant weights.

    Args:
        program: a ``torch.export.ExportedProgram``.

    Returns:
        The module, and for the name of each variable in it the place that it is from.

    Raises:
        ConfigError: an operator cannot be read; names it and its place.
    """
    importer = _Importer()
    module = importer.from_exported_program(
        decomposed(program),
        keep_params_as_input=False,
        unwrap_unit_return_tuple=False,
        no_bind_return_tuple=False,
        custom_convert_map=dict(CONVERTERS),
    )
    return module, importer.places


class _Importer(ExportedProgramImporter):
    """Remembers which node each variable is of."""

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, Place] = {}

    def update_convert_map(self, custom_convert_map: Mapping[str, Any]) -> None:
        """See the base class."""
        known: dict[Any, Any] = {**self.create_convert_map(), **custom_convert_map}
        self.convert_map = {name: self._noting(one) for name, one in known.items()}

    def _noting(self, convert: Callable[..., Any]) -> Callable[..., Any]:
        def noted(node: Any, *importer: Any) -> Any:
            try:
                made = convert(node, *importer)
            except ConfigError:
                raise
            except Exception as error:
                raise ConfigError(
                    f"{place_of(node).sentence} cannot be compiled: {first_line(error)}",
                    hint=WAY_OUT,
                ) from error
            for one in made if isinstance(made, list | tuple) else [made]:
                if isinstance(one, relax.Var):
                    self.places.setdefault(str(one.name), place_of(node))
            return made

        return noted

    def _check_unsupported_func_type(self, nodes: Any) -> None:
        lacking = [
            node
            for node in nodes
            if node.op == "call_function" and node.target.__name__ not in self.convert_map
        ]
        if lacking:
            first, *others = {
                node.target.__name__: place_of(node).sentence for node in lacking
            }.values()
            more = f"; nor has it {', '.join(others)}" if others else ""
            raise ConfigError(f"the compiler has no {first}{more}", hint=WAY_OUT)


def place_of(node: Any) -> Place:
    """Where a program's node is: its module, and the line that calls it."""
    modules = [str(path) for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
    owner = modules[-1] if modules else ""
    inside = f" in module {owner}" if owner else ""
    lines = (node.meta.get("stack_trace") or "").strip().splitlines()
    file = next((line.strip() for line in reversed(lines) if line.strip().startswith("File")), "")
    where = f" ({_spot(file)}: `{lines[-1].strip()}`)" if file else ""
    operator = str(getattr(node.target, "__name__", node.target))
    sentence = f"operator {operator.removesuffix('.default')}{inside}{where}"
    return Place(owner=owner, sentence=sentence)


def _spot(frame: str) -> str:
    """``File "/a/net.py", line 3, in forward`` as ``net.py:3``."""
    file, _, rest = frame.removeprefix('File "').partition('", line ')
    return f"{file.rpartition('/')[2]}:{rest.partition(',')[0]}"
