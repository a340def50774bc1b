"""The hooks that name what becomes a program: networks, operators, transforms and their scores.

As all that register; see :mod:`.hookspecs`.
"""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugins.records import (
    InstructionRecord,
    OperatorRecord,
    PluginRecord,
    TemplateRecord,
)
from chameleon_core.plugins.registration import registers

_STAGES = "chameleon_core.stages"
_TVM = "chameleon-tuner-tvm"
_SUITES = "chameleon_testing.suites"
_TVM_SUITES = "chameleon_tvm.testing.suites"


class ProgramHooks:
    """The kinds from a model to a program, in the order of the flow."""

    @registers(
        contract=f"{_STAGES}:Frontend",
        distribution=_TVM,
        conformance=f"{_SUITES}:FrontendSuite",
    )
    def chameleon_frontends(self) -> Iterable[PluginRecord]:
        """Frontends turn the section ``model`` into tasks: ``Class(options)``.

        Example:
            @hookimpl
            def chameleon_frontends():
                yield PluginRecord(
                    name="gguf",
                    summary="The operators of a language model in a GGUF file",
                    options=Options,
                    factory="my_package.gguf:GgufFrontend",
                )

        Documentation: docs/plugins.md#kinds
        """
        return ()

    @registers(
        contract="chameleon_tvm.operators.base:Operator",
        distribution=_TVM,
        unique=True,
        conformance=f"{_TVM_SUITES}:OperatorSuite",
    )
    def chameleon_operators(self) -> Iterable[OperatorRecord]:
        """Kinds of tensor operators, made computable: ``Class(task)``.

        Example:
            @hookimpl
            def chameleon_operators():
                yield OperatorRecord(
                    summary="The products of all pairs of columns",
                    arguments=GramArguments,
                    factory="my_package.operator:Gram",
                )

        Documentation: docs/plugins.md#an-operator-and-its-template
        """
        return ()

    @registers(
        noun="target resolver",
        contract=f"{_STAGES}:TargetResolver",
        distribution=_TVM,
        conformance=f"{_SUITES}:TargetSuite",
    )
    def chameleon_targets(self) -> Iterable[PluginRecord]:
        """Target resolvers read what a user writes after ``target``: ``Class(options)``.

        Example:
            @hookimpl
            def chameleon_targets():
                yield PluginRecord(
                    name="boards",
                    summary="The names of our boards",
                    options=Options,
                    factory="my_package.boards:Boards",
                )

        Documentation: docs/plugins.md#kinds
        """
        return ()

    @registers(
        contract=f"{_STAGES}:SpaceProvider",
        distribution=_TVM,
        conformance=f"{_SUITES}:SpaceSuite",
    )
    def chameleon_spaces(self) -> Iterable[PluginRecord]:
        """Space providers give a task its design space and builder: ``Class(options)``.

        Example:
            @hookimpl
            def chameleon_spaces():
                yield PluginRecord(
                    name="polyhedral",
                    summary="Tilings that a polyhedral scheduler finds legal",
                    options=Options,
                    factory="my_package.polyhedral:PolyhedralSpace",
                )

        Documentation: docs/plugins.md#kinds
        """
        return ()

    @registers(
        contract="chameleon_tvm.spaces.template.base:Template",
        distribution=_TVM,
        conformance=f"{_TVM_SUITES}:TemplateSuite",
    )
    def chameleon_templates(self) -> Iterable[TemplateRecord]:
        """Hand-written schedules of operators, with knobs: ``Class(task, options)``.

        Example:
            @hookimpl
            def chameleon_templates():
                yield TemplateRecord(
                    name="gram",
                    summary="Tiles of sums in registers",
                    operators=("gram",),
                    targets=("llvm",),
                    factory="my_package.template:GramTemplate",
                )

        Documentation: docs/plugins.md#an-operator-and-its-template
        """
        return ()

    @registers(
        contract="chameleon_tvm.instructions.base:Instruction",
        distribution=_TVM,
        unique=True,
        conformance=f"{_TVM_SUITES}:InstructionSuite",
    )
    def chameleon_instructions(self) -> Iterable[InstructionRecord]:
        """Machine instructions that templates multiply with: ``Class()``.

        Example:
            @hookimpl
            def chameleon_instructions():
                yield InstructionRecord(
                    name="udot",
                    summary="Groups of four unsigned bytes, sums of 32 bits",
                    architecture="aarch64",
                    features=("dotprod",),
                    factory="my_package.udot:Udot",
                )

        Documentation: docs/plugins.md#an-instruction
        """
        return ()


_TRANSFORMS = "chameleon-tuner-transforms"
_TRANSFORM_SUITES = "chameleon_transforms.testing"


class TransformHooks:
    """The kinds of ``chameleon transform``."""

    @registers(
        contract="chameleon_transforms.contract:Transform",
        distribution=_TRANSFORMS,
        conformance=f"{_TRANSFORM_SUITES}:TransformSuite",
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
        conformance=f"{_TRANSFORM_SUITES}:NetworkScoreSuite",
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
