"""How fast the neural model is trained and sampled: JSON lines.

`seconds` and `cpu_seconds` are those of one process, `peak_mib` is its memory so far.

python benchmarks/learn_neural.py [STEPS] [TRACES]     # 2,000 steps on 480 traces, 100 traces

Needs PyTorch: pip install armillary[learn].
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

from armillary.workload.learned.corpus import read_corpus, write_corpus
from armillary.workload.learned.neural.sample import NeuralSampler
from armillary.workload.learned.neural.train import train

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


def show(name: str, since: tuple[float, float], **more: object) -> None:
    """Print a line."""
    seconds, cpu = time.perf_counter() - since[0], time.process_time() - since[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    times = {"seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3)}
    print(json.dumps({"name": name, **times, "peak_mib": round(peak), **more}), flush=True)


def main() -> None:
    """Write a corpus, train, and sample."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "plan.yaml").write_text(PLAN)
        start = time.perf_counter(), time.process_time()
        traces = write_corpus(Path(name) / "corpus", [], [Path(name) / "plan.yaml"])
        corpus = read_corpus(Path(name) / "corpus")
        show("corpus", start, traces=traces)
    start = time.perf_counter(), time.process_time()
    model = train(corpus, steps=steps)
    about = {key: value for key, value in model.base.about.items() if key.startswith("loss")}
    show("train neural", start, traces=traces, steps=steps, threads=1, **about)
    sampler, nodes = NeuralSampler(model), 0
    start = time.perf_counter(), time.process_time()
    for at in range(count):
        wish = {
            "layers": 4 * (2 + at % 5),
            "hidden": 256 * (8 + at % 12),
            "kv_heads": 2 * (8 + at % 12),
            "tp": 2,
            "pp": 2,
            "dp": 2,
            "microbatches": 4,
        }
        nodes += sum(graph.n_nodes for graph in sampler.sample(wish).graphs)
    show("sample neural", start, traces=count, mean_nodes=round(nodes / count))


if __name__ == "__main__":
    main()
