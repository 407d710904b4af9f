"""How long each validation takes, and how far off it is: JSON lines, each measured in a process of its own.

Usage: python benchmarks/validate.py [NAME ...]

`seconds` is wall time of one run with compiled kernels in the cache, without the start of the interpreter; `peak_mib`
the peak memory of the process, interpreter and libraries included. Validations without measurements are left out.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

from armillary.evidence.validate.accuracy import accuracy, verdict
from armillary.evidence.validate.run import plan, run


def measure(name: str) -> None:
    """Run one validation here and print its line."""
    jobs, _ = plan([name])
    start = time.perf_counter()
    (table,) = run(jobs)
    seconds = time.perf_counter() - start
    found = accuracy(table.rows)
    line = {
        "name": name,
        "seconds": round(seconds, 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
        "rows": found.rows,
        "refused": found.refused,
        "mean": round(found.mean, 4) if found.rows else None,
        "verdict": verdict(table),
    }
    print(json.dumps(line), flush=True)


def main(names: list[str]) -> None:
    """Measure the named validations, or all."""
    jobs, skipped = plan(names)
    for job in jobs:
        subprocess.run([sys.executable, __file__, "--one", job.suite.name], check=True)
    for one in skipped:
        print(f"{one.suite.name}: {one.reason}", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        measure(sys.argv[2])
    else:
        main(sys.argv[1:])
