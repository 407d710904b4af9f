# ruff: noqa: E501 - a table of calls
"""Options and machines of absurd size, and files that few send: the command, and what its one line must say."""

from __future__ import annotations

import json
import sqlite3
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

import fuzz_runs
import fuzz_seeds as seeds
from fuzz_stores import stored

DIGITS = "9" * 5000
TRAIN = "train llama-2-7b --machine dgx-h100"
SERVE = "serve llama-3.1-8b --machine 1xh100 --load"
WHOLE = "plan whole-run --ranks 8 --step-time 1s --tokens-per-step 4M --checkpoint 10s --mtbf 1000h"
OPTIONS = {
    f"{TRAIN} --batch 1000000000": "expected at most 5 M",
    f"{TRAIN} --batch 16 --ep 12": "ep 12: expected one of 1",
    f"{TRAIN} --batch 16 --dp 1000000000": "nearest dp: 8",
    f"{TRAIN} --batch 16 --tp 1000000000": "tp",
    f"{TRAIN} --batch 16 --sequence 1000000000000000": "sequence",
    f"{TRAIN} --batch 16 --iterations 1000000000": "expected at most",
    f"{TRAIN} --batch 16 --order \udcff-\x1b[2J": "--order",
    f"{TRAIN} --batch 16 --offload-weights nan": "offload",
    f"{TRAIN} --batch 16 --expert-skew 1e999": "skew",
    "generate train llama-2-7b --ranks 1000000000000 --batch 1000000000000": "ranks",
    "generate memory llama-2-7b --ranks 8 --batch 100000000": "expected at most 5 M",
    "plan llama-2-7b --machine 100000000xdgx-h100 --batch 8": "expected 1 to 16,777,216",
    f"{SERVE} poisson:rate=1e999,requests=4,input=64,output=8": "rate",
    f"{SERVE} poisson:rate=4,requests=4,input=-1,output=8": "input",
    f"{SERVE} poisson:rate=4,requests=4,input=64,output=10000000000000": "output",
    f"{SERVE} poisson:rate=4,requests=4,input=64,output=8 --blocks 9223372036854775808": "blocks",
    f"{WHOLE} --tokens {DIGITS}": "expected a count",
    f"{WHOLE} --tokens 1T --restart {DIGITS}h": "expected a time",
    f"{WHOLE} --tokens 1T --spares 1000000000000": "expected at most 1,048,576",
    "machine show 1000000000xdgx-h100": "expected 1 to 16,777,216",
    "machine gemm dgx-h100 1000000000000x1000000000000x1000000000000": "1000000000000",
    "collective show double-binary-tree --ranks 4194304": "at most 64",
    "collective show ring --ranks 100000 --mscclpp x.json": "expected at most 2 M",
    "collective time h100 all-reduce 1e400B --gpus-per-node 8": "1e400B",
    "collective synthesize dgx-h100 --size 1MiB --chunks-per-npu 1000000": "expected 1 to 1024",
    "generate serve llama-2-7b --ranks 1 --batch 1000000 --prompt 16 --outputs 2": "expected at most 50 M",
    "generate serve llama-2-7b --ranks 1 --batch 2 --prompt 16 --outputs 1000000": "expected at most 50 M",
}  # fmt: skip
"""Words of a command, which is refused -> a part of its line."""
SHORTAGES = {
    "collective exchange 2xdgx-h100 --experts 1000000 --tokens 1000": "expected fewer tokens or experts",
    "collective exchange 2xdgx-h100 --experts 1024 --choices 1024 --tokens 500000": "expected fewer tokens or experts",
}
"""The same, which need more memory than there may be."""
RING = "workload: {collective: all-reduce, size: %s}\nplatform:\n  network: [{name: a, topology: Ring, size: %s, bandwidth: %s, latency: %s}]\n  npu: {memory: {bandwidth: 2 TB/s}}\n"
HEAD = "experiment,simulator,model,workload,stage_index,metric_name,predicted,actual,hardware,precision,tp,max_num_batched_tokens\n"
POINT = "a,blis,m,codegen,-1,e2e_mean,%s,1876,H100,FP16,%s,2048.0\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
COMMANDS: dict[str, tuple[str, ...]] = {
    "sim_to_real.csv": ("validate", "--data", "@"),
    "requests.jsonl": ("validate", "--data", "@"),
    "load.jsonl": (*SERVE.split(), "@"),
    "load.csv": (*SERVE.split(), "@"),
    "bytes.mlirbc": ("trace", "convert", "--from", "stablehlo", "@", "-o", "@.made"),
    "bytes.bin": ("trace", "convert", "--from", "goal", "@", "-o", "@.made"),
    "rows.db": ("sweep", "results", "@"),
    "ring.yaml": ("run", "@"),
    "all_reduce_perf.log": ("calibrate", "observe", "@", "--machine", "dgx-h100", "-o", "@.made.yaml"),
}
"""Files of readers that have no other hostile file -> the command that reads them."""


def vllm(**changes: object) -> Callable[[Path], object]:
    """Return what writes a run of vLLM, of whose meta and config some values are others."""

    def write(path: Path) -> None:
        meta, config = (json.loads(json.dumps(fuzz_runs.VLLM[part])) for part in ("meta", "config"))
        row = dict(fuzz_runs.VLLM["requests"][0])
        for key, value in changes.items():
            for place in (
                meta["engine_kwargs"],
                meta["kv_cache"],
                config,
                config["nodes"][0]["instances"][0],
                row,
            ):
                if key in place:
                    place[key] = value
        layers = (
            path.parent
            / "profiles"
            / "GPU"
            / str(changes.get("model_name", fuzz_runs.MODEL))
            / "bf16"
            / "tp1"
        )
        if ".." not in layers.parts and len(str(layers)) < 200:
            layers.mkdir(parents=True, exist_ok=True)
            for name, text in seeds.PROFILE_OF.items():
                (layers / name).write_text(text)
        path.with_name("meta.json").write_text(json.dumps(meta))
        path.with_name("config.json").write_text(json.dumps(config))
        path.write_text((json.dumps(row) + "\n") * int(str(changes.get("rows", 2))))

    return write


def of_store(*statements: str) -> Callable[[Path], object]:
    """Return what writes the store of a sweep and then changes it."""

    def write(path: Path) -> None:
        path.write_bytes(stored(seeds.SWEEP)[0])
        with closing(sqlite3.connect(path)) as base:
            for statement in statements:
                base.execute(statement)
            base.commit()

    return write


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"


def files() -> Iterator[tuple[str, Callable[[Path], object] | str | bytes, str]]:
    """Yield what a file is and is called, its content or what writes it, and what must be said of it."""
    for name, values, said in (
        ("size", ("1e308 B", 4, "1 GB/s", "1 us"), "size"), ("npus", ("1 MiB", 10**12, "1 GB/s", "1 us"), "size"),
        ("text", ("1 MiB", "'4'", "1 GB/s", "1 us"), "size"), ("float", ("1 MiB", "1.5", "1 GB/s", "1 us"), "size"),
        ("bandwidth", ("1 MiB", 4, "1e400 GB/s", "1 us"), "bandwidth"), ("nan", ("1 MiB", 4, "nan GB/s", "1 us"), "bandwidth"),
        ("latency", ("1 MiB", 4, "1 GB/s", "1e300 s"), "latency"), ("negative", ("1 MiB", 4, "1 GB/s", "-1 us"), "latency"),
        ("sexagesimal", ("1:30:00", 4, "1 GB/s", "1 us"), "size"), ("date", ("2001-01-01", 4, "1 GB/s", "1 us"), "size"),
    ):  # fmt: skip
        yield f"{name} ring.yaml", RING % values, said
    yield "predicted sim_to_real.csv", HEAD + POINT % ("1e999", "1.0"), "sim_to_real.csv"
    yield "tp sim_to_real.csv", HEAD + POINT % ("1", "1000000000000"), "sim_to_real.csv"
    yield "field sim_to_real.csv", HEAD + "a" * 300_000 + POINT % ("1", "1"), "sim_to_real.csv"
    yield "tp requests.jsonl", vllm(tensor_parallel_size=10**12), "tensor_parallel_size"
    yield "memory requests.jsonl", vllm(num_gpu_blocks=None, npu_mem={"mem_size": -1}), "mem_size"
    yield "blocks requests.jsonl", vllm(num_gpu_blocks=10**30), "num_gpu_blocks"
    yield "outside requests.jsonl", vllm(model_name="../../../../etc"), "expected a model of"
    yield "tokens requests.jsonl", vllm(input_toks=10**15), "input_toks"
    yield "time requests.jsonl", vllm(arrival_time=-1e300), "requests.jsonl"
    yield (
        "hash load.jsonl",
        json.dumps({"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [2**70, 2]}),
        "hash_ids",
    )
    yield (
        "hashes load.jsonl",
        json.dumps({"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [[]] * 9}),
        "hash_ids",
    )
    yield (
        "time load.jsonl",
        json.dumps({"timestamp": -1e300, "input_length": 6, "output_length": 3, "hash_ids": []}),
        "timestamp",
    )
    yield (
        "length load.jsonl",
        json.dumps({"timestamp": 0, "input_length": 10**18, "output_length": 3, "hash_ids": []}),
        "input_length",
    )
    yield "tokens load.csv", AZURE + "2023-11-16 18:17:03.9799600,1000000000000,4\n", "ContextTokens"
    yield "date load.csv", AZURE + "9999-99-99 18:17:03,48,4\n", "TIMESTAMP"
    yield "negative load.csv", BURST + "5,ChatGPT,-47,18,65,Conversation log\n", "Request tokens"
    yield "infinite load.csv", BURST + "1e999,ChatGPT,47,18,65,Conversation log\n", "Timestamp"
    yield "cut bytes.mlirbc", b"ML\xefR\x01StableHLO_v1.0.0\0", "bytes.mlirbc"
    yield "numbers bytes.mlirbc", b"ML\xefR" + b"\xff" * 4000, "bytes.mlirbc"
    yield "ranks bytes.bin", struct.pack("<QI", 4223, 0xFFFFFFFF) + b"\0" * 64, "bytes.bin"
    yield (
        "table bytes.bin",
        struct.pack("<QI", 4223, 1) + b"\0\0" + struct.pack("<QQ", 2**63, 2**63),
        "bytes.bin",
    )
    yield "endless rows.db", of_store("DROP TABLE work", f"CREATE VIEW work AS {ENDLESS}"), "rows.db"
    yield (
        "expression rows.db",
        of_store(
            "ALTER TABLE work ADD x AS (zeroblob(1000000000))",
            "ALTER TABLE sweeps ADD y AS (zeroblob(1000000000))",
        ),
        "rows.db",
    )
    yield (
        "time all_reduce_perf.log",
        seeds.NCCL_LOG.replace("402.1", "1e999").replace("40.12", "nan"),
        "all_reduce_perf.log",
    )
    yield (
        "size all_reduce_perf.log",
        seeds.NCCL_LOG.replace("67108864", DIGITS).replace("1048576", DIGITS),
        "all_reduce_perf.log",
    )
