"""What a capture costs: Llama-3 on many ranks, by `armillary capture` of tests/capture/programs/llama3.py.

Usage: python benchmarks/capture.py [NAME ...]

Prints one JSON line per case: `cpu` is the processor time of all its processes in s, `seconds` what it took, `gib` the
most memory that they held together, by halves of a second; `goal` and `goal_gib` are what is aimed at. Without a NAME
only `8b` runs; `405b` takes minutes. Needs PyTorch.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).parents[1] / "tests" / "capture" / "programs" / "llama3.py"
RANKS = 131072
CASES: dict[str, tuple[int, str, dict[str, float]]] = {
    "tiny": (64, "--size tiny --tp 2 --pp 2 --microbatches 4", {}),
    "8b": (RANKS, "--size 8b --tp 8", {"goal": 60, "goal_gib": 4}),
    "405b": (
        RANKS,
        "--size 405b --tp 8 --cp 4 --pp 16 --microbatches 32 --checkpoint",
        {"goal": 240, "goal_gib": 4},
    ),
}
"""Ranks, arguments and goals."""
SAMPLE = 0.5
"""s between two looks at the memory."""


def held(root: int) -> int:
    """Return the bytes that a process and those below it hold, shared ones divided; 0 where /proc does not say."""
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name before it may hold spaces and brackets.
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        below.setdefault(parent, []).append(int(path.parent.name))
    found, total = [root], 0
    for process in found:
        found += below.get(process, [])
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def measure(name: str) -> dict[str, Any]:
    """Capture a case into a temporary folder."""
    ranks, words, goals = CASES[name]
    most = 0
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *f"-m armillary capture --ranks {ranks} --out {folder}/cap".split()]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        process = subprocess.Popen([*command, str(PROGRAM), *words.split()], stdout=subprocess.DEVNULL)
        ended = threading.Event()

        def look() -> None:
            nonlocal most
            while not ended.wait(SAMPLE):
                most = max(most, held(process.pid))

        watch = threading.Thread(target=look)
        watch.start()
        code = process.wait()
        ended.set()
        watch.join()
        if code:
            raise SystemExit(f"{name}: exit code {code}")
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "name": name, "ranks": ranks, "cpu": round(cpu, 1), "seconds": round(seconds, 1),
        "gib": round(most / 2**30, 2), **goals,
    }  # fmt: skip


def main() -> None:
    """Run the cases that are named."""
    for name in sys.argv[1:] or ["8b"]:
        print(json.dumps(measure(name)), flush=True)


if __name__ == "__main__":
    main()
