"""Memory of one virtual stage while its layers run."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from armillary.workload.layers.layer import Layer
from armillary.workload.memory.states import LAYERWISE, States, left
from armillary.workload.pipeline.partition import HEAD
from armillary.workload.plan.schema import Plan

Ints = NDArray[np.int64]


class Chunk:
    """Bytes of a virtual stage while each of its layers runs, int64 (layers,), in the order of the task."""

    def __init__(self, layers: list[Layer], held: list[States], plan: Plan) -> None:
        self._plan = plan
        head = np.array([layer.name == HEAD for layer in layers], bool)
        share = plan.offload.activations
        saved = np.array([left(layer.saved, share) for layer in layers], np.int64)
        # What is offloaded passes through the NPU: a layer's own part, and the larger of those of its
        # neighbours, one still leaving or one arriving ahead.
        away = np.array([layer.saved for layer in layers], np.int64) - saved
        self._until = {"activations": np.cumsum(saved * ~head), "logits": np.cumsum(saved * head)}
        backs = [layer.working if layer.back is None else layer.back for layer in layers]
        self._working = {
            "F": np.array([layer.working for layer in layers], np.int64),
            "B": np.array(backs, np.int64)[::-1],
        }
        self._away = away + np.maximum(np.append(away[1:], 0), np.append(0, away[:-1])) if len(away) else away
        self._gathered = np.array([each.gathered for each in held], np.int64)
        self._reduced = np.array([each.reduced for each in held], np.int64)

    def total(self, category: str) -> int:
        """Bytes that a microbatch still holds after the forward pass."""
        return int(self._until[category][-1]) if len(self._until[category]) else 0

    def held(self, category: str, kind: str, splits: bool) -> Ints:
        """Bytes that the running microbatch holds."""
        if kind == "B" and splits:
            # With a W to come, its activations stay until then; a B frees nothing.
            return np.full(len(self._until[category]), self.total(category))
        return self._ordered(self._until[category], kind)

    def working(self, kind: str) -> Ints:
        """Bytes that steps need in addition while they run."""
        return self._working["F" if kind == "F" else "B"]

    def moved(self, kind: str) -> Ints:
        """Bytes of layers that are being gathered, reduced or moved to or from another memory."""
        data = self._plan.data
        weights = self._ordered(self._gathered, kind)
        # The layer that runs and those gathered ahead of it; offloaded weights are double-buffered.
        held = min(data.limit, 1 + data.prefetch) if data.sharding in LAYERWISE else 2
        # A sliding sum over the layers to come, which has fewer of them at the end.
        window = sum(np.append(weights[ahead:], np.zeros(min(ahead, len(weights)))) for ahead in range(held))
        found = np.asarray(window, np.int64) + self._ordered(self._away, kind)
        return found if kind == "F" else found + self._ordered(self._reduced, kind)

    def _ordered(self, values: Ints, kind: str) -> Ints:
        return values if kind == "F" else values[::-1]
