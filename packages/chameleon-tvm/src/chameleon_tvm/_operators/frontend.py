"""The frontend ``operators``, which makes tasks from a list of operators."""

from __future__ import annotations

from chameleon_core.plugin_api import Frontend, Task

from chameleon_tvm._device.targets import foreign_kind
from chameleon_tvm._operators.frontend_options import OperatorsOptions


class OperatorsFrontend(Frontend):
    """Makes one task per operator of the pipeline's list."""

    def __init__(self, options: OperatorsOptions) -> None:
        self._specs = options.operators

    def tasks(self, target: str) -> list[Task]:
        names = {spec.name for spec in self._specs if spec.name}
        tasks = []
        for position, spec in enumerate(self._specs):
            name = spec.name or f"{spec.kind}_{position}"
            while not spec.name and name in names:
                name += "_"
            names.add(name)
            tasks.append(spec.task(name, target))
        return tasks

    def usage(self, target: str) -> str:
        form = "tvmscript" if foreign_kind(target) else "library"
        return f"chameleon export {{folder}} --to {form} -o {{folder}}/kernels"
