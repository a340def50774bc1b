"""Options of the frontend ``operators``, which are checked before a run imports TVM."""

from __future__ import annotations

import attrs
from chameleon_core.plugin_api import ConfigError

from chameleon_tvm._operators.spec import OperatorSpec


@attrs.frozen(kw_only=True)
class OperatorsOptions:
    """Options of the frontend ``operators``.

    Attributes:
        operators: The arguments of each operator.
    """

    operators: tuple[OperatorSpec, ...] = attrs.field(
        metadata={
            "help": "list of one-key mappings; `chameleon plugins operators --options` lists keys",
            "tagged": "operators",
        }
    )

    def __attrs_post_init__(self) -> None:
        if not self.operators:
            raise ConfigError(
                "the list of operators is empty",
                hint="Name one, such as `- conv2d: {input: [1, 64, 56, 56], ...}`.",
            )
        names = [spec.name for spec in self.operators if spec.name]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f"two operators have the name {name!r}", hint="Give each a name of its own."
                )
