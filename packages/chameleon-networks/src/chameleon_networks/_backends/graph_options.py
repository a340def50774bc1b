"""The options of the backend ``chameleon`` of ``torch.compile``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import attrs
from attrs import validators
from chameleon_core.plugin_api import ConfigError

_RECORDS = r"https?://.*|((?!://).)*"
"""The form of a place of records: a URL that starts with http:// or https://, or a path."""
PREDICTED, TUNED, BACKGROUND = "predicted", "tuned", "background"


@attrs.frozen(kw_only=True)
class BackendOptions:
    """The ``options`` of ``torch.compile(model, backend="chameleon", options={...})``.

    Attributes:
        mode: ``predicted`` compiles without measuring. ``tuned`` tunes during the first call.
            ``background`` compiles without measuring and then tunes, in processes of low priority.
            Meanwhile torch's own code answers calls, and then the network that is ready.
        seconds: Wall-clock limit of tuning one graph in seconds, for ``tuned`` and ``background``.
        records: The record database of earlier measurements, as the key ``records`` of a pipeline
            file names it. None means the user's own database.
    """

    mode: str = attrs.field(
        default=PREDICTED, validator=validators.in_((PREDICTED, TUNED, BACKGROUND))
    )
    seconds: float = attrs.field(
        default=60.0, converter=float, validator=[validators.gt(0.0), validators.lt(math.inf)]
    )
    records: str | None = attrs.field(
        default=None, validator=validators.optional(validators.matches_re(_RECORDS))
    )

    @classmethod
    def of(cls, mode: str | None, options: Mapping[str, Any] | None) -> Self:
        """The options that a call of ``torch.compile`` gives."""
        known = {field.name for field in attrs.fields(cls)}
        values = {**(options or {}), **({} if mode is None else {"mode": mode})}
        if unknown := sorted(values.keys() - known):
            raise ConfigError(
                f"the backend chameleon has no option {', '.join(unknown)}",
                hint=f"its options are {', '.join(sorted(known))}",
            )
        try:
            return cls(**values)
        except (OverflowError, TypeError, ValueError) as error:
            raise ConfigError(  # attrs adds its own objects to the sentence
                f"the backend chameleon does not take its options: {error.args[0]}"
            ) from error
