# ruff: noqa: E501 - a table of files
"""Files of the readers that few use, which want too much, or something else than they should."""

from __future__ import annotations

import gzip
import json
import re
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

import fuzz_seeds as seeds

LONG = "9" * 300_000
DIGITS = "9" * 5000
TRIOSIM = "OperatorID,OperatorName,Operator_input,Operator_output,Operator_cudatime,Operator_cudatimenooverlap,InputSize,OutputSize,gpuid,stage,tpflag\n"
SERVE = "{serve: llama-3.1-8b, load: '%s', slo: 'ttft=1s', weight: 40 %%}"
TRAIN = "{train: llama-3-8b, batch: 16, plan: {sequence: 512}, weight: 60 %}"
ROUTED = (
    "workload: {collective: all-reduce, size: 1 MiB}\n"
    "platform:\n  topology: {kind: file, file: graph.csv, routing: static, table: routes.csv}\n"
    "  npu: {memory: {bandwidth: 3350 GB/s}}\n"
)
GRAPH = "from,to,bandwidth,latency\nnpu 0,s,50 GB/s,1 us\ns,npu 0,50 GB/s,1 us\nnpu 1,s,50 GB/s,1 us\ns,npu 1,50 GB/s,1 us\n"
WAY = "node,destination,next\n"

TASK = 'digraph taskgraph {\n node1 [color=red,label="%s",shape=record];\n}\n'
LOGGERS = '[[sink]]\nname = "a"\n%s\n[[logger]]\nname = "statistics"\nsinks = ["a"]\n'

COMMANDS: dict[str, tuple[str, ...]] = {
    "mix.yaml": ("plan", "machine", "@"),
    "routes.csv": ("run", "^/study.yaml"),
    "counts.csv": ("collective", "exchange", "2xdgx-h100", "--experts", "16", "--expert-counts", "@"),
    "tokens.csv": ("collective", "exchange", "2xdgx-h100", "--experts", "16", "--routing", "@"),
    "service.json": ("astra-sim", "service", "@", "-o", "@.made"),
    "plans.yaml": ("plan", "llama-2-7b", "--machine", "dgx-h100", "--batch", "8", "--among", "@"),
    "failures.yaml": ("plan", "whole-run", "--ranks", "8", "--step-time", "1s", "--tokens", "1T", "--tokens-per-step", "4M", "--checkpoint", "10s", "--mtbf", "@"),
    "steps.yaml": ("calibrate", "observe", "@", "--machine", "dgx-h100", "-o", "@.made.yaml"),
    "profile.json": ("calibrate", "observe", "@", "--machine", "dgx-h100", "-o", "@.made.yaml"),
    "legend.json": ("trace", "obfuscate", "+w", "--restore", "@", "--out", "@.made"),
    "config.json": ("generate", "show", "@"),
    "part.npz": ("generate", "learn", "train", "^", "-o", "@.made"),
}  # fmt: skip
"""Files of readers that have no other hostile file -> the command that reads them."""


def mix(
    workloads: str,
    machines: str = "- {machine: 2xdgx-h100, costs: {preset: h100}}",
    rest: str = "budget: {power: 60 kW}",
) -> str:
    return f"mix: [{workloads}]\nmachines:\n{machines}\n{rest}\n"


def changed(document: Mapping[str, Any], *path: str | int, to: Any) -> str:
    """Return a document as JSON, with another value in one place."""
    found = json.loads(json.dumps(document))
    at = found
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    return json.dumps(found)


def beside(files: Mapping[str, str]) -> Callable[[Path], object]:
    """Return what writes sound files next to a hostile one."""

    def write(path: Path) -> None:
        for name, content in files.items():
            (path.parent / name).parent.mkdir(parents=True, exist_ok=True)
            (path.parent / name).write_text(content)

    return write


def captured(path: Path) -> None:
    """Write the one rank of a captured folder."""
    path.with_name("rank_0.json.gz").write_bytes(gzip.compress(json.dumps(seeds.CAPTURED).encode()))


BESIDE: dict[str, Callable[[Path], object]] = {
    "capture.json": captured,
    "routes.csv": beside({"study.yaml": ROUTED, "graph.csv": GRAPH}),
}


def rare() -> Iterator[tuple[str, str | bytes | Callable[[], str | bytes], str]]:
    """Yield what a file is and is called, its content, and what must be said of it."""
    # A mix of workloads, machines and a budget.
    values = ", ".join(map(str, range(2, 400)))
    vary = "".join(f"    platform.network.{key}: [{values}]\n" for key in ("fabric.size", "fabric.bandwidth"))
    many = f"- machine: 2xdgx-h100\n  costs: {{preset: h100}}\n  vary:\n{vary}"
    yield "combinations mix.yaml", mix(TRAIN, many), "expected at most"
    yield (
        "requests mix.yaml",
        mix(SERVE % "poisson:rate=4,requests=1000000000,input=64,output=8"),
        "expected at most",
    )
    yield "batch mix.yaml", mix(TRAIN.replace("16", "9" * 30)), "batch"
    yield "model mix.yaml", mix(TRAIN.replace("llama-3-8b", "/dev/zero")), "is a device"
    yield "load mix.yaml", mix(SERVE % "/proc/self/maps"), "is a view of the running system"
    yield "budget mix.yaml", mix(TRAIN, rest="budget: {capital: 1e999 MUSD}"), "capital"
    yield (
        "npus mix.yaml",
        mix(TRAIN, "- {machine: 1000000000xdgx-h100, costs: {preset: h100}}"),
        "expected 1 to 16,777,216",
    )
    program = "- machine: {preset: dgx-h100, compute: {model: subprocess, command: [touch, STARTED]}}\n  costs: {preset: h100}"
    yield "program mix.yaml", mix(TRAIN, program), "--allow-programs"
    # A table of routes.
    yield "loop routes.csv", WAY + "npu 0,npu 1,s\ns,npu 1,npu 0\nnpu 1,npu 0,s\ns,npu 0,npu 0\n", "npu 1"
    yield "itself routes.csv", WAY + "npu 0,npu 1,npu 0\n", "npu 0"
    yield "field routes.csv", WAY + f"{LONG},npu 1,s\n", "field larger than field limit"
    yield "name routes.csv", WAY + "npu 0,npu 1,\x1b[2J\n", "no node '\\x1b[2J'"
    yield "two ways routes.csv", WAY + "npu 0,npu 1,s\ns,npu 1,npu 1\ns,npu 1,npu 0\n", "npu 1 above"
    yield "rows routes.csv", lambda: WAY + "npu 0,npu 1,s\n" * 3_000_000, "rows: 2 M of them"
    # How often experts are chosen, and by which tokens.
    head = "layer,expert,count\n"
    yield (
        "lines counts.csv",
        lambda: "layer,expert,count\n" + "11\n" * 80_000_000,
        "lines, expected at most 10 M",
    )
    yield "rows counts.csv", lambda: "layer,expert,count\n" + "0,0,1\n" * 2_100_000, "rows: 2 M of them"
    yield "layer counts.csv", head + "1000000000,0,1\n", "layer"
    yield "expert counts.csv", head + "0,1000000000000,1\n", "expert"
    yield "count counts.csv", head + f"0,0,{DIGITS}\n", "count"
    yield "negative counts.csv", head + "0,0,-1\n", "count"
    yield "field counts.csv", head + f"0,{LONG},1\n", "counts.csv"
    head = "rank,experts,count\n"
    yield "count tokens.csv", head + "0,0 5,1000000000000000000\n", "count"
    yield "rank tokens.csv", head + "1000000000000,0 5,1\n", "rank"
    yield "experts tokens.csv", head + "0," + "1 " * 60_000 + ",1\n", "experts"
    yield "field tokens.csv", head + f"0,{LONG},1\n", "field larger than field limit"
    yield "digits tokens.csv", head + f"0,{DIGITS},1\n", "tokens.csv"
    # A configuration of ASTRA-sim-service.
    service = json.loads(seeds.SERVICE[0])
    ring = ("network_backend", "analytical_congestion_aware", "topology", "network", 0)
    graph = json.loads(seeds.SERVICE[1])
    yield (
        "instances service.json",
        changed(graph, "infragraph", "infrastructure", "devices", 0, "components", 0, "count", to=2 * 10**9),
        "expected at most",
    )
    yield "latency service.json", changed(service, *ring, "latency", to=1e999), "service.json"
    yield (
        "members service.json",
        changed(
            service, "common_config", "communicator_group", to=[{"identifier": "../x", "npu_list": [10**30]}]
        ),
        "service.json",
    )
    yield "deep service.json", '{"common_config": ' * 60_000, "deep"
    # Plans, failures, models.
    yield "plans plans.yaml", lambda: "plans:\n" + "- {tp: 2}\n" * 120_000, "plans.yaml"
    yield "tp plans.yaml", "plans:\n- {tp: 1000000000000}\n", "tp"
    yield "microbatch plans.yaml", "plans:\n- {microbatch: -1}\n", "microbatch"
    yield "mtbf failures.yaml", "components:\n  npu: {per: npu, mtbf: 1e-300 s}\n", "failures.yaml"
    yield "digits failures.yaml", f"components:\n  npu: {{per: npu, mtbf: {DIGITS} h}}\n", "mtbf"
    yield "layers config.json", json.dumps(seeds.CONFIG | {"num_hidden_layers": 10**15}), "num_hidden_layers"
    yield "heads config.json", json.dumps(seeds.CONFIG | {"num_attention_heads": 0}), "num_attention_heads"
    yield "experts config.json", json.dumps(seeds.EXPERTS | {"n_routed_experts": 10**18}), "n_routed_experts"
    yield "vocabulary config.json", json.dumps(seeds.CONFIG | {"vocab_size": 1e999}), "config.json"
    named = json.dumps(seeds.CONFIG | {"auto_map": {"AutoModel": "../x.py"}, "model_type": "x\x1b[2J"})
    yield "class config.json", named, "model_type: got 'x\\x1b[2J'"
    # Measured steps and profiles.
    yield "seconds steps.yaml", seeds.STEPS.replace("3.15", "1e-320"), "seconds"
    yield "ranks steps.yaml", seeds.STEPS.replace("ranks: 8", "ranks: 1000000000000"), "ranks"
    yield "layers steps.yaml", seeds.STEPS.replace("layers: 2", "layers: 1000000000000000"), "layers"
    yield "many steps.yaml", lambda: seeds.STEPS + "- {plan: {batch: 32}, seconds: 3}\n" * 100_000, "values"
    yield "time profile.json", changed(seeds.PROFILE, "traceEvents", 1, "dur", to=1e308), "profile.json"
    yield "deep profile.json", '{"traceEvents": ' + "[" * 50_000, "profile.json"
    # The map of an obfuscated trace.
    yield "names legend.json", json.dumps(seeds.LEGEND | {"names": {"a": [1]}}), "[1] is no text"
    yield (
        "ids legend.json",
        json.dumps(seeds.LEGEND | {"ids": [[10**30]], "rank_graph": [0] * 3}),
        "expected 8",
    )
    yield "deep legend.json", '{"names": ' * 60_000, "deep"
    # Files of readers that have others.
    steps = '{"script": "s.py", "digest": "", "arguments": [], "ranks": 1000000000000, "device": "h100-sxm", "step": 3, "done": [0]}'
    yield "ranks capture.json", steps, "of 8 ranks"
    yield "done capture.json", steps.replace("[0]", "[-1, 99999999]"), "rank_-1.json.gz"
    yield (
        "devices step.mlir",
        "module @m attributes {mhlo.num_partitions = 1000000 : i32} {\n  func.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {\n    %0 = stablehlo.add %arg0, %arg0 : tensor<8xf32>\n    return %0 : tensor<8xf32>\n  }\n}\n",
        "each of which becomes a file",
    )
    yield (
        "shape step.mlir",
        "module {\n  func.func public @main(%arg0: tensor<99999999999999999999x8xf32>) -> tensor<8xf32> {\n    return %arg0 : tensor<8xf32>\n  }\n}\n",
        "step.mlir",
    )
    yield "gpu trace.csv", TRIOSIM + "1,conv,[1],[3],30.5,30.5,[12],[24],100000000,forward,0\n", "gpuid"
    yield "time trace.csv", TRIOSIM + "1,conv,[1],[3],1e308,30.5,[12],[24],0,forward,0\n", "trace.csv"
    yield "size trace.csv", TRIOSIM + f"1,conv,[1],[3],1,1,[{DIGITS}],[24],0,forward,0\n", "trace.csv"
    yield "size work.txt", f"DATA\n1\na -1 5 NONE 0 5 NONE 0 5 ALLREDUCE {DIGITS} 5\n", "work.txt"
    task = "{device_id=-1|Dense|Forward|COMP_NODE|simulated_run_time=0.5}"
    yield "id task.graph", TASK % task, "task.graph"
    task = "{device_id=0|Dense|Forward|COMP_NODE|simulated_run_time=1e308}"
    yield "time task.graph", TASK % task, "simulated_run_time"
    yield (
        "gpus algo.xml",
        '<algo name="a" nchunksperloop="1" ngpus="1000000000" coll="allgather"></algo>',
        "gpu",
    )
    yield (
        "chunks algo.xml",
        '<algo name="a" nchunksperloop="1000000000000" ngpus="2" coll="allgather"><gpu id="0" i_chunks="1" o_chunks="2" s_chunks="0"/><gpu id="1" i_chunks="1" o_chunks="2" s_chunks="0"/></algo>',
        "algo.xml",
    )
    yield "length old.0.eg", b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x08\x01", "old.0.eg"
    yield (
        "nul loggers.toml",
        LOGGERS % 'type = "basic_file_sink_mt"\nfilename = "a\\u0000b"',
        "is not a file name",
    )
    rotating = (
        'type = "rotating_file_sink_mt"\nbase_filename = "a.txt"\nmax_size = "1"\nmax_files = 1000000000000'
    )
    yield "files loggers.toml", LOGGERS % rotating, "max_files"
    log = "# nccl-tests version 2.13 all_reduce_perf\n" + seeds.NCCL_LOG
    yield "size nccl.log", re.sub("    (67108864|1048576) ", f"    {DIGITS} ", log), "nccl.log"
    yield "time nccl.log", log.replace("402.1", "1e999"), "nccl.log"
    yield "field a.xplane.pb", b"\x0a\xff\xff\xff\xff\x0f" + struct.pack("<q", -1), "a.xplane.pb"
