"""Assigns each call of a recorded stage to a layer.

Whatever repeats in the forward pass of a microbatch is a layer. Tensors decide the rest: a layer owns what it made or
read first; a function of the backward pass belongs to the latest layer whose tensors it reads; a gradient belongs to
the layer whose backward pass made it; the optimizer's calls follow from these gradients and from the weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from armillary.base.errors import InputError
from armillary.lab.extrapolation.recorded.calls import Call, Tensor, flat
from armillary.lab.extrapolation.recorded.stages import (
    BACKWARD,
    Kind,
    Piece,
    RecordedStage,
    Unit,
    signature,
)
from armillary.lab.extrapolation.recorded.tensors import Program

ACCUMULATES = BACKWARD + "torch::autograd::AccumulateGrad"
BEFORE = -1
"""Stands for a layer in the work before the first one, such as an embedding, and in work on the stage's input."""
Pattern = tuple[tuple[str, int], ...]
"""The calls of a layer's forward pass: name and operations of each."""


@dataclass(frozen=True)
class Repetition:
    """Where layers may begin in the forward pass of a microbatch.

    Attributes:
        starts: Numbers of calls at which the first may begin, least first.
        period: Calls of a layer.
        count: Layers.
    """

    starts: range
    period: int
    count: int


@dataclass(frozen=True)
class Layers:
    """Layers of a stage.

    Attributes:
        count: How many it has.
        of: Kind and microbatch of a piece -> for each of its units its layer, `BEFORE`, or the count: after the last.
        unseen: Positions of nodes with work after the microbatches that no tensor says what they belong to.
    """

    count: int
    of: Mapping[tuple[Kind, int], tuple[int, ...]]
    unseen: tuple[int, ...]


def repetition(stage: RecordedStage) -> Repetition:
    """Return the longest repetition in the forward pass of the first microbatch.

    Raises:
        InputError: nothing does.
    """
    calls = _calls(stage, stage.of("F", 0))
    numbers = {each: at for at, each in enumerate(dict.fromkeys(calls))}
    codes = np.array([numbers[each] for each in calls], np.int64)
    best, found = 0, None
    for period in range(1, len(codes) // 2 + 1):
        # Runs of positions that equal the one a period later: a run of length r is r // period + 1
        # repetitions.
        equal = np.concatenate([[False], codes[period:] == codes[:-period], [False]]).astype(np.int8)
        begins, ends = np.flatnonzero(np.diff(equal) == 1), np.flatnonzero(np.diff(equal) == -1)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            count = (end - begin) // period + 1
            if count > 1 and count * period > best:
                best = count * period
                # A run longer than whole periods may be cut at several places: all are kept, and stages agree
                # on one later.
                found = Repetition(range(begin, end + period - best + 1), period, count)
    if found is None:
        raise InputError(
            f"{stage.nodes.graph.source}: no part of the forward pass of stage {stage.stage} repeats, so layers are "
            "not seen; expected 2 or more alike on each stage"
        )
    return found


def patterns(stage: RecordedStage, repeats: Repetition) -> dict[Pattern, int]:
    """Return the candidates for the calls of a layer, and for each the call at which the first layer begins."""
    calls = _calls(stage, stage.of("F", 0))
    return {tuple(calls[at : at + repeats.period]): at for at in reversed(repeats.starts)}


def _calls(stage: RecordedStage, piece: Piece) -> list[tuple[str, int]]:
    return [signature(stage.nodes.graph, unit) for unit in piece.units if unit.call]


def layers_of(stage: RecordedStage, program: Program, start: int, period: int, count: int) -> Layers:
    """Return which layer each unit of a stage is of.

    Args:
        stage: In pieces.
        program: What its graph does to tensors.
        start: Number of the call at which the first layer begins in the forward pass.
        period: Calls of a layer.
        count: Layers.

    Raises:
        InputError: the backward pass or the optimizer is not seen to be of layers that are alike; names the node.
    """
    return _Finder(stage, program, start, period, count).layers()


class _Finder:
    def __init__(self, stage: RecordedStage, program: Program, start: int, period: int, count: int) -> None:
        self.stage, self.program = stage, program
        self.start, self.period, self.count = start, period, count
        self.forward: dict[int, int] = {}
        self.weights: dict[int, int] = {}
        self.made: dict[int, int] = {}
        self.gradients: dict[int, int] = {}
        self.derived: dict[int, int] = {}
        self.scopes = set(program.above.tolist())
        # Memory that the step reads after its microbatches: gradients are among these, temporary sums are
        # not.
        self.after = {
            tensor.memory
            for unit in stage.pieces[-1].units
            for tensor in _read(self._calls(unit))
            if not tensor.integer
        }

    def layers(self) -> Layers:
        """Return the layers."""
        found: dict[tuple[Kind, int], tuple[int, ...]] = {}
        kinds: tuple[Kind, ...] = ("F", "B")
        for kind in kinds:
            for microbatch in range(self.stage.microbatches):
                piece = self.stage.of(kind, microbatch)
                own = self._forward(piece) if kind == "F" else self._backward(piece)
                found[piece.kind, microbatch] = tuple(own)
                if kind == "B":
                    self._check_alike(piece, own)
        unseen: list[int] = []
        # After the backward passes, when it is known whose gradients are whose, and before the optimizer's
        # calls are assigned.
        self._learn_states()
        for number, piece in ((0, self.stage.pieces[0]), (1, self.stage.pieces[-1])):
            at = [None if self._is_scope(unit) else self._of_update(unit) for unit in piece.units]
            if number == 0:
                found["", 0] = tuple(self.count if each is None else each for each in at)
            else:
                found["", 1] = tuple(self._after(piece, at, unseen))
            self._check_alike(piece, found["", number])
        return Layers(self.count, found, tuple(unseen))

    def _calls(self, unit: Unit) -> list[Call]:
        return [self.program.calls[node] for node in unit.nodes if node in self.program.calls]

    def _works(self, node: int) -> bool:
        graph = self.stage.nodes.graph
        return bool(graph.ints("num_ops")[node] > 1 or graph.ints("tensor_size")[node] > 0)

    def _forward(self, piece: Piece) -> list[int]:
        """Return layers of a forward pass, and note whose tensors are whose."""
        numbers = iter(range(len(piece.units)))
        at: list[int | None] = []
        for unit in piece.units:
            # Only calls are counted: the host's own work between them may differ between microbatches.
            number = next(numbers) if unit.call else None
            at.append(
                None if number is None else min(max((number - self.start) // self.period, BEFORE), self.count)
            )
        found = self._filled(piece, at, self.count)
        for unit, layer in zip(piece.units, found, strict=True):
            self.forward |= dict.fromkeys(unit.nodes, layer)
            for tensor in _read(self._calls(unit)):
                if tensor.at < 0 and self.weights.setdefault(tensor.memory, layer) != layer:
                    self.weights[tensor.memory] = BEFORE  # of several layers: it stays
        return found

    def _layer(self, tensor: Tensor) -> int | None:
        """Return the layer that made a tensor in a forward pass, or whose weight it is."""
        return self.weights.get(tensor.memory) if tensor.at < 0 else self.forward.get(tensor.at)

    def _latest(self, unit: Unit) -> int | None:
        found = [layer for tensor in _read(self._calls(unit)) if (layer := self._layer(tensor)) is not None]
        return max(found, default=None)

    def _backward(self, piece: Piece) -> list[int]:
        graph = self.stage.nodes.graph
        accumulates = [graph.name(unit.nodes[0]) == ACCUMULATES for unit in piece.units]
        at = [
            None if leaf else self._latest(unit) for unit, leaf in zip(piece.units, accumulates, strict=True)
        ]
        found = self._filled(piece, at, BEFORE)
        lowest = self.count
        for number, (unit, leaf) in enumerate(zip(piece.units, accumulates, strict=True)):
            if leaf:
                found[number] = self._accumulated([t.memory for t in _read(self._calls(unit))])
                continue
            back = graph.name(unit.nodes[0]).startswith(BACKWARD)
            # Backward visits layers from last to first; a step back up means that a layer was taken for
            # another.
            if back and found[number] > lowest:
                raise InputError(
                    f"{graph.node(unit.nodes[0])} goes back to layer {found[number]} after layer {lowest}; expected "
                    "layers one after the other"
                )
            lowest = found[number] if back else lowest
            for tensor in _made(self._calls(unit)):
                self.made[tensor.memory] = found[number]
        return found

    def _accumulated(self, reads: Sequence[int]) -> int:
        """Return the layer whose weight's gradient something is added to; `BEFORE` where it is of no weight."""
        kept = [each for each in reads if each in self.after]
        layer = max((self.made[each] for each in reads if each in self.made), default=BEFORE)
        for each in kept:
            self.gradients.setdefault(each, layer)
        return max((self.gradients[each] for each in kept), default=BEFORE)

    def _learn_states(self) -> None:
        """Learn what an optimizer keeps of each weight: what it works on together with its gradient."""
        for call in (call for unit in self.stage.pieces[-1].units for call in self._calls(unit)):
            own = self._owners([call])
            for tensor in _read([call]) if len(own) == 1 else ():
                if tensor.at < 0 and tensor.memory not in self.weights:
                    self.gradients.setdefault(tensor.memory, min(own))

    def _owners(self, calls: Sequence[Call]) -> set[int]:
        """Return the layers whose gradients, states and weights some calls read."""
        tensors = list(_read(calls))
        own = {self.gradients[each.memory] for each in tensors if each.memory in self.gradients}
        return own | {
            self.weights[each.memory] for each in tensors if each.at < 0 and each.memory in self.weights
        }

    def _of_update(self, unit: Unit) -> int | None:
        """Return the layer whose weights, gradients, states or results a unit reads.

        Raises:
            InputError: they are of several layers.
        """
        calls = self._calls(unit)
        own = self._owners(calls)
        # Results of single gradients, such as their norms, lead to their layer.
        if not own:  # what is made of all, such as a norm of all gradients, is of none
            own = {self.derived[each.memory] for each in _read(calls) if each.memory in self.derived}
            if len(own) != 1:
                return None if own else self._latest(unit)
        if len([layer for layer in own if 0 <= layer < self.count]) > 1:
            raise InputError(
                f"{self.stage.nodes.graph.node(unit.nodes[0])} works on tensors of several layers at once, which are "
                "not told apart; expected an optimizer that takes them one by one (fused=False)"
            )
        layer = max(own)
        for tensor in _made(self._calls(unit)):
            if tensor.memory not in self.gradients:
                self.derived[tensor.memory] = layer
        return layer

    def _after(self, piece: Piece, at: Sequence[int | None], unseen: list[int]) -> list[int]:
        """Return layers of the units after the microbatches; add nodes with work of no known layer to `unseen`.

        A unit on scalars only, such as the step counter, takes the layer of the next one; one such as the
        factor by which gradients are clipped belongs to the work on all layers.
        """
        found: list[int | None] = list(at)
        common = False
        for number, unit in enumerate(piece.units):
            if found[number] is not None or self._is_scope(unit):
                common = False
            elif any(True for _ in _read(self._calls(unit))):
                common = True
                unseen += [node for node in unit.nodes if self._works(node)]
            if common:
                found[number] = self.count
        return self._filled(piece, found, self.count)

    def _is_scope(self, unit: Unit) -> bool:
        return not unit.call and unit.nodes[0] in self.scopes

    def _filled(self, piece: Piece, at: Sequence[int | None], last: int) -> list[int]:
        """Return `at` with gaps filled by the layer of the next call; scopes belong to no layer and get `last`."""
        found: list[int] = []
        # Backwards, so that each takes the layer of the next call that has one.
        following = last
        for layer in reversed(at):
            following = following if layer is None else layer
            found.append(following)
        found.reverse()
        return [last if self._is_scope(unit) else each for unit, each in zip(piece.units, found, strict=True)]

    def _check_alike(self, piece: Piece, own: Sequence[int]) -> None:
        """Check that all layers do the same in a piece.

        Raises:
            InputError: they do not.
        """
        graph = self.stage.nodes.graph
        work: list[Counter[tuple[str, int]]] = [Counter() for _ in range(self.count)]
        for unit, layer in zip(piece.units, own, strict=True):
            if unit.call and 0 <= layer < self.count and (each := signature(graph, unit))[1]:
                work[layer][each] += 1
        for layer, calls in enumerate(work):
            if calls != work[0]:
                name, operations = next(iter((calls - work[0]) or (work[0] - calls)))
                what = "backward" if piece.kind else "after the microbatches"
                raise InputError(
                    f"{graph.source}: layer {layer} of stage {self.stage.stage} does something else {what} than the "
                    f"first ({name} of {operations} operations); expected layers that are alike"
                )


def _read(calls: Iterable[Call]) -> Iterator[Tensor]:
    for call in calls:
        for argument in call.inputs:
            # Numbers that are recorded as tensors come to lie wherever others were.
            yield from (tensor for tensor in flat(argument) if tensor.dims)


def _made(calls: Iterable[Call]) -> Iterator[Tensor]:
    for call in calls:
        for argument in call.outputs:
            yield from flat(argument)
