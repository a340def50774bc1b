"""The command ``chameleon serve``, which runs a tracker and RPC servers until Ctrl-C."""

from __future__ import annotations

import json
import signal
import threading
from typing import Any

import click

from chameleon_runners._rpc.supervision import RpcServerOptions, RpcServers

_SUPERVISE_SECONDS = 0.3


@click.command("serve", epilog="Example: chameleon serve --servers 2 --key board")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=9190,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of the tracker; the servers use the next ports. 0: any free ports.",
)
@click.option("--key", default="local", show_default=True, help="The key of the devices.")
@click.option(
    "--servers", default=1, show_default=True, type=click.IntRange(min=1), help="Number of servers."
)
@click.option("--announce", default="", help="Address for clients if --host is 0.0.0.0.")
@click.option(
    "--threads", type=click.IntRange(min=1), help="Number of threads of a server's kernels."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print the addresses and the runner section as JSON."
)
def command(  # noqa: PLR0917 - click gives them by name
    host: str, port: int, key: str, servers: int, announce: str, threads: int | None, as_json: bool
) -> None:
    """Offer this machine as devices for tuning: run a tracker and servers of TVM's RPC.

    Prints the runner section for pipelines that use these devices. A server that ends, or whose
    session failed, is restarted. Ctrl-C ends the tracker and all servers.

    TVM's RPC has no passwords: whoever reaches the ports can run any code on this machine. By
    default only this machine can reach them; --host changes that. `ssh -L` forwards the ports to
    another machine safely.
    """
    plan = RpcServerOptions(
        host=host, port=port, key=key, servers=servers, announce=announce, threads=threads
    )
    if not plan.private:
        click.echo(
            f"warning: other machines can reach {host}, and TVM's RPC has neither passwords "
            "nor encryption. Anyone who connects can upload a program and run it as you. "
            "Use a network that you trust, or 127.0.0.1 and `ssh -L`.",
            err=True,
        )
    ended = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: ended.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        with RpcServers(plan) as serving:
            _announce(serving.describe(), as_json)
            while not ended.wait(_SUPERVISE_SECONDS):
                serving.supervise()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _announce(described: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(described))
        return
    runner = described["runner"].items()
    words = ", ".join(f"{name}: {json.dumps(value)}" for name, value in runner)
    servers = ", ".join(described["servers"])
    click.echo(f"tracker at {described['tracker']}; servers at {servers}")
    click.echo("in a pipeline:\n")
    click.echo(f"runner: {{{words}}}\n")
    click.echo(f"`chameleon devices --tracker {described['tracker']}` shows them; Ctrl-C ends them")
