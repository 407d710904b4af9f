"""A training step whose weights and gradients live in remote memory, as in ZeRO-Infinity (arXiv 2104.07857).

Before a layer runs, forward or backward, its weights are loaded; after its backward pass the gradients are stored.
Ranks with the same weights share the work: each loads a part and all-gathers the rest over the network; gradients are
reduce-scattered and stored in parts. Or switches in the memory fabric do both: every rank loads all weights, which the
memory reads once, and switches sum the gradients that ranks store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from armillary.trace import CollectiveType, Graph, Trace
from armillary.workload.emit.rank import Nodes, Rank
from armillary.workload.emit.training import Pieces
from armillary.workload.layers.layer import Layer
from armillary.workload.layers.of_model import layers_of
from armillary.workload.models import Model
from armillary.workload.plan.numbers import gradient, state, weight
from armillary.workload.plan.ranks import rank_grid
from armillary.workload.plan.schema import Plan


@dataclass(frozen=True)
class RemoteWeights:
    """How weights are loaded and gradients stored.

    Attributes:
        in_switch: Whether switches of the memory gather weights and reduce gradients.
        prefetch: Layers whose weights are loaded while the one before them runs.
        states: Whether the NPUs load, update and store the states of the optimizer, too.
    """

    in_switch: bool = False
    prefetch: int = 1
    states: bool = False


def remote_weights_trace(model: Model, plan: Plan, how: RemoteWeights) -> Trace:
    """Return a step of one microbatch on every rank.

    Args:
        model: The model.
        plan: Without pipeline stages; its keys on the reduction of gradients have no effect.
        how: How weights and gradients move.

    Raises:
        InputError: the plan is impossible for the model.
    """
    rank = Rank("every rank", rank_grid(plan))
    graph = _Step(rank, plan, how).graph(layers_of(model, plan))
    return Trace((graph,), np.zeros(plan.ranks, np.int32), rank.grid)


@dataclass
class _Step:
    rank: Rank
    plan: Plan
    how: RemoteWeights
    pieces: Pieces = field(default_factory=Pieces)
    kernels: list[Nodes] = field(default_factory=list)
    """The last kernel of every layer that has been placed."""

    def graph(self, layers: Sequence[Layer]) -> Graph:
        """Place all layers forward, then backward."""
        now: Nodes = ()
        for kind, order in (("F", layers), ("BW", list(reversed(layers)))):
            for layer in order:
                loaded = self._load(layer)
                made = self.pieces.of(layer, kind)
                base = self.rank.piece(made, now, loaded)
                now = [base + node for node in made.last] or now
                self.kernels.append(self.rank.chain)
                if kind == "BW":
                    self._store(layer, [base + node for node in made.ends] or now)
        return self.rank.graph()

    def _load(self, layer: Layer) -> Nodes:
        """Load the weights of the next layer once the layer `prefetch` + 1 places before it has freed its own."""
        free = len(self.kernels) - 1 - self.how.prefetch
        after = self.kernels[free] if free >= 0 else ()
        found = []
        for axis_set, count in layer.held.items():
            members, size = self.rank.members(axis_set), count * weight(self.plan)
            if members > 1 and self.how.in_switch:
                found.append(self.rank.memory("load weights", True, size, after, axis_set))
            elif members > 1:
                # The last part is padded, as a collective has equal ones.
                part = -(-size // members)
                own = self.rank.memory("load weights", True, part, after)
                kind = CollectiveType.ALL_GATHER
                found.append(self.rank.collective("gather weights", kind, axis_set, part, [own]))
            elif size:
                found.append(self.rank.memory("load weights", True, size, after))
        return found

    def _store(self, layer: Layer, after: Nodes) -> None:
        for axis_set, count in layer.parameters.items():
            members, size = self.rank.members(axis_set), count * gradient(self.plan)
            if not size:
                continue
            part = -(-size // members)
            if members > 1 and self.how.in_switch:
                done = self.rank.memory("store gradients", False, size, after, axis_set)
            elif members > 1:
                kind = CollectiveType.REDUCE_SCATTER
                reduced = self.rank.collective("reduce gradients", kind, axis_set, part * members, after)
                done = self.rank.memory("store gradients", False, part, [reduced])
            else:
                done = self.rank.memory("store gradients", False, size, after)
            if self.how.states:
                states = -(-count // members) * state(self.plan)
                loaded = self.rank.memory("load states", True, states, [done])
                chain = self.rank.chain
                updated = self.rank.kernel("update", 2 * states, [loaded])
                self.rank.chain = chain  # other layers need not wait for it
                self.rank.memory("store states", False, states, [updated])
