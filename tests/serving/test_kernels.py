"""Kernels of inference engines: near what was measured, and larger where there is more to do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from armillary.base.errors import InputError
from armillary.serving.kernels import ENGINES, Kernels, kernels_of
from armillary.serving.routed import Routed
from armillary.trace.attention import Attention

DEEPSEEK = Routed(256, 8, 7168, 2048, 1, 8, "fp8 block")
MINIMAX = Routed(256, 8, 3072, 1536, 1, 4, "fp8 block")


def kernels(device: str = "h200-sxm", engine: str = "vllm", routed: Routed | None = None) -> Kernels:
    found = kernels_of(device, engine, 450e9, True, routed)
    assert found is not None
    return found


@pytest.mark.parametrize("device", ["a100-sxm-80", "h100-sxm", "h200-sxm", "b200"])
@pytest.mark.parametrize("engine", ENGINES)
def test_more_takes_longer(device: str, engine: str) -> None:
    found = kernels(device, engine)
    sizes = np.array([[1, 4096, 4096], [1, 16384, 4096], [4096, 16384, 4096]], float)
    for kind in found.parts["gemm"]:
        assert (np.diff(found.gemms_ns(kind, sizes)) > 0).all()
    assert found.reduce_ns(1e4, 8) < found.reduce_ns(1e6, 8) < found.reduce_ns(1e8, 8)
    assert found.decode_ns(64, 1e6, 64) < found.decode_ns(64, 1e9, 64) < found.decode_ns(8192, 1e9, 64)
    assert found.decode_ns(64, 1e6, 64) < found.decode_ns(64, 1e6, 4096)


def test_kernels_are_near_measured_ones() -> None:
    """Rows of aiconfigurator's tables of vLLM 0.19 on an H200 (us), each of which was one of many that were fitted."""
    found = kernels()
    assert found.reduce_ns(2 * 32768, 8) == pytest.approx(6.5e3, rel=0.15)
    assert found.reduce_ns(2 * 33_554_432, 8) == pytest.approx(316.5e3, rel=0.2)
    # 256 sequences of 8 heads that share keys and values, 1,024 tokens before each.
    assert found.decode_ns(256 * 8, 256 * 1024 * 2 * 128 * 2, 1024) == pytest.approx(48.9e3, rel=0.25)
    # Qwen3-235B: half of 128 experts of 1,536.
    routed = replace(DEEPSEEK, count=128, hidden=4096, size=1536, ep=1, tp=2)
    assert kernels(routed=routed).experts_ns(96) == pytest.approx(339e3, rel=0.25)


def test_linear_attention_is_near_measured_kernels() -> None:
    """Of 48 and 64 heads: SGLang 0.5.9, 1,024 sequences; TensorRT-LLM 1.3.0rc10, 8,192 tokens (us, H200)."""
    sglang, channels = kernels(engine="sglang"), 2 * 16 * 128 + 64 * 128
    step = 1024 * (8 * 48 * 128 * 128 + 2 * 48 * 256 + 2 * 2 * 16 * 128 + 4 * (2 * 16 * 128 + 48 * 128))
    assert sglang.linear_ns("step", step) == pytest.approx(1644.3e3 + 23.3e3, rel=0.1)
    chunk = 8192 * (64 * 4096 + 4 * channels)
    assert sglang.linear_ns("chunk", chunk) == pytest.approx(891e3, rel=0.3)


@pytest.mark.parametrize(
    ("device", "engine", "routed", "tokens", "us"),
    [
        # DeepSeek-V3 in eight parts, and whole experts on eight devices.
        ("h200-sxm", "trtllm", DEEPSEEK, 4, 140),
        ("h200-sxm", "trtllm", DEEPSEEK, 64, 405),
        ("h200-sxm", "trtllm", replace(DEEPSEEK, ep=8), 64, 307),
        ("h200-sxm", "sglang", DEEPSEEK, 64, 369),
        ("b200", "trtllm", replace(DEEPSEEK, stored="fp4"), 64, 116),
        # MiniMax-M2.5 on two devices.
        ("b200", "vllm", Routed(256, 8, 3072, 1536, 1, 2, "fp8 block"), 64, 267),
        ("b200", "vllm", Routed(256, 8, 3072, 1536, 1, 2, "fp4"), 4, 42),
        # gpt-oss-120b.
        ("h200-sxm", "trtllm", Routed(128, 4, 2880, 2880, 8, 8, "mxfp4"), 4, 84),
    ],
)
def test_experts_are_near_measured_ones(
    device: str, engine: str, routed: Routed, tokens: int, us: float
) -> None:
    """Means of power laws 1.01 and 1.2 in aiconfigurator's tables."""
    assert kernels(device, engine, routed).experts_ns(tokens) / 1e3 == pytest.approx(us, rel=0.35)


@pytest.mark.parametrize(
    ("device", "engine", "cache", "shape", "us"),
    [
        # Batch, heads, heads of keys and values, tokens, width: aiconfigurator's tables of prefills.
        ("h100-sxm", "trtllm", "bf16", (1, 64, 8, 1024, 128), 77.4),
        ("h100-sxm", "trtllm", "bf16", (1, 64, 8, 4096, 128), 692.9),
        ("h100-sxm", "trtllm", "fp8", (1, 8, 1, 4096, 128), 77.7),
        ("b200", "trtllm", "fp8", (1, 16, 16, 4096, 192), 130),
        ("h200-sxm", "trtllm", "bf16", (1, 32, 32, 1024, 192), 53),
    ],
)
def test_prompts_are_near_measured_ones(
    device: str, engine: str, cache: str, shape: tuple[int, int, int, int, int], us: float
) -> None:
    found = kernels_of(device, engine, 450e9, False, None, cache)
    assert found is not None
    batch, heads, kv_heads, tokens, key = shape
    pairs = tokens * (tokens + 1) // 2
    attention = Attention(batch, heads, kv_heads, tokens, tokens, key, 128)
    took = found.prompt_ns(attention, 2 * (key + 128) * pairs * batch * heads)
    assert took / 1e3 == pytest.approx(us, rel=0.3)
    # The same tokens behind others have more scores, and keys to read.
    behind = found.prompt_ns(replace_keys(attention, 2 * tokens), 2 * (key + 128) * 3 * pairs * batch * heads)
    assert behind > took


def replace_keys(attention: Attention, keys: int) -> Attention:
    return attention._replace(keys=keys)


def test_experts_have_the_kernels_that_are_named() -> None:
    def took(named: str | None, tokens: int = 4096) -> float:
        found = kernels_of("b200", "vllm", 900e9, True, MINIMAX, named=named)
        assert found is not None
        return found.experts_ns(tokens)

    assert took("triton") > 1.5 * took(None)
    with pytest.raises(
        InputError, match=r"expert-kernels tritom: expected one of triton, deepgemm \(did you mean"
    ):
        took("tritom")
    with pytest.raises(InputError, match=r"expert-kernels triton: expected none, which"):
        kernels_of("h100-sxm", "vllm", 450e9, False, replace(MINIMAX, stored="bf16"), named="triton")


def test_experts_that_are_whole_read_as_much_as_parts_of_all() -> None:
    whole, parts = (kernels(routed=replace(DEEPSEEK, ep=ep)).experts_ns(4096) for ep in (8, 1))
    assert whole == pytest.approx(parts, rel=0.3)


def test_a_device_takes_the_kernels_of_the_one_that_it_is_like() -> None:
    assert kernels("h100-96-500w").like == "h100-sxm" and kernels("gb200").like == "b200"
