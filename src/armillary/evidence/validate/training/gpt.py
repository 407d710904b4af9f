"""GPT as Megatron-LM and llm-foundry train it."""

from __future__ import annotations

from armillary.workload.models.schema import Attention, Decoder, Mlp


def gpt(layers: int, hidden: int, heads: int, sequence: int, vocabulary: int) -> Decoder:
    """Return a GPT with learned positions, biases, layer norms, GeLU and a tied head."""
    return Decoder(
        name=f"GPT {layers}x{hidden}",
        layers=layers,
        hidden=hidden,
        vocabulary=vocabulary,
        context=sequence,
        learned_positions=sequence,
        tied=True,
        norm="layer",
        activation="gelu",
        attention=Attention(heads=heads, bias="all"),
        mlp=Mlp(size=4 * hidden, bias=True),
    )


def padded(vocabulary: int, tp: int) -> int:
    """Return a vocabulary as Megatron-LM pads it: to a multiple of 128 rows on each rank of tp."""
    unit = 128 * tp
    return -(-vocabulary // unit) * unit


def megatron_flops(
    batch: int, sequence: int, layers: int, hidden: int, vocabulary: int, *, recompute: bool = True
) -> float:
    """Return FLOP of a step by equation 3 of arXiv 2104.04473, which counts the recomputed forward pass."""
    inner = 1 + sequence / (6 * hidden) + vocabulary / ((16 if recompute else 12) * layers * hidden)
    return (96 if recompute else 72) * batch * sequence * layers * hidden**2 * inner
