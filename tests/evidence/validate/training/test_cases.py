"""Rows of measured training steps as studies."""

from __future__ import annotations

from pathlib import Path

import pytest

from armillary.base.errors import InputError
from armillary.evidence.validate.training import bridge, llama, megatron, mpt, selective, vtrain
from armillary.evidence.validate.training.formats import read_cases
from armillary.workload.models import parameters

VTRAIN = (
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,tensor parallelism,"
    "data parallelism,pipeline parallelism,iteration time (ms)\n"
)
MPT = ",".join(mpt.COLUMNS) + "\n"
BRIDGE = ",".join(bridge.COLUMNS) + "\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    return path


def test_row_of_vtrain(tmp_path):
    path = write(tmp_path, "# a comment\n" + VTRAIN + "8,32,4,1024,16,24,1024,2,2,2,219.7\n")
    (case,) = vtrain.cases(path)
    assert case.measured == 219.7 and case.seconds() == pytest.approx(0.2197)
    assert case.plan["parallel"] == {"tp": 2, "pp": 2, "dp": 2, "sequence": False, "backward": "serial"}
    assert case.plan["recompute"] == "none" and case.plan["attention"] == "unfused"
    assert case.model.vocabulary == 50256  # 50257 // tp on each rank


def test_many_nodes_of_vtrain_recompute_and_pad(tmp_path):
    (case,) = vtrain.cases(write(tmp_path, VTRAIN + "16,32,4,1024,16,24,1024,2,4,2,219.7\n"))
    assert case.plan["recompute"] == "full" and case.model.vocabulary == 50432  # up to a multiple of 128 x tp


@pytest.mark.parametrize(
    ("micro", "heads", "tp", "expected"), [(1, 16, 8, "eager"), (2, 16, 8, "unfused"), (2, 48, 16, "eager")]
)
def test_fused_softmax_wants_multiples_of_four(micro, heads, tp, expected):
    assert vtrain.kernels(micro, heads, tp) == expected


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("8,32,4,1024,16,24,1024,2,2,3,219.7", r"rows.csv:2: tp 2 x dp 2 x pp 3 = 12, expected # GPUs 8"),
        (
            "8,32,4,1024,16,24,1024,2,2,2,-1",
            r"rows.csv:2: iteration time \(ms\): got '-1', expected a number above 0",
        ),
        ("8,32,4.5,1024,16,24,1024,2,2,2,1", r"rows.csv:2: micro batch: got '4.5', expected a whole number"),
    ],
)
def test_bad_row_of_vtrain(tmp_path, row, said):
    with pytest.raises(InputError, match=said):
        list(vtrain.cases(write(tmp_path, VTRAIN + row + "\n")))


def test_unknown_header(tmp_path):
    with pytest.raises(InputError, match="no header that is known, expected the columns of vTrain"):
        read_cases(write(tmp_path, "a,b\n1,2\n"))


def test_models_of_mpt_have_the_published_parameters(shared):
    for case, (_, row) in zip(
        mpt.cases(file := shared / "measured/mosaicml_mpt_throughput.csv"),
        mpt.read_rows(file, mpt.COLUMNS),
        strict=True,
    ):
        assert parameters(case.model).total == int(row["NumParams"])


def test_row_of_mpt(tmp_path):
    row = "7b,2048,8,h100_80gb,6,1,48,10643,amp_bf16,DEFAULT,FULL_SHARD,True\n9b,2048,8,h100_80gb,6,1,48,1,b,P,F,True\n"
    known, unknown = mpt.cases(write(tmp_path, MPT + row))
    assert known.plan["data"] == {"sharding": "fsdp", "reshard": True}
    assert known.plan["numbers"] == {"compute": "bf16", "gradients": "fp32"}
    assert known.in_unit(known.seconds()) == pytest.approx(10643)
    assert unknown.model is None and "no model '9b'" in unknown.reason


@pytest.mark.parametrize(
    ("right", "wrong", "why"),
    [
        ("FULL_SHARD", "FUL_SHARD", "Sharding Strategy: got 'FUL_SHARD' (did you mean 'FULL_SHARD'?)"),
        ("True", "yes", "Activation Checkpointing: got 'yes', expected True or False"),
        ("DEFAULT", "default", "MP Mode: got 'default'"),
    ],
)
def test_words_of_mpt(tmp_path, right, wrong, why):
    row = "7b,2048,8,h100_80gb,6,1,48,10643,amp_bf16,DEFAULT,FULL_SHARD,True\n"
    (case,) = mpt.cases(write(tmp_path, MPT + row.replace(right, wrong)))
    assert case.model is None and why in case.reason


def test_rows_of_bridge(tmp_path):
    rows = (
        "25.09 NeMo,Pre-Training,DGX-GB200,LLAMA3_70B,64,,128,2,8192,64 (0),1 (2),1 (4),1,1 (5),1.0,3986 (3546)\n"
        "26.06 NeMo,Pre-Training,DGX-GB300,GPT OSS 120B,64,MXFP8,1280,4,4096,,1,1,1,n/a,16,661[^note]\n"
        "26.04 NeMo,Pre-Training,DGX-GB200,LLAMA3.1_405B,256,NVFP4,1536,1,8192,0,4,16,1,8,n/a,1166\n"
        "26.04 NeMo,LoRA Performance,DGX-GB300,LLAMA3_70B,8,FP8,32,1,4096,,1,2,1,20,n/a,7481\n"
        "26.04 NeMo,Pre-Training,DGX-GB300,Nemotron_3_Super,64,MXFP8,512,1,8192,,1,1,1,n/a,64,9243\n"
        "26.08 NeMo,Pre-Training,DGX-GB300,Nemotron_3_Ultra,256,MXFP8,256,1,8192,,1,1,1,-,64,3552.5\n"
    )
    sharded, noted, deep, lora, hybrid, offloaded = bridge.cases(write(tmp_path, BRIDGE + rows))
    assert sharded.measured == 3986 and sharded.plan["data"] == {"sharding": "fsdp"}
    assert noted.measured == 661 and noted.plan["host"] == {} and noted.plan["attention"] == "flash"
    assert deep.plan["numbers"]["compute"] == "fp4" and deep.stack == "megatron-core"
    assert deep.plan["pipeline"]["layers"] == [0, *[1] * 126, 0]  # 128 stages, 126 layers
    assert lora.plan["lora"] == {"rank": 16, "targets": ["qkv"]} and lora.apart == "LoRA" and not lora.reason
    assert hybrid.model is not None and hybrid.model.layers == 88 + 4  # two modules of two layers
    assert offloaded.model is not None and offloaded.model.layers == 108 + 4
    assert offloaded.measured == 3552.5
    assert offloaded.plan["data"] == {"sharding": "hsdp", "shard": 64}


def test_second_token_is_a_layer_more(tmp_path):
    row = "26.04 NeMo,Pre-Training,DGX-GB300,{},256,MXFP8,4096,2,4096,0,1,2,1,8,32,4992\n"
    names = ("DeepSeekV3", "DeepSeekV3 (w/o MTP)")
    path = write(tmp_path, BRIDGE + "".join(row.format(name) for name in names))
    assert [case.model.layers for case in bridge.cases(path)] == [62, 61]


def test_how_rows_run_is_from_the_recipes(tmp_path):
    row = "{} NeMo,Pre-Training,DGX-{},{},256,{},4096,1,4096,0,1,4,1,4,64,4912\n"
    rows = [
        ("26.08", "GB200", "DeepSeekV3", "MXFP8"), ("26.02", "GB200", "DeepSeekV3", "MXFP8"),
        ("26.06", "GB300", "Kimi_K2", "MXFP8"), ("26.04", "H100", "Nemotron_3_Nano", "FP8"),
    ]  # fmt: skip
    path = write(tmp_path, BRIDGE + "".join(row.format(*each) for each in rows))
    whole, graphs, plain, nano = (case.plan for case in bridge.cases(path))
    assert whole["host"] == {} and whole["pipeline"]["overlap"] and whole["numbers"]["recipe"] == "mx"
    assert graphs["host"] == {"graphs": ["attention", "router"]} and "overlap" not in graphs["pipeline"]
    assert "host" not in plain and plain["recompute_modules"] == ["mla_up_proj"]
    assert nano["recompute"] == "selective" and nano["numbers"]["recipe"] == "current"


def test_published_flops():
    """Tables 1 and 5 are of one model: equation 3 of arXiv 2104.04473 gives 1T a step of 102.6 s on 3072 GPUs."""
    (last,) = {each[0].seconds() for each in megatron.table_1()[-1:]}
    assert last == pytest.approx(102.6, rel=1e-3)
    llama_3 = list(llama.cases())
    assert [round(case.seconds(), 1) for case in llama_3[:2]] == [12.5, 6.7]
    assert len(list(selective.table_5())) == 8 and len(list(megatron.table_2())) == 12
