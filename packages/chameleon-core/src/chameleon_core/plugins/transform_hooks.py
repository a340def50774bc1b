"""The hooks that name what changes a network's computation, and what judges the change.

As all that register; see :mod:`.hookspecs`.
"""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugins.records import PluginRecord
from chameleon_core.plugins.registration import registers

_TRANSFORMS = "chameleon-tuner-transforms"
_SUITES = "chameleon_transforms.testing"


class TransformHooks:
    """The kinds of ``chameleon transform``."""

    @registers(
        contract="chameleon_transforms.contract:Transform",
        distribution=_TRANSFORMS,
        conformance=f"{_SUITES}:TransformSuite",
    )
    def chameleon_transforms(self) -> Iterable[PluginRecord]:
        """Transforms change the loop nests of a convolution: ``Class(options)``.

        Example:
            @hookimpl
            def chameleon_transforms():
                yield PluginRecord(
                    name="thin",
                    summary="Smaller filters, of odd sizes",
                    options=Options,
                    factory="my_package.thin:Thin",
                )

        Documentation: docs/transforms.md#a-transform-of-your-own
        """
        return ()

    @registers(
        contract="chameleon_transforms.contract:NetworkScore",
        distribution=_TRANSFORMS,
        conformance=f"{_SUITES}:NetworkScoreSuite",
    )
    def chameleon_network_scores(self) -> Iterable[PluginRecord]:
        """Scores tell, without training, how well a network may learn: ``Class(options)``.

        Example:
            @hookimpl
            def chameleon_network_scores():
                yield PluginRecord(
                    name="gradient-norm",
                    summary="The norm of the gradients of all weights",
                    options=Options,
                    factory="my_package.norm:GradientNorm",
                )

        Documentation: docs/transforms.md#scores
        """
        return ()
