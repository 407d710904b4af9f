"""How good traces of the statistical model are for conditions that its corpus lacks: JSON lines.

python benchmarks/learn_fidelity.py [dense] [experts] [zero-bubble]     # all: 10 minutes of one core

Of each kind of plan a corpus is written and a model is fitted; conditions between those of the corpus and beyond them
are made, simulated on four machines and compared with generated ones, beside the nearest trace of the corpus.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from armillary.lab.fidelity.measure import WAYS, Fidelity, measure
from armillary.lab.learned.corpus import read_corpus, write_corpus
from armillary.lab.learned.requests import read_request
from armillary.lab.learned.sample import Sampler
from armillary.lab.learned.train import train

Choices = dict[str, list[Any]]
DENSE: Choices = {
    "layers": [4, 8, 12, 16, 24, 32], "hidden": [2048, 3072, 4096, 5120, 6144, 8192],
    "ffn": [8192, 11008, 14336, 16384, 22016, 28672], "kv_heads": [4, 8, 16], "vocabulary": [50304, 64000, 128256],
    "sequence": [1024, 2048, 4096], "microbatch": [1, 2, 4], "microbatches": [1, 2, 3, 4, 6, 8, 12],
    "tp": [1, 2, 4, 8], "cp": [1, 2, 4], "pp": [1, 2, 4, 8], "dp": [1, 2, 4, 8], "activation": ["gelu", "swiglu"],
    "attention": ["flash", "unfused"], "schedule": ["1f1b", "gpipe"], "sharding": ["ddp", "zero-1", "fsdp"],
    "recompute": ["none", "selective", "full"],
}  # fmt: skip
EXPERTS: Choices = {
    "layers": [4, 6, 8, 10, 12, 16], "hidden": [2048, 3072, 4096, 5120, 6144], "kv_heads": [4, 8, 16],
    "vocabulary": [64000, 100352, 128256], "sequence": [1024, 2048, 4096], "microbatch": [1, 2],
    "microbatches": [1, 2, 3, 4, 6, 8], "tp": [1, 2, 4], "etp": [1, 2, 4], "cp": [1, 2], "pp": [1, 2, 4, 8],
    "dp": [1, 2, 4, 8], "ep": [1, 2, 4, 8], "experts": [8, 16, 32, 64], "top_k": [1, 2, 4],
    "expert_size": [2048, 4096, 7168, 14336], "shared_experts": [0, 1, 2], "sharding": ["ddp", "zero-1", "fsdp"],
    "recompute": ["none", "full"],
}  # fmt: skip
ZERO_BUBBLE: Choices = {
    **DENSE, "schedule": ["zero-bubble"], "cp": [1], "attention": ["flash"], "activation": ["swiglu"],
    "recompute": ["none"],
}  # fmt: skip
CORPORA = {
    "dense": (DENSE, 1600, 30_000), "experts": (EXPERTS, 1200, 20_000), "zero-bubble": (ZERO_BUBBLE, 800, 20_000),
}  # fmt: skip
"""Choices, traces, and most nodes of one."""
BETWEEN: Choices = {
    "layers": [6, 10, 20, 28], "hidden": [2560, 3584, 4608, 7168], "ffn": [9216, 10240, 12288, 15360],
    "vocabulary": [60000, 100352], "sequence": [1536, 3072], "microbatches": [2, 3, 5, 7, 10], "pp": [1, 2, 4],
}  # fmt: skip
BEYOND: Choices = {
    "layers": [32, 48, 64], "hidden": [7168, 8192, 12288], "ffn": [20480, 28672, 49152], "kv_heads": [8, 16, 32],
    "vocabulary": [60000, 100352], "sequence": [8192], "microbatch": [1, 4], "microbatches": [8, 16, 20],
    "pp": [1, 4, 16], "dp": [2, 16, 64],
}  # fmt: skip
EXPERTS_BETWEEN: Choices = {
    "layers": [5, 9, 14], "hidden": [2560, 3584, 4608], "kv_heads": [4, 8], "vocabulary": [80000, 120064],
    "sequence": [1536, 3072], "microbatches": [2, 3, 5, 7], "experts": [24, 40], "top_k": [2, 3],
    "expert_size": [3072, 5120, 8192],
}  # fmt: skip
EXPERTS_BEYOND: Choices = {
    "layers": [24, 32, 47], "hidden": [7168, 8192], "kv_heads": [8, 16], "vocabulary": [129280],
    "sequence": [4096, 8192], "microbatches": [4, 9, 16], "pp": [1, 2, 16], "dp": [8, 32], "ep": [1, 8, 32],
    "experts": [128, 256], "top_k": [6, 8], "expert_size": [1536, 16384],
}  # fmt: skip
HELD_OUT = {
    "dense": (BETWEEN, BEYOND), "experts": (EXPERTS_BETWEEN, EXPERTS_BEYOND),
    "zero-bubble": (BETWEEN, {**BEYOND, "pp": [1, 4, 8], "dp": [2, 16]}),
}  # fmt: skip
COUNT = 60
"""Held-out conditions between, and as many beyond."""


def plan(folder: Path, name: str, choices: Choices, count: int, seed: int, nodes: int) -> Path:
    """Write a plan file."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"count": count, "seed": seed, "nodes": nodes, "choices": choices}))
    return path


def fidelity(kind: str, folder: Path) -> Fidelity:
    """Write a corpus, fit a model, and compare."""
    choices, count, nodes = CORPORA[kind]
    write_corpus(folder / kind, [], [plan(folder, f"{kind}-corpus", choices, count, 1, nodes)])
    corpus = read_corpus(folder / kind)
    held_out = [
        read_request(plan(folder, f"{kind}-{seed}", {**choices, **changed}, COUNT, seed, 3 * nodes))
        for seed, changed in enumerate(HELD_OUT[kind], 11)
    ]
    return measure(corpus, Sampler(train(corpus)).sample, held_out)


def show(kind: str, found: Fidelity) -> None:
    """Print a line for the conditions between, for those beyond, and for what was refused."""
    for name, beyond in (("between", False), ("beyond", True)):
        own = [each for each in found.compared if bool(each.beyond) == beyond]
        line: dict[str, object] = {
            "name": f"{kind}, {name}", "conditions": len(own), "made": sum(not each.refused for each in own),
        }  # fmt: skip
        for what in ("time", "nodes", "bytes"):
            for way in WAYS:
                errors = np.abs(found.errors(what, way, beyond=beyond))
                if len(errors):
                    line[f"{what}_{way}_percent"] = round(100 * float(errors.mean()), 3)
            made = np.abs(found.errors(what, "made", beyond=beyond))
            line[f"{what}_made_largest_percent"] = round(100 * float(made.max(initial=0)), 2)
        print(json.dumps(line), flush=True)
    refused = Counter(each.refused for each in found.compared if each.refused)
    print(json.dumps({"name": f"{kind}, refused", "reasons": dict(refused)}), flush=True)


def main() -> None:
    """Measure the kinds that are asked for."""
    with tempfile.TemporaryDirectory() as name:
        for kind in sys.argv[1:] or CORPORA:
            show(kind, fidelity(kind, Path(name)))


if __name__ == "__main__":
    main()
