"""Factors by which the quantities of a graph's nodes grow, with the rules that give them."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.convert.pytorch.arguments import Arguments
from armillary.lab.extrapolation.edit import with_durations, with_ints, with_lists, with_tensors
from armillary.lab.extrapolation.kernels import Mask, Nodes
from armillary.trace import Graph
from armillary.trace.attention import ATTENTION, Attention
from armillary.trace.gemm import GEMM, Gemm, to_numbers
from armillary.trace.graph import LIMIT, duration_ns

Floats = NDArray[np.float64]
OPERATIONS, SIZE, COMMUNICATED = "num_ops", "tensor_size", "comm_size"
QUANTITIES = (OPERATIONS, SIZE, COMMUNICATED)
INTENSE = 10
"""Operations per byte from which a recorded duration is taken to grow as the operations do."""


@dataclass
class Scaling:
    """Factors of the quantities of every node, 1 where no rule applies.

    Attributes:
        nodes: Nodes of the graph.
        factors: By attribute, (n_nodes,).
        duration: Factors of recorded durations where a rule measured them, (n_nodes,); NaN: they follow operations or
            bytes.
        gemms: New GEMMs, by node.
        shapes: Factors of the dimensions of fused attention, by node.
        tensors: Inputs and outputs of recorded operators with other shapes, by node.
        rules: What was assumed -> the nodes that it was applied to.
        followed: Whether the dimensions of tensors were followed, so that no other law gives operators their work.
        unclassified: In that case the nodes with work that no rule knows, which keep it.
    """

    nodes: Nodes
    factors: dict[str, Floats] = field(init=False)
    duration: Floats = field(init=False)
    gemms: dict[int, tuple[Gemm, ...]] = field(default_factory=dict)
    shapes: dict[int, dict[str, Fraction]] = field(default_factory=dict)
    tensors: dict[int, tuple[Arguments, Arguments]] = field(default_factory=dict)
    rules: dict[str, Mask] = field(default_factory=dict)
    followed: bool = False
    unclassified: Mask = field(init=False)

    def __post_init__(self) -> None:
        """Start with factors of 1."""
        n = self.nodes.graph.n_nodes
        self.factors = {name: np.ones(n) for name in QUANTITIES}
        self.duration = np.full(n, np.nan)
        self.unclassified = np.zeros(n, np.bool_)

    def assume(self, rule: str, nodes: Mask, **factors: Floats | Fraction | float) -> None:
        """Set the factors of some nodes (`ops`, `size`, `comm`), and note why."""
        for name, quantity in (("ops", OPERATIONS), ("size", SIZE), ("comm", COMMUNICATED)):
            if name in factors:
                given = factors[name]
                each = given if isinstance(given, np.ndarray) else np.full(len(nodes), float(given))
                self.factors[quantity] = np.where(nodes, each, self.factors[quantity])
        self.note(rule, nodes)

    def attend(self, nodes: Mask, **factors: Fraction) -> None:
        """Set the factors of some dimensions (fields of `Attention`) of those nodes that are fused attention."""
        for node in np.flatnonzero(nodes & self.nodes.graph.has(ATTENTION)).tolist():
            self.shapes[node] = factors

    def note(self, rule: str, nodes: Mask) -> None:
        """Note that a rule was applied to some nodes."""
        if nodes.any():
            self.rules[rule] = self.rules.get(rule, np.zeros(len(nodes), np.bool_)) | nodes

    def graph(self) -> Graph:
        """Return the scaled graph; numbers are rounded to integers, and to at least 1 where they were positive.

        Raises:
            InputError: a number gets too large.
        """
        graph = self.nodes.graph
        values = {}
        for name, factor in self.factors.items():
            if name in graph.attr_names and (factor != 1).any():
                old = graph.ints(name)
                # Nodes with a factor of 1 keep their exact integer: a float64 would round those above 2**53.
                new = np.where(factor != 1, np.maximum(np.rint(old * factor), np.minimum(old, 1)), old)
                if (new >= LIMIT).any():
                    at = int(np.argmax(new))
                    raise InputError(
                        f"{graph.node(at)}: {name} becomes {new[at]:.3g}, expected less than 2**60"
                    )
                # Kernels without GEMMs say 1 operation, which stays.
                values[name] = np.where((name == OPERATIONS) & (old <= 1), old, new.astype(np.int64))
        durations = duration_ns(graph)
        # Communication and kernels without quantities keep their recorded times unless a rule measured them.
        grown = np.rint(durations * self._of_durations())
        made = with_ints(graph, values) if values else graph
        if "comm_splits" in graph.attr_names and (self.factors[COMMUNICATED] != 1).any():
            made = with_lists(made, "comm_splits", _splits(graph, self.factors[COMMUNICATED]))
        if self.gemms:
            lists = [self.gemms.get(i) for i in range(graph.n_nodes)]
            made = with_lists(made, GEMM, [None if each is None else to_numbers(each) for each in lists])
        if self.shapes:
            made = with_lists(made, ATTENTION, self._attention())
        if self.tensors:
            made = with_tensors(made, self.tensors)
        return with_durations(made, grown.astype(np.int64)) if (grown != durations).any() else made

    def _attention(self) -> list[Attention | None]:
        codes, lists = self.nodes.graph.int_lists(ATTENTION)
        found: list[Attention | None] = [None] * len(codes)
        for node, factors in self.shapes.items():
            shape = Attention(*lists[codes[node]])
            values = {name: getattr(shape, name) * factor for name, factor in factors.items()}
            found[node] = shape._replace(
                # Rounded up: 3 heads on 2 ranks are 2 each, one of them padding.
                **{name: max(1, -(-each.numerator // each.denominator)) for name, each in values.items()}
            )
        return found

    def _of_durations(self) -> Floats:
        """Return factors of recorded durations, (n_nodes,): of operations for dense kernels, else of bytes."""
        graph = self.nodes.graph
        operations, size = graph.ints(OPERATIONS), graph.ints(SIZE)
        dense = operations > INTENSE * size
        follows = np.where(dense, self.factors[OPERATIONS], self.factors[SIZE])
        local = self.nodes.kernel & ((operations > 1) | (size > 0))
        found: Floats = np.where(np.isnan(self.duration), np.where(local, follows, 1.0), self.duration)
        return found


def _splits(graph: Graph, factor: Floats) -> list[list[int] | None]:
    """Return the scaled parts of uneven all-to-alls, bytes for each member; None where a node has none."""
    codes, lists = graph.int_lists("comm_splits")
    return [
        None if code < 0 or each == 1 else [round(part * each) for part in lists[code]]
        for code, each in zip(codes.tolist(), factor.tolist(), strict=True)
    ]
