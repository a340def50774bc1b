"""The implementation of ``chameleon export``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import click
from chameleon_cli.api import results_alone
from chameleon_core.api import RunFile, RunView, check_tasks, words
from chameleon_core.plugin_api import ConfigError, Delivery, RunFolderError
from chameleon_tvm.api import Exported, identifier

from chameleon_networks._commands.runs import check_unchanged, threads_of
from chameleon_networks._export.bundles import (
    write_c_bundles,
    write_libraries,
    write_network_bundle,
    write_onnx_file,
    write_wheel,
)
from chameleon_networks._export.metaschedule import write_metaschedule, write_tvmscript
from chameleon_networks._frontends.lazy import LazyFrontend

METASCHEDULE, TVMSCRIPT, C = "metaschedule", "tvmscript", "c"


def export_run(
    folder: Path,
    form: str,
    output: Path,
    only: tuple[str, ...],
    name: str | None,
    *,
    level: str | None,
    trust_source: bool,
) -> Exported:
    """Write the winners of a run in another form."""
    with results_alone():
        with RunView(folder) as run:
            check_unchanged(folder)
            # Only the form `metaschedule` needs the model as well as the records.
            pipeline = run.model_choice(trust_source=trust_source or form != METASCHEDULE)
            measured = run.winners
            frontend = run.frontend(pipeline)
            threads = threads_of(run)
        space = pipeline.space
        network_alone = form == C and not only and isinstance(frontend, LazyFrontend)
        # The bundle of a network is made from the delivered folder, whose kernels may be predicted.
        winners = [] if network_alone else _chosen(measured, only, folder)
        if name is not None and not (network_alone or (form == C and len(winners) == 1)):
            raise click.UsageError("--name is for one bundle for C, of a network or an operator")
        if level is not None and not network_alone:
            raise click.UsageError("--level is for a bundle for C of a network")
        if form == METASCHEDULE:
            buckets = frontend.work.by_bucket if isinstance(frontend, LazyFrontend) else {}
            network = buckets[""].network if "" in buckets else None
            base = write_metaschedule(
                winners, space.create(), space.options, output, network=network
            )
            if not buckets or network is not None:
                return base
            note = "a network in buckets of shapes is no single module; there is no network.json"
            return attrs.evolve(base, notes=(*base.notes, note))
        if form == TVMSCRIPT:
            return write_tvmscript(winners, space.create(), output)
        if network_alone:
            return write_network_bundle(folder / RunFile.NETWORK, output, name, level)
        check_tasks(folder, [winner.task for winner in winners], trust_source=trust_source)
        if form == C:
            return write_c_bundles(winners, space.create(), output, threads, name)
        return write_libraries(winners, space.create(), output, threads)


def export_wheel(folder: Path, output: Path, name: str | None, version: str) -> Exported:
    """Write the delivered network of a run as a wheel."""
    with results_alone():
        check_unchanged(folder)
        own = name or identifier(folder.absolute().name)
        return write_wheel(folder / RunFile.NETWORK, output, own, version)


def export_onnx_file(folder: Path, output: Path) -> Exported:
    """Write the delivered network of a run as an ONNX file for ONNX Runtime."""
    with results_alone():
        check_unchanged(folder)
        return write_onnx_file(folder / RunFile.NETWORK, output)


def _chosen(
    winners: Sequence[Delivery.Winner], only: tuple[str, ...], folder: Path
) -> list[Delivery.Winner]:

    names = [winner.task.name for winner in winners]
    chosen: set[str] = set()
    for name in only:
        # The name of an operator is its module and its sizes; the module alone is enough.
        hits = [name] if name in names else [full for full in names if full.split(" ")[0] == name]
        if not hits:
            known = dict.fromkeys(part for full in names for part in (full, full.split(" ")[0]))
            raise ConfigError(
                f"{folder} has no measured operator {name!r}{words.did_you_mean(name, known)}",
                hint=f"It has {', '.join(names) or 'none'}.",
            )
        chosen.update(hits)
    if not winners:
        raise RunFolderError(
            f"no configuration in {folder} has a time", hint="Run `chameleon run` first."
        )
    return [winner for winner in winners if not only or winner.task.name in chosen]
