"""Blocks of a step: all that one part of a microbatch did, in words that hold for the same part of another one.

Numbers of storages, events and calls differ between two microbatches that do the same. A block names them by who made
them: itself, or another part of its own microbatch, or of one so many before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import Any, NamedTuple

from armillary.capture.flows import Flow
from armillary.capture.log import HOST, JOIN, RECORD, WAIT, Row
from armillary.capture.memory import Change
from armillary.capture.recorder import Recorder

FIRST_EVENT = 1 << 40
"""Events that are recorded again have numbers from here on; PyTorch counts its own from 1."""
_events = count(FIRST_EVENT)
Name = Any
"""(stage, microbatches before this one, phase, which) of what a part has made, with 0 microbatches before for the
first one as `FIRST`; ("input", phase, which) of what it was given; or its number."""
FIRST = -1
"""Of the first microbatch, whose gradients all others add to, in place of how many it is before them."""


PHASES = ("forward", "loss", "full", "input", "weight")
"""Of a microbatch: the last three are backward passes."""


class UnlikeError(Exception):
    """A block cannot be said in words that hold for another one, or names what this one has not."""


@dataclass
class Part:
    """What one phase of a microbatch made.

    Attributes:
        stage: Number of the stage.
        microbatch: Its number.
        phase: One of `PHASES`.
        first: Number of its first storage.
        region: Number of its first call of a compiled part.
        end: Number after its last storage.
        last_region: Number of its last call of a compiled part.
        events: That it recorded, in order.
        inputs: Numbers of the storages that it was given.
        received: Numbers of the communications that write these; -1: none does.
    """

    stage: int
    microbatch: int
    phase: str
    first: int
    region: int
    inputs: list[int]
    received: list[int]
    end: int = 0
    last_region: int = 0
    events: list[int] = field(default_factory=list)


class Result(NamedTuple):
    """A tensor that a block returns.

    Attributes:
        storage: Which of those that the block made.
        shape: Elements of each dimension.
        stride: Of each dimension.
        dtype: Its type.
        needs_gradient: Whether it does.
    """

    storage: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any
    needs_gradient: bool


@dataclass(frozen=True)
class Block:
    """What a part did; two that are equal did the same.

    Attributes:
        rows: And what each is of; events are named.
        flows: With names of storages, counted from its first row.
        changes: Of memory: name, bytes, stream.
        made: Where its storages were made.
        results: What it returned: a `Result` for a tensor.
        shape: Of the tuples, lists and mappings that these are in, as PyTorch's pytree has it.
        calls: Operators that were called after its last row.
        regions: Calls of compiled parts.
        host_bytes: That it copied between host and device.
        assumed: Reads of unknown values, by place.
    """

    rows: tuple[tuple[Row, Any], ...]
    flows: tuple[Any, ...]
    changes: tuple[tuple[Name, int, int], ...]
    made: tuple[str, ...]
    results: tuple[Any, ...]
    shape: Any
    calls: int
    regions: int
    host_bytes: int
    assumed: tuple[tuple[str, int], ...]


class Blocks:
    """The parts of this step, which blocks name, and blocks that are read from a recorder and written to it."""

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self._torch, self._recorder = torch, recorder
        self._tree: Any = torch.utils._pytree
        self._parts: dict[tuple[int, int, str], Part] = {}
        # Of storages: parts in the order of their numbers. Of events: by number.
        self._order: list[Part] = []
        self._of_event: dict[int, tuple[Part, int]] = {}

    def forget(self, stage: int) -> None:
        """Forget the parts of a stage: its microbatches are counted anew."""
        self._parts = {key: part for key, part in self._parts.items() if part.stage != stage}
        self._order = [part for part in self._order if part.stage != stage]
        self._of_event = {key: found for key, found in self._of_event.items() if found[0].stage != stage}

    def begin(self, stage: int, microbatch: int, phase: str, inputs: Any) -> Part:
        """Return a part that begins now, of these tensors."""
        recorder, memory = self._recorder, self._recorder.memory
        given = [each for each in self._tree.tree_leaves(inputs) if self._is_fake(each)]
        return Part(
            stage, microbatch, phase, memory.count + 1, recorder.where.regions + 1,
            [memory.number(each) for each in given], [recorder.written_by(each) for each in given],
        )  # fmt: skip

    def read(self, part: Part, run: Callable[[], Any]) -> tuple[Any, Block | None]:
        """Run a part; return what it returns, and what it did, if that can be said for another one, too."""
        recorder = self._recorder
        log, memory = recorder.log, recorder.memory
        rows, calls, flows, mark = len(log.rows), len(log.communications), len(recorder.flows), memory.mark()
        before, bytes_before, assumed = recorder.calls, log.host_bytes, Counter(recorder.values.assumed)
        out = run()
        part.end, part.last_region = memory.count + 1, recorder.where.regions
        self._keep(part)
        try:
            leaves, shape = self._tree.tree_flatten(out)
            issued = []
            for row, what in recorder.issued(rows, calls):
                if row.kind == RECORD:
                    self._record(part, what)
                named = (
                    self._join(part, what, calls) if row.kind == JOIN else self._event(part, row.kind, what)
                )
                issued.append((row._replace(calls=row.calls - before), named))
                before = 0
            block = Block(
                tuple(issued),
                tuple(self._flow(part, each, rows, mark) for each in recorder.flows[flows:]),
                _settled([(self._storage(part, number), *rest) for number, *rest in memory.since(mark)]),
                tuple(memory.made(part.first)),
                tuple(map(self._result(part), leaves)),
                shape,
                recorder.calls - before,
                recorder.where.regions - part.region + 1,
                log.host_bytes - bytes_before,
                tuple(sorted((recorder.values.assumed - assumed).items())),
            )
        except UnlikeError:
            return out, None
        return out, block

    def write(self, part: Part, block: Block) -> Any:
        """Record a block once more, as a part that begins now; return what it returns.

        Raises:
            UnlikeError: it names what this microbatch does not have.
        """
        recorder = self._recorder
        log, memory = recorder.log, recorder.memory
        part.end = part.first + len(block.made)
        part.last_region = part.region + block.regions - 1
        self._keep(part)
        rows = [(row, self._number_of_row(part, row.kind, what)) for row, what in block.rows]
        # Each storage has several changes.
        numbers = {name: self._number(part, name) for name in {name for name, *_ in block.changes}}
        changes: list[Change] = [(numbers[name], size, stream) for name, size, stream in block.changes]
        first, mark = len(log.rows), memory.mark()
        for region, reads, writes, flow in block.flows:
            recorder.flows.append(
                flow._replace(
                    row=flow.row + first,
                    region=self._number_of_region(part, region),
                    reads=self._numbers(part, reads),
                    writes=self._numbers(part, writes),
                    mark=flow.mark + mark,
                )
            )
        recorder.where.skip(block.regions)
        recorder.issue(rows)
        recorder.calls += block.calls
        memory.follow(changes, block.made)
        log.host_bytes += block.host_bytes
        recorder.values.assumed.update(dict(block.assumed))
        return self._tree.tree_unflatten([self._made(part, each) for each in block.results], block.shape)

    def _made(self, part: Part, result: Any) -> Any:
        if not isinstance(result, Result):
            return result
        torch, recorder = self._torch, self._recorder
        recorder.paused = True
        try:
            made = torch.empty_strided(
                result.shape, result.stride, dtype=result.dtype,
                device=torch.device("cuda", torch.accelerator.current_device_index()),
            )  # fmt: skip
        finally:
            recorder.paused = False
        if not recorder.memory.adopt(made, part.first + result.storage):
            raise UnlikeError
        return made.requires_grad_(result.needs_gradient)

    def _keep(self, part: Part) -> None:
        self._parts[part.stage, part.microbatch, part.phase] = part
        self._order.append(part)

    def _is_fake(self, value: Any) -> bool:
        return type(value) is self._recorder.values.fake

    def _relative(self, part: Part, other: Part, which: int) -> Name:
        before = part.microbatch - other.microbatch
        return other.stage, before if other.microbatch or not before else FIRST, other.phase, which

    def _absolute(self, part: Part, name: Name) -> tuple[Part, int]:
        stage, before, phase, which = name
        found = self._parts.get((stage, 0 if before == FIRST else part.microbatch - before, phase))
        if found is None:
            raise UnlikeError
        return found, which

    def _storage(self, part: Part, number: int) -> Name:
        for phase in PHASES:
            given = self._parts.get((part.stage, part.microbatch, phase))
            if given is not None and number in given.inputs:
                return "input", phase, given.inputs.index(number)
        at = bisect_right(self._order, number, key=lambda each: each.first) - 1
        other = self._order[at] if at >= 0 else None
        if other is None or number >= other.end:
            return number
        return self._relative(part, other, number - other.first)

    def _number(self, part: Part, name: Name) -> int:
        if not isinstance(name, tuple):
            return int(name)
        if name[0] == "input":
            given = self._parts.get((part.stage, part.microbatch, name[1]))
            if given is None or name[2] >= len(given.inputs):
                raise UnlikeError
            return given.inputs[name[2]]
        other, which = self._absolute(part, name)
        return other.first + which

    def _numbers(self, part: Part, names: tuple[tuple[Name, int], ...]) -> Mapping[int, int]:
        return {self._number(part, name): size for name, size in names}

    def _event(self, part: Part, kind: int, what: Any) -> Any:
        if kind not in (RECORD, WAIT) and not (kind == HOST and what):
            return what
        found = self._of_event.get(what)
        return self._relative(part, *found) if found else what

    def _join(self, part: Part, what: int, calls: int) -> Any:
        if what >= 0:
            return what
        if what + calls not in part.received:
            raise UnlikeError
        return "input", part.received.index(what + calls)

    def _number_of_row(self, part: Part, kind: int, name: Any) -> Any:
        if kind == JOIN and isinstance(name, tuple):
            if part.received[name[1]] < 0:
                raise UnlikeError
            return part.received[name[1]] - len(self._recorder.log.communications)
        if not isinstance(name, tuple) or kind not in (RECORD, WAIT, HOST):
            return name
        other, which = self._absolute(part, name)
        if kind == RECORD:
            number = next(_events)
            self._record(part, number)
            return number
        if which >= len(other.events):
            raise UnlikeError
        return other.events[which]

    def _record(self, part: Part, event: int) -> None:
        part.events.append(event)
        self._of_event[event] = part, len(part.events) - 1

    def _flow(self, part: Part, flow: Flow, rows: int, mark: int) -> Any:
        region: Any = 0
        if number := abs(flow.region):
            made = next(
                (each for each in reversed(self._order) if each.region <= number <= each.last_region), None
            )
            if made is None:
                raise UnlikeError
            region = self._relative(part, made, number - made.region), flow.region > 0
        sides = (
            tuple((self._storage(part, number), size) for number, size in side.items())
            for side in (flow.reads, flow.writes)
        )
        return (
            region,
            *sides,
            flow._replace(row=flow.row - rows, region=0, reads={}, writes={}, mark=flow.mark - mark),
        )

    def _number_of_region(self, part: Part, name: Any) -> int:
        if not name:
            return 0
        made, which = self._absolute(part, name[0])
        return (made.region + which) * (1 if name[1] else -1)

    def _result(self, part: Part) -> Callable[[Any], Any]:
        values, memory = self._recorder.values, self._recorder.memory

        def of(value: Any) -> Any:
            if not isinstance(value, self._torch.Tensor):
                if value is None or isinstance(value, int | float | str | bool):
                    return value
                raise UnlikeError
            number = memory.number(value) if self._is_fake(value) else 0
            if not part.first <= number < part.end or value in values.known or value.storage_offset():
                raise UnlikeError
            return Result(
                number - part.first,
                tuple(value.shape),
                tuple(value.stride()),
                value.dtype,
                value.requires_grad,
            )

        return of


def _settled(changes: list[Any]) -> tuple[Any, ...]:
    """Return changes with those storages in an order of their own that end together: PyTorch has none."""
    found: list[Any] = []
    for ends, group in groupby(changes, key=lambda each: not each[1]):
        together = list(group)
        found += sorted(together, key=str) if ends else together
    return tuple(found)
