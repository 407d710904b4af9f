"""How fast workloads are generated, written and simulated.

Prints one JSON line per case: `seconds` is the best of three whole commands, start of the interpreter included, with
compiled kernels in the cache; `peak_mib` is the peak memory of the command. The sizes are those that STAGE is known
by: 64 ranks of a GPT of 32 layers (214 s there), and a model of the 540B class on 32,768 ranks.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from check import measure_command

GPT = """
kind: decoder
name: GPT of 32 layers
layers: 32
hidden: 4096
vocabulary: 50257
context: 2048
learned_positions: 2048
tied: true
norm: layer
activation: gelu
attention: {heads: 32, bias: all}
mlp: {size: 16384, bias: true}
"""
LARGE = """
kind: decoder
name: Transformer of the 540B class
layers: 118
hidden: 18432
vocabulary: 51200
context: 2048
learned_positions: 2048
tied: true
norm: layer
activation: gelu
attention: {heads: 144, bias: all}
mlp: {size: 73728, bias: true}
"""
STUDY = """
workload:
  generate: {{model: large.yaml, batch: {batch}, parallel: {{tp: 8, pp: 16}}}}
platform:
  network:
    - {{name: server, topology: Switch, size: 8, bandwidth: 450 GB/s, latency: 1 us}}
    - {{name: cluster, topology: Switch, size: {nodes}, bandwidth: 50 GB/s, latency: 5 us}}
  npu: {{peak: 989 TFLOP/s, memory: {{bandwidth: 3.35 TB/s}}}}
  compute: {{efficiency: 60 %}}
"""


def main() -> None:
    """Write the inputs into a temporary folder and run the commands on them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "gpt.yaml").write_text(GPT)
        (folder / "large.yaml").write_text(LARGE)
        written = folder / "written"
        words = f"generate train {folder}/gpt.yaml --ranks 64 --tp 4 --pp 2 --batch 64 --microbatch 8 --write {written}"
        case = measure_command(
            "gpt_64_ranks_written", *words.split(), before=lambda: shutil.rmtree(written, ignore_errors=True)
        )
        print(json.dumps(case), flush=True)
        for ranks in (32_768, 131_072):
            study = folder / f"{ranks}.yaml"
            study.write_text(STUDY.format(batch=ranks // 128 * 64, nodes=ranks // 8))
            print(json.dumps(measure_command(f"540b_{ranks}_ranks_simulated", "run", str(study))), flush=True)


if __name__ == "__main__":
    main()
