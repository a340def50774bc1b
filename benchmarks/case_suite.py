"""Other people's test suites, case by case in a child process; every outcome is kept at once.

A suite is a module of this folder with a class of ``Suite``, and a command that calls ``main``:

    python benchmarks/onnx_cases.py                      # runs what has no outcome yet
    python benchmarks/onnx_cases.py --again refused      # runs again what was refused
    python benchmarks/onnx_cases.py --page docs/suites.md   # puts the table into a page
    python benchmarks/onnx_cases.py --only 'conv|pool'   # some cases, chosen by their names

A crash or a time-out of a case ends the child process, and another one goes on with the next case.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
import time
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import attrs
from chameleon_core._errors import ChameleonError
from chameleon_system._processes.answers import AnswerStream, read_requests
from chameleon_system._processes.child import ChildProcess, describe_status
from chameleon_system._processes.conversation import ChildEndedError, Conversation
from corpus_provenance import origin

RIGHT, REFUSED, WRONG, ERROR, CRASHED, LATE, NO_NETWORK = KINDS = (
    *("right", "refused", "wrong", "error", "crashed", "timed out", "no network"),
)
"""Outcomes of a case; ``error`` is an exception that is none of Chameleon's own."""

_LONGEST_REASON = 300
_START_SECONDS = 120.0
_LINE = 150
"""Letters of a reason in a page."""


class WrongAnswerError(Exception):
    """A case has an answer, and it is not the expected one; the message says how they differ."""


class RefusedError(Exception):
    """A case is refused by something else than Chameleon, which raises errors of its own."""


class NoNetworkError(Exception):
    """A case is nothing that a network computes, by a rule of its suite."""


class Suite(ABC):
    """The cases of a suite."""

    @abstractmethod
    def cases(self) -> Mapping[str, str]:
        """The group of each case, by the case's name; groups are rows of the table."""

    @abstractmethod
    def run(self, case: str) -> str | None:
        """Run a case; in the child process.

        Returns:
            A remark about a case that is right, or None.

        Raises:
            WrongAnswerError: it has another answer than the expected one.
            ChameleonError: it is refused.
            RefusedError: it is refused by something else.
        """


@attrs.frozen(kw_only=True)
class Outcome:
    """The outcome of a case.

    Attributes:
        case: its name.
        kind: one of ``KINDS``.
        reason: a sentence, or the remark about a case that is right.
        seconds: the case took.
    """

    case: str
    kind: str
    reason: str = ""
    seconds: float = 0.0


class Outcomes:
    """Outcomes in a file of JSON Lines; the last line of a case holds.

    Args:
        file: made if it is missing.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.by_case: dict[str, Outcome] = {}
        if file.exists():
            text = file.read_text(encoding="utf-8")
            # Whoever ends this process may cut off the last line.
            whole = text[: text.rfind("\n") + 1]
            if whole != text:
                file.write_text(whole, encoding="utf-8")
            for line in whole.splitlines():
                outcome = Outcome(**json.loads(line))
                self.by_case[outcome.case] = outcome

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome."""
        self.by_case[outcome.case] = outcome
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(attrs.asdict(outcome)) + "\n")


def outcome_of(suite: Suite, case: str) -> Outcome:
    """Run a case in this process."""
    started = time.perf_counter()
    kind, reason = RIGHT, ""
    try:
        reason = suite.run(case) or ""
    except WrongAnswerError as error:
        kind, reason = WRONG, str(error)
    except (ChameleonError, RefusedError) as error:
        kind, reason = REFUSED, str(error)
    except NoNetworkError as error:
        kind, reason = NO_NETWORK, str(error)
    except Exception as error:  # noqa: BLE001 - the outcome of a case
        where = traceback.extract_tb(error.__traceback__)[-1]
        words = " ".join(str(error).split())
        place = f"{Path(where.filename).name}:{where.lineno}"
        kind, reason = ERROR, f"{type(error).__name__} at {place}: {words}"
    seconds = round(time.perf_counter() - started, 3)
    return Outcome(case=case, kind=kind, reason=reason[:_LONGEST_REASON], seconds=seconds)


def outcomes(
    suite: str,
    options: Sequence[str],
    cases: Iterable[str],
    *,
    seconds: float,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Outcome]:
    """Run cases in a child process, and in another one after each crash or time-out.

    Args:
        suite: its class, as ``module:Class``.
        options: words for the class.
        cases: their names.
        seconds: limit of each.
        environment: further variables of the child process.
    """
    worker = None
    try:
        for case in cases:
            if worker is None:
                worker = _Worker(suite, options, environment)
            outcome = worker.outcome(case, seconds)
            if outcome.kind in (CRASHED, LATE):
                worker.close()
                worker = None
            yield outcome
    finally:
        if worker is not None:
            worker.close()


class _Worker:
    """The child process."""

    def __init__(self, suite: str, options: Sequence[str], environment: Mapping[str, str]) -> None:
        paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
        paths = os.pathsep.join(filter(None, paths))
        self._process = ChildProcess(
            Path(__file__).stem,
            (suite, *options),
            environment={**os.environ, "PYTHONPATH": paths, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._conversation = Conversation(self._process)
        try:
            self._conversation.answer(_START_SECONDS)
        except (TimeoutError, ChildEndedError) as error:
            self.close()
            raise RuntimeError(f"the suite does not start: {self._process.log}") from error

    def outcome(self, case: str, seconds: float) -> Outcome:
        self._process.clear_log()
        started = time.perf_counter()
        try:
            self._conversation.tell({"case": case})
            return Outcome(**self._conversation.answer(seconds))
        except TimeoutError:
            kind, reason = LATE, f"it took over {seconds:g} seconds"
        except ChildEndedError:
            self._conversation.close()  # a child whose answer is no JSON waits for the next case
            status = describe_status(self._process.reap(_START_SECONDS))
            kind, reason = CRASHED, f"{status}: {self._process.log[-_LONGEST_REASON:]}"
        took = round(time.perf_counter() - started, 3)
        return Outcome(case=case, kind=kind, reason=reason, seconds=took)

    def close(self) -> None:
        self._process.kill()


def serve(name: str, *options: str) -> None:
    """Run the cases that standard input names; whatever prints to standard output is a log."""
    answers = AnswerStream()
    suite = suite_of(name, options)
    answers.send({"ready": True})
    for request in read_requests():
        answers.send(attrs.asdict(outcome_of(suite, request["case"])))


def suite_of(name: str, options: Sequence[str]) -> Suite:
    """The suite of a class that is named ``module:Class``."""
    module, _, kind = name.partition(":")
    suite: Suite = getattr(importlib.import_module(module), kind)(*options)
    return suite


def is_drawn(case: str, fraction: float) -> bool:
    """Whether a case is one of a fraction of all, chosen by a digest of its name."""
    number = int.from_bytes(hashlib.sha256(case.encode()).digest()[:8], "big")
    return number < fraction * 2**64


def table(groups: Mapping[str, str], found: Mapping[str, Outcome]) -> str:
    """How many cases of each group have each outcome, in Markdown."""
    counts = Counter((groups[case], one.kind) for case, one in found.items() if case in groups)
    counts.update((group, "cases") for group in groups.values())
    counts.update(
        {
            ("all", kind): sum(n for (_, k), n in counts.items() if k == kind)
            for kind in ("cases", *KINDS)
        }
    )
    lines = [
        f"| | cases | {' | '.join(KINDS)} | right, % |",
        f"|---|{'---:|' * (len(KINDS) + 2)}",
    ]
    for group in (*dict.fromkeys(groups.values()), "all"):
        cells = [str(counts[group, kind]) for kind in ("cases", *KINDS)]
        share = 100 * counts[group, RIGHT] / max(1, counts[group, "cases"])
        lines.append(f"| {group} | {' | '.join(cells)} | {share:.1f} |")
    return "\n".join(lines)


def reasons(found: Iterable[Outcome], most: int) -> str:
    """The most frequent reasons of what is not right, without names and numbers, with a case."""
    examples: dict[tuple[str, str], list[str]] = {}
    for one in found:
        if one.kind != RIGHT:
            what = re.sub(r"\d+", "N", re.sub(r"'[^']*'", "'...'", one.reason))
            examples.setdefault((one.kind, what), []).append(one.case)
    ranked = sorted(examples.items(), key=lambda item: -len(item[1]))
    return "\n".join(
        f"{len(cases):5} {kind}: {what} ({', '.join(cases[:3])})"
        for (kind, what), cases in ranked[:most]
    )


def put(page: Path, mark: str, text: str) -> None:
    """Put text between two comments of a page of Markdown.

    Args:
        page: has the lines ``<!-- MARK -->`` and, further down, ``<!-- end -->``.
        mark: what the first comment says.
        text: takes the place of what is between them.

    Raises:
        ChameleonError: the page has no such comment.
    """
    between = re.compile(rf"(?<=<!-- {re.escape(mark)} -->\n).*?(?=<!-- end -->)", re.DOTALL)
    old = page.read_text(encoding="utf-8")
    if not between.search(old):
        raise ChameleonError(
            f"{page} has no comment {mark!r}",
            hint=f"Write the lines `<!-- {mark} -->` and `<!-- end -->` into it.",
        )
    page.write_text(between.sub(lambda _: text, old, count=1), encoding="utf-8")


def results(groups: Mapping[str, str], found: Mapping[str, Outcome], most: int) -> str:
    """The table, the reasons, and what they were found on, in Markdown."""
    made = origin(Path(__file__).parents[1])
    found_on = f"Commit {made['commit']}, {made['processor']}, {made['cores']} virtual cores."
    listed = "\n".join(line[:_LINE] for line in reasons(found.values(), most).splitlines())
    return f"\n{table(groups, found)}\n\n{found_on}\n\n```text\n{listed}\n```\n\n"


def main(name: str, words: Sequence[str] | None = None, *, options: Sequence[str] = ()) -> int:
    """Run a suite's cases that have no outcome yet, and print the table.

    Args:
        name: the suite's class, as ``module:Class``.
        words: of the command line.
        options: words for the class.

    Returns:
        The exit code: 1 if something is wrong, an error or a crash.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    own = Path("runs", f"{'-'.join((name.partition(':')[0], *options))}.jsonl")
    parser.add_argument("--out", type=Path, default=own, help=f"file of outcomes, {own} by default")
    parser.add_argument("--only", default="", help="regular expression that cases' names match")
    parser.add_argument("--fraction", type=float, default=1.0, help="of cases, chosen by a digest")
    parser.add_argument("--again", default="", help="kinds of outcomes to run again, with commas")
    parser.add_argument("--seconds", type=float, default=60.0, help="limit of each case")
    parser.add_argument("--page", type=Path, help="page of Markdown to put the table into")
    parser.add_argument("--reasons", type=int, default=20, help="most frequent reasons to print")
    given = parser.parse_args(words)
    again = set(filter(None, given.again.split(",")))
    if unknown := again - {*KINDS}:
        parser.error(f"no outcome is {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    groups = {
        case: group
        for case, group in suite_of(name, options).cases().items()
        if re.search(given.only, case) and is_drawn(case, given.fraction)
    }
    kept = Outcomes(given.out)
    left = [case for case in groups if case not in kept.by_case or kept.by_case[case].kind in again]
    for place, outcome in enumerate(outcomes(name, options, left, seconds=given.seconds), 1):
        kept.add(outcome)
        shown = f"{outcome.case}: {outcome.kind} {outcome.reason}"
        print(f"[{place}/{len(left)}] {shown}", file=sys.stderr, flush=True)
    found = {case: kept.by_case[case] for case in groups}
    print(table(groups, found))
    print(reasons(found.values(), given.reasons))
    if given.page:
        put(given.page, own.stem, results(groups, found, given.reasons))
    return int(any(one.kind in (WRONG, ERROR, CRASHED) for one in found.values()))


if __name__ == "__main__":
    # Suites raise the errors of the module that they import, which this one is not.
    importlib.import_module(Path(__file__).stem).serve(*sys.argv[1:])
