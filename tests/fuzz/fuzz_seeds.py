# ruff: noqa: E501 - seeds are files
"""Files that are right, one or more of each format: what the fuzzer breaks."""

from __future__ import annotations

import json
from typing import Any

from armillary.evidence.calibrate.attention import COLUMNS

NETWORK = {
    "topology": ["Ring", "Switch"],
    "npus_count": [4, 2],
    "bandwidth": [50.0, 25],
    "latency": [500.0, 10],
}
SYSTEM = {
    "scheduling-policy": "LIFO", "endpoint-delay": 10, "active-chunks-per-dimension": 1, "preferred-dataset-splits": 4,
    "all-reduce-implementation": ["ring", "direct"], "all-gather-implementation": ["ring", "ring"],
    "reduce-scatter-implementation": ["ring", "oneRing"], "all-to-all-implementation": ["direct", "ring"],
    "collective-optimization": "localBWAware", "local-mem-bw": 1600, "boost-mode": 0, "peak-perf": 100,
    "roofline-enabled": 1, "L": 1, "o": 0, "g": 0, "G": 0.1, "model-shared-bus": 0, "trace-enabled": 0,
    "intra-dimension-scheduling": "FIFO", "inter-dimension-scheduling": "baseline", "replay-only": 0,
}  # fmt: skip
MEMORY = {
    "memory-type": "PER_NODE_MEMORY_EXPANSION", "remote-mem-latency": 100, "remote-mem-bw": 50, "num-nodes": 2,
    "num-npus-per-node": 4,
}  # fmt: skip
NETWORK_1 = {
    "topology-name": "Hierarchical", "dimensions-count": 2, "topologies-per-dim": ["Ring", "Switch"],
    "dimension-type": ["T", "N"], "units-count": [4, 2], "links-count": [2, 1], "link-latency": [500, 700],
    "link-bandwidth": [50, 25], "nic-latency": [1, 2], "router-latency": [0, 3], "hbm-scale": [0, 1],
}  # fmt: skip
SYSTEM_1 = """scheduling-policy: LIFO
endpoint-delay: 10
preferred-dataset-splits: 4
boost-mode: 0
all-reduce-implementation: ring_direct
collective-optimization: localBWAware
local-mem-bw: 1.6e3
"""
HTSIM = "tcp -topo tree.topo -nodes 8 -sub 2 -o out.dat COUPLED_EPSILON 4"
UET = "uet -topo tree.topo -tiers 2 -mtu 4150 -cwnd 64 -q 40 -ecn 8 32 -paths 64 -load_balancing_algo reps -end 5"
STUDY = """\
workload: {trace: step}
platform:
  network:
    - {name: node, topology: Ring, size: 4, bandwidth: 50 GB/s, latency: 500 ns}
    - {name: rack, topology: Switch, size: 2, bandwidth: 200 Gb/s, latency: 2 us}
  npu:
    peak: {bf16: 989 TFLOP/s, fp8: 1978 TFLOP/s}
    memory: {capacity: 80 GiB, bandwidth: 3.35 TB/s}
  collectives: {chunks: 4, all-reduce: ring}
  compute: {model: roofline, efficiency: 60 %}
  stragglers: {1: 1 ms}
profile: physical
time_unit: ns
"""
GRAPHS = """\
workload: {collective: all-reduce, size: 1 MiB}
platform:
  topology: {kind: leaf-spine, leaves: 2, spines: 1, npus_per_leaf: 2, bandwidth: 50 GB/s, latency: 500 ns}
  npu: {memory: {bandwidth: 2 TB/s}}
"""
PRESET = "platform: {preset: dgx-h100, npu: {peak: {bf16: 900 TFLOP/s}}}\nworkload: {trace: step}\n"
GENERATED = """\
workload:
  generate: {model: llama-2-7b, ranks: 8, batch: 16, parallel: {tp: 2, pp: 2, dp: 2}, pipeline: {schedule: 1f1b}}
platform: {preset: dgx-h100}
"""
SWEEP = """\
study: {workload: {collective: all-reduce, size: 1 MiB}, platform: {network: [{name: a, topology: Ring, size: 4,
  bandwidth: 50 GB/s, latency: 1 us}], npu: {memory: {bandwidth: 2 TB/s}}}}
vary:
  platform.network.a.bandwidth: {from: 50 GB/s, to: 400 GB/s, count: 4, spacing: log}
  workload.size: [1 MiB, 2 MiB]
  platform.network.a.size: {values: [2, 4], when: size > 1 MiB, name: nodes}
  machine: {choices: {h: {platform.npu.memory.bandwidth: 1 TB/s}, b: {}}}
let: {platform.collectives.chunks: 2 * nodes, total: nodes * 3}
where: [nodes <= 4, total % 2 == 0 or nodes > 2]
objectives: [minimize step_time, minimize communication]
tokens: 15.6 T
limits: {time: 60 s, memory: 4 GiB}
search: {method: random, trials: 4, seed: 1}
"""
LAYERS = "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n" + "".join(
    f"{chunk},{before},{count},{kv},{chunk + count * kv / 9 + 1}\n"
    for chunk in (0, 64) for before in (0, 64) for count in (0, 4) for kv in (0, 64)
)  # fmt: skip
PROFILE_OF = {
    "attention.csv": LAYERS, "dense.csv": "layer,tokens,time_us\nembedding,1,2\nembedding,64,3\n",
    "per_sequence.csv": "layer,sequences,time_us\nhead,1,2\n", "moe.csv": "tokens,activated_experts,time_us\n1,2,9\n64,8,12\n",
}  # fmt: skip
SIM_TO_REAL = """experiment,simulator,model,workload,stage_index,metric_name,predicted,actual,hardware,precision,tp,max_num_batched_tokens
18-tp1,blis,meta-llama/Llama-3.1-8B-Instruct,codegen,-1,e2e_mean,1800.5,1876,H100,FP16,1.0,2048.0
18-tp1,blis,meta-llama/Llama-3.1-8B-Instruct,codegen,0,ttft_p99,,51,H100,FP16,1.0,2048.0
"""
SILICON = """silicon_data_source,backend,model_path,system,precision,mode,isl,osl,tp_size,attention_dp_size,moe_tp_size,moe_ep_size,silicon_ttft_ms,silicon_tpot_ms
db-dump/2026-04-27; silicon_concurrency=4; measured=2026-04-20T00:00:00.000Z,vllm,moonshotai/Kimi-K2.5,b200_sxm,fp4,agg,1024,1024,8,1,8,1,74.14,7.06
source_file=2026-04-06.csv; silicon_concurrency=8; measured=2026-03-27T00:00:00.000Z,trtllm,openai/gpt-oss-120b,h200_sxm,fp4,agg,1024,1024,2,1,2,1,74.14,7.06
"""
REQUESTS = "".join(
    json.dumps({"arrival_s": at / 4, "input_tokens": 40, "output_tokens": 3}) + "\n" for at in range(3)
)
SESSIONS = '{"id": "a", "arrival_s": 1, "input_tokens": 40, "output_tokens": 3}\n' \
    '{"id": 2, "after": "a", "delay_s": 0.5, "input_tokens": 50, "output_tokens": 2, "reused_tokens": 43}\n' \
    '{"after": ["a", 2], "input_tokens": 9, "output_tokens": 1}\n'  # fmt: skip
MOONCAKE = '{"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}\n' \
    '{"timestamp": 50, "input_length": 700, "output_length": 2, "hash_ids": [1, 3]}\n'  # fmt: skip
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,48,4\n2023-11-16 18:17:04.0319600,37,2\n"
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,47,18,65,Conversation log\n"
EDGES = "from,to,bandwidth,latency,kind,buffer\n" + "".join(
    f"npu{i},s,50 GB/s,500 ns,up,1 MiB\ns,npu{i},50 GB/s,500 ns,down,1 MiB\n" for i in range(3)
)
LINKS = json.dumps({"npus": ["a", "b"], "forward": True, "links": [
    {"from": a, "to": b, "bandwidth": "50 GB/s", "latency": "1 us"} for a, b in ("ab", "ba")
]})  # fmt: skip
STAR = "4 1 3\n3\n" + "".join(f"{i} 3 400Gbps 0.0005ms 0\n" for i in range(3))
NS3 = """ENABLE_QCN 1
TOPOLOGY_FILE star.txt
PACKET_PAYLOAD_SIZE 1000
CC_MODE 1
BUFFER_SIZE 32
KMAX_MAP 1 400000000000 2400
KMIN_MAP 1 400000000000 800
PMAX_MAP 1 400000000000 0.2
LINK_DOWN 0 0 0
"""
TREE = "Nodes 8\nTiers 2\nPodsize 8\n" + "".join(
    f"Tier {tier}\nDownlink_speed_Gbps 400\nDownlink_Latency_ns 500\nSwitch_Latency_ns 100\nRadix_Down 4\nRadix_Up 2\nBundle {1 + tier}\n"
    for tier in range(2)
)
INFRAGRAPH = json.dumps({"infrastructure": {
    "name": "two", "links": [{"name": "eth", "physical": {"bandwidth": {"gigabits_per_second": 400}, "latency": {"us": 1}}}],
    "devices": [
        {"name": "host", "links": [{"name": "nvlink"}],
         "components": [{"name": "xpu", "count": 4, "choice": "xpu", "xpu": {}}, {"name": "nvsw", "count": 2, "choice": "switch"},
                        {"name": "card", "count": 2, "choice": "device"}],
         "edges": [{"ep1": {"component": "xpu"}, "ep2": {"component": "nvsw"}, "scheme": "many2many", "link": "nvlink"},
                   {"ep1": {"component": "xpu[0:2]"}, "ep2": {"component": "card.asic"}, "scheme": "one2one", "link": "nvlink"}]},
        {"name": "card", "components": [{"name": "asic", "count": 1, "choice": "nic"}, {"name": "port", "count": 2, "choice": "port"}],
         "links": [{"name": "ic"}],
         "edges": [{"ep1": {"component": "asic"}, "ep2": {"component": "port"}, "scheme": "many2many", "link": "ic"}]},
    ],
    "instances": [{"name": "host", "device": "host", "count": 2}],
    "edges": [{"ep1": {"instance": "host[0]", "component": "card[0].port[1]"},
               "ep2": {"instance": "host[1]", "component": "card[-1].port"}, "scheme": "ring", "link": "eth"}],
}, "annotations": {"nodes": [{"name": f"host.{i}.xpu.{j}", "attributes": [{"attribute": "rank", "value": str(4 * i + j)}]}
                             for i in range(2) for j in range(4)],
                    "links": [{"name": "eth", "attributes": [{"attribute": "link_latency_ms", "value": 0.002}]}],
                    "edges": [{"ep1": "host[0]xpu[0:2]", "ep2": "host.0.nvsw.1", "attributes": [{"attribute": "bandwidth", "value": "2 GBps"}]}],
                    "link_specifications": [{"link_name": "nvlink", "packet_loss_rate": 0.1}]}})  # fmt: skip
_COMMON = {
    "workload": "step",
    "system": {"scheduling_policy": "LIFO", "all_reduce_implementation": ["ring"], "overhead": 1},
    "communicator_group": [{"identifier": "1", "npu_list": [0, 1]}],
    "remote_memory": {"memory_type": "NO_MEMORY_EXPANSION"},
    "cmd_parameters": {"comm_scale": 1.0, "rendezvous_protocol": False},
}
_RING = [{"topology": "ring", "npus_count": 4, "bandwidth": 50, "latency": 500}]
_TIER = {"downlink_speed_gbps": 100, "radix_down": 2, "radix_up": 2, "downlink_latency_ns": 1000}
SERVICE = [json.dumps({"common_config": _COMMON, "network_backend": {"choice": name, name: each}, "infragraph": json.loads(INFRAGRAPH)})
           for name, each in (
    ("analytical_congestion_aware", {"topology": {"choice": "network", "network": _RING}}),
    ("analytical_congestion_unaware", {"topology": {"choice": "infragraph"}}),
    ("ns3", {"network": {"cc_mode": 12, "link_down": [0, 0, 0]}, "logical_topology": {"logical_dimensions": [2]},
             "topology": {"nc_topology": {"total_nodes": 3, "total_switches": 1, "total_links": 2, "switch_ids": [2], "connections": [
                 {"source_index": i, "destination_index": 2, "bandwidth": "100Gbps", "latency": "0.005ms", "error_rate": "0"} for i in (0, 1)]}}}),
    ("ns3", {"topology": {"choice": "infragraph"}}),
    ("htsim", {"htsim_protocol": {"tcp": {"o": "log", "tcp_protocol": "COUPLED_EPSILON"}}, "topology": {"network_topology_configuration": {
        "network": _RING, "htsim_topology": {"fat_tree": {"nodes": 4, "tiers": 2, "podsize": 4, "tier_0": _TIER, "tier_1": _TIER}}}}}),
)]  # fmt: skip
MESSAGES = b"\x07\n\x050.0.4" + b"\x12\x08\x01\x12\x03sum\x18\x07R\x07\n\x03x_y\x38\x05"
GRAPHML = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="n" for="node" attr.name="npu" attr.type="long"/><key id="b" for="edge" attr.name="bandwidth" attr.type="string"/>
<key id="l" for="edge" attr.name="latency" attr.type="string"/>
<graph edgedefault="undirected"><node id="x"><data key="n">0</data></node><node id="y"><data key="n">1</data></node>
<edge source="x" target="y"><data key="b">50 GB/s</data><data key="l">1 us</data></edge></graph></graphml>
"""
DRAWN = {
    "kind": "edges", "links": [{"from": "npu 0", "to": "a", "bandwidth": "50 GB/s", "latency": "1 us"},
                               {"from": "npu 1", "to": "a", "bandwidth": "5 GB/s", "latency": "1 us", "way": "both"}],
}  # fmt: skip
QUESTION = {
    "model": "llama-2-7b", "machine": "2xdgx-h100", "fabric": 2, "peak": 0.5, "software": "nemo",
    "plan": {"batch": 32, "tp": 2, "pipeline": {"schedule": "interleaved", "virtual": 2}, "offload": {"weights": 0.5}},
}  # fmt: skip
CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 128, "head_dim": 16,
    "max_position_embeddings": 64, "hidden_act": "silu", "tie_word_embeddings": False, "rope_theta": 1e6,
}  # fmt: skip
EXPERTS = CONFIG | {
    "model_type": "deepseek_v3", "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "n_shared_experts": 1, "first_k_dense_replace": 1, "kv_lora_rank": 16, "q_lora_rank": 16, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8, "v_head_dim": 8, "n_group": 2, "topk_group": 1, "moe_layer_freq": 1,
}  # fmt: skip
MIX = """\
mix:
- {train: llama-3-8b, batch: 16, plan: {sequence: 512, numbers: {compute: fp8}}, software: megatron-core, weight: 60 %}
- {serve: llama-3.1-8b, load: "poisson:rate=4,requests=8,input=64-128,output=8", slo: "ttft=1s,tpot=50ms", share: 90 %,
   first: 4, options: {tp: 1, precision: fp8}, weight: 40 %}
machines:
- machine: 2xdgx-h100
  name: h
  costs: {preset: h100, electricity: 0.1 USD}
  vary: {platform.network.fabric.size: [2, 4], platform.npu.memory.capacity: {values: [80 GB, 141 GB], when: size > 2}}
- machine: {preset: dgx-b200}
  costs: {npu: {price: 40 kUSD, busy: 1 kW, idle: 100 W}, years: 4}
budget: {capital: 5 MUSD, cost_per_year: 2 MUSD, power: 60 kW}
reference: dgx-h100
"""
COSTS = "years: 4\nutilisation: 80 %\npue: 1.2\n"
FAILURES = "components:\n  npu: {per: npu, mtbf: 50000 h}\n  nic: {per: host, mtbf: 1000000 h}\n"
PLANS = "plans:\n- {tp: 2, pp: 2}\n- {parallel: {tp: 4, dp: 2}, recompute: full, microbatch: 2}\n"
REQUEST = (
    "count: 6\nseed: 3\nchoices: {layers: [2, 4], hidden: [2048, 4096], pp: [1, 2], microbatches: [2, 3]}\n"
)
NCCL_LOG = """\
# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
# Using devices
#  Rank  0 Group  0 Pid 1 on h device  0 [0x07] NVIDIA H100
#  Rank  1 Group  0 Pid 1 on h device  1 [0x0a] NVIDIA H100
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    40.12   26.14   45.74      0    39.95   26.25   45.93      0
    67108864      16777216     float     sum      -1    402.1   166.9   292.1      0    401.2   167.3   292.7      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 169.1
"""
NCCL_CSV = "ngpus,size_bytes,oop_us,oop_busbw_GBps,ip_us,ip_busbw_GBps\n8,1024,20.5,0.09,1,1\n8,1048576,26,70.6,1,1\n"
GEMMS = "m,n,k,precision,us\n64,512,512,bf16,5.5\n4096,4096,4096,fp8,100\n"
LATENCIES = "device,gemm_dtype,m,n,k,latency\nNVIDIA H100 80GB HBM3,bf16,4096,4096,4096,0.25\nNVIDIA H100 80GB HBM3,bf16,64,512,512,0.006\n"
PREFILLS = f"{','.join(COLUMNS)}\n{','.join('1' if name != 'device' and 'dtype' not in name else 'x' for name in COLUMNS)}\n"
SHARES = {"accelerator": {"op": {
    name: {"tflops": 989, "accurate_efficient_factor": {
        "batch=1, seq_len=4096, head_num=32, kv_head_num=8, qk_head_dim=128, v_head_dim=128": 0.6}}
    for name in ("sdp_fwd", "sdp_bwd")
}}}  # fmt: skip
MPT = """\
# MPT
section,Model,SeqLen (T),# GPUs,GPU,MFU,HFU,Model TFLOP,MicroBatchSize,GradAccum,GlobalBatchSize,Throughput (S/s),\
Throughput (T/s),Throughput (T/s/GPU),GlobalBatchSize (T),Precision,MP Mode,Sharding Strategy,Activation Checkpointing,\
Activation CPUOffload,NumParams
x,1b,2048,8,h100_80gb,41.25,55.0,408,8,1,64,251,515636,1007,8388608,amp_bf16,DEFAULT,FULL_SHARD,True,False,1316950016
"""
VTRAIN = """\
# GPUs,global batch,micro batch,tensor,data,pipeline,hidden,layers,heads,sequence,measured,predicted
64,64,1,8,4,2,4096,24,32,2048,1.5,1.4
"""
TORCHTITAN = """\
# Llama 3.1 8B on 8 H100

| Parallelism | TPS/GPU | TFLOP/s | Memory (GiB) | Time/step (s) |
| --- | --- | --- | --- | --- |
| 1D, FSDP 8 | 5,762 | 300 | 65.1 | 2.1 |
"""
MAXTEXT = """\
# Train Llama2-7B on v5p

- per_device_batch_size=4
- max_target_length=4096
- ici_fsdp_parallelism=64
- remat_policy=full

completed step: 15, seconds: 4.0, TFLOP/s/device: 301.2, Tokens/s/device: 4096.0, total_weights: 1048576, loss: 3.1
"""
SIMUMAX = [{"case": "llama2_7b_tp1_pp2_dp4_mbc8", "model": "llama2-7b", "parallel": "tp1_pp2_dp4", "layer_num": 32,
            "mbc": 8, "real_ms": 1000.5, "max_allocated_mb": [100, 200], "real_alloc_gib": 10.5}]  # fmt: skip
STEPS = """\
model: {kind: decoder, name: a, layers: 2, hidden: 256, vocabulary: 512, context: 64, tied: false, norm: rms,
  activation: swiglu, attention: {heads: 4}, mlp: {size: 512}}
software: torchtitan
ranks: 8
plan: {sequence: 64, sharding: fsdp}
steps:
- {plan: {batch: 16, tp: 2}, seconds: [1.62, 1.60]}
- {plan: {batch: 32}, seconds: 3.15, ranks: 4}
"""
STEP_TABLE = "model,seconds,ranks,batch,parallel.tp,data.sharding\nllama-2-7b,1.5,8,16,2,fsdp\nllama-2-7b,1.6,8,16,2,fsdp\n"
PROFILE = {"deviceProperties": [{"name": "NVIDIA H100"}], "distributedInfo": {"world_size": 4}, "traceEvents": [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 5, "pid": 1, "tid": 1, "args": {
        "External id": 7, "Input Dims": [[8, 16], [16, 32]], "Input type": ["float", "float"]}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 2, "dur": 3.5, "args": {"External id": 7, "stream": 7}},
    {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "ts": 9, "dur": 20, "args": {
        "Collective name": "allreduce", "In msg nelems": 1024, "Group size": 4, "dtype": "Float",
        "Process Group Ranks": "[0, 1, 2, 3]"}},
    {"ph": "X", "cat": "user_annotation", "name": "gloo:all_gather", "ts": 9, "dur": 20, "args": {
        "Input Dims": [[1024]], "Input type": ["float"]}},
]}  # fmt: skip
LEGEND = {"armillary_obfuscation_map": 1, "names": {"a": "b"}, "groups": {"1": 2}}
COLLECTED = {"format": "armillary-collected-1", "rank": 0, "world_size": 1, "torch": "2.5", "backend": "gloo",
             "accelerator": "", "warmup": 1, "steps": 2, "host": "host_0.json", "device": "device_0.json",
             "groups": [{"name": "0", "description": "default", "backend": "gloo", "ranks": [0]}]}  # fmt: skip
CAPTURED: dict[str, Any] = {"format": "armillary-capture-2", "rank": 0, "ranks": 8, "device": "h100-sxm", "torch": "2.13.0", "script": "train.py",
            "step": 3, "groups": [{"first": 0, "count": 4, "step": 2}, [0, 1]],
            "kinds": [{"name": "aten::mm", "inputs": [[[8, 4], "bfloat16"], [[4, 2], "bfloat16"]], "outputs": [[[8, 2], "bfloat16"]],
                       "flops": 128, "size": 112, "family": "matmul", "precision": "bf16", "gemm": [8, 2, 4, 1, 1]}],
            "places": [["", "", False], ["layers.0", "train.py:7", True]],
            "communications": {"which": [0, 1], "different": [{"type": "all-gather", "input": 8, "output": 32, "group": 0, "own_stream": True, "peer": -1, "tag": 0, "splits": []},
                               {"type": "send", "input": 8, "output": 0, "group": 1, "own_stream": True, "peer": 1, "tag": 3, "splits": []}]},
            "rows": {"kind": [0, 1, 4, 2, 3, 1, 5, 0], "what": [0, 0, 0, 5, 5, 1, 0, 0], "stream": [0, 0, 0, 0, 1, 1, -1, 0], "place": [1, 1, 0, 0, 0, 0, 0, 1],
                     "calls": [3, 1, 0, 0, 0, 0, 0, 1]},
            "peak_bytes": 4096, "reserved_bytes": 2097152, "assumed": {"train.py:9": 1}, "notes": []}  # fmt: skip
ISSUES = "issue,npu_id=0,cycle=100,node_id=7,node_name=COMP_NODE_7\ncallback,npu_id=0,cycle=200,node_id=7,node_name=COMP_NODE_7\n"
