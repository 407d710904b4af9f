"""What a parameter server holds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from armillary.workload.layers.layer import Layer
from armillary.workload.memory.footprint import FRAGMENTATION, Footprint
from armillary.workload.memory.states import left
from armillary.workload.plan.numbers import MOMENTS, gradient
from armillary.workload.plan.schema import Plan


def server(
    layers: Sequence[Layer], plan: Plan, *, fragmentation: float = FRAGMENTATION, framework: int = 0
) -> Footprint:
    """Return what one of the parameter servers of a plan holds: its part of the model, summed gradients, buckets.

    Weights and optimizer states are in fp32. It receives the gradients of one worker and sends weights at a time.
    """
    servers, each = plan.data.servers, gradient(plan)
    count = -(-sum(sum(layer.parameters.values()) for layer in layers) // servers)
    bucket = min(-(-plan.data.bucket // servers), each * count)
    sizes = {
        "weights": left(4 * count, plan.offload.weights),
        "gradients": each * count,
        "optimizer": left(4 * MOMENTS[plan.optimizer] * count, plan.offload.optimizer),
        "communication": 2 * bucket,
    }
    line = {category: np.array([size], np.int64) for category, size in sizes.items()}
    return Footprint(0, (), np.zeros(1, np.int64), ("optimizer",), line, fragmentation, framework)
