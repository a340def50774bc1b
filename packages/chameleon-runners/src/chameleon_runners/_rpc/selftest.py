"""Tests the free devices of a tracker's key: ``python -m chameleon_runners._rpc.selftest``.

The command ``chameleon devices --test`` starts this process, because the answer of a broken server
may hang or crash TVM's client.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from chameleon_core.plugin_api import ChameleonError
from chameleon_system.api import AnswerStream, read_requests
from chameleon_tvm.api import telling_line

from chameleon_runners._rpc import tracker
from chameleon_runners._rpc.addresses import Address
from chameleon_runners._rpc.session import RpcSession

_SESSION_SECONDS = 60.0
_ANSWER_SECONDS = 5.0


def main() -> None:
    """Request every free device, hold all of them, and test each."""
    answers = AnswerStream()
    wanted = next(read_requests())
    results: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        sessions = []
        for _ in range(wanted["count"]):
            try:
                grant = tracker.request(
                    Address.parse(wanted["tracker"]),
                    wanted["key"],
                    priority=1,
                    timeout=_ANSWER_SECONDS,
                )
            except ChameleonError as error:
                results.append({"server": None, "ok": False, "message": str(error)})
                break
            try:
                times = {"lifetime": _SESSION_SECONDS, "deadline": _ANSWER_SECONDS}
                session = RpcSession(grant.address, grant.key, **times)
            except ChameleonError as error:
                results.append({"server": str(grant.address), "ok": False, "message": str(error)})
                continue
            stack.callback(session.close)
            sessions.append(session)
        results += [_test(session, wanted["target"]) for session in sessions]
    answers.send({"tests": results})


def _test(session: RpcSession, target: str | None) -> dict[str, Any]:
    started = time.perf_counter()
    result: dict[str, Any] = {"server": session.name, "ok": True, "message": ""}
    try:
        result["round_trip_seconds"] = session.round_trip()
        if target is None:
            facts = session.facts("cpu", 0)
        else:
            facts = session.prepare(target, index=0, threads=1, cache_bytes=1 << 20, cooldown=0.0)
        result |= facts.to_json()
    except Exception as error:  # noqa: BLE001 - whatever a device does is its result
        result |= {"ok": False, "message": telling_line(error)}
    return {**result, "seconds": time.perf_counter() - started}


if __name__ == "__main__":
    main()
