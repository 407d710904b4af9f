"""Fits of fused attention: constants that made the times are found again."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.compute.gpu.attention import attention_seconds, context_seconds
from armillary.compute.gpu.device import load_gpu
from armillary.evidence.calibrate.attention import (
    COLUMNS,
    PREFILL,
    TRAINING,
    fit_attention,
    read_prefills,
    read_shares,
)

pytest.importorskip("scipy")


def prefills(path: Path) -> Path:
    rows = [
        f"NVIDIA H100,{batch},{tokens},{heads},{max(1, heads // 4)},{width},0,bfloat16,bfloat16,0,1"
        for batch in (1, 4, 16)
        for tokens in (100, 1024, 4096, 9000)
        for heads in (4, 32, 64)
        for width in (64, 128, 256)
    ]
    path.write_text(",".join(COLUMNS) + "\n" + "\n".join(rows) + "\n")
    return path


def test_constants_of_prefills_are_found_again(tmp_path: Path) -> None:
    kernels = read_prefills(prefills(tmp_path / "prefills.csv"))
    gpu = load_gpu("h100-sxm")
    truth = dataclasses.replace(gpu.attention["bf16"], rate=0.5, context_launch=20e-6)
    kernels = dataclasses.replace(kernels, seconds=context_seconds(gpu, "bf16", kernels.table, truth))
    fit = fit_attention(gpu, "bf16", kernels, PREFILL, prefill=True)
    assert context_seconds(gpu, "bf16", kernels.table, fit) == pytest.approx(kernels.seconds, rel=0.01)
    assert fit.rate == pytest.approx(0.5, rel=0.05)


def test_shares_of_both_passes_are_times(tmp_path: Path) -> None:
    path = tmp_path / "system.json"
    key = "batch=1, seq_len=4096, head_num={}, kv_head_num=8, qk_head_dim=128, v_head_dim=128, qkv_contiguous=True"
    shares = {key.format(heads): 0.9 for heads in (16, 32, 64)}
    op = {"tflops": 312, "accurate_efficient_factor": shares}
    path.write_text(json.dumps({"accelerator": {"op": {"sdp_fwd": op, "sdp_bwd": op}}}))
    kernels = read_shares(path)
    forward, backward = kernels.seconds.reshape(2, 3)
    assert forward[1] == pytest.approx(4 * 32 * 4096**2 * 128 / (312e12 * 0.9))
    assert backward == pytest.approx(2.5 * forward)
    gpu = load_gpu("a100-sxm-80")
    fit = fit_attention(gpu, "bf16", kernels, TRAINING, prefill=False)
    off = attention_seconds(gpu, "bf16", kernels.table, fit) / kernels.seconds - 1
    assert np.abs(off).mean() < 0.05


def test_a_bad_file_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("isl,latency\n1,2\n")
    with pytest.raises(InputError, match="no column 'device'; it has isl, latency"):
        read_prefills(path)
    path.write_text(",".join(COLUMNS) + "\nH100,1,x,1,1,64,0,bf16,bf16,0,1\n")
    with pytest.raises(InputError, match=r"bad\.csv:2: isl: got 'x', expected a number above 0"):
        read_prefills(path)
