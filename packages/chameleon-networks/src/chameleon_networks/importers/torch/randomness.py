"""Operators of torch that draw random numbers: dropout is left out, the others are refused."""

from __future__ import annotations

import importlib
from typing import Any

import structlog
from chameleon_core.errors import ConfigError

from chameleon_networks.importers.torch.lowering.origins import location_of

log = structlog.get_logger()


def without_dropout(program: Any) -> Any:
    """The program with dropout that was exported for training left out, which is said.

    Args:
        program: a ``torch.export.ExportedProgram``, changed in place.
    """
    found = [node for node in program.graph.nodes if _drops(node)]
    for node in found:
        names = _argument_names(node)
        off = next((name for name in ("train", "training") if name in names), "dropout_p")
        value, place = 0.0 if off == "dropout_p" else False, names.index(off)
        if place < len(node.args):
            node.args = (*node.args[:place], value, *node.args[place + 1 :])
        else:
            node.kwargs = {**node.kwargs, off: value}
    if found:
        program.graph_module.recompile()
        log.warning(
            "dropout_left_out",
            operators=len(found),
            why="the network leaves out numbers at random, as in training; a delivered network "
            "does not",
        )
    return program


def without_chance(program: Any) -> Any:
    """The program, if it computes the same each time.

    Args:
        program: a ``torch.export.ExportedProgram``.

    Raises:
        ConfigError: it draws random numbers; says where.
    """
    for node in program.graph.nodes:
        if node.op == "call_function" and _draws(node):
            raise ConfigError(
                f"{location_of(node).sentence} draws random numbers, so that the network gives "
                "other answers each time and none can be checked",
                hint="Make them an input of the network, or leave them out.",
            )
    return program


def _draws(node: Any) -> bool:
    """Whether an operator draws random numbers, as dropout does not unless it is for training."""
    torch = importlib.import_module("torch")
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    schema = _schema(node)
    values = {one.name: one.default_value for one in schema}
    values |= dict(zip((one.name for one in schema), node.args, strict=False)) | node.kwargs
    chances = [values[name] for name in ("p", "dropout", "dropout_p") if name in values]
    training = [values[name] for name in ("train", "training") if name in values]
    if training:
        return any(training) and (not chances or any(chances))
    return not chances or any(chances)


def _drops(node: Any) -> bool:
    """Whether an operator leaves out numbers at random, beside what it computes or alone."""
    if node.op != "call_function" or not _draws(node):
        return False
    named = {"dropout", "dropout_p"} & {*_argument_names(node)}
    return "dropout" in node.target.__name__ or bool(named)


def _argument_names(node: Any) -> list[str]:
    return [str(one.name) for one in _schema(node)]


def _schema(node: Any) -> Any:
    return node.target._schema.arguments  # noqa: SLF001 - there is no other way to ask
