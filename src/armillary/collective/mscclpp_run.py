"""Thread blocks of an MSCCL++ plan, run one operation at a time, and the proof that a plan computes what it says."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections import defaultdict
from typing import Generic, TypeVar

from armillary.base.counts import check_count
from armillary.base.errors import InputError, one_of
from armillary.collective.mscclpp_plan import (
    COLLECTIVES,
    MOST_OPS,
    MOVES,
    SIGNALS,
    SUMS,
    WAITS,
    ExecutionPlan,
    Op,
    Ref,
    Span,
)

Block = tuple[int, int]
Cell = tuple[int, str, int]
"""A chunk's part: GPU, buffer, number."""
Token = TypeVar("Token")
"""What a thread block knows to have happened, as it is handed on by signals, semaphores and barriers."""


def parts_of(plan: ExecutionPlan) -> int:
    """Return how many parts each chunk has, so that thread-block groups work on whole ones."""
    return math.lcm(*(op.part[1] for gpu in plan.blocks for block in gpu for op in block), 1)


class Runner(ABC, Generic[Token]):
    """Runs all thread blocks, each as far as it gets; what data does is its subclasses' matter.

    Args:
        plan: The plan.
        backwards: Later thread blocks go first: an order that a machine may take as well.
    """

    def __init__(self, plan: ExecutionPlan, *, backwards: bool = False) -> None:
        self.plan, self.backwards = plan, backwards
        self.parts = parts_of(plan)
        check_count(
            self.parts * sum(map(sum, plan.chunks)),
            MOST_OPS,
            f"{plan.document.name}: parts of chunks",
            "smaller groups",
        )
        self._signals: defaultdict[Ref, list[Token]] = defaultdict(list)
        self._semaphores: dict[tuple[int, int], list[Token | None]] = {
            (gpu, at): [None] * value
            for gpu, values in enumerate(plan.semaphores)
            for at, value in enumerate(values)
        }
        self._barriers: defaultdict[tuple[int, int], dict[Block, Token]] = defaultdict(dict)
        self._passed: dict[Block, list[Token]] = {}

    @abstractmethod
    def data(self, block: Block, op: Op) -> bool:
        """Move data; return False if a packet that it reads has not come yet."""

    @abstractmethod
    def leave(self, block: Block) -> Token:
        """Return what has happened in a thread block."""

    @abstractmethod
    def signal(self, block: Block, channel: Ref, op: Op) -> Token:
        """Return what its peer knows by a signal on a channel."""

    @abstractmethod
    def join(self, block: Block, known: list[Token]) -> None:
        """Let a thread block know what has happened elsewhere."""

    def flush(self, block: Block) -> None:
        """Wait for what a proxy moves."""

    def run(self) -> None:
        """Run to the end.

        Raises:
            InputError: Thread blocks wait for each other, or for what nobody sends.
        """
        plan = self.plan
        at = {(gpu, b): 0 for gpu in range(plan.n) for b in range(len(plan.blocks[gpu]))}
        order = sorted(at, reverse=self.backwards)
        going = True
        while going:
            going = False
            for block in order:
                ops = plan.blocks[block[0]][block[1]]
                while at[block] < len(ops) and self._one(block, ops[at[block]]):
                    at[block] += 1
                    going = True
        for block in sorted(at):
            ops = plan.blocks[block[0]][block[1]]
            if at[block] < len(ops):
                raise plan.error(
                    ops[at[block]],
                    f"never runs: thread block {block[1]} of gpu {block[0]} waits here for what never comes",
                )

    def _one(self, block: Block, op: Op) -> bool:
        """Run an operation if it can; return whether it has run."""
        gpu, name = block[0], op.name
        if name in MOVES or name in SUMS:
            if not self.data(block, op):
                return False
            if name in ("pws", "pwsf"):
                self._signal(block, op)
            if name == "pwsf":
                self.flush(block)
        elif name in SIGNALS:
            self._signal(block, op)
        elif name in WAITS:
            paired = [Ref(ref.peer, ref.gpu, ref.kind, ref.index) for ref in op.channels]
            if not all(len(self._signals[ref]) >= paired.count(ref) for ref in paired):
                return False
            self.join(block, [self._signals[ref].pop(0) for ref in paired])
        elif name == "flush":
            self.flush(block)
        elif name == "sem_release":
            for each in op.ids:
                self._semaphores[gpu, each].append(self.leave(block))
        elif name == "sem_acquire":
            if not all(len(self._semaphores[gpu, each]) >= op.ids.count(each) for each in op.ids):
                return False
            taken = [self._semaphores[gpu, each].pop(0) for each in op.ids]
            self.join(block, [token for token in taken if token is not None])
        elif name == "barrier":
            return self._barrier(block, op)
        return True

    def _signal(self, block: Block, op: Op) -> None:
        for channel in op.channels:
            self._signals[channel].append(self.signal(block, channel, op))

    def _barrier(self, block: Block, op: Op) -> bool:
        if block in self._passed:
            self.join(block, self._passed.pop(block))
            return True
        met = self._barriers[block[0], op.ids[0]]
        if block not in met:
            met[block] = self.leave(block)
        if len(met) < op.blocks:
            return False
        # All are there: the others find out when it is their turn.
        for other in met:
            if other != block:
                self._passed[other] = list(met.values())
        self.join(block, list(met.values()))
        del self._barriers[block[0], op.ids[0]]
        return True

    def cells(self, span: Span, op: Op) -> list[Cell]:
        """Return the parts of chunks that an operation works on."""
        each, (number, groups) = self.parts, op.part
        whole = span.count * each
        first = span.first * each + whole * number // groups
        last = span.first * each + whole * (number + 1) // groups
        return [self.cell(span.gpu, span.buffer, at) for at in range(first, last)]

    def cell(self, gpu: int, buffer: str, part: int) -> Cell:
        """Return where a part of a chunk really is: in place, input and output share memory."""
        plan = self.plan
        if plan.in_place and buffer in "io":
            inputs, outputs, _ = plan.chunks[gpu]
            # The shorter of both stands at its owner's place in the longer.
            short = "i" if inputs < outputs else "o" if outputs < inputs else ""
            if buffer == short:
                part += gpu * min(inputs, outputs) * self.parts
            buffer = "o"
        return gpu, buffer, part


class _Numbers(Runner[None]):
    def __init__(self, plan: ExecutionPlan, *, backwards: bool) -> None:
        super().__init__(plan, backwards=backwards)
        self.state: dict[Cell, int] = {}
        self.packets: set[Cell] = set()

    def leave(self, block: Block) -> None:
        return None

    def signal(self, block: Block, channel: Ref, op: Op) -> None:
        return None

    def join(self, block: Block, known: list[None]) -> None:
        return None

    def data(self, block: Block, op: Op) -> bool:
        reads = [self.cells(span, op) for span in op.sources]
        for span, cells in zip(op.sources, reads, strict=True):
            if span.packet and not self.packets.issuperset(cells):
                return False
        values = [[self._read(cell, op) for cell in cells] for cells in reads]
        if op.name in SUMS:
            values = [[sum(column) for column in zip(*values, strict=True)]]
        for at, span in enumerate(op.targets):
            cells = self.cells(span, op)
            for cell, value in zip(cells, values[at if len(values) > 1 else 0], strict=True):
                self.state[cell] = value
            if span.packet:
                self.packets.update(cells)
        return True

    def _read(self, cell: Cell, op: Op) -> int:
        if cell not in self.state:
            gpu, buffer, part = cell
            raise self.plan.error(
                op,
                f"{op.name} reads chunk {part // self.parts} of buffer {buffer} of gpu {gpu}, which nothing has filled",
            )
        return self.state[cell]


def check_plan(plan: ExecutionPlan) -> None:
    """Run a plan on random numbers and compare all outputs with the definition of its collective.

    It is run twice: thread blocks first to last, each as far as it gets, and last to first. So what a missing signal
    allows mostly shows; that no order whatever gives another result is not proved.

    Raises:
        InputError: It never ends, reads what nothing has filled, or an output is wrong; or its collective is none that
            is known.
    """
    if plan.operation not in COLLECTIVES.values():
        raise InputError(
            f"{plan.document.name}: cannot check a {plan.operation}: expected {one_of(COLLECTIVES.values())}"
        )
    for backwards in (False, True):
        _check(plan, backwards)


def _check(plan: ExecutionPlan, backwards: bool) -> None:
    run = _Numbers(plan, backwards=backwards)
    draw = random.Random(1).getrandbits
    n, each = plan.n, run.parts
    inputs, outputs, _ = plan.chunks[0]
    if any(one[:2] != (inputs, outputs) for one in plan.chunks):
        raise InputError(
            f"{plan.document.name}: gpus differ in their input or output chunks, expected equal ones"
        )
    share = {"all-gather": (1, n), "reduce-scatter": (n, 1)}.get(plan.operation, (1, 1))
    if inputs * share[1] != outputs * share[0] or (plan.operation == "all-to-all" and inputs % n):
        raise InputError(
            f"{plan.document.name}: {inputs} input and {outputs} output chunks of {n} gpus are no {plan.operation}"
        )
    given = [[draw(50) for _ in range(inputs * each)] for _ in range(n)]
    for gpu, values in enumerate(given):
        run.state.update({run.cell(gpu, "i", at): value for at, value in enumerate(values)})
    run.run()
    total = [sum(column) for column in zip(*given, strict=True)]
    for gpu in range(n):
        if plan.operation == "all-reduce":
            expected = total
        elif plan.operation == "all-gather":
            expected = [value for values in given for value in values]
        else:
            size = inputs * each // n
            mine = slice(gpu * size, gpu * size + size)
            reduces = plan.operation == "reduce-scatter"
            expected = total[mine] if reduces else [value for values in given for value in values[mine]]
        for at, value in enumerate(expected):
            if run.state.get(run.cell(gpu, "o", at)) != value:
                raise InputError(
                    f"{plan.document.name}: is no {plan.operation}: chunk {at // each} of the output of gpu {gpu} ends "
                    "wrong"
                )
