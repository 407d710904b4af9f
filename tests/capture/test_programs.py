"""Whole programs: sums of Llama 3 against closed forms, and torchtitan as it is."""

from __future__ import annotations

import importlib.util
import json
import os
from collections import Counter
from pathlib import Path

import pytest

from armillary.capture import Log, capture_script
from armillary.capture.summary import flops

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch"),
]
LLAMA = Path(__file__).with_name("programs") / "llama3.py"
TOKENS, WIDTH, LAYERS, KV, INNER, WORDS = 8192, 4096, 32, 1024, 14336, 128256


def test_llama_3_8b_has_the_flop_and_bytes_of_its_closed_form(tmp_path: Path) -> None:
    tp, dp = 8, 64
    [log] = capture_script(
        str(LLAMA), ("--size", "8b", "--tp", str(tp)), folder=tmp_path, ranks=tp * dp, run=(0,)
    )
    weights = LAYERS * (2 * WIDTH**2 + 2 * WIDTH * KV + 3 * WIDTH * INNER) + WORDS * WIDTH
    assert flops(log)["gemm"] == 6 * weights * TOKENS // tp
    # A query meets (tokens + 1) / 2 keys; gradients take 2.5 times as much.
    assert flops(log)["attention"] == LAYERS * 14 * WIDTH * (TOKENS * (TOKENS + 1) // 2) // tp
    sent: Counter[tuple[str, int]] = Counter()
    for _, each in log.issued():
        sent[each.type, len(log.groups[each.group])] += each.bytes

    def padded(rows: int, columns: int) -> int:
        return -(-rows // dp) * dp * columns

    layer = padded(WIDTH // tp, WIDTH) + 2 * padded(KV // tp, WIDTH) + padded(WIDTH, WIDTH // tp)
    layer += 2 * padded(INNER // tp, WIDTH) + padded(WIDTH, INNER // tp) + 2 * padded(WIDTH, 1)
    root = 2 * padded(WORDS // tp, WIDTH) + padded(WIDTH, 1)
    # Layers are gathered again in the backward pass, the root is not; gradients are of 4 bytes.
    assert sent["all-gather", dp] == 2 * (2 * LAYERS * layer + root)
    assert sent["reduce-scatter", dp] == 4 * (LAYERS * layer + root)
    # Two gathers of activations in each pass of a layer, two of the head's, and its logits.
    activations = 2 * TOKENS * WIDTH
    assert sent["all-gather", tp] == (4 * LAYERS + 2) * activations + 2 * TOKENS * WORDS
    assert sent["reduce-scatter", tp] == (4 * LAYERS + 2) * activations


def test_compiling_saves_kernels_and_memory_and_no_gemm(tmp_path: Path) -> None:
    found = []
    for words in ((), ("--compile",)):
        [log] = capture_script(str(LLAMA), words, folder=tmp_path / f"cap{len(words)}", ranks=2, run=(0,))
        found.append(log)
    plain, compiled = found
    assert flops(plain)["gemm"] == flops(compiled)["gemm"] and compiled.compiled and not plain.compiled
    assert len(list(compiled.operators())) < len(list(plain.operators()))
    moved = [sum(kind.size for _, kind in log.operators() if not kind.products) for log in found]
    assert moved[1] < moved[0] and compiled.reserved_bytes <= plain.reserved_bytes


needs_torchtitan = pytest.mark.skipif(
    importlib.util.find_spec("torchtitan") is None or importlib.util.find_spec("triton") is None,
    reason="needs torchtitan and triton",
)


def titan(folder: Path, words: str, ranks: int) -> Log:
    """Return rank 0 of a registered configuration, with a tokenizer and a text in place of those it downloads."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(
        models.WordLevel({f"w{at}": at for at in range(100)} | {"<unk>": 100, "<s>": 101}, "<unk>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save("tokenizer.json")
    Path("tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "<s>"}))
    Path("text").mkdir()
    line = json.dumps({"text": " ".join(f"w{at % 100}" for at in range(2000))})
    Path("text/data.json").write_text(f"{line}\n" * 100)
    words += " --hf_assets_path . --dataloader.dataset c4_test --dataloader.dataset_path text"
    words += " --training.disable_cuda_graphs --parallelism.spmd_backend partial_dtensor"
    [log] = capture_script(
        "torchtitan.train", words.split(), folder=folder / "cap", ranks=ranks, run=(0,), module=True
    )
    return log


@needs_torchtitan
def test_torchtitan_runs_unchanged_with_its_own_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = titan(tmp_path, "--module llama3 --config llama3_debugmodel", 8)
    assert log.frameworks == ["torchtitan"] and log.step == 3
    assert any(place.line.startswith("torchtitan/models/llama3/model.py:") for place in log.places)
    assert {each.type for each in log.communications} >= {"all-gather", "reduce-scatter"}


@needs_torchtitan
def test_llama_3_8b_of_torchtitan_has_the_flop_and_bytes_of_its_closed_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = titan(tmp_path, "--module llama3 --config llama3_8b --training.local_batch_size 2", 8)
    tokens, inner, words = 2 * TOKENS, WIDTH * INNER, WORDS * WIDTH
    layer = 2 * WIDTH**2 + 2 * WIDTH * KV + 3 * inner
    # Every second product of a layer is made again: the attention's output, and one of the first two after it.
    again = LAYERS * (WIDTH**2 + inner)
    assert flops(log)["gemm"] == (6 * (LAYERS * layer + words) + 2 * again) * tokens
    assert flops(log)["attention"] == LAYERS * 14 * WIDTH * (TOKENS * (TOKENS + 1) // 2) * 2
    sent: Counter[str] = Counter()
    for _, each in log.issued():
        sent[each.type] += each.bytes
    # Layers and embedding twice; the head with its norm once more, for the loss of parts of the sequences.
    assert sent["all-gather"] == 2 * (2 * LAYERS * (layer + 2 * WIDTH) + 2 * words + 3 * (words + WIDTH))
    assert sent["reduce-scatter"] == 4 * (LAYERS * (layer + 2 * WIDTH) + 2 * words + WIDTH)


@needs_torchtitan
@pytest.mark.parametrize(
    ("config", "ranks", "batch", "layers", "width", "inner"),
    [("llama3_70b", 256, 1, 80, 8192, 28672), ("titan2024.llama3_405b", 128, 2, 126, 16384, 53248)],
)
def test_larger_llamas_of_torchtitan_have_the_flop_and_bytes_of_their_closed_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    config: str, ranks: int, batch: int, layers: int, width: int, inner: int,
) -> None:  # fmt: skip
    """Tensor parallel over 8, FSDP over the rest; layers are made again whole: these checkpoints do not stop early."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(LLAMA.parent))
    monkeypatch.setenv("PYTHONPATH", str(LLAMA.parent), prepend=os.pathsep)
    module, _, name = config.rpartition(".")
    flags = f"--module {module or 'llama3'} --config {name} --training.local_batch_size {batch}"
    log = titan(tmp_path, flags, ranks)
    tp, dp, tokens = 8, ranks // 8, batch * TOKENS
    weights = width * (width + 2 * KV) + width**2 + 3 * width * inner
    assert flops(log)["gemm"] == (8 * layers * weights + 6 * WORDS * width) * tokens // tp
    # A pass over scores in the forward pass, again, and 2.5 in the backward pass.
    pairs = batch * (TOKENS * (TOKENS + 1) // 2)
    assert flops(log)["attention"] == layers * 18 * width * pairs // tp
    sent: Counter[tuple[str, int]] = Counter()
    for _, each in log.issued():
        sent[each.type, len(log.groups[each.group])] += each.bytes

    def padded(rows: int, columns: int) -> int:
        return -(-rows // dp) * dp * columns

    layer = padded((width + 2 * KV) // tp, width) + padded(width, width // tp) + 2 * padded(width, 1)
    layer += 2 * padded(inner // tp, width) + padded(width, inner // tp)
    words, norm = padded(WORDS // tp, width), padded(width, 1)
    # The head is gathered once, or once for each part of the sequences' loss and of its norm.
    head = 1 if module else 3
    assert sent["all-gather", dp] == 2 * (2 * layers * layer + 2 * words + head * (words + norm))
    assert sent["reduce-scatter", dp] == 4 * (layers * layer + 2 * words + norm)
    # Two gathers in each pass of a layer, three passes; each has a scatter of gradients or sums at its other end.
    activations = 2 * tokens * width
    assert sent["all-gather", tp] == sent["reduce-scatter", tp] == (6 * layers + 2) * activations


DEEPSEEKS = [
    # Configuration, ranks, experts over so many, sequences, width, heads, ranks of queries, inner widths of dense
    # layers and of an expert, experts, of which so many are chosen, and shared ones; layers, and dense ones; words.
    ("16b", 8, 8, 4, 2048, 16, 0, 10944, 1408, 64, 6, 2, 27, 1, 102400),
    ("671b", 256, 32, 1, 7168, 128, 1536, 18432, 2048, 256, 8, 1, 61, 3, 129280),
]


@needs_torchtitan
@pytest.mark.parametrize("of", DEEPSEEKS, ids=[each[0] for each in DEEPSEEKS])
def test_deepseek_v3_of_torchtitan_has_the_flop_and_bytes_of_its_closed_form(
    of: tuple[str, *tuple[int, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention of latents and experts; every second product is made again, the router's and those of experts too."""
    monkeypatch.chdir(tmp_path)
    name, *numbers = of
    dp, ep, batch, width, heads, rank, inner, expert, experts, chosen, shared, layers, dense, words = numbers
    flags = f"--module deepseek_v3 --config deepseek_v3_{name} --training.local_batch_size {batch}"
    log = titan(tmp_path, f"{flags} --parallelism.expert_parallel_degree {ep}", dp)
    length, latent, depth, value = 4096, 512, 192, 128
    tokens, held = batch * length, experts // ep
    query = [(heads * depth, rank), (rank, width)] if rank else [(heads * depth, width)]
    attention = [
        *query[::-1], (latent + 64, width), (heads * (128 + value), latent), (width, heads * value),
    ]  # fmt: skip
    feed = {
        "dense": [(inner, width), (inner, width), (width, inner)],
        "experts": [(shared * expert, width), (shared * expert, width), (width, shared * expert)],
    }
    gemms = 3 * words * width
    counts = {"dense": dense, "experts": layers - dense}
    for kind, count in counts.items():
        products = [rows * columns for rows, columns in (*attention, *feed[kind])]
        gemms += count * (3 * sum(products) + sum(products[1::2]))
    gemms += counts["experts"] * (4 * experts * width + 12 * chosen * width * expert)
    assert flops(log)["gemm"] == 2 * tokens * gemms
    # Backward makes the scores again: three products over the depth of a key, two over that of a value.
    pairs = batch * heads * (length * (length + 1) // 2)
    assert flops(log)["attention"] == layers * pairs * 2 * (4 * depth + 3 * value)

    def padded(rows: int, columns: int, over: int = dp) -> int:
        return -(-rows // over) * over * columns

    weights = 0
    for kind, count in counts.items():
        parts = [*attention, *feed[kind], *([(experts, width)] if kind == "experts" else [])]
        norms = [(width, 1), (width, 1), (latent, 1), *([(rank, 1)] if rank else [])]
        weights += count * sum(padded(*each) for each in (*parts, *norms))
    words_, norm = padded(words, width), padded(width, 1)
    of_experts = counts["experts"] * 3 * held * expert * width if dp > ep else 0
    sent: Counter[str] = Counter()
    for _, each in log.issued():
        sent[each.type] += each.bytes
    assert sent["all-gather"] == 2 * (2 * weights + 2 * words_ + 3 * (words_ + norm)) + 4 * of_experts
    assert sent["reduce-scatter"] == 4 * (weights + 2 * words_ + norm) + 4 * of_experts
    # Tokens go and come back in both passes; before that, how many each expert gets.
    assert sent["all-to-all"] == counts["experts"] * (4 * 2 * tokens * chosen * width + 8 * experts)


ZERO = """
import deepspeed, torch
from torch import nn
deepspeed.init_distributed()
model = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(4)])
plan = {"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "bf16": {"enabled": True},
        "zero_optimization": {"stage": %d}, "optimizer": {"type": "AdamW", "params": {"torch_adam": True}}}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=plan)
for _ in range(6):
    x = torch.randn(512, 1024, device=engine.device, dtype=torch.bfloat16, requires_grad=True)
    engine.backward(engine(x).float().pow(2).mean())
    engine.step()
"""


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs deepspeed")
@pytest.mark.parametrize(
    ("stage", "types"), [(1, {"all-reduce", "all-gather"}), (3, {"reduce-scatter", "all-gather"})]
)
def test_deepspeed_has_the_flop_and_collectives_of_its_stage(
    stage: int, types: set[str], tmp_path: Path
) -> None:
    script = tmp_path / "zero.py"
    script.write_text(ZERO % stage)
    [log] = capture_script(str(script), folder=tmp_path / "cap", ranks=8, run=(0,))
    assert flops(log)["gemm"] == 6 * 4 * 1024**2 * 512 * 2
    assert {each.type for _, each in log.issued() if each.bytes > 1 << 20} >= types
