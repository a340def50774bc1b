"""Whether the parent's memory stays flat over thousands of measurements, and nothing is left.

`python benchmarks/memory.py` measures 2,000 candidates of the quickstart's template space in one
run of the runner, samples this process's resident memory after every batch, and afterwards
looks for processes, files and shared memory that remain.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pipeline_job
import psutil


def leavings() -> dict[str, set[str]]:
    """Child processes, temporary files and shared memory there are now."""
    shared = Path("/dev/shm")  # noqa: S108 - looked at, not written
    return {
        "processes": {str(p.pid) for p in psutil.Process().children(recursive=True)},
        "files": {path.name for path in Path(tempfile.gettempdir()).glob("chameleon*")},
        "shared_memory": {path.name for path in shared.iterdir()} if shared.exists() else set(),
    }


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = pipeline_job.parser(__doc__.splitlines()[0])
    parser.add_argument("--measurements", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=50)
    parser.add_argument("--settled-after", type=int, default=200)
    arguments = parser.parse_args()
    subject = pipeline_job.subject_of(arguments)
    configs = subject.draw(arguments.measurements, arguments.seed)
    before = leavings()
    process = psutil.Process()
    resident: list[tuple[int, int]] = []
    best, done, failed = float("inf"), 0, 0
    began = time.perf_counter()
    with subject.runner() as runner:
        for start in range(0, len(configs), arguments.batch_size):
            batch = configs[start : start + arguments.batch_size]
            for measurement in runner.measure(subject.job(batch, best)):
                done += 1
                failed += not measurement.ok
                best = min(best, measurement.cost)
            resident.append((done, process.memory_info().rss))
    after = leavings()
    since = min(arguments.settled_after, done)
    settled = [size for count, size in resident if count >= since]
    numbers = {
        "operator": subject.task.name,
        "measurements": done,
        "failed": failed,
        "seconds": time.perf_counter() - began,
        "parent_mib_settled": settled[0] / 2**20,
        "parent_mib_largest_after": max(settled) / 2**20,
        "parent_growth": max(settled) / settled[0] - 1.0,
        **{f"{kind}_left": sorted(after[kind] - before[kind]) for kind in after},
    }
    pipeline_job.report(arguments, numbers)


if __name__ == "__main__":
    main()
