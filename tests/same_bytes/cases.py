"""Writes what commands answer, as JSON and traces, into a folder; under any conditions the bytes must be equal.

Called as ``python cases.py FOLDER [ONLY]``, by an interpreter that has the package and need not have pytest. Every path
in a command is relative to FOLDER, so that a path that leaks into an answer shows.
"""
# ruff: noqa: E501  (studies and commands are easier to compare one to a line)

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
from pathlib import Path

NPU = "{peak: {bf16: 989 TFLOP/s, fp32: 67 TFLOP/s}, memory: {bandwidth: 3350 GB/s, capacity: 80 GB, latency: 600 ns}}"
TWO = """
  network:
    - {name: node, topology: Switch, size: 4, bandwidth: 450 GB/s, latency: 700 ns}
    - {name: rail, topology: Ring, size: 2, bandwidth: 47 GB/s, latency: 3 us}"""
GRAPH = """
  topology: {kind: leaf-spine, leaves: 2, spines: 2, npus_per_leaf: 4, bandwidth: 47 GB/s, latency: 500 ns, buffer: 128 KiB}"""
SMALL = "{model: llama-3-8b, batch: 16, sequence: 512, parallel: {tp: 2, pp: 2}, data: {sharding: zero-1}"
STUDIES = {
    "plain": f"workload: {{generate: {SMALL}}}}}\nplatform:{TWO}\n  npu: {NPU}\n  compute: {{efficiency: 57 %}}\n",
    "old": f"workload: {{generate: {SMALL}}}}}\nplatform:{TWO}\n"
    "  npu: {peak: 989 TFLOP/s, memory: {bandwidth: 3350 GB/s}}\n  compute: {roofline: true}\n",
    "shaken": f"workload: {{generate: {SMALL}, host: {{issue: 3 us}}}}}}\nplatform:{TWO}\n  npu: {NPU}\n"
    "  compute: {efficiency: {compute: 57 %, memory: 83 %}}\n  jitter: {sigma: 7 %, seed: 3}\n"
    "  stragglers: {5: 2 ms}\n  collectives: {chunk_order: themis}\n",
    "device": "workload: {generate: {model: mixtral-8x7b, batch: 8, sequence: 512, parallel: {ep: 8},\n"
    "  experts: {skew: 0.7}, recompute: selective}}\nplatform: {preset: hgx-h100, compute: {model: gpu, device: h100-sxm}}\n",
    "table": "workload: {generate: {model: llama-2-7b, batch: 8, sequence: 696, parallel: {tp: 8}}}\nplatform:\n"
    "  preset: hgx-h100\n  compute: {model: table, file: gemm.csv, columns: {time: us}, unit: us}\n",
    "fitted": "workload: {collective: all-reduce, size: 37 MiB}\nplatform:\n"
    "  network:\n    - {name: node, topology: Switch, size: 8, bandwidth: 450 GB/s, latency: 700 ns}\n"
    "    - {name: rail, topology: Switch, size: 3, bandwidth: 47 GB/s, latency: 3 us}\n"
    f"  npu: {NPU}\n  collectives: {{fit: h100-sxm}}\n",
    "memory": f"workload: {{generate: {SMALL}, offload: {{weights: 0.4}}}}}}\nplatform:{TWO}\n  npu: {NPU}\n"
    "  compute: {efficiency: 57 %}\n  remote_memory: {preset: nvme-offload, npus_per_node: 4}\n",
    "systolic": f"workload: {{generate: {SMALL}}}}}\nplatform:{TWO}\n  npu: {NPU}\n"
    "  compute: {model: systolic, rows: 256, columns: 256, clock: 940 MHz, buffers: {ifmap: 8 MiB, filter: 8 MiB, ofmap: 4 MiB}}\n",
    "graph": f"workload: {{collective: all-reduce, size: 3 MiB}}\nplatform:{GRAPH}\n  npu: {NPU}\n",
    "apart": f"workload: {{collective: all-to-all, size: 333 KiB}}\nplatform:{GRAPH}\n  npu: {NPU}\n"
    "  packets: {protocol: tcp}\n",
    "serve": f"workload: {{generate: {{model: llama-3-8b, batch: 4, parallel: {{tp: 4}}, serve: {{prompt: 100, outputs: 3}}}}}}\n"
    f"platform:{TWO}\n  npu: {NPU}\n  compute: {{efficiency: 57 %}}\n",
    "jobs": "jobs:\n  - {npus: {count: 3, placement: random, seed: 7}, workload: {collective: all-reduce, size: 9 MiB}}\n"
    "  - {npus: {count: 4, placement: scattered}, workload: {collective: all-to-all, size: 5 MiB}, arrival: 20 us}\n"
    f"platform:{GRAPH}\n  npu: {NPU}\n",
    "mesh": "workload: {collective: all-reduce, size: 1 MiB}\nplatform:\n"
    "  network: [{topology: Mesh, shape: [3, 3], bandwidth: 47 GB/s, per: link, latency: 500 ns}]\n"
    + f"  npu: {NPU}\n",
    "mine": f"workload: {{trace: traces/rank}}\nplatform:{TWO}\n  npu: {NPU}\n  compute: {{roofline: true}}\n",
    # A sweep file: its axes are spaced by powers, its expressions have logarithms and powers.
    "sweep": "study: plain.yaml\nvary:\n  workload.generate.parallel.tp: [1, 2]\n"
    "  bandwidth: {choices: {slow: {platform.network.rail.bandwidth: 31 GB/s}, fast: {platform.network.rail.bandwidth: 47 GB/s}}}\n"
    "  platform.network.node.latency: {from: 500 ns, to: 3 us, count: 3, spacing: log, name: late}\n"
    "let: {share: tp ** 0.3 + log2(tp + 5)}\nwhere: [share > 0]\nobjectives: [minimize step_time, maximize headroom]\n",
}
SWEEP = "sweep sweep.yaml --store {0}.sqlite --json {0}.json --csv {0}.csv"
COMMANDS = {
    **{name: f"run {name}.yaml --json {name}.json" for name in
       ("plain", "shaken", "device", "table", "fitted", "memory", "systolic", "graph", "apart", "serve", "jobs")},
    "unfolded": "run plain.yaml --no-fold --json unfolded.json",
    "unfolded device": "run device.yaml --no-fold --json unfolded_device.json",
    "astra": "run old.yaml --profile astra-sim --json astra.json",
    "shared links": "run old.yaml --profile astra-sim --network-model congestion --json shared.json",
    **{model: f"run graph.yaml --network-model {model} --json {model}.json" for model in ("congestion", "packet")},
    "tcp": "run apart.yaml --network-model packet --json tcp.json --links tcp.csv",
    "train": "train llama-3-8b --machine 2xdgx-h100 --batch 32 --sequence 2048 --json train.json",
    "mixture": "train mixtral-8x7b --machine dgx-h100 --batch 16 --sequence 1024 --ep 8 --json mixture.json",
    "plan": "plan llama-2-7b --machine dgx-h100 --batch 8 --sequence 512 --pp 1 --json plan.json",
    "sweep one": SWEEP.format("one") + " --workers 1",
    "sweep two": SWEEP.format("two") + " --workers 2",
    "search": "plan search sweep.yaml --json search.json",
    "traces": "generate train llama-3-8b --ranks 8 --batch 8 --tp 2 --sequence 512 --out traces --json traces.json",
    "requests": "generate serve llama-3-8b --ranks 2 --tp 2 --batch 2 --prompt 64 --outputs 2 --out serving",
    "micro": "generate micro --collective all-reduce,broadcast --ranks 4 --max 1KiB --factor 4 --out micro",
    "footprint": "generate memory mixtral-8x7b --ranks 8 --batch 8 --ep 8 --machine hgx-h100 --json footprint.json",
    "collective": "collective time h100-sxm all-gather 3MiB 77MiB --gpus-per-node 8 --nodes 3",
    "shown": "collective show doubleBinaryTree --ranks 8",
    "scheduled": "collective schedule shaken.yaml --size 1GB",
    "synthesised": "collective synthesize mesh.yaml --size 12MB --json synthesised.json --msccl mesh.xml --out synthesised",
    "whole run": "plan whole-run plain.yaml --tokens 1T --mtbf \"5 years\" --checkpoint 30s --json whole.json",
    "cost": "plan cost plain.yaml --costs h100 --tokens 1T --json cost.json",
    "gemm": "machine gemm device.yaml 4096x4096x4096 777x1234x999",
    "compared": "compare plain.yaml memory.yaml --json compared.json",
    "checked": "trace stats traces/rank --json stats.json",
}  # fmt: skip
"""Name -> command line. What it prints is kept, too."""
CLOCK = ("search",)
"""Commands whose tables say how long they took."""


def gemm_table() -> str:
    """Return measured GEMMs, so few that most times are interpolated between them."""
    rows = ["m,n,k,us"]
    for number, m in enumerate((64, 512, 1024, 4096, 8192)):
        for n in (512, 2048, 4096, 16384):
            rows += [
                f"{m},{n},{k},{8 + m * n * k / 3.1e8 * (1 + (number * 7 + n + k) % 13 / 40):.3f}"
                for k in (512, 4096)
            ]
    return "\n".join(rows) + "\n"


def main(folder: Path, only: list[str]) -> None:
    """Run the commands in a folder."""
    from armillary.cli import main as armillary

    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    for name, text in STUDIES.items():
        Path(f"{name}.yaml").write_text(text)
    Path("gemm.csv").write_text(gemm_table())
    for name, command in COMMANDS.items():
        if only and name not in only:
            continue
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                armillary(shlex.split(command))
        except SystemExit as end:
            if end.code:
                sys.exit(f"{name}: {command}: exit code {end.code}")
        if name not in CLOCK:
            Path(f"{name}.txt").write_text(said.getvalue())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
