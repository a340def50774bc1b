"""Runs a case as a user would, `chameleon run --json`, and keeps what came of it as one file."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.cli.env import describe
from chameleon_core.errors import ChameleonError
from chameleon_core.pipeline.yaml import dump_yaml
from chameleon_core.run_folder import read_store
from corpus_plan import Case, Plan

HERE = Path(__file__).parent

DELIVERED = "delivered"
REFUSED = "refused"
REFUSED_LATE = "refused after tuning"
WRONG = "not verified"
INTERNAL = "internal error"
DEADLINE = "over the deadline"
NOT_EXPORTED = "not exported"
MISSING = "left out"

_NEEDS = {"torchvision": ("torchvision",), "transformers": ("transformers",), "written here": ()}
_PLENTY = 20_000
"""Characters of output that are kept."""


@attrs.frozen(kw_only=True)
class Ended:
    """A process that has ended.

    Attributes:
        code: its exit status; None where the deadline killed it.
        seconds: it took.
        out: what it printed.
        err: what it said.
    """

    code: int | None
    seconds: float
    out: str
    err: str


@attrs.frozen(kw_only=True)
class Bench:
    """Where a corpus is run, and with what.

    Attributes:
        plan: the corpus.
        folder: of outcomes, one file a case, and of run folders.
        code: what identifies the tuner and the networks; see ``code_of``.
        libraries: a folder with torchvision, where it is not installed, or None.
    """

    plan: Plan
    folder: Path
    code: str
    libraries: Path | None = None

    def outcome_file(self, case: Case) -> Path:
        """Where a case's outcome is once it has one."""
        return self.folder / f"{case.name}.json"

    def identity(self, case: Case) -> str:
        """Digest of what an outcome depends on: code, processor, case and budget."""
        kept = [self.code, describe()["cpu"]["model"], attrs.asdict(case), self.pipeline(case)]
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:24]

    def pipeline(self, case: Case) -> dict[str, Any]:
        """The pipeline of a case, as a user would write it."""
        source = {"torch": f"corpus_networks.{case.network}"}
        if case.form == "onnx":
            source = {"onnx": str(self.folder.absolute() / "onnx" / f"{case.name}.onnx")}
        return {
            "model": source,
            "target": self.plan.target,
            "space": "auto",
            "scheduler": "gradient",
            "baselines": [],
            "budget": self.plan.budget_of(case),
            "output": str(self.folder.absolute() / "runs" / case.name),
        }

    def environment(self, case: Case) -> dict[str, str]:
        """Variables of a case's processes: where the networks and their library are found."""
        # Beside a CPU build of torch, PyPI's torchvision is an error to whoever imports it
        # unprepared, as transformers does: only those see it that need it.
        extra = [HERE, self.libraries] if case.source == "torchvision" else [HERE]
        earlier = os.environ.get("PYTHONPATH")
        paths = [str(one) for one in extra if one] + ([earlier] if earlier else [])
        return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def missing(self, case: Case) -> str | None:
        """A sentence where something that the case needs is not installed."""
        for module in _NEEDS[case.source]:
            beside = self.libraries is not None and (self.libraries / module).is_dir()
            if not beside and importlib.util.find_spec(module) is None:
                return f"{module} is not installed"
        return None


def finished(bench: Bench, case: Case, *, keep: bool = False) -> Mapping[str, Any] | None:
    """The outcome of a case that need not be run again, or None.

    Args:
        bench: where.
        case: which.
        keep: whether outcomes of other code and other budgets count too.
    """
    try:
        outcome: dict[str, Any] = json.loads(bench.outcome_file(case).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return outcome if keep or outcome["identity"] == bench.identity(case) else None


def run(bench: Bench, case: Case) -> Mapping[str, Any]:
    """Run a case to its end, or to its deadline, and write its outcome.

    A run that was interrupted goes on where it was, if it is one of the same identity.

    Raises:
        KeyboardInterrupt: the run was asked to stop, and has.
    """
    bench.folder.mkdir(parents=True, exist_ok=True)
    told = bench.missing(case)
    if told is not None:
        return _written(bench, case, {"outcome": MISSING, "sentence": told})
    pipeline = bench.pipeline(case)
    told = export(bench, case) if case.form == "onnx" else None
    if told is not None:
        return _written(bench, case, {"outcome": NOT_EXPORTED, "sentence": told})
    file = bench.folder / "pipelines" / f"{case.name}.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(dump_yaml(pipeline), encoding="utf-8")
    begun = bench.folder / "pipelines" / f"{case.name}.identity"
    identity = bench.identity(case)
    same = begun.exists() and begun.read_text(encoding="utf-8") == identity
    begun.write_text(identity, encoding="utf-8")
    command = [sys.executable, "-m", "chameleon_core", "run", str(file), "--json"]
    command += [] if same else ["--fresh"]
    ended = in_time(command, bench.environment(case), bench.plan.deadline_seconds)
    outcome = judged(ended, measured(Path(pipeline["output"])))
    return _written(bench, case, outcome)


def export(bench: Bench, case: Case) -> str | None:
    """Write the ONNX file of a case; a sentence where torch cannot."""
    file = Path(bench.pipeline(case)["model"]["onnx"])
    file.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "corpus_networks.export", case.network, str(file)]
    ended = in_time(command, bench.environment(case), bench.plan.deadline_seconds)
    return None if ended.code == 0 else f"torch cannot export it to ONNX: {_last(ended.err)}"


def judged(ended: Ended, measurements: int) -> dict[str, Any]:
    """What came of a run.

    Args:
        ended: its process.
        measurements: that it made.

    Returns:
        ``outcome``, ``sentence`` (why there is no network, or None), ``code``, ``seconds``,
        ``measurements``, ``network`` and ``tuned_seconds`` (both None where the run has no result),
        and the end of what it said.
    """
    result = _result(ended.out)
    network = (result or {}).get("network") or {}
    found: dict[str, Any] = {
        "sentence": None,
        "code": ended.code,
        "seconds": ended.seconds,
        "measurements": measurements,
        "network": network or None,
        "tuned_seconds": (result or {}).get("seconds"),
        "said": ended.err[-_PLENTY:],
    }
    if ended.code is None:
        found["outcome"] = DEADLINE
        found["sentence"] = f"killed after {ended.seconds:.0f} s"
    elif network.get("folder"):
        found["outcome"] = DELIVERED
    elif result is not None:
        found["outcome"] = WRONG
        found["sentence"] = network.get("failure") or "no network was delivered"
    else:
        sentence = _sentence(ended.err)
        kind = REFUSED if not measurements else REFUSED_LATE
        found["outcome"] = INTERNAL if sentence is None else kind
        found["sentence"] = sentence or _last(ended.err) or f"status {ended.code}"
    return found


def measured(folder: Path) -> int:
    """Measurements in a run folder; 0 where it has no store."""
    try:
        with read_store(folder) as store:
            return sum(len(store.measurements(task.id)) for task in store.tasks())
    except ChameleonError:
        return 0


def in_time(command: Sequence[str], environment: Mapping[str, str], limit: float) -> Ended:
    """Run a command in a group of its own, and end the whole group at the deadline.

    Args:
        command: program and arguments.
        environment: its variables.
        limit: seconds.

    Raises:
        KeyboardInterrupt: somebody asked this process to stop; the command was asked, too.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        list(command),
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    code: int | None
    try:
        out, err = process.communicate(timeout=limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGKILL)
        out, err = process.communicate()
        code = None
    except KeyboardInterrupt:
        _signal(process, signal.SIGINT)
        process.communicate()
        raise
    finally:
        # Whatever it started and left behind would disturb the next one.
        _signal(process, signal.SIGKILL)
    return Ended(code=code, seconds=time.monotonic() - started, out=out, err=err)


def code_of(repository: Path) -> str:
    """What identifies the tuner and the networks: their files in git, and what was changed since.

    Changes of documents or tests leave it as it is. Files that git does not know do not count.

    Raises:
        ChameleonError: there is no git repository.
    """
    places = ["packages", "benchmarks/corpus_networks"]
    trees = _git(repository, "rev-parse", *(f"HEAD:{place}" for place in places))
    changes = _git(repository, "diff", "HEAD", "--", *places)
    return hashlib.sha256((trees + changes).encode()).hexdigest()[:24]


def commit_of(repository: Path) -> str:
    """The commit, with ``-dirty`` where files were changed since."""
    return _git(repository, "describe", "--always", "--dirty", "--abbrev=12").strip()


def _git(repository: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(repository), *words],  # noqa: S607 - the user's git
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ChameleonError(
            f"git does not tell the state of {repository}: {_last(done.stderr)}",
            hint="Run the corpus from a clone of the repository.",
        )
    return done.stdout


def _written(bench: Bench, case: Case, outcome: Mapping[str, Any]) -> Mapping[str, Any]:
    machine = describe()
    whole = {
        "identity": bench.identity(case),
        "case": attrs.asdict(case),
        "budget": bench.plan.budget_of(case),
        "commit": commit_of(HERE.parent),
        "processor": machine["cpu"]["model"],
        "cores": machine["cpu"]["usable"],
        "packages": machine["packages"],
        "written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **outcome,
    }
    file = bench.outcome_file(case)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    part.replace(file)
    return whole


def _result(out: str) -> dict[str, Any] | None:
    lines = [line for line in out.splitlines() if line.startswith("{")]
    with contextlib.suppress(ValueError, IndexError):
        found: dict[str, Any] = json.loads(lines[-1])
        return found
    return None


def _sentence(err: str) -> str | None:
    """The error that the command ended with, as it says it, or None where it is internal."""
    for number, line in enumerate(lines := err.splitlines()):
        if re.match(r"error: |\S+:\d+:\d+: ", line):
            hints = [one for one in lines[number + 1 :] if one.startswith("hint: ")]
            return " ".join([line.removeprefix("error: "), *hints])
    return None


def _last(err: str) -> str:
    lines = [line for line in err.strip().splitlines() if line.strip()]
    return next((one for one in lines if one.startswith("internal error:")), (lines or [""])[-1])


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
