"""What the layers of one virtual stage hold and need while they run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from armillary.workload.layers.layer import Layer
from armillary.workload.memory.states import LAYERWISE, States, left
from armillary.workload.pipeline.partition import HEAD
from armillary.workload.plan.schema import Plan

Ints = NDArray[np.int64]


class Chunk:
    """The bytes of a virtual stage while its layers run; every result is in the order in which they do."""

    def __init__(self, layers: list[Layer], held: list[States], plan: Plan) -> None:
        self._plan = plan
        head = np.array([layer.name == HEAD for layer in layers], bool)
        share = plan.offload.activations
        saved = np.array([left(layer.saved, share) for layer in layers], np.int64)
        away = np.array([layer.saved for layer in layers], np.int64) - saved
        self._until = {"activations": np.cumsum(saved * ~head), "logits": np.cumsum(saved * head)}
        self._working = np.array([layer.working for layer in layers], np.int64)
        self._away = away + np.maximum(np.append(away[1:], 0), np.append(0, away[:-1])) if len(away) else away
        self._gathered = np.array([each.gathered for each in held], np.int64)
        self._reduced = np.array([each.reduced for each in held], np.int64)

    def total(self, category: str) -> int:
        """Bytes that a microbatch leaves after the forward pass."""
        return int(self._until[category][-1]) if len(self._until[category]) else 0

    def held(self, category: str, kind: str, splits: bool) -> Ints:
        """Bytes of the microbatch at work."""
        if kind == "B" and splits:
            return np.full(len(self._working), self.total(category))
        return self._ordered(self._until[category], kind)

    def working(self, kind: str) -> Ints:
        """Bytes that steps need besides."""
        return self._ordered(self._working, kind)

    def moved(self, kind: str) -> Ints:
        """Bytes of layers that are gathered, reduced or on their way to another memory."""
        data = self._plan.data
        weights = self._ordered(self._gathered, kind)
        held = min(data.limit, 1 + data.prefetch) if data.sharding in LAYERWISE else 2
        window = sum(np.append(weights[ahead:], np.zeros(min(ahead, len(weights)))) for ahead in range(held))
        found = np.asarray(window, np.int64) + self._ordered(self._away, kind)
        return found if kind == "F" else found + self._ordered(self._reduced, kind)

    def _ordered(self, values: Ints, kind: str) -> Ints:
        return values if kind == "F" else values[::-1]
