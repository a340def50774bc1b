"""What this distribution registers; imported by every command, so it imports nothing heavy."""

from chameleon_core.plugin_api import OperatorRecord, TemplateRecord, hookimpl

from gram_matrix.arguments import GramSpec


@hookimpl
def chameleon_operators():
    """The operator; pipelines and records call it by its arguments' ``kind``."""
    yield OperatorRecord(
        summary="All products of columns", arguments=GramSpec, factory="gram_matrix.operator:Gram"
    )


@hookimpl
def chameleon_templates():
    """Its template, for CPUs."""
    yield TemplateRecord(
        name="gram",
        summary="Tiles of sums in registers",
        operators=("gram",),
        targets=("llvm",),
        factory="gram_matrix.template:GramTemplate",
    )
