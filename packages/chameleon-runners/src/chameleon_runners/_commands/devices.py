"""The command ``chameleon devices``, which lists and tests the devices of a tracker."""

from __future__ import annotations

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click
from chameleon_core.api import Registry
from chameleon_core.plugin_api import ExitCode, TargetError
from chameleon_system.api import ChildEndedError, ChildProcess, Conversation

from chameleon_runners._rpc.addresses import Address
from chameleon_runners._rpc.tracker import Queue, ServerState, probe_server, queues


@click.command("devices", epilog="Example: chameleon devices --tracker host:9190 --test")
@click.option("--tracker", required=True, help="host:port of the tracker.")
@click.option("--key", help="Only the devices of this key.")
@click.option("--test", is_flag=True, help="Run a quick self-test on every free device.")
@click.option("--target", help="With --test: also run a function compiled for this target.")
@click.option(
    "--timeout",
    default=5.0,
    show_default=True,
    type=click.FloatRange(min=0.1),
    help="Longest wait for the tracker's answer, in seconds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(  # noqa: PLR0917 - click gives them by name
    tracker: str, key: str | None, test: bool, target: str | None, timeout: float, as_json: bool
) -> None:
    """List the devices of a tracker, with their state and latency, and test them with --test.

    Exits with 4 if the tracker does not answer, if it has no such device, or if a test fails.
    """
    answer = _query(tracker, key, timeout)
    if not answer["keys"] and (key is not None or test):
        known = ", ".join(answer["others"]) or "none"
        raise TargetError(
            f"the tracker at {tracker} has no device" + (f" of the key {key!r}" if key else ""),
            hint=f"Its keys: {known}.",
        )
    if test:
        _test(answer, tracker, target)
    if as_json:
        click.echo(json.dumps(answer))
    else:
        _print(answer)
    if any(not test["ok"] for entry in answer["keys"] for test in entry.get("tests", ())):
        raise SystemExit(ExitCode.DEVICE)


def _query(text: str, key: str | None, timeout: float) -> dict[str, Any]:
    address = Address.parse(text)
    started = time.perf_counter()
    known = queues(address, timeout=timeout)
    latency = time.perf_counter() - started
    return {
        "tracker": str(address),
        "latency_seconds": latency,
        "keys": [_key(queue) for queue in known if key is None or queue.key == key],
        "others": [queue.key for queue in known if queue.servers],
    }


def _key(queue: Queue) -> dict[str, Any]:
    with ThreadPoolExecutor(max_workers=16) as pool:
        called = list(pool.map(lambda server: probe_server(server, timeout=1.0), queue.servers))
    return {
        "key": queue.key,
        "free": queue.free,
        "waiting": queue.pending,
        "servers": [
            {
                "address": str(server),
                "state": state.value,
                "latency_seconds": None if state is ServerState.GONE else latency,
            }
            for server, (state, latency) in zip(queue.servers, called, strict=True)
        ],
    }


def _test(answer: dict[str, Any], tracker: str, target: str | None) -> None:
    """Test the free devices of every key, in a process that may hang or crash."""
    resolved = _resolved(target) if target is not None else None
    for entry in answer["keys"]:
        wanted = {"tracker": tracker, "key": entry["key"], "count": entry["free"]}
        seconds = 30.0 + 10.0 * entry["free"]
        with ChildProcess(
            "chameleon_runners._rpc.selftest", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            conversation = Conversation(child)
            try:
                conversation.tell({**wanted, "target": resolved})
                entry["tests"] = conversation.answer(seconds)["tests"]
            except (TimeoutError, ChildEndedError):
                message = f"the self-test crashed or did not end within {seconds:.0f} s"
                entry["tests"] = [{"server": None, "ok": False, "message": message}]


def _resolved(target: str) -> str:
    return str(Registry.default().create("targets", "tvm").resolve(target))


def _print(answer: dict[str, Any]) -> None:
    click.echo(
        f"tracker {answer['tracker']} answers in {1e3 * answer['latency_seconds']:.1f} ms"
        + ("" if answer["keys"] else ", and has no device")
    )
    for entry in answer["keys"]:
        tests = {test["server"]: test for test in entry.get("tests", ())}
        click.echo(
            f"{entry['key']}: {len(entry['servers'])} servers, {entry['free']} free, "
            f"{entry['waiting']} requests waiting"
        )
        for server in entry["servers"]:
            latency = server["latency_seconds"]
            shown = "-" if latency is None else f"{1e3 * latency:.1f} ms"
            words = _describe(tests.pop(server["address"], None))
            click.echo(f"  {server['address']:24} {server['state']:5} {shown:>9}  {words}".rstrip())
        for test in tests.values():
            click.echo(f"  {test['server'] or 'no server':24} {_describe(test)}")


def _describe(test: dict[str, Any] | None) -> str:
    if test is None:
        return ""
    if not test["ok"]:
        return f"FAILED: {test['message']}"
    known = [f"TVM {test['tvm']}"] if test.get("tvm") else []
    known += [str(test[name]) for name in ("cpu", "gpu") if test.get(name)]
    return ", ".join(["ok", *known, f"round trip {1e3 * test['round_trip_seconds']:.1f} ms"])
