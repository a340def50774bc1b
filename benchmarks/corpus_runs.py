"""Runs a case as a user would, `chameleon run --json`, and keeps what came of it as one file."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from chameleon_cli._env import describe
from chameleon_core._errors import ChameleonError
from chameleon_core._pipeline.yaml import dump_yaml
from chameleon_core.api import RecordStore
from chameleon_system._files import write_atomic
from corpus_plan import Case, Plan
from corpus_process import Ended, in_time, last_words
from corpus_provenance import origin

HERE = Path(__file__).parent

DELIVERED = "delivered"
REFUSED = "refused"
REFUSED_LATE = "refused after tuning"
FAILED = "not delivered"
INTERNAL = "internal error"
DEADLINE = "over the deadline"
NOT_EXPORTED = "not exported"
MISSING = "left out"

_NEEDS = {"torchvision": ("torchvision",), "transformers": ("transformers",), "written here": ()}
_EXCEPTION = re.compile(r"failed to [\w ]+: \w+: ")
"""An exception that nobody turned into a sentence, in the words of the guard that caught it."""

_PLENTY = 20_000
"""Characters of output that are kept."""


@attrs.frozen(kw_only=True)
class Bench:
    """Where a corpus is run, and with what.

    Attributes:
        plan: the corpus.
        folder: of outcomes, one file a case, and of run folders.
        code: what identifies the tuner and the networks; see ``code_of``.
        libraries: a folder with torchvision, where it is not installed, or None.
        precision: the section of that name of what is checked, or None.
    """

    plan: Plan
    folder: Path
    code: str
    libraries: Path | None = None
    precision: Mapping[str, Any] | None = None

    def outcome_file(self, case: Case) -> Path:
        """Where a case's outcome is once it has one."""
        return self.folder / f"{case.name}.json"

    def identity(self, case: Case) -> str:
        """Digest of what an outcome depends on: code, processor, case, target and budget."""
        processor, plan = describe()["cpu"]["model"], self.plan
        kept = [self.code, processor, attrs.asdict(case), plan.target, plan.budget_of(case)]
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
            # All rivals are timed then, even if the budget's time is over.
            "require": {"network_ratio": 1e-3},
            "output": str(self.folder.absolute() / "runs" / case.name),
        }

    def environment(self, case: Case) -> dict[str, str]:
        """Variables of a case's processes: where the networks and their library are found."""
        # Beside a CPU build of torch, PyPI's torchvision is an error to whoever imports it
        # unprepared, as transformers does: only those see it that need it.
        extra = [HERE, self.libraries] if case.source == "torchvision" else [HERE]
        earlier = os.environ.get("PYTHONPATH")
        paths = ([earlier] if earlier else []) + [str(one) for one in extra if one]
        # What was measured before must not make a run seem quick.
        apart = {"CHAMELEON_RECORDS": "none"}
        return {**os.environ, **apart, "PYTHONPATH": os.pathsep.join(paths)}

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
    if outcome["outcome"] == MISSING:
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
    command = [sys.executable, "-m", "chameleon_cli", "run", str(file), "--json"]
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
    return None if ended.code == 0 else f"torch cannot export it to ONNX: {last_words(ended.err)}"


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
        found["sentence"] = network.get("failure") or "no network was delivered"
        found["outcome"] = INTERNAL if _EXCEPTION.search(found["sentence"]) else FAILED
    else:
        sentence = _sentence(ended.err)
        kind = REFUSED if not measurements else REFUSED_LATE
        internal = sentence is None or _EXCEPTION.search(sentence)
        found["outcome"] = INTERNAL if internal else kind
        found["sentence"] = sentence or last_words(ended.err) or f"status {ended.code}"
    return found


def measured(folder: Path) -> int:
    """Measurements in a run folder; 0 where it has no store."""
    try:
        with RecordStore.of_run(folder) as store:
            return sum(len(store.measurements(task.id)) for task in store.tasks())
    except ChameleonError:
        return 0


def _written(bench: Bench, case: Case, outcome: Mapping[str, Any]) -> Mapping[str, Any]:
    whole = {
        "identity": bench.identity(case),
        "case": attrs.asdict(case),
        "budget": bench.plan.budget_of(case),
        **origin(HERE.parent),
        "written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **outcome,
    }
    write_atomic(bench.outcome_file(case), json.dumps(whole, indent=1) + "\n")
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
