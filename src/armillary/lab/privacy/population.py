"""Training runs to attack, all on the same number of ranks: whoever has a trace knows the size of its machine.

Hidden size, layers, sequence length, tensor and pipeline parallelism and the batch are drawn independently; the
remaining ranks are replicas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.privacy.surrogate import RECOMPUTE, SHARDING
from armillary.trace.trace import Trace
from armillary.workload.generate import generate
from armillary.workload.models.decoder_parts import Attention, Mlp
from armillary.workload.models.schema import Decoder
from armillary.workload.plan.schema import Data, Parallel, Plan

HIDDEN = (2048, 3072, 4096, 5120, 6144, 8192)
LAYERS = (24, 32, 40, 48, 64, 80)
SEQUENCE = (1024, 2048, 4096, 8192)
TP, PP = (1, 2, 4, 8), (1, 2, 4, 8)
BATCH = (32, 64, 128, 256, 512, 1024)
RANKS = 64
_MICROBATCHES = 16
"""Most microbatches of a replica, so that traces stay small."""
ATTRIBUTES = ("hidden", "layers", "sequence", "tp", "pp", "dp", "sharding")


@dataclass(frozen=True)
class Configuration:
    """A run, and the attributes that an attacker wants to know."""

    model: Decoder
    plan: Plan

    def secret(self) -> dict[str, int | str]:
        """Return the attributes."""
        parallel = self.plan.parallel
        return {
            "hidden": self.model.hidden, "layers": self.model.layers, "sequence": self.plan.sequence or 0,
            "tp": parallel.tp, "pp": parallel.pp, "dp": parallel.dp or 1, "sharding": self.plan.data.sharding,
        }  # fmt: skip

    def trace(self) -> Trace:
        """Return the trace."""
        return generate(self.model, self.plan)


def draw(count: int, seed: int) -> list[Configuration]:
    """Return `count` valid runs."""
    random = np.random.default_rng(seed)
    found: list[Configuration] = []
    while len(found) < count:
        # Rejection sampling: drawn anew as a whole, so that the attributes stay independent but for what is invalid.
        one = _one(random)
        if one is not None:
            found.append(one)
    return found


def _one(random: np.random.Generator) -> Configuration | None:
    def pick(values: tuple[int, ...]) -> int:
        return int(values[random.integers(len(values))])

    hidden, layers, sequence = pick(HIDDEN), pick(LAYERS), pick(SEQUENCE)
    tp, pp, batch, microbatch = pick(TP), pick(PP), pick(BATCH), pick((1, 2, 4, 8))
    dp = RANKS // (tp * pp)
    heads = hidden // 128  # of 128 each
    gated = bool(random.integers(2))
    # MLP over hidden size: 8/3 as in Llama 2, 3.5 as in Llama 3, 4 without a gate.
    ratio = (8 / 3, 3.5)[random.integers(2)] if gated else 4.0
    vocabulary, grouped = pick((32000, 50304, 128256)), bool(random.integers(2))
    sharding = SHARDING[random.integers(3)] if dp > 1 else SHARDING[0]
    recompute = RECOMPUTE[random.integers(2)]
    microbatches, rest = divmod(batch, dp * microbatch)
    if rest or not 1 <= microbatches <= _MICROBATCHES or (sharding == "fsdp" and pp > 1):
        return None
    model = Decoder(
        name="drawn", layers=layers, hidden=hidden, vocabulary=vocabulary, context=sequence, tied=False, norm="rms",
        activation="swiglu" if gated else "gelu",
        attention=Attention(heads=heads, kv_heads=8 if grouped else None),
        mlp=Mlp(size=round(ratio * hidden / 256) * 256),
    )  # fmt: skip
    try:
        plan = Plan(
            ranks=RANKS, batch=batch, microbatch=microbatch, sequence=sequence,
            parallel=Parallel(tp=tp, pp=pp, dp=dp), data=Data(sharding=sharding), recompute=recompute,
        )  # fmt: skip
    except InputError:
        return None
    return Configuration(model, plan)
