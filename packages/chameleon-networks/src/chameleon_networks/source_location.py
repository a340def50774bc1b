"""Where a variable of an imported network is from, in its user's words."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class SourceLocation:
    """Where an operator is in a network.

    Attributes:
        owner: the torch module (``layer4.0.conv1``) or the ONNX node that it is of; empty where
            that has no name.
        sentence: the operator, its owner, and for torch the line that calls it.
    """

    owner: str
    sentence: str
