"""Checks of the corpus's networks without tuning: `corpus.py --check`."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from chameleon_core._pipeline.yaml import dump_yaml
from corpus_plan import Case
from corpus_process import in_time
from corpus_runs import HERE, Bench, export
from corpus_table import markdown, precision_table

KERNELS = 5
"""Kernels that are named of each network."""

BAR_SECONDS = 20.0
"""A network is to be verified or refused in this time."""


def check(
    bench: Bench, case: Case, *, limit: float, defaults: bool = False, before_tuning: bool = False
) -> Mapping[str, Any]:
    """Read, compile and verify a network in a process of its own, without tuning.

    Args:
        bench: where; the answer is kept in its folder ``check``.
        case: which.
        limit: seconds after which it is killed.
        defaults: compile with TVM's default schedules, rather than with first guesses.
        before_tuning: do no more than a run does before its first measurement.

    Returns:
        What ``corpus_check`` answers, with ``wall_seconds`` and a ``failure`` where its process
        died or hung.
    """
    folder = bench.folder / "check"
    folder.mkdir(parents=True, exist_ok=True)
    told = bench.missing(case) or (export(bench, case) if case.form == "onnx" else None)
    if told is not None:
        return {"case": case.name, "left_out": told}
    pipeline = bench.pipeline(case)
    ((frontend, source),) = pipeline["model"].items()
    option = "file" if frontend == "onnx" else "source"
    pipeline["model"] = {frontend: {option: source, "compare": False}}
    if bench.precision is not None:
        pipeline["precision"] = dict(bench.precision)
    file, answer = folder / f"{case.name}.yaml", folder / f"{case.name}.answer"
    file.write_text(dump_yaml(pipeline), encoding="utf-8")
    answer.unlink(missing_ok=True)
    command = [sys.executable, str(HERE / "corpus_check.py"), str(file), str(answer)]
    command += ["--defaults"] if defaults else []
    command += ["--before-tuning"] if before_tuning else []
    command += ["--started", str(time.monotonic())]
    ended = in_time(command, bench.environment(case), limit)
    found: dict[str, Any] = {"step": "unknown"}
    if answer.exists():
        found = json.loads(answer.read_text(encoding="utf-8"))
        answer.unlink()
    else:
        how = "hung and was killed" if ended.code is None else f"ended with status {ended.code}"
        last = ended.err.strip().splitlines()[-1:] or [""]
        found["failure"] = {"type": how, "message": last[0], "hint": None, "frames": []}
    found = {"case": case.name, "wall_seconds": ended.seconds, **found}
    folder.joinpath(f"{case.name}.json").write_text(json.dumps(found, indent=1), encoding="utf-8")
    return found


def checked(bench: Bench, cases: Sequence[Case]) -> list[Mapping[str, Any]]:
    """The answers that earlier checks of cases left."""
    files = [bench.folder / "check" / f"{case.name}.json" for case in cases]
    return [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]


def line(found: Mapping[str, Any]) -> str:
    """What came of a check as a line."""
    if "left_out" in found:
        return f"{found['case']}: left out, {found['left_out']}"
    return f"{found['case']}: {_told(found)}"


def page(answers: Sequence[Mapping[str, Any]]) -> str:
    """Failures first, then where the time of the others goes, as Markdown.

    Args:
        answers: what ``check`` returned.
    """
    answers = [one for one in answers if "left_out" not in one]
    failed = [one for one in answers if problem_of(one) is not None]
    refused = [one for one in failed if refused_at_once(one)]
    summary = (
        f"{len(answers) - len(failed)} of {len(answers)} networks are verified untuned, "
        f"{len(refused)} refused before tuning, {len(failed) - len(refused)} fail."
    )
    lines = [summary, "", _until_known(answers), ""]
    lines += [f"- {one['case']}: {_told(one)}" for one in failed]
    delivered = [one for one in answers if "network" in one and problem_of(one) is None]
    if delivered:
        lines += ["", references(delivered)]
        lines += ["", "Kernels with the largest shares; `*` has a first guess, others a default."]
        lines += ["", *(f"- {one['case']}: {_kernels(one)}" for one in delivered)]
    typed = [one for one in delivered if "precision" in one]
    if typed:
        lines += ["", precision_table(typed)]
    return "\n".join(lines) + "\n"


def references(delivered: Sequence[Mapping[str, Any]]) -> str:
    """How many networks were verified by another implementation, by which, and the others."""
    alone = [one["case"] for one in delivered if one["network"].get("unverified")]
    used = Counter(
        str(one["network"].get("reference")) for one in delivered if one["case"] not in alone
    )
    by = ", ".join(f"{name} {count}" for name, count in used.most_common())
    count = len(delivered) - len(alone)
    return (
        f"{count} of {len(delivered)} delivered networks are verified by another implementation "
        f"({by}); without one: {', '.join(alone) or 'none'}."
    )


def refused_at_once(found: Mapping[str, Any]) -> bool:
    """Whether a network is refused with a sentence, before anything would have been measured."""
    return found["step"] in {"start", "check", "tasks"} and found.get("failure", {}).get(
        "refused", False
    )


def problem_of(found: Mapping[str, Any]) -> str | None:
    """Why a network is not verified, or None."""
    failure = found.get("failure")
    if failure is not None:
        words = " ".join(str(failure["message"]).split())
        hint = f" hint: {failure['hint']}" if failure.get("hint") else ""
        return f"{failure['type']}: {words}{hint}"
    problem: str | None = (found.get("network") or {}).get("failure")
    return problem


def known_after(found: Mapping[str, Any]) -> float | None:
    """Seconds from starting the command until the network was verified or refused."""
    steps: Mapping[str, float] = found.get("seconds", {})
    return steps["start"] + steps["check"] if {"start", "check"} <= set(steps) else None


def _until_known(answers: Sequence[Mapping[str, Any]]) -> str:
    """How long verifying or refusing takes, and the steps of it that take longest."""
    known = {one["case"]: seconds for one in answers if (seconds := known_after(one)) is not None}
    if not known:
        return "No network was verified or refused before tuning."
    slowest = max(known, key=lambda case: known[case])
    late = sum(seconds > BAR_SECONDS for seconds in known.values())
    summary = (
        f"Verified or refused after {statistics.median(known.values()):.1f} s (median), at most "
        f"{known[slowest]:.1f} s ({slowest}); {late} of {len(known)} after more than "
        f"{BAR_SECONDS:.0f} s."
    )
    header = ("network", "s until verified or refused", "of which in the check's own process")
    rows = []
    for one in sorted(answers, key=lambda one: -known.get(one["case"], 0.0)):
        if one["case"] in known:
            steps = (one.get("checked") or {}).get("step_seconds", {}).items()
            told = ", ".join(f"{name} {seconds:.1f}" for name, seconds in steps) or "-"
            rows.append((one["case"], f"{known[one['case']]:.1f}", told))
    return f"{summary}\n\n{markdown(header, rows)}"


def _told(found: Mapping[str, Any]) -> str:
    problem = problem_of(found)
    if problem is not None:
        how = "refused" if refused_at_once(found) else "fails"
        return f"{how} in step {found['step']!r}, {_seconds(found)}: {problem}"
    if "network" not in found:
        return f"{found['checked'].get('summary', 'not checked')}, {_seconds(found)}"
    error = found["network"]["max_relative_error"]
    return f"verified, off by {error:.1e}, {len(found['tasks'])} tasks, {_seconds(found)}"


def _kernels(found: Mapping[str, Any]) -> str:
    kernels = found["network"].get("kernels") or []
    total = sum(one["seconds"] for one in kernels) or 1.0
    tasks = sum(one["seconds"] for one in kernels if one["tuned"]) / total
    named = ", ".join(
        f"{one['name']}{'*' if one['tuned'] else ''} x {one['calls']} {one['seconds'] / total:.0%}"
        for one in kernels[:KERNELS]
    )
    return f"{1e3 * total:.3g} ms, {tasks:.0%} in tasks; {named}"


def _seconds(found: Mapping[str, Any]) -> str:
    """How long each step took."""
    steps = found.get("seconds", {}).items()
    return ", ".join(f"{step} {seconds:.0f} s" for step, seconds in steps) or "no step"
