"""How fast the neural model is trained and sampled: JSON lines.

`seconds` and `cpu_seconds` are those of one process, `peak_mib` is its memory so far.

python benchmarks/learn_neural.py [STEPS] [TRACES]     # 2,000 steps on 480 traces, 100 traces

Needs PyTorch: pip install armillary[learn].
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from learn import PLAN, show

from armillary.lab.learned.corpus import read_corpus, write_corpus
from armillary.lab.learned.neural.sample import NeuralSampler
from armillary.lab.learned.neural.train import train


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
