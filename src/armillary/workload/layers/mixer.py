"""Linear mixers on one rank: Gated DeltaNet and Mamba-2, in place of attention.

Kernels work on chunks of tokens: within a chunk like attention, from chunk to chunk by a state of each head. Ranks of
tp divide the heads. Bytes are those that each kernel reads and writes, operations those of its GEMMs; measured forward
kernels of Gated DeltaNet (FLA's ``chunk_gated_delta_rule``, heads of 128 x 128: 1.9 ns per token and head on an H100)
move about as much. Where a sequence gets one token, a kernel reads and writes the state of each head instead.
"""

from __future__ import annotations

from armillary.base.errors import InputError
from armillary.workload.layers.block import Block
from armillary.workload.layers.layer import Step
from armillary.workload.layers.linear import column, row
from armillary.workload.layers.shard import Shard, check_divides
from armillary.workload.models.decoder_parts import Linear
from armillary.workload.models.schema import Decoder

NUMBER = 4
"""Bytes of a state, of what Mamba-2 passes from chunk to chunk, and of scores within a chunk."""


def check_mixer(shard: Shard, model: Decoder) -> None:
    """Check that a rank can have its share of the linear mixers of a model.

    Raises:
        InputError: it cannot.
    """
    own = model.linear
    if own is None:
        return
    for name, count in (("linear heads", own.heads), ("linear key_heads", own.key_heads)):
        check_divides("tp", shard.tp, name, count)
    if shard.cp > 1:
        raise InputError(
            f"cp {shard.cp}: '{model.name}' has linear layers, whose states pass along the sequence; expected 1"
        )
    if shard.lora:
        raise InputError(f"lora of '{model.name}': it has linear layers, expected a model without")


def mixer_blocks(shard: Shard, model: Decoder) -> list[Block]:
    """Return the blocks of a linear mixer, from the projection of the normed residual to that of the output."""
    own = model.linear
    assert own is not None
    element, tokens = shard.element, shard.tokens
    channels, values = own.channels // shard.tp, own.values // shard.tp
    inputs = own.inputs // shard.tp
    moved, made = tokens * channels * element, tokens * values * element
    # Of the two mixers, this one norms queries and keys, and gives each head of values its copy of them.
    delta = own.kind == "gated-delta"
    heads = own.heads // shard.tp
    keys = 2 * tokens * own.keys // shard.tp * element
    copies = 2 * tokens * heads * own.key_size * element if delta else keys
    blocks = [
        column(shard, "mixer.in", model.hidden, inputs, parameters=model.hidden * inputs),
        Block(
            "mixer.conv",
            (Step("apply", bytes=2 * moved),),
            (Step("apply", bytes=3 * moved),),
            parameters={"dp+cp": own.small // shard.tp},
            saved=moved,
            working=2 * moved,
        ),
    ]
    if delta:
        blocks.append(
            Block(
                "mixer.keys",
                (Step("norm", bytes=2 * keys), Step("repeat", bytes=keys + copies)),
                (Step("repeat", bytes=keys + copies), Step("norm", bytes=3 * keys)),
                saved=keys,
                working=keys + copies,
            )
        )
    forward, backward = (round(each * tokens * heads) for each in _moved(own))
    # Kernels of training are timed apart: see `armillary.compute.gpu.model.SCANS`.
    scan = "scan" if delta or not shard.training else "ssd"
    flops, name = tokens * own.operations // shard.tp, scan
    if not shard.training and shard.queries == 1:
        # Of a token: its head's state is decayed, corrected, and multiplied by keys and by queries.
        states = tokens * heads * own.key_size * own.value_size
        flops, forward, name = 6 * states, 2 * states * NUMBER + moved + made, "update"
    scores = tokens * heads * own.chunk * element if delta else 0
    return [
        *blocks,
        Block(
            "mixer",
            (Step(name, flops, forward, shard.high),),
            # Of attention, too, what fused kernels compute again is not counted.
            (Step(scan, 2 * flops, backward, shard.high),),
            saved=copies + made + scores,
            working=forward,
        ),
        Block(
            "mixer.gate",
            (Step("apply", bytes=3 * made),),
            (Step("apply", bytes=5 * made),),
            saved=2 * made,
            working=3 * made,
        ),
        row(shard, "mixer.out", values, model.hidden),
    ]


def state_bytes(shard: Shard, model: Decoder) -> int:
    """Return the bytes that a linear layer keeps of sequences, however long: states and what the convolution sees."""
    own = model.linear
    assert own is not None
    states = own.heads * own.key_size * own.value_size * NUMBER
    return shard.batch * (states + own.channels * (own.conv - 1) * shard.element) // shard.tp


def _moved(own: Linear) -> tuple[float, float]:
    """Return the bytes per token and head that the kernels of chunks move, forward and backward."""
    k, v, chunk = own.key_size, own.value_size, own.chunk
    state = k * v / chunk
    if own.kind == "gated-delta":
        # Forward: scores of keys, their inverse, w and u, states, output; each reads 16 bits, scores are fp32 once.
        forward = (
            (2 * k + 4 * chunk)
            + (4 + 2) * chunk
            + (4 * k + 4 * v + 2 * chunk)
            + (4 * k + 4 * v + 2 * state)
            + (4 * k + 4 * v + 2 * state)
        )
        # Backward: w, u and states again; gradients of values within chunks, of states, of queries, keys, values and
        # decays, and through the inverse; sums of both parts of the gradients of keys.
        backward = (
            (4 * k + 4 * v + 2 * chunk)
            + (4 * k + 4 * v + 2 * state)
            + (4 * k + 4 * v)
            + (6 * k + 6 * v + 4 * state)
            + (12 * k + 2 * v + 6 * state)
            + (6 * k + 6 * v + 2 * chunk)
            + 6 * k
        )
        return forward, backward
    # Heads of values that share B and C.
    shared = own.heads / own.key_heads
    # States of chunks, passing them on, scores of B and C, and the output (mamba_ssm, ssd_combined).
    forward = 6 * v + 4 * NUMBER * state + 8 * (k + chunk) / shared
    backward = 18 * v + 10 * NUMBER * state + 24 * (k + chunk) / shared
    return forward, backward
