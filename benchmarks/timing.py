"""How well timings repeat over fresh runs of the runner: the same kernel, and a ranking.

`python benchmarks/timing.py` measures random candidates of the template space of the quickstart's
operator and picks ten of them within 5 % of each other, spread as evenly as they come; they need
not be near the best. What they are picked by is the least of several fresh runs of their own:
candidates picked by one noisy reading look evenly spread and are not, since most of a space's
good kernels lie on a few plateaus on which all are equally fast. Then it measures the ten in 16
further fresh runs of the runner, in a new order each time. It prints the coefficient of variation
of each candidate's cost over the runs and Kendall's tau between the rankings of every two runs.

`python benchmarks/timing.py --tunings` instead measures the same random candidates four times, in
batches: twice with the runner's clock and twice without it. A process spins on the last core during
half of the time. The two tunings of a kind begin with spinning and with rest. Each chooses a kernel
by the times of its batches, and one by a last batch of the closest kernels, as a run does at its
end. The benchmark then times all chosen kernels in turns, and prints by how much they differ.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import attrs
import numpy as np
import pipeline_job
from chameleon_core._loop.end.comparison import close_measurements
from chameleon_core.plugin_api import Runner
from scipy.stats import kendalltau


def measure(
    runner: Runner, subject: pipeline_job.Subject, configs: list[tuple[int, ...]]
) -> dict[tuple[int, ...], float]:
    """The cost of every configuration in seconds."""
    return {m.config: m.cost for m in runner.measure(subject.job(configs))}


def spread_out(
    costs: dict[tuple[int, ...], float], lowest: float, reach: float, count: int
) -> tuple[float, list[tuple[int, ...]]]:
    """Candidates whose costs lie evenly between ``lowest`` and ``reach`` times it.

    Returns:
        The largest distance of one of them from its place, in steps, and the candidates.
    """
    marks = np.linspace(lowest, reach * lowest, count)
    step = marks[1] - marks[0]
    left = {c: cost for c, cost in costs.items() if lowest <= cost <= reach * lowest}
    picked, worst = [], 0.0
    for mark in marks[: len(left)]:
        nearest = min(left, key=lambda config: abs(left[config] - mark))
        worst = max(worst, abs(left.pop(nearest) - mark) / step)
        picked.append(nearest)
    return (worst if len(picked) == count else np.inf), picked


def close_candidates(
    subject: pipeline_job.Subject, arguments: argparse.Namespace
) -> list[tuple[int, ...]]:
    """Candidates within a fraction of each other, spread evenly over it.

    Those around the most even ten are measured again in fresh runs before ten are picked: picking
    by the very numbers that put a candidate near its place would pick their errors.
    """
    reach, count = 1.0 + arguments.within, arguments.candidates
    with subject.runner() as runner:
        costs = measure(runner, subject, subject.draw(arguments.drawn, arguments.seed))
    # The clock policy gives kernels much slower than the best no precise time.
    known = {config: cost for config, cost in costs.items() if cost < 2 * min(costs.values())}
    lowest = min(known.values(), key=lambda cost: spread_out(known, cost, reach, count)[0])
    around = [c for c, cost in known.items() if 0.9 * lowest <= cost <= 1.1 * reach * lowest]
    generator = np.random.default_rng(arguments.seed)
    readings: dict[tuple[int, ...], list[float]] = {config: [] for config in around}
    for _ in range(arguments.picking_runs):
        generator.shuffle(around)
        with subject.runner() as runner:
            # As many at once as are picked: more than a runner times in turn would not compare.
            for start in range(0, len(around), count):
                for config, cost in measure(runner, subject, around[start : start + count]).items():
                    readings[config].append(cost)
    again = {config: min(costs) for config, costs in readings.items()}
    uneven, picked = min(
        (spread_out(again, cost, reach, count) for cost in again.values()),
        key=lambda choice: choice[0],
    )
    if not np.isfinite(uneven):
        raise SystemExit(
            f"no {count} candidates are within {arguments.within:.0%} of each other; raise --drawn"
        )
    return picked


@contextlib.contextmanager
def spinner(seconds: float, *, spinning: bool) -> Iterator[None]:
    """A process that spins on the last core, for ``seconds`` of every two times ``seconds``.

    It begins with spinning or with rest.
    """
    core = max(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    process, ended = subprocess.Popen([sys.executable, "-c", code]), threading.Event()

    def toggle() -> None:
        order = (signal.SIGSTOP, signal.SIGCONT) if spinning else (signal.SIGCONT, signal.SIGSTOP)
        signals = itertools.cycle(order)
        while not ended.wait(seconds):
            process.send_signal(next(signals))

    if not spinning:
        process.send_signal(signal.SIGSTOP)
    thread = threading.Thread(target=toggle)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        process.kill()
        process.wait()


def tuned(
    subject: pipeline_job.Subject, arguments: argparse.Namespace, *, spinning: bool
) -> tuple[dict[str, tuple[int, ...]], str]:
    """The fastest of some candidates by their batches, and by a last batch of the close ones.

    The candidates are the same each time, so that two tunings differ by their times alone.
    """
    configs, measured = subject.draw(arguments.drawn, arguments.seed), []
    with subject.runner() as runner, spinner(arguments.spin_seconds, spinning=spinning):
        for start in range(0, len(configs), runner.batch_size):
            best = min((m.cost for m in measured), default=float("inf"))
            batch = configs[start : start + runner.batch_size]
            measured += runner.measure(subject.job(batch, best))
        close = close_measurements(measured)
        job = subject.job([m.config for m in close], close[0].cost)
        last = min(runner.measure(attrs.evolve(job, final=True)), key=lambda m: m.cost)
        return {"batches": close[0].config, "last": last.config}, runner.disturbance().clock


def compare_tunings(arguments: argparse.Namespace) -> None:
    """Tune twice with and twice without the clock, and print how much the results differ."""
    chosen, states = {}, []
    for number, clock in itertools.product((1, 2), (True, False)):
        arguments.overrides.append(f"runner.clock={str(clock).lower()}")
        subject = pipeline_job.subject_of(arguments)
        configs, met = tuned(subject, arguments, spinning=number == 1)
        states += [met] if met else []
        chosen |= {(clock, by, number): config for by, config in configs.items()}
    distinct = list(dict.fromkeys(chosen.values()))
    arguments.overrides.append("runner.clock=true")
    subject = pipeline_job.subject_of(arguments)
    with subject.runner() as runner:
        times = list(runner.measure(attrs.evolve(subject.job(distinct), final=True)))
    seconds = {measurement.config: measurement.cost for measurement in times}
    numbers: dict[str, object] = {"operator": subject.task.name, "states": states}
    for clock, by in itertools.product((True, False), ("batches", "last")):
        pair = [seconds[chosen[clock, by, number]] for number in (1, 2)]
        title = f"{'with' if clock else 'without'}_clock_by_{by}"
        numbers[f"{title}_microseconds"] = [round(1e6 * each, 1) for each in pair]
        numbers[f"{title}_difference"] = max(pair) / min(pair) - 1.0
        numbers[f"{title}_over_best"] = max(pair) / min(seconds.values()) - 1.0
    pipeline_job.report(arguments, numbers)


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = pipeline_job.parser(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=16, help="fresh runs of the runner")
    parser.add_argument("--candidates", type=int, default=10)
    parser.add_argument("--within", type=float, default=0.05, help="how close they are")
    parser.add_argument("--drawn", type=int, default=192, help="candidates they are picked from")
    parser.add_argument(
        "--picking-runs", type=int, default=4, help="fresh runs that the ten are picked by"
    )
    parser.add_argument("--tunings", action="store_true", help="compare tunings and their clock")
    parser.add_argument(
        "--spin-seconds", type=float, default=5.0, help="how long the process spins and rests"
    )
    arguments = parser.parse_args()
    if arguments.tunings:
        compare_tunings(arguments)
        return
    subject = pipeline_job.subject_of(arguments)
    configs = close_candidates(subject, arguments)
    generator = np.random.default_rng(arguments.seed)
    rows = []
    for _ in range(arguments.runs):
        order = generator.permutation(len(configs))
        with subject.runner() as runner:
            costs = measure(runner, subject, [configs[place] for place in order])
        rows.append([costs[config] for config in configs])
    table = np.array(rows)
    variation = table.std(axis=0, ddof=1) / table.mean(axis=0)
    taus = [kendalltau(a, b).statistic for a, b in itertools.combinations(table, 2)]
    middle = np.median(table, axis=0)
    pipeline_job.report(
        arguments,
        {
            "operator": subject.task.name,
            "runs": len(table),
            "candidates": len(configs),
            "spread_of_candidates": float(middle.max() / middle.min() - 1.0),
            "coefficient_of_variation_median": float(np.median(variation)),
            "coefficient_of_variation_worst": float(variation.max()),
            "kendall_tau_mean": float(np.mean(taus)),
            "kendall_tau_worst": float(np.min(taus)),
            "milliseconds": [[round(1e3 * cost, 4) for cost in row] for row in rows],
        },
    )


if __name__ == "__main__":
    main()
