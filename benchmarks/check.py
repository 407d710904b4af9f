"""How fast a trace of a million nodes is checked, counted, compared and cut, and one of 4,096 equal ranks checked.

Prints one JSON line per case: `seconds` is the best of three whole commands, start of the interpreter and reading
included, with compiled kernels in the cache; `cpu` is the least processor time of one, which a busy machine leaves
alone; `peak_mib` is the peak memory of the command. Goal of check and of stats: 0.3 s. The limit is reading: of 0.52 us
a node that a check takes, 0.37 us are the parser, of 0.73 us of stats as much.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from decode import NODES, long_graph

from armillary.trace import GraphBuilder, Trace, write_graph, write_trace

RANKS = 4096


def measure_command(name: str, *words: str, before: Callable[[], None] = lambda: None) -> dict[str, object]:
    """Run a command of armillary once to warm the caches and three times to measure, each time after `before`."""
    best, cpu, peak = float("inf"), float("inf"), 0.0
    for _ in range(4):
        before()
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "armillary", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        if os.waitstatus_to_exitcode(status) not in (0, 1):
            raise SystemExit(f"{words}: exit code {os.waitstatus_to_exitcode(status)}")
        best, peak = min(best, seconds), max(peak, used.ru_maxrss / 1024)
        cpu = min(cpu, used.ru_utime + used.ru_stime)
    return {"name": name, "seconds": round(best, 3), "cpu": round(cpu, 3), "peak_mib": round(peak, 1)}


def write(folder: str) -> None:
    """Write the inputs."""
    graph = long_graph(NODES)
    write_graph(f"{folder}/long.et", graph)
    graph.duration_micros[::7] += 1
    write_graph(f"{folder}/other.et", graph)
    builder, last = GraphBuilder(), []
    for i in range(1000):
        last = [builder.all_reduce(f"layer.{i}", 1 << 20, after=last)]
    write_trace(f"{folder}/equal", Trace.replicate(builder.graph(), RANKS))


def main() -> None:
    """Write the inputs into a temporary folder, in a process of its own, and run the commands on them."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, folder], check=True)
        long, other = f"{folder}/long.et", f"{folder}/other.et"
        for name, *words in (
            ("check", "check", long),
            ("stats", "stats", long),
            ("diff", "diff", long, other),
            ("slice", "slice", long, "-o", f"{folder}/part.et", "--type", "comm-coll"),
            ("check_4096_equal_ranks", "check", f"{folder}/equal"),
        ):
            print(json.dumps(measure_command(name, "trace", *words)), flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        write(sys.argv[1])
    else:
        main()
