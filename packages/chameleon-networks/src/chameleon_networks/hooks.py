"""Registers the plugins of ``chameleon_networks``. Imports no numerical library, to stay fast."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugin_api import (
    CommandRecord,
    FrontendRecord,
    PluginRecord,
    SectionRecord,
    hookimpl,
)

from chameleon_networks._importers.options import (
    PRECISIONS,
    BuiltinOptions,
    OnnxOptions,
    TorchOptions,
)
from chameleon_networks._precision.section import Precision

FRONTENDS = tuple(
    FrontendRecord(
        name=name,
        summary=f"The operators of {summary}",
        factory="chameleon_networks._frontends.lazy:LazyFrontend",
        options=options,
        precisions=PRECISIONS,
        complete="chameleon_networks._artifact.load:check_files",
        unchanged="chameleon_networks._artifact.sources:check_source_files",
        detect=detect and f"chameleon_networks._importers.{detect}",
    )
    for name, summary, options, detect in (
        ("builtin", "a network written here, with random weights", BuiltinOptions, ""),
        (
            *("torch", "a PyTorch module, or of a saved torch.export program", TorchOptions),
            "source_checks:torch_models",
        ),
        ("onnx", "a network in an ONNX file", OnnxOptions, "onnx.models:onnx_models"),
    )
)


@hookimpl
def chameleon_sections() -> Iterable[SectionRecord]:
    """Register the section ``precision`` of pipeline files."""
    summary = "the dtypes that a network may be computed in"
    yield SectionRecord(name="precision", summary=summary, options=Precision)


@hookimpl
def chameleon_frontends() -> Iterable[PluginRecord]:
    """Register the frontends ``builtin``, ``torch`` and ``onnx``."""
    return FRONTENDS


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """Register the commands about networks, such as ``chameleon compile``."""
    for name, summary in (
        ("compile", "Compile and verify the network of a run, without tuning."),
        ("verify", "Compare a delivered network with its framework on your inputs."),
        ("bench-network", "Time a delivered network in turns with other frameworks."),
        ("export", "Export a run's kernels or network for C, Python or TVM."),
        ("cache", "Show or remove what is in the cache folder."),
    ):
        factory = f"chameleon_networks._commands.{name.replace('-', '_')}:command"
        yield CommandRecord(name=name, summary=summary, factory=factory)
