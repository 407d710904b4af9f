"""Ranks of one stage with other loads: the same nodes in the same places, with other sizes.

Places along an axis differ in what their experts or tables have to do, which changes operations, bytes and splits of
kernels and collectives, and seldom what waits for what. Then the graph of one place gives those of all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from armillary.trace.templates import Template
from armillary.workload.emit.template import Piece
from armillary.workload.emit.training import Pieces
from armillary.workload.layers.layer import Layer
from armillary.workload.plan.schema import Plan


def same_placements(
    first: Sequence[Sequence[Layer]], other: Sequence[Sequence[Layer]], pieces: Pieces, plan: Plan
) -> dict[int, Template] | None:
    """Return the templates of the layers of one place, by the ``id`` of those of another; None if nodes differ.

    Args:
        first: Layers by virtual stage of a place whose stages are all placed.
        other: The same of another one.
        pieces: All pieces of the first; gets those of the other.
        plan: The run.
    """
    if list(map(len, first)) != list(map(len, other)):
        return None
    # One to one: a template that stood for two layers of one place cannot become two.
    there: dict[int, Layer] = {}
    back: dict[int, Layer] = {}
    for one, two in zip(chain(*first), chain(*other), strict=True):
        if there.setdefault(id(one), two) is not two or back.setdefault(id(two), one) is not one:
            return None
        if _placed_by(one, plan) != _placed_by(two, plan):
            return None
    found = {}
    for (layer, kind, lane), piece in list(pieces.made.items()):
        if layer in there:
            others = pieces.of(there[layer], kind, lane)
            if _shape(piece) != _shape(others):
                return None
            found[id(piece.template)] = others.template
    return found


def _placed_by(layer: Layer, plan: Plan) -> tuple[object, ...]:
    """Return all that a `Stage` reads of a layer besides its pieces."""
    return (
        list(layer.parameters.items()), list(layer.held.items()), layer.partial, layer.low, layer.boundary,
        layer.saved if plan.offload.activations else 0, sum(bool(step.scaling) for step in layer.forward),
    )  # fmt: skip


def _shape(piece: Piece) -> tuple[object, ...]:
    """Return all of a piece but the attributes of its nodes."""
    nodes = [(node.name, node.type, node.data_deps) for node in piece.template.nodes]
    ends = piece.last, piece.kernel, piece.ends, piece.host
    return nodes, piece.template.ports, *ends, list(piece.calls.items()), list(piece.late.items())
