"""How fast the statistical model is trained and sampled: JSON lines.

`seconds` and `cpu_seconds` are those of one process, `peak_mib` is its memory so far.

python benchmarks/learn.py [TRACES]     # 10,000 of about 1,000 nodes

Conditions of the traces are all different: sizes, layers, microbatches and parallelism vary.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from armillary.lab.learned.conditions import Value
from armillary.lab.learned.corpus import read_corpus, write_corpus
from armillary.lab.learned.sample import Sampler
from armillary.lab.learned.train import train

PLAN = """
count: 480
seed: 3
nodes: 20000
choices:
  layers: [4, 8, 12, 16, 24]
  hidden: [2048, 3072, 4096, 5120]
  ffn: [8192, 11008, 14336]
  kv_heads: [4, 8, 16]
  vocabulary: [50304, 64000, 128256]
  sequence: [1024, 2048, 4096]
  microbatches: [1, 2, 4, 8]
  microbatch: [1, 2]
  tp: [1, 2, 4]
  pp: [1, 2, 4]
  dp: [1, 2, 4]
  schedule: [1f1b, gpipe]
  sharding: [ddp, zero-1, fsdp]
  recompute: [none, selective, full]
"""


def conditions() -> Iterator[dict[str, Value]]:
    """Yield conditions whose traces have 700 to 1,300 nodes, none of them twice."""
    rng = np.random.default_rng(0)
    seen = set()
    while True:
        layers, microbatches = ((8, 3), (9, 3), (10, 3), (11, 3), (14, 2), (16, 2), (12, 2))[rng.integers(7)]
        found: dict[str, Value] = {
            "layers": int(layers), "microbatches": int(microbatches), "hidden": 1024 * int(rng.integers(2, 6)),
            "ffn": 512 * int(rng.integers(16, 32)), "vocabulary": 128 * int(rng.integers(400, 1000)),
            "sequence": 256 * int(rng.integers(4, 17)), "kv_heads": 8, "tp": int(rng.choice((2, 4))),
            "dp": int(rng.choice((2, 4, 8))), "head_size": 128, "sharding": str(rng.choice(("ddp", "zero-1", "fsdp"))),
        }  # fmt: skip
        key = tuple(found.values())
        if key not in seen:
            seen.add(key)
            yield found


def show(name: str, since: tuple[float, float], **more: object) -> None:
    """Print a line."""
    seconds, cpu = time.perf_counter() - since[0], time.process_time() - since[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    times = {"seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3)}
    print(json.dumps({"name": name, **times, "peak_mib": round(peak), **more}), flush=True)


def main() -> None:
    """Write a corpus, train, and sample."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as name:
        plan = Path(name) / "plan.yaml"
        plan.write_text(PLAN)
        start = time.perf_counter(), time.process_time()
        traces = write_corpus(Path(name) / "corpus", [], [plan])
        corpus = read_corpus(Path(name) / "corpus")
        show("corpus", start, traces=traces)
    start = time.perf_counter(), time.process_time()
    sampler = Sampler(train(corpus))
    show("train", start, traces=traces)
    wishes = conditions()
    sampler.sample(next(wishes))
    start = time.perf_counter(), time.process_time()
    nodes = [sum(graph.n_nodes for graph in sampler.sample(next(wishes)).graphs) for _ in range(count)]
    show("sample", start, traces=count, mean_nodes=round(float(np.mean(nodes))))


if __name__ == "__main__":
    main()
