"""Every preset against what its makers, or the hub that holds the weights, publish."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from armillary.workload.models import flops, load_model, parameters, preset_names

HUB = "metadata of the safetensors files, https://huggingface.co/api/models/"
TORCHVISION = "num_params, https://pytorch.org/vision/stable/models.html"
# Exact counts, and their source.
EXACT = {
    "llama-2-7b": (6_738_415_616, HUB + "meta-llama/Llama-2-7b-hf"),
    "llama-2-13b": (13_015_864_320, HUB + "meta-llama/Llama-2-13b-hf"),
    "llama-2-70b": (68_976_648_192, HUB + "meta-llama/Llama-2-70b-hf"),
    "llama-3-8b": (8_030_261_248, HUB + "meta-llama/Meta-Llama-3-8B"),
    "llama-3-70b": (70_553_706_496, HUB + "meta-llama/Meta-Llama-3-70B"),
    "llama-3.1-8b": (8_030_261_248, HUB + "meta-llama/Llama-3.1-8B"),
    "llama-3.1-70b": (70_553_706_496, HUB + "meta-llama/Llama-3.1-70B"),
    "llama-3-405b": (405_853_388_800, HUB + "meta-llama/Llama-3.1-405B"),
    "mixtral-8x7b": (46_702_792_704, HUB + "mistralai/Mixtral-8x7B-v0.1"),
    "mixtral-8x22b": (140_620_634_112, HUB + "mistralai/Mixtral-8x22B-v0.1"),
    "qwen3-30b-a3b": (30_532_122_624, HUB + "Qwen/Qwen3-30B-A3B"),
    "qwen3-235b-a22b": (235_093_634_560, HUB + "Qwen/Qwen3-235B-A22B"),
    "deepseek-v3": (671_026_419_200, "tensors of layers 0 to 60 in the files of deepseek-ai/DeepSeek-V3"),
    "resnet-50": (25_557_032, TORCHVISION),
    "resnet-152": (60_192_808, TORCHVISION),
    "vit-b-16": (86_567_656, TORCHVISION),
    "vit-l-16": (304_326_632, TORCHVISION),
    "vit-h-14": (632_045_800, "vit_h_14 of torchvision at 224 pixels"),
    "gnmt": (160_671_297, "'MLPerf GNMT has 160671297 parameters', tests of NVIDIA's MLPerf v0.6 optimizers"),
    # Halves of the bytes of gradients that their workload files exchange.
    "dlrm-libra": (114_823_168 // 2, "ALLREDUCE of astra-sim/libra, inputs/workload/DLRM.txt"),
    "dlrm-astra-sim-1": (
        (13312 + 2 * 524288 + 16384 + 1064960 + 2 * 524288) // 2,
        "ALLREDUCEs of astra-sim 1.0, DLRM_HybridParallel.txt",
    ),
}
# Printed counts and what one of their last digit is worth, in 10**9.
PRINTED = {
    "gpt-oss-120b": (116.8, 0.1, "arXiv 2508.10925, abstract and table 1"),
    "gemma-3-4b": (3.88, 0.02, "arXiv 2503.19786, table 1: 675M and 3,209M"),
    "gemma-3-12b": (11.77, 0.02, "arXiv 2503.19786, table 1: 1,012M and 10,759M"),
    "gemma-3-27b": (27.02, 0.03, "arXiv 2503.19786, table 1: 1,416M and 25,600M"),
    "llama-4-scout": (109, 3, "its model card, with about 1 of an image encoder"),
    "llama-4-maverick": (400, 2, "its model card"),
    "qwen3-next-80b-a3b": (80, 1, "its model card: 80B in total, 79B without embeddings"),
    "qwen3.5-397b-a17b": (397, 4, "its name"),
    "nemotron-3-nano": (31.6, 0.1, "its model card: 31.6B in total"),
    "nemotron-3-super": (120.6, 0.2, "arXiv 2604.12374: 120.6B, cut"),
    "nemotron-3-ultra": (549.3, 0.1, "1,023.2 GiB of its weights in 16 bits, without those of mtp"),
    "minimax-m2.5": (230, 10, "its model card: 230 billion in total"),
    "qwen3-32b": (32.8, 0.1, "its model card: 32.8B"),
    "glm-5": (744, 1, "its announcement: 744B in total"),
    "deepseek-v3.2": (
        671.88,
        0.01,
        "671.03 of DeepSeek-V3 and 61 x 0.01396 of what chooses keys (arXiv 2512.02556)",
    ),
    "kimi-k2": (1000, 100, "arXiv 2507.20534, abstract: '1 trillion total parameters'"),
    "gpt-3-175b": (174.6, 0.1, "arXiv 2005.14165, table D.1"),
    "turing-nlg-17b": (17, 1, "the title of its announcement"),
    "mt-nlg-530b": (530, 1, "arXiv 2201.11990, abstract"),
    "transformer-1t": (1008.0, 0.1, "arXiv 2104.04473, table 1"),
    "megatron-22b": (22, 1, "arXiv 2205.05198, table 3"),
    "megatron-175b": (175, 1, "arXiv 2205.05198, table 3"),
    "megatron-530b": (530, 1, "arXiv 2205.05198, table 3"),
    "megatron-1t": (1008.0, 0.1, "arXiv 2104.04473, table 1, of the same shape"),
    "dlrm-mlperf": (
        26.1,
        0.1,
        "204,184,588 rows of 128: 97.36 GiB in fp32, 'about 100 GB', arXiv 2108.02191",
    ),
}
# Per token; the makers cut, or round, the last digit.
ACTIVE = {
    "kimi-k2": (32, 1, "arXiv 2507.20534, abstract"),
    "llama-4-scout": (17, 1, "its model card"),
    "llama-4-maverick": (17, 1, "its model card"),
    "qwen3.5-397b-a17b": (17, 1, "its name"),
    "deepseek-v3": (37, 1, "arXiv 2412.19437, abstract"),
    "nemotron-3-super": (12.7, 0.1, "arXiv 2604.12374"),
    "mixtral-8x7b": (12.9, 0.1, "mistral.ai/news/mixtral-of-experts"),
    "mixtral-8x22b": (39, 1, "mistral.ai/news/mixtral-8x22b"),
    "qwen3-30b-a3b": (3.3, 0.1, "huggingface.co/Qwen/Qwen3-30B-A3B"),
    "qwen3-235b-a22b": (22, 1, "huggingface.co/Qwen/Qwen3-235B-A22B"),
}


def test_no_preset_is_left_out():
    assert sorted(EXACT | PRINTED) == preset_names()
    assert all(source.startswith("https://") for name in preset_names() for source in load_model(name).source)
    assert all(load_model(name).source for name in preset_names())


@pytest.mark.parametrize("name", EXACT)
def test_exact(name):
    counts = parameters(load_model(name))
    assert counts.total == EXACT[name][0] == sum(counts.parts.values())


@pytest.mark.parametrize("name", PRINTED)
def test_printed(name):
    printed, digit, _ = PRINTED[name]
    assert abs(parameters(load_model(name)).total / 1e9 - printed) <= digit / 2


@pytest.mark.parametrize("name", ACTIVE)
def test_active(name):
    printed, digit, _ = ACTIVE[name]
    active = parameters(load_model(name)).active / 1e9
    assert math.floor(active / digit) == round(printed / digit) or abs(active - printed) <= digit / 2


def test_gnmt_by_its_tensors():
    """Shapes as the optimizer tests of NVIDIA's MLPerf v0.6 submission list them."""
    lstm = [(4096, 1024), (4096, 1024), (4096,), (4096,)]
    wide = [(4096, 2048), (4096, 1024), (4096,), (4096,)]
    encoder = lstm + lstm + wide + lstm + lstm
    decoder = lstm + [(1024,), (1,), (1024,), (1024, 1024), (1024, 1024)] + 3 * wide
    tensors = [*encoder, (32320, 1024), *decoder, (32320, 1024), (32320,)]
    assert parameters(load_model("gnmt")).total == sum(math.prod(shape) for shape in tensors)


def test_mlperf_dlrm_by_its_layers():
    bottom, top = (13, 512, 256, 128), (128 + 27 * 26 // 2, 1024, 1024, 512, 256, 1)
    layers = [*pairwise(bottom), *pairwise(top)]
    counts = parameters(load_model("dlrm-mlperf"))
    assert counts.parts == {
        "embedding": 204_184_588 * 128,
        "mlp": sum(inputs * outputs + outputs for inputs, outputs in layers),
    }


@pytest.mark.parametrize(
    ("name", "billion_macs"),
    [("resnet-50", 4.089), ("resnet-152", 11.514), ("vit-b-16", 17.564), ("vit-l-16", 61.555)],
)
def test_multiply_adds_of_torchvision(name, billion_macs):
    """GFLOPS at https://pytorch.org/vision/stable/models.html, which are multiply-adds."""
    assert flops(load_model(name), 1).forward / 2e9 == pytest.approx(billion_macs, abs=5e-4)


def test_resnet_of_the_paper_has_its_3_8_billion_multiply_adds():
    """arXiv 1512.03385, table 1, rounds down; stride in the 1x1 makes it less than torchvision's."""
    paper = load_model("resnet-50").model_copy(update={"stride_in": "1x1"})
    assert flops(paper, 1).forward / 2e9 == pytest.approx(3.86, abs=0.01)
    assert parameters(paper) == parameters(load_model("resnet-50"))
