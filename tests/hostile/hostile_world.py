# ruff: noqa: E501 - a table of calls
"""A folder in which every string is hostile, and a call of every command in it."""

from __future__ import annotations

import gzip
import importlib
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import numpy as np

from armillary.explore.runner.salvage import seal
from armillary.trace import GraphBuilder, Trace, write_trace
from armillary.trace.columns import NodeType

TERMINAL = "\x1b]0;pwned\x07\x1b[31m\x9b2J\u202e\x08\x7f"
MARKUP = "[bold red]x[/][link=http://pwned.invalid]y[/link]:skull:"
HTML = (
    "</script><script>window.__pwned=1;alert(1)</script></title></style><img src=http://pwned.invalid/x "
    "onerror=window.__pwned=2><svg/onload=window.__pwned=3>\" onmouseover='window.__pwned=4' x=\"'"
    '<a href="javascript:window.__pwned=5">z</a><a href="http://pwned.invalid">w</a>]]>-->'
)
FORMULA = '=HYPERLINK("http://pwned.invalid";"x")'
TEX = "$\\frac$ $ \\N \\G ${PWNED} $(touch pwned) `touch pwned` %{x} {{7*7}} %s @TITLE@"
FORGED = "\r\nFORGED: fine\n+FORGED,=1+1\t"
NAME = f"{FORMULA}{FORGED}{TERMINAL}{MARKUP}{HTML}{TEX}"
"""One name that is everything: what tries to be more than text, wherever it comes."""
PLAIN = "".join(letter for letter in NAME if letter.isprintable())
"""The same for places that refuse what cannot be printed."""
FILE = "=1+1[bold]<img src=x onerror=window.__pwned=9>\x1b[31m$\\frac$"
"""The name of a file: no slash."""

MACHINE = {
    "network": [{"name": NAME, "topology": "Ring", "size": 4, "bandwidth": "50 GB/s", "latency": "500 ns"}],
    "npu": {"peak": "100 TFLOP/s", "memory": {"bandwidth": "2 TB/s"}},
}
MODEL = {
    "kind": "decoder", "name": NAME, "source": [NAME], "layers": 2, "hidden": 64, "vocabulary": 128, "context": 64,
    "attention": {"heads": 4}, "mlp": {"size": 128}, "norm": "rms", "activation": "gelu", "tied": False,
}  # fmt: skip
NCCL = "ngpus,size_bytes,oop_us,oop_busbw_GBps,ip_us,ip_busbw_GBps\n" + "".join(
    f"8,{2**n},{20 + 2**n / 2e5:.2f},{1.75 * 2**n / (20e3 + 2**n / 200):.2f},1,1\n" for n in range(10, 31, 4)
)
HLO = """HloModule m, is_scheduled=true, replica_count=2
ENTRY %main {{
  %p = f32[64] parameter(0)
  ROOT %n = f32[64] negate(f32[64] %p), metadata={{op_name="{0}"}}
}}
"""
STABLEHLO = """func.func public @main(%a: tensor<8xf32>) -> tensor<8xf32> {{
  %0 = "stablehlo.custom_call"(%a) <{{call_target_name = "{0}"}}> : (tensor<8xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}}
"""
MSCCL = """<algo name={0} proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allgather" inplace="1">
<gpu id="0" i_chunks="1" o_chunks="2" s_chunks="0"><tb id="0" send="1" recv="-1" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb>
<tb id="1" send="-1" recv="1" chan="0">
<step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb></gpu>
<gpu id="1" i_chunks="1" o_chunks="2" s_chunks="0"><tb id="0" send="0" recv="-1" chan="0">
<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb>
<tb id="1" send="-1" recv="0" chan="0">
<step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb></gpu>
</algo>
"""
MPT = """section,Model,SeqLen (T),# GPUs,GPU,MFU,HFU,Model TFLOP,MicroBatchSize,GradAccum,GlobalBatchSize,\
Throughput (S/s),Throughput (T/s),Throughput (T/s/GPU),GlobalBatchSize (T),Precision,MP Mode,Sharding Strategy,\
Activation Checkpointing,Activation CPUOffload,NumParams
x,1b,2048,8,h100_80gb,41.25,55.0,408,8,1,64,251,515636,1007,8388608,amp_bf16,DEFAULT,FULL_SHARD,True,False,64862437376
"""
LOG = "issue,npu_id=0,cycle={0},node_id={1},node_name={2}\n"


def write_world(folder: Path) -> None:
    """Write the inputs of all commands, of which each string that may be anything is hostile."""
    builder = GraphBuilder()
    attrs = [("is_cpu_op", "bool", False), ("num_ops", "int64", 1 << 30), ("tensor_size", "uint64", 1 << 20)]
    work = builder.add(NAME, NodeType.COMP_NODE, [*attrs, (NAME, "string", NAME)])
    host = builder.compute(f"{NAME}2", duration_micros=20, cpu=True, after=[work])
    builder.all_reduce(NAME, size="1 MiB", after=[work, host])
    builder.all_reduce(f"{NAME}3", size="2 MiB", after=[work])
    trace = Trace.replicate(builder.graph(), ranks=4)
    for prefix in ("bad", FILE):
        write_trace(folder / prefix, trace)
    fine = GraphBuilder()
    fine.all_reduce("sum", size="1 MiB", after=[fine.compute("work", duration_micros=20)])
    write_trace(folder / "fine", Trace.replicate(fine.graph(), ranks=4))
    put(folder, "groups.json", {"7": [0, 1, 2, 3]})
    for name, prefix in (("bad.yaml", "bad"), (f"{FILE}.yaml", FILE)):
        put(folder, name, {"workload": {"trace": prefix}, "platform": MACHINE})
    gpu = {**MACHINE, "compute": {"model": "gpu", "device": "h100-sxm"}}
    for name in ("gpu.yaml", f"{FILE}.gpu.yaml"):
        put(folder, name, {"platform": gpu, "software": "megatron-core"})
    put(folder, "keys.yaml", {"workload": {"trace": NAME, NAME: NAME}, "platform": {NAME: NAME}})
    rest = {key: value for key, value in MACHINE.items() if key != "network"}
    workload = {"trace": "bad"}
    leaves = {
        "kind": "leaf-spine",
        "leaves": 2,
        "spines": 1,
        "npus_per_leaf": 2,
        "bandwidth": "50 GB/s",
        "latency": "500 ns",
    }
    put(folder, "links.yaml", {"workload": workload, "platform": {**rest, "topology": leaves}})
    npus = [f"{number}{NAME}" for number in range(4)]
    both = [{"from": a, "to": b, "bandwidth": "50 GB/s", "latency": "500 ns", "kind": NAME}
            for npu in npus for a, b in ((npu, NAME), (NAME, npu))]  # fmt: skip
    put(folder, "graph.yaml", {"links": both, "npus": npus})
    own = {"kind": "file", "file": "graph.yaml"}
    put(folder, "edges.yaml", {"workload": workload, "platform": {**rest, "topology": own}})
    put(folder, "model.yaml", MODEL)
    put(folder, "config.json", {
        "_name_or_path": NAME, "model_type": "llama", "architectures": [NAME], "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 128, "max_position_embeddings": 64,
        "hidden_act": "silu",
    })  # fmt: skip
    put(folder, "sweep.yaml", {
        "study": "bad.yaml",
        "vary": {
            "workload.trace": {"values": ["bad", FILE, NAME], "name": "trace"},
            "platform.network.0.bandwidth": ["50 GB/s", "100 GB/s"],
            "machine": {"choices": {NAME: {"platform.network.0.latency": "1 us"}, "=1+1": {}, "-2": {}}},
        },
        "objectives": ["minimize step_time", "minimize communication"],
    })  # fmt: skip
    put(
        folder,
        "wrong.yaml",
        {"study": "bad.yaml", "vary": {NAME: [NAME]}, "where": [NAME], "let": {NAME: NAME}},
    )
    put(folder, "costs.yaml", {NAME: NAME})
    mix = [{"train": "model.yaml", "batch": 4}]
    mine = {
        "machine": f"{FILE}.gpu.yaml",
        "name": NAME,
        "costs": {"npu": {"price": "1 USD", "busy": "9 W", "idle": "1 W"}},
    }
    put(folder, "mix.yaml", {"mix": mix, "machines": [mine], "budget": {"capital": "1 MUSD"}})
    put(folder, "plan.yaml", {NAME: NAME})
    ring = {"topology": "ring", "npus_count": 2, "bandwidth": 50, "latency": 500}
    common = {"workload": NAME, "communicator_group": [{"identifier": NAME, "npu_list": [0, 1]}]}
    backend = {"analytical_congestion_aware": {"topology": {"network": [ring]}}}
    put(folder, "service.json", {"common_config": common, "network_backend": backend})
    (folder / "x.hlo").write_text(
        HLO.format(PLAIN.replace("\\", "").replace('"', "")), "utf-8", "surrogatepass"
    )
    named = PLAIN.replace("\\", "").replace('"', "")
    (folder / "x.mlir").write_text(STABLEHLO.format(named), "utf-8", "surrogatepass")
    (folder / "x.xml").write_text(MSCCL.format('"' + html_cell(PLAIN) + '"'))
    words = "".join(letter for letter in PLAIN if not letter.isspace())
    (folder / "x.txt").write_text(f"MICRO\n1\n{words} -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1024 5\n")
    put(folder, "x.nccl", [
        {"header": {"id": NAME, "rank": 0, "n_ranks": 2}, "metadata": {"hostname": NAME, "pid": NAME}, NAME: NAME,
         "coll_perf": {"coll": coll, "coll_sn": 0, "coll_msg_size_bytes": 8, "coll_exec_time_us": 5}}
        for coll in ("AllReduce", NAME)
    ])  # fmt: skip
    exported(folder / "x.sqlite")
    profiled(folder / "x.xplane.pb")
    about = {
        "kind": 0,
        "operation": 0,
        "correlation_id": {"internal": 1},
        "start_timestamp": 5,
        "end_timestamp": 9,
    }
    put(folder, "x.rocprof", {"rocprofiler-sdk-tool": [{
        "metadata": {"pid": NAME}, "kernel_symbols": [{"kernel_id": 1, "formatted_kernel_name": NAME}],
        "strings": {"buffer_records": [{"kind": NAME, "operations": [f"Range{NAME}"]}], "marker_api": [{"key": 1, "value": NAME}]},
        "buffer_records": {"kernel_dispatch": [about | {"dispatch_info": {"kernel_id": 1}}], "marker_api": [about], NAME: [NAME]},
    }]})  # fmt: skip
    (folder / "x.goal").write_text(f"num_ranks 1\nrank 0 {{\ncalc 5 // {PLAIN}\n{PLAIN}\n}}\n")
    (folder / "x.csv").write_text(
        "OperatorName,Operator_input,Operator_output,Operator_cudatime,InputSize,OutputSize,gpuid,stage,tpflag\n"
        f"{csv_cell(PLAIN)},[1],[2],5,1,1,0,forward,0\n"
    )
    put(folder, "x.plan.json", {"name": NAME, "collective": "test", "gpus": [
        {"id": i, "input_chunks": 1, "output_chunks": 1, "scratch_chunks": 0, "threadblocks": [{"id": 0, "ops": [
            {"name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}], "dst_buff": [{"type": "o", "index": 0, "size": 1}]},
        ]}]} for i in range(2)
    ]})  # fmt: skip
    (folder / "x.graph").write_text(json.dumps({NAME: NAME}))
    (folder / "x.eg").write_bytes(NAME.encode("utf-8", "replace"))
    host_ops = [
        {"id": i, "name": NAME, "ctrl_deps": 1, "attrs": [{"name": "rf_id", "type": "uint64", "value": i}],
         "inputs": {"values": [], "shapes": [], "types": []}, "outputs": {"values": [], "shapes": [], "types": []}}
        for i in range(1, 4)
    ]  # fmt: skip
    put(folder, "host.json", {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": host_ops})
    put(folder, "device.json", {"schemaVersion": 1, "traceEvents": [
        {"ph": "X", "cat": cat, "name": NAME, "pid": 0, "tid": 7, "ts": 10 * i, "dur": 5,
         "args": {"External id": i, "correlation": i, "stream": 7, NAME: NAME, "Ev Idx": i, "Record function id": i}}
        for cat, i in [("cpu_op", 1), ("cpu_op", 2), ("cpu_op", 3), ("kernel", 3), ("cuda_runtime", 3)]
    ]})  # fmt: skip
    (folder / "nccl.csv").write_text(NCCL)
    (folder / "nccl.log").write_text(f"{NAME}\n# nThread 1\n{NAME}\n")
    rows = [f"{m},{n},{k},{m * n * k / 3e11:.6f},{csv_cell(PLAIN)}" for m in (64, 512, 4096) for n in (512, 4096)
            for k in (512, 4096)]  # fmt: skip
    (folder / "gemm.csv").write_text(f"m,n,k,ms,{csv_cell(PLAIN)}\n" + "\n".join(rows))
    (folder / "measured.md").write_text(f"# {PLAIN}\n\n| {PLAIN} | y |\n| - | - |\n| {PLAIN} | 2 |\n")
    (folder / "measured.csv").write_text("name,ngpus,size_bytes,oop_us,oop_busbw_GBps,ip_us,ip_busbw_GBps\n")
    one = MPT.splitlines()[1]
    others = (one.replace(word, f",{csv_cell(PLAIN)},") for word in (",1b,", ",h100_80gb,", ",FULL_SHARD,"))
    (folder / "requests.jsonl").write_text(
        "".join(
            json.dumps(
                {("after" if at == 1 else "arrival_s"): [NAME] if at == 1 else at, "id": NAME + "." * at}
                | {"input_tokens": 9, "output_tokens": 2, NAME: NAME}
            )
            + "\n"
            for at in range(3)
        )
    )
    (folder / "mpt.csv").write_text(MPT + "\n".join(others) + "\n")
    put(folder, "measured.json", [{NAME: NAME}])
    (folder / "script.py").write_text(f"raise ValueError({NAME!r})\n")
    (folder / "sim.log").write_text(
        "".join(LOG.format(10 * i, i, PLAIN) + LOG.format(10 * i + 5, i, PLAIN).replace("issue", "callback")
                for i in range(3))
    )  # fmt: skip
    put(folder, "corpus.yaml", {"count": 2, "choices": {NAME: [NAME], "layers": [2], "hidden": [256]}})
    put(
        folder,
        "network.yml",
        {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50.0], "latency": [500.0]},
    )
    put(folder, "system.json", {
        "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 4, "all-reduce-implementation": ["ring"], "all-gather-implementation": ["ring"],
        "reduce-scatter-implementation": ["ring"], "all-to-all-implementation": ["ring"],
        "collective-optimization": "localBWAware", "local-mem-bw": 1600,
    })  # fmt: skip
    put(folder, "memory.json", {"memory-type": "NO_MEMORY_EXPANSION"})
    put(folder, "keys.json", {"memory-type": "NO_MEMORY_EXPANSION", NAME: NAME})
    (folder / "bad.gz").write_bytes(gzip.compress(NAME.encode("utf-8", "replace")))
    np.savez(folder / "bad.npz", header=np.frombuffer(json.dumps({NAME: NAME}).encode(), np.uint8))


def put(folder: Path, name: str, content: object) -> None:
    """Write a file as JSON, which YAML is too."""
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


def exported(path: Path) -> None:
    """Write what Nsight Systems exports: a kernel and a range, and a table of events that is not read."""
    columns = (
        "start, end, deviceId, streamId, correlationId, globalPid, globalTid, demangledName, eventType, text"
    )
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE StringIds (id, value)")
        connection.execute("INSERT INTO StringIds VALUES (1, ?)", (PLAIN,))
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", f"{PLAIN}_API"):
            quoted = table.replace('"', '""')
            connection.execute(f'CREATE TABLE "{quoted}" ({columns})')
            connection.execute(f'INSERT INTO "{quoted}" VALUES (5, 9, 0, 7, 1, 0, 0, 1, 59, ?)', (NAME,))
        connection.commit()


def profiled(path: Path) -> None:
    """Write a profile of XLA: names of an operation, a line, a module, a device that is left out."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    profile = importlib.import_module("convert.xplane.profile")
    name = NAME.encode("utf-8", "replace").decode()
    plane, other = profile.Plane("/device:TPU:0"), profile.Plane(f"/device:{name}")
    kinds = [
        plane.kind(name, hlo_category=name, hlo_module=name),
        plane.kind(name, f"{name}all-reduce", hlo_category="all-reduce"),
    ]
    plane.line("XLA Ops", [(kind, 5 * at, 5 * at + 4, {name: name}) for at, kind in enumerate(kinds)])
    path.write_bytes(profile.space([plane, other]))


def csv_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def html_cell(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def spoil_store(path: Path) -> None:
    """Make every text of the last sweep of a store hostile, as a stranger's store may be: its checksums fit."""
    work = "key, rules, status, reason, measures, seconds, limits, version, finished"
    with closing(sqlite3.connect(path)) as store, store:
        store.execute("update sweeps set path = ?", (NAME,))
        for row, *values in store.execute(f"select id, {work} from work").fetchall():
            measures = json.loads(values[4])
            values[3] = NAME
            if values[2] == "ok":
                values[4] = json.dumps({**measures, NAME: measures["step_time"]})
            store.execute(
                "update work set reason = ?, measures = ?, seal = ? where id = ?",
                (values[3], values[4], seal(values), row),
            )
        points = "sweep, number, key, rules, point, vals"
        for *values, text in store.execute(f"select {points} from points").fetchall():
            values.append(json.dumps({**json.loads(text), NAME: NAME, f"-{NAME}": f"@{NAME}"}))
            store.execute(
                "update points set vals = ?, seal = ? where sweep = ? and number = ?",
                (values[-1], seal(values), *values[:2]),
            )
