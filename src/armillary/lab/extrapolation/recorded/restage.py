"""Stages of a recorded pipeline in another number: layers are left out of the recorded ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass

from armillary.base.errors import InputError
from armillary.lab.extrapolation.recorded.layers import (
    BEFORE,
    Layers,
    layers_of,
    patterns,
    repetition,
)
from armillary.lab.extrapolation.recorded.microbatches import DIVIDES
from armillary.lab.extrapolation.recorded.stages import Kind, Piece, RecordedStage, signature
from armillary.lab.extrapolation.recorded.tensors import program_of
from armillary.lab.extrapolation.recorded.written import Source
from armillary.trace import Graph
from armillary.workload.layers.shard import near
from armillary.workload.pipeline.partition import even

Note = Callable[[str, int], None]
Part = tuple[Source, Piece, frozenset[int]]
"""A recorded stage, a piece of it, and the numbers of the units in it that are left out."""
AHEAD: tuple[Kind, ...] = ("SF", "RB")
"""Messages to and from the next stage."""


@dataclass(frozen=True)
class NewStage:
    """The recorded stages and layers that a new stage is composed of.

    Attributes:
        source: The recorded stage whose layers it has.
        layers: Of that.
        kept: Which of them it has, and `BEFORE` and the number of layers for what is around them.
        front: The recorded stage of which it has what is before its layers, where that is another.
        front_layers: Of that.
    """

    source: Source
    layers: Layers | None = None
    kept: frozenset[int] = frozenset()
    front: Source | None = None
    front_layers: Layers | None = None

    def parts(self, kind: Kind, microbatch: int) -> list[Part]:
        """Return the parts of a piece in order; with kind "", microbatch 0 means before all microbatches, 1 after."""
        own = self.source
        if self.front is None or self.front_layers is None:
            piece = own.stage.of(kind, microbatch)
            return [(own, piece, self._left_out(self.layers, piece, self.kept))]
        # Messages ahead are like those of the stage that gives the layers (it has a next one), messages
        # behind like those of `front`.
        if len(kind) > 1:
            source = own if kind in AHEAD else self.front
            return [(source, source.stage.of(kind, microbatch), frozenset())]
        front = self.front.stage.of(kind, microbatch)
        piece = own.stage.of(kind, microbatch)
        if not kind:
            return [self._once(self.front, microbatch)]
        # Forward begins with what is before the layers, the receiving side; backward ends with it.
        mine = (own, piece, self._left_out(self.layers, piece, self.kept))
        theirs = (self.front, front, self._left_out(self.front_layers, front, {BEFORE}))
        return [theirs, mine] if kind == "F" else [mine, theirs]

    @staticmethod
    def _left_out(layers: Layers | None, piece: Piece, kept: Collection[int]) -> frozenset[int]:
        if layers is None or (piece.kind, piece.microbatch) not in layers.of:
            return frozenset()
        own = layers.of[piece.kind, piece.microbatch]
        return frozenset(number for number, layer in enumerate(own) if layer not in kept)

    def _once(self, front: Source, after: int) -> Part:
        """Return the work before or after all microbatches: that of the layers, and what both ends share."""
        pieces = [source.stage.of("", after) for source in (self.source, front)]
        graphs = [source.stage.nodes.graph for source in (self.source, front)]
        shared = {signature(graphs[1], unit) for unit in pieces[1].units}
        left_out = set(self._left_out(self.layers, pieces[0], self.kept))
        own = self.layers.of["", after] if self.layers is not None else ()
        for number, (unit, layer) in enumerate(zip(pieces[0].units, own, strict=True)):
            around = self.layers is not None and layer == self.layers.count and unit.call
            name = graphs[0].name(unit.nodes[0])
            if around and (signature(graphs[0], unit) not in shared or (not after and name in DIVIDES)):
                left_out.add(number)
        return self.source, pieces[0], frozenset(left_out)


def restaged(sources: list[Source], count: int, note: Note) -> tuple[list[NewStage], list[list[int]]]:
    """Return the composition of each of `count` stages, and per old stage the nodes whose work no rule classifies.

    Raises:
        InputError: layers are not seen, or not as many as that; names the graph.
    """
    stages = [source.stage for source in sources]
    if count < len(stages):
        raise InputError(
            f"got {count}, fewer than the {len(stages)} stages that were recorded, to which layers would be added; "
            f"expected {len(stages)} or more"
        )
    for stage in stages:
        if stage.nodes.over("dp").any():
            raise InputError(
                f"{stage.nodes.graph.source} reduces gradients over replicas, in buckets that depend on the layers of "
                "a stage; expected a recording without replicas, to which scaling dp and pp adds them"
            )
    layers = _layers(stages)
    total = sum(each.count for each in layers)
    if count > total:
        raise InputError(
            f"got {count}, but the model has {total} layers; expected at most as many (nearest: {total})"
        )
    _check_messages(stages)
    counts = even(total, count)
    found = []
    for at, wanted in enumerate(counts):
        # The recorded stage that this one resembles: first, last, or one between, of which the last may serve
        # several times.
        number = 0 if at == 0 else len(stages) - 1 if at == count - 1 else min(at, len(stages) - 2)
        own = layers[number]
        if wanted > own.count:
            raise InputError(
                f"got {count}, for which stage {at} would have {wanted} of {total} layers, more than stage {number} of "
                f"the recording has; expected a divisor of {total} (nearest: "
                f"{near(count, [each for each in range(len(stages), total + 1) if total % each == 0])})"
            )
        # The last layer stays the last: its output is what is sent on, or given to the head.
        kept = frozenset((*range(wanted - 1), own.count - 1, own.count))
        # A recording of 2 stages has none between: one is put together from the layers of the first and the
        # front of the last.
        if 0 < number < len(stages) - 1 or at in (0, count - 1):
            found.append(NewStage(sources[number], own, kept | {BEFORE}))
        else:
            found.append(NewStage(sources[0], own, kept, sources[-1], layers[-1]))
    if total % count:
        note("pp: layers are divided evenly over the stages, with the smaller numbers at both ends", 0)
    note(
        f"pp: layers are what repeats in a forward pass ({total}), all alike; other work stays at both ends",
        0,
    )
    if any(each.front for each in found):
        note("pp: stages between the ends do before and after the microbatches what both of these do", 0)
    return found, [list(each.unseen) for each in layers]


def _layers(stages: list[RecordedStage]) -> list[Layers]:
    """Return the layers of all stages, which are alike.

    Raises:
        InputError: they are not.
    """
    repeats = [repetition(stage) for stage in stages]
    known = [patterns(stage, each) for stage, each in zip(stages, repeats, strict=True)]
    shared = [pattern for pattern in known[0] if all(pattern in each for each in known)]
    if not shared:
        other = next(at for at, each in enumerate(known) if not known[0].keys() & each.keys())
        raise InputError(
            f"{stages[other].nodes.graph.source}: the {repeats[other].count} layers of stage {other} are not like the "
            f"{repeats[0].count} of stage 0; expected layers that are alike"
        )
    # Layers may be cut at several places; the earliest that all stages share leaves least before them.
    pattern = min(shared, key=lambda each: sum(own[each] for own in known))
    found = [
        layers_of(stage, program_of(stage.nodes.graph), own[pattern], each.period, each.count)
        for stage, each, own in zip(stages, repeats, known, strict=True)
    ]
    for stage, each in zip(stages, found, strict=True):
        _check_around(stage, each, stage.stage > 0, stage.stage < len(stages) - 1)
    return found


def _check_around(stage: RecordedStage, layers: Layers, before: bool, after: bool) -> None:
    """Check that a stage does nothing before its layers, or after them, that has work and is of none.

    Raises:
        InputError: it does; names the node.
    """
    graph = stage.nodes.graph
    for unit, layer in zip(stage.of("F", 0).units, layers.of["F", 0], strict=True):
        around = (before and layer == BEFORE) or (after and layer == layers.count)
        if around and signature(graph, unit)[1]:
            raise InputError(
                f"{graph.node(unit.nodes[0])} of stage {stage.stage} is of none of its {layers.count} layers that "
                "repeat; expected layers that are alike, and other work on the first stage before them and on the last "
                "after them"
            )


def _check_messages(stages: list[RecordedStage]) -> None:
    """Check that all stages hand on as much.

    Raises:
        InputError: they do not.
    """
    sizes: Counter[int] = Counter()
    for stage in stages:
        graph: Graph = stage.nodes.graph
        sizes.update(graph.ints("comm_size")[stage.nodes.along("pp")].tolist())
    if len(sizes) > 1:
        raise InputError(f"stages hand on messages of {sorted(sizes)} bytes; expected the same everywhere")
