"""``chameleon cache``: the networks, kernels and facts in the user's cache folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
import click
from chameleon_cli.api import seconds
from chameleon_core.api import words
from chameleon_system.api import user_cache_folder

from chameleon_networks._backends import COMPILED_MODULES
from chameleon_networks._compile.sequence.library import OBJECT_CACHE
from chameleon_networks._evaluation.network_cache import NETWORKS_FOLDER, TITLE

_DAY = 86_400.0
_MIB = 1 << 20
_TORCH = "torch"
_STATES = {NETWORKS_FOLDER: "read", OBJECT_CACHE: "kernels", COMPILED_MODULES: "compiled"}
"""The state of entries, by their folder; entries of other folders have the folder's name."""


@click.command("cache", epilog="Example: chameleon cache --older-than 720h")
@click.option(
    "--older-than",
    metavar="DURATION",
    callback=seconds,
    help="Remove entries unused for this time, such as 720h.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(older_than: float | None, *, as_json: bool) -> None:
    """Show what is kept for torch.compile and for later runs, or remove old entries."""
    folder = user_cache_folder()
    networks = [_cached(network) for network in sorted((folder / _TORCH).glob("*/*"))]
    networks += [_kept(path) for path in sorted(folder.glob("*/*")) if path.parent.name != _TORCH]
    removed = [
        network for network in networks if older_than is not None and network.age > older_than
    ]
    for network in removed:
        path = folder / network.kind / network.name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    left = [network for network in networks if network not in removed]
    if as_json:
        lists = {"networks": left, "removed": removed}
        facts = {name: [attrs.asdict(network) for network in v] for name, v in lists.items()}
        click.echo(json.dumps({"folder": str(folder), **facts}))
        return
    untitled: dict[str, list[_Cached]] = {}
    for entry in left:
        if not entry.title:
            untitled.setdefault(entry.kind, []).append(entry)
    titled = [entry for entry in left if entry.title]
    for entry in [*titled, *map(_sum, untitled.values())]:
        size, age = f"{entry.bytes / _MIB:8.1f} MiB", f"{entry.age / _DAY:6.1f} days ago"
        click.echo(f"{size}  {age}  {entry.state:12}  {entry.title}")
    gone = f", {len(removed)} removed" if removed else ""
    click.echo(f"{words.counted(len(left), 'item')} in {folder}{gone}")


@attrs.frozen(kw_only=True)
class _Cached:
    """An entry of the cache.

    Attributes:
        kind: The folder of the entry in the cache folder.
        name: The path of the entry in that folder.
        age: Seconds since its last use.
        state: A word for what the entry holds.
        title: The network and its shapes; empty for entries that belong to no network alone.
    """

    kind: str
    name: str
    bytes: int
    age: float
    state: str
    title: str = ""


def _sum(entries: Sequence[_Cached]) -> _Cached:
    """One row for entries that belong to no network alone, such as kernels."""
    states = ", ".join(sorted({entry.state for entry in entries}))
    return attrs.evolve(
        entries[0],
        bytes=sum(entry.bytes for entry in entries),
        age=min(entry.age for entry in entries),
        state=states,
        title=f"{len(entries)} together",
    )


def _item(path: Path, used: float, state: str, title: str = "") -> _Cached:
    """A file or folder of the cache, with the time of its last use in seconds."""
    kind, *names = path.relative_to(user_cache_folder()).parts
    return _Cached(
        kind=kind,
        name="/".join(names),
        bytes=sum(stat.st_size for stat in _stats(path)),
        age=max(0.0, time.time() - used),
        state=state,
        title=title,
    )


def _kept(path: Path) -> _Cached:
    kind, title = path.parent.name, ""
    if (path / TITLE).is_file():
        title = (path / TITLE).read_text(encoding="utf-8", errors="replace")
    return _item(path, path.stat().st_mtime, _STATES.get(kind, kind), title)


def _stats(path: Path) -> list[os.stat_result]:
    files = path.rglob("*") if path.is_dir() else [path]
    return [file.stat() for file in files if file.is_file()]


def _cached(network: Path) -> _Cached:
    accesses = (stat.st_atime for stat in _stats(network))
    used = max(accesses, default=network.stat().st_mtime)
    refusal, manifest = network / "refused.txt", network / "run" / "network" / "manifest.json"
    refused = "not possible" if refusal.exists() else "unfinished"
    title = network.relative_to(network.parents[1]).as_posix()
    with contextlib.suppress(OSError, ValueError, KeyError):
        inputs = json.loads(manifest.read_bytes())["inputs"]
        shapes = ", ".join(f"{entry['dtype']} {entry['shape']}" for entry in inputs)
        title = f"torch.compile: {shapes}  {title}"
    return _item(network, used, "delivered" if manifest.exists() else refused, title)
