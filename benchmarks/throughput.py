"""How many candidates a second the runner builds, checks and times, one batch after another.

`python benchmarks/throughput.py` draws random candidates of the template space of the quickstart's
operator and measures them in batches as a run would. The start of the workers and the
reference outputs are counted separately: a run pays them once.
"""

from __future__ import annotations

import time
from collections import Counter

import pipeline_job


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = pipeline_job.parser(__doc__.splitlines()[0])
    parser.add_argument("--measurements", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=16)
    arguments = parser.parse_args()
    subject = pipeline_job.subject_of(arguments)
    configs = subject.draw(arguments.measurements + 1, arguments.seed)
    began = time.perf_counter()
    failed: Counter[str] = Counter()
    with subject.runner() as runner:
        best = min(m.cost for m in runner.measure(subject.job(configs[:1])))
        ready = time.perf_counter()
        done = 0
        for start in range(1, len(configs), arguments.batch_size):
            batch = configs[start : start + arguments.batch_size]
            for measurement in runner.measure(subject.job(batch, best)):
                done += 1
                best = min(best, measurement.cost)
                if measurement.failure is not None:
                    failed[measurement.failure.value] += 1
        ended = time.perf_counter()
    pipeline_job.report(
        arguments,
        {
            "operator": subject.task.name,
            "measurements": done,
            "failed": dict(failed),
            "start_seconds": ready - began,
            "seconds": ended - ready,
            "candidates_per_second": done / (ended - ready),
            "best_gflops": subject.task.flop / best / 1e9,
        },
    )


if __name__ == "__main__":
    main()
