"""COMET's first steps: Transformer-1T divided over 1,024 nodes as MPx_DPy, and what a node then holds."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

from armillary.base.errors import InputError
from armillary.evidence.reproduce.comet_assumptions import NODES, TrainingAssumptions
from armillary.trace import Trace
from armillary.workload.generate import generate, replica_layers
from armillary.workload.memory.footprint import worst
from armillary.workload.models import Model, load_model
from armillary.workload.models.schema import Decoder
from armillary.workload.pipeline.partition import partition
from armillary.workload.plan.schema import Data, Numbers, Offload, Parallel, Plan

DEGREES = tuple(2**e for e in range(11))
"""MP of every plan: MPx_DPy with x y = 1,024."""


@dataclass(frozen=True)
class Share:
    """What a node does in a step under one plan.

    Attributes:
        trace: The step of all nodes.
        needed: Bytes that a node holds at the peak.
        weights: Bytes of it that are weights.
    """

    trace: Trace
    needed: int
    weights: int


def name(mp: int) -> str:
    """Return ``"MP8_DP128"``."""
    return f"MP{mp}_DP{NODES // mp}"


def share(mp: int, chosen: TrainingAssumptions, elsewhere: float = 0.0) -> Share:
    """Return the share of a node when `mp` nodes divide every layer, and `elsewhere` of the weights are loaded.

    Raises:
        InputError: the batch cannot be divided so.
    """
    # Only fields that the share depends on, as a key of the cache.
    training = TrainingAssumptions(**{f.name: getattr(chosen, f.name) for f in fields(TrainingAssumptions)})
    if training.batch % NODES:
        raise InputError(
            f"--batch {training.batch}: expected a multiple of {NODES}, a sequence for each node"
        )
    return _share(mp, training, elsewhere)


@cache
def _share(mp: int, training: TrainingAssumptions, elsewhere: float) -> Share:
    model, plan = _model(mp), _plan(mp, training, elsewhere)
    held = worst(partition(replica_layers(model, plan), plan), plan)
    # The paper counts states and activations: no gaps of an allocator, no buffers of a library, no context.
    return Share(generate(model, plan), held.peak - held.at_peak["buffers"], held.at_peak["weights"])


def _model(mp: int) -> Model:
    """Return Transformer-1T; heads that `mp` does not divide become wider or thinner ones, which is as much work."""
    model = load_model("transformer-1t")
    assert isinstance(model, Decoder)
    # At least one head per rank, and a number that mp divides.
    heads = max(model.attention.heads // mp, 1) * mp
    return model.model_copy(update={"attention": model.attention.model_copy(update={"heads": heads})})


def _plan(mp: int, training: TrainingAssumptions, elsewhere: float) -> Plan:
    return Plan(
        ranks=NODES,
        batch=training.batch,
        microbatch=mp,  # one sequence for each node
        parallel=Parallel(tp=mp, sequence=training.sequence),
        data=Data.model_validate({"sharding": training.sharding, "overlap": training.overlap}),
        numbers=Numbers(gradients="bf16" if training.gradients == "bf16" else "fp32"),
        recompute=training.recompute,  # type: ignore[arg-type]
        # None loads nothing.
        offload=Offload(weights=elsewhere or None),
    )
