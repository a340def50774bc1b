"""A corpus of networks of other people's, each tuned and compared as a user would do it.

`python benchmarks/corpus.py` runs `chameleon run` on every network of `corpus.yaml` that is not
held out, each in a process of its own with a deadline, and keeps what came of it in `--out`, one
file a network. What has an outcome of the same code, budget and processor is not run again; what
was interrupted goes on where it was. `--held-out` takes the held-out networks, `--all` both,
`--only NAME ...` some. `--report` runs nothing and prints the table. `--check` compiles each
network with first guesses and verifies it, without tuning: what fails, and where the time goes.
`--check --before-tuning` does what a run does until a network is verified or refused, no more, and
says how long that takes. `--check --precision int8` chooses types with first guesses as well, and
compares what is delivered with the framework on inputs that nothing was calibrated with.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from chameleon_core._errors import ChameleonError, ConfigError
from corpus_checks import check, checked, line, problem_of
from corpus_checks import page as check_page
from corpus_plan import Case, Plan, chosen, read_plan
from corpus_provenance import code_of
from corpus_runs import HERE, INTERNAL, Bench, finished, run
from corpus_table import page

CHECK_SECONDS = 600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says.

    Returns:
        0, or 1 where an internal error reached a user or a check failed, or 2 for a wrong use.
    """
    options = _options(arguments)
    try:
        plan = _plan(options)
        cases = chosen(plan, only=options.only, held_out=options.held_out, every=options.all)
        bench = Bench(
            plan=plan,
            folder=options.out,
            code=code_of(HERE.parent),
            libraries=options.libraries and options.libraries.absolute(),
            precision=_precision(options),
        )
        if options.list:
            _list(cases)
            return 0
        if options.check:
            return _check(bench, cases, options)
        return _run(bench, cases, options)
    except ChameleonError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--plan", type=Path, default=HERE / "corpus.yaml")
    add("--out", type=Path, default=Path("runs/corpus"), help="folder of outcomes and run folders")
    add("--only", nargs="+", default=[], metavar="NAME", help="these networks alone")
    add("--held-out", action="store_true", help="the held-out networks")
    add("--all", action="store_true", help="all networks")
    add("--list", action="store_true", help="name the networks, and stop")
    add("--report", action="store_true", help="run nothing; print the table of what there is")
    add("--check", action="store_true", help="compile and verify without tuning")
    add("--before-tuning", action="store_true", help="check no more than a run before it tunes")
    add("--defaults", action="store_true", help="check with TVM's default schedules")
    add("--precision", nargs="+", default=[], metavar="TYPE", help="check in these types as well")
    add("--max-error", type=float, help="that types may make; any where left out")
    add("--keep", action="store_true", help="outcomes of other code and budgets count, too")
    add("--measurements", type=int, help="instead of the plan's; 0 for no limit")
    add("--wall-time", help="instead of the plan's, for all networks; 0 for no limit")
    add("--libraries", type=Path, help="a folder with torchvision, where it is not installed")
    return parser.parse_args(arguments)


def _plan(options: argparse.Namespace) -> Plan:
    """The plan with the command line's limits; who says a time says it for all networks."""
    plan = read_plan(options.plan)
    budget, large = plan.budget, plan.large
    if options.measurements is not None:
        budget = attrs.evolve(budget, measurements=options.measurements or None)
    if options.wall_time is not None:
        limited = options.wall_time != "0"
        budget = attrs.evolve(budget, wall_time=options.wall_time if limited else None)
        large = attrs.evolve(large, wall_time=options.wall_time)
    return attrs.evolve(plan, budget=budget, large=large)


def _precision(options: argparse.Namespace) -> dict[str, Any] | None:
    """The section ``precision`` of the pipelines that are checked."""
    if not options.precision:
        return None
    if not options.check:
        raise ConfigError("--precision is for checks", hint="Add --check.")
    bound = {} if options.max_error is None else {"max_error": options.max_error}
    types = options.precision
    return {**({"type": types[0]} if len(types) == 1 else {"search": types}), **bound}


def _list(cases: Sequence[Case]) -> None:
    for case in cases:
        held_out = ", held out" if case.held_out else ""
        print(
            f"{case.name}: {case.family}, {case.task}, {case.form}, {case.gflop:g} GFLOP, "
            f"{case.source}{held_out}"
        )


def _check(bench: Bench, cases: Sequence[Case], options: argparse.Namespace) -> int:
    if not options.report:
        for case in cases:
            found = check(
                bench,
                case,
                limit=CHECK_SECONDS,
                defaults=options.defaults,
                before_tuning=options.before_tuning,
            )
            print(line(found))
            sys.stdout.flush()
    answers = checked(bench, cases)
    print(check_page(answers))
    return int(any(problem_of(one) is not None for one in answers))


def _run(bench: Bench, cases: Sequence[Case], options: argparse.Namespace) -> int:
    outcomes = []
    for number, case in enumerate(cases, 1):
        outcome = finished(bench, case, keep=options.keep or options.report)
        if outcome is None and not options.report:
            print(f"{number} of {len(cases)}: {case.name}", file=sys.stderr, flush=True)
            outcome = run(bench, case)
            told = outcome["sentence"] or f"{outcome['seconds']:.0f} s"
            print(f"  {outcome['outcome']}: {told}", file=sys.stderr, flush=True)
        if outcome is not None:
            outcomes.append(outcome)
    if not outcomes:
        raise ChameleonError(
            f"there is no outcome in {bench.folder}", hint="Run the command without --report."
        )
    print(page(bench.plan.title, outcomes))
    return int(any(one["outcome"] == INTERNAL for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
