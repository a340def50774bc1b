"""The command ``chameleon watch``, which serves a run's page while the run goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click
from chameleon_core.api import RecordStore

from chameleon_bench._runs.live_page import LiveRun, PageServer

_LOOK_SECONDS = 1.0


@click.command("watch", epilog="Example: chameleon watch runs/net")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--port",
    default=0,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port to serve on; 0 for any free port.",
)
@click.option("--json", "as_json", is_flag=True, help="Print run, address and state as JSON.")
def command(folder: Path, port: int, as_json: bool) -> None:
    """Serve the page of the run in folder RUN on this machine until Ctrl-C.

    The page is that of `chameleon report`. It reloads itself when the run has new results. The run
    folder is only read. Making pages takes at most a twentieth of one core, since kernels may be
    timed on this machine. Other machines cannot reach the page; use `ssh -L` to see it from another
    machine.

    Ctrl-C ends the command with exit code 130 and does not affect the run.
    """
    # If the folder has no run, this raises an error now. Otherwise a page would show the error.
    RecordStore.of_run(folder).close()
    run = LiveRun(folder.absolute())
    with PageServer(run, port=port) as server:
        look = run.look()
        if as_json:
            line = {"run": str(folder.absolute()), "url": server.url, "state": look.state}
            click.echo(json.dumps(line))
        else:
            click.echo(f"{server.url} shows {folder}; Ctrl-C ends it")
        said = ""
        while True:
            sentence = run.look().sentence
            if sentence != said:
                click.echo(sentence, err=True)
                said = sentence
            time.sleep(_LOOK_SECONDS)
