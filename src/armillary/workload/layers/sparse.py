"""Sparse attention on one rank: a small attention chooses the keys of the latent one (DSA).

DeepSeek-V3.2 (arXiv 2512.02556, section 2.1) scores all keys by a few heads that share one small key of each token, and
lets each query see the `top` of them. Every rank of tp does all of this, as engines do; kernels are those of inference.
"""

from __future__ import annotations

from armillary.base.errors import InputError
from armillary.workload.layers.attention_core import pairs
from armillary.workload.layers.block import Block
from armillary.workload.layers.layer import Precision, Step
from armillary.workload.layers.linear import replicated
from armillary.workload.layers.shard import Shard
from armillary.workload.models.schema import Decoder

SCORE, PROBE = "score", "probe"
"""Names of the kernel that scores keys: for the queries of prompts, and for few queries of each sequence."""
FEW = 9
"""Queries of a sequence up to which it decodes: a token, and drafts behind it."""
_SCALE, _LOGIT, _PLACE = 4, 4, 4
"""Bytes of the scale of a key in fp8, of a score, and of the place of a key that was chosen."""


def check_sparse(shard: Shard, model: Decoder) -> None:
    """Check that a pass of a model with sparse attention is modelled.

    Raises:
        InputError: it is one of training.
    """
    if model.attention.sparse and shard.training:
        raise InputError(
            f"training of '{model.name}': its attention is sparse (DSA), of which only inference is modelled; expected "
            "a model without attention.sparse"
        )


def chosen(shard: Shard, model: Decoder) -> bool:
    """Return whether queries see some of the keys only; a whole prompt of no more is computed like others."""
    sparse = model.attention.sparse
    return sparse is not None and (shard.queries < shard.keys or shard.keys > sparse.top)


def index_blocks(shard: Shard, model: Decoder) -> list[Block]:
    """Return the blocks that project queries, a key and weights of heads, and, where some keys are chosen, do that."""
    own, latent = model.attention.sparse, model.attention.latent
    assert own is not None and latent is not None and latent.query_rank is not None
    turned = shard.own * (own.heads + 1) * own.size * shard.element
    blocks = [
        replicated(shard, "index.q", latent.query_rank, own.heads * own.size),
        replicated(shard, "index.k", model.hidden, own.size, parameters=(model.hidden + 2) * own.size),
        replicated(shard, "index.weights", model.hidden, own.heads, precision=shard.high),
        # A norm of the key, rotary positions, and fp8 with a scale of each.
        Block("index.positions", (Step("turn", bytes=2 * turned),), working=2 * turned),
    ]
    if not chosen(shard, model):
        return blocks
    scores = shard.batch * pairs(shard.queries, shard.keys, None, shard.causal)
    # The report has them in fp8, whatever the rest.
    precision: Precision = "fp8" if shard.compute in ("fp8", "fp4") else shard.high
    found = shard.tokens * min(shard.keys, own.top) * _PLACE
    steps = (
        Step(
            PROBE if shard.queries <= FEW else SCORE,
            2 * scores * own.heads * own.size,
            key_bytes(shard, model) + scores * _LOGIT,
            precision,
        ),
        Step("top", bytes=scores * _LOGIT + found),
    )
    # Kernels take prompts in parts so that scores need little memory.
    return [*blocks, Block("index", steps, working=found)]


def key_bytes(shard: Shard, model: Decoder) -> int:
    """Return the bytes of the small keys that a layer keeps, in fp8 with a scale each; 0: it has none."""
    own = model.attention.sparse
    return shard.batch * shard.keys * (own.size + _SCALE) if own else 0
