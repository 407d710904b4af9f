"""Lower a module to steps: unroll loops, inline calls, choose branches, and derive dependencies from operands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from armillary.convert.hlo.costs import FREE, Costs, is_marker
from armillary.convert.hlo.groups import Devices
from armillary.convert.hlo.module import Computation, Instruction, Module
from armillary.convert.hlo.shapes import Shape
from armillary.convert.hlo.steps import COLLECTIVE, COMPUTE, RECV, SEND, Part, Program, Step
from armillary.convert.hlo.traffic import Traffic
from armillary.convert.hlo.trips import Trips
from armillary.trace import CollectiveType

COLLECTIVES = {
    "all-reduce": CollectiveType.ALL_REDUCE,
    "all-gather": CollectiveType.ALL_GATHER,
    "reduce-scatter": CollectiveType.REDUCE_SCATTER,
    "all-to-all": CollectiveType.ALL_TO_ALL,
    "ragged-all-to-all": CollectiveType.ALL_TO_ALL,
    "collective-broadcast": CollectiveType.BROADCAST,
}
"""Opcode -> what it is in a trace."""
PERMUTE = "collective-permute"
_PAIRS = re.compile(r"_xla_send_recv_source_target_pairs=\"?(\{(?:[\d,\s{}]*)\})\"?")
_INDEX = re.compile(r"\d{1,9}")
_MOST = 20_000_000
"""Most instructions of an unrolled program."""
_DEEPEST = 150
_JOINED = 256
"""Most dependencies of a step; more are replaced by one empty step that waits for them all."""
_LARGEST = 2**63 - 1

Value = tuple[int, ...] | list["Value"]
"""The ids of the steps that produce a value; for a tuple whose elements are known apart, a list of values."""


@dataclass(frozen=True, slots=True)
class _Context:
    """The surroundings of an instruction."""

    scale: int = 1
    """Iterations that one copy of it represents."""
    overlap: bool = False
    """Whether it is asynchronous."""
    gate: tuple[int, ...] = ()
    """Steps that decide whether it runs."""
    depth: int = 0


class Lowering:
    """Lowers one module.

    Args:
        module: the module.
        devices: what it runs on.
        unroll: instructions up to which a loop is unrolled.
        trips: iterations of loops whose number the module does not contain.
        in_order: whether synchronous instructions run in the order of the text.
        shared: instructions whose work so many devices share evenly; of others each does all.
    """

    def __init__(
        self, module: Module, devices: Devices, *, unroll: int, trips: int, in_order: bool,
        shared: Mapping[Instruction, int],
    ) -> None:  # fmt: skip
        self.shared = shared
        self.module, self.source, self.devices = module, module.source, devices
        self.unroll, self.assumed, self.in_order = unroll, trips, in_order
        self.costs, self.traffic, self.trips = Costs(module), Traffic(module), Trips(module)
        self.program = Program()
        # With `in_order`: the steps that the next one must follow.
        self._front: tuple[int, ...] = ()
        self._parts: dict[tuple[str, ...], int] = {}
        self._warned: set[tuple[Instruction, str]] = set()
        self._tags = 0
        self._channels: dict[str, int] = {}
        # FLOPs and bytes: an unrolled loop lowers the same instruction many times.
        self._work: dict[Instruction, tuple[int, int]] = {}
        self._flat: dict[int, tuple[Value, tuple[int, ...]]] = {}
        self._size: dict[str, int] = {}
        # Callees stand first. The sizes are known before anything is lowered, so that nested loops whose
        # unrolled size explodes are refused instead of unrolled.
        for computation in module.computations.values():
            self._size[computation.name] = sum(self._visited(i) for i in computation.instructions)

    def run(self) -> Program:
        """Return the steps of the entry computation.

        Raises:
            InputError: the module contradicts itself or its devices, or is too big.
        """
        entry = self.module.entry
        if self._size[entry.name] > _MOST:
            self.source.fail(
                entry.at,
                f"unrolled, this is more than {_MOST:.3g} instructions; --unroll takes a smaller number",
            )
        self._computation(entry, [() for _ in entry.parameters], _Context())
        for what, example in self.costs.unknown.items():
            self._warn(example, f"the operations of '{what}' are not known and count as 0")
        return self.program

    def _visited(self, one: Instruction) -> int:
        """Return the number of instructions that lowering one instruction visits, with all that it calls."""
        opcode = one.opcode.removesuffix("-start")
        if opcode in ("call", "async"):
            return 1 + sum(self._size[c.name] for _, c in self.module.callees(one))
        if opcode == "conditional":
            return 1 + max((self._size[c.name] for _, c in self.module.callees(one)), default=0)
        return 1 + self._copies(one) * self._iteration(one) if opcode == "while" else 1

    def _iteration(self, loop: Instruction) -> int:
        return 1 + sum(self._size[c.name] for _, c in self.module.callees(loop))

    def _copies(self, loop: Instruction) -> int:
        """Return the number of iterations of a loop that become steps of their own; 1: the body stands for all."""
        trips = self.trips.of(loop)
        trips = self.assumed if trips is None else trips
        return trips if trips * self._iteration(loop) <= self.unroll else 1

    def _computation(self, computation: Computation, arguments: Sequence[Value], context: _Context) -> Value:
        if context.depth > _DEEPEST:
            self.source.fail(computation.at, f"calls are nested deeper than {_DEEPEST}")
        if sorted(computation.parameters) != list(range(len(arguments))):
            self.source.fail(
                computation.at,
                f"'{computation.name}' has parameters {sorted(computation.parameters)[:8]}, not {len(arguments)}",
            )
        values: dict[Instruction, Value] = {
            one: self._as(one.shape, arguments[number]) for number, one in computation.parameters.items()
        }
        for one in computation.instructions:
            if one.opcode == "parameter":
                continue
            # Control predecessors order without data, which is what a gate does.
            inside = context
            if one.predecessors:
                earlier = self._ids([context.gate, *(values[other] for other in one.predecessors)])
                inside = replace(context, gate=earlier)
            # Predecessors stand above, or the parser would have refused them.
            values[one] = self._instruction(one, [values[operand] for operand in one.operands], inside)
        return values[computation.result]

    def _instruction(self, one: Instruction, given: list[Value], context: _Context) -> Value:
        opcode = one.opcode
        if opcode == "tuple":
            return self._as(one.shape, given)
        if opcode == "get-tuple-element":
            return self._as(one.shape, self._element(one, given))
        if opcode in ("infeed", "outfeed"):
            self._warn(one, f"'{opcode}' takes no time here: what the host does is not in the module")
        if opcode in FREE or is_marker(one):
            return self._as(one.shape, given[0]) if len(given) == 1 else self._ids(given)
        if opcode.endswith(("-done", "-update")):
            # Nothing happens at a -done; in order, it holds the instructions after it back until the work has ended.
            waited = self._ids(given)
            if opcode.endswith("-done"):
                self._front = self._join([*self._front, *waited], one.name) if self.in_order else ()
            return waited
        if opcode.endswith("-start"):
            # Its steps do not become the front: what follows runs beside them until the -done.
            context = replace(context, overlap=True)
            opcode = opcode.removesuffix("-start")
        if opcode == "while":
            return self._as(one.shape, self._loop(one, given, context))
        if opcode == "conditional":
            return self._as(one.shape, self._branch(one, given, context))
        if opcode in ("call", "async"):
            callee = self.module.callee(one, "to_apply", "calls", "called_computations")
            inside = self._computation(callee, given, replace(context, depth=context.depth + 1))
            # async-start returns (operands, results, context), which is not the callee's result: its parts are joined.
            return self._ids([inside]) if opcode == "async" else self._as(one.shape, inside)
        after = self._ids(given)
        if opcode in COLLECTIVES:
            return self._collective(one, opcode, after, context)
        if opcode == PERMUTE:
            return self._permute(one, after, context)
        if opcode in ("send", "recv"):
            return self._message(one, opcode, after, context)
        return self._compute(one, after, context)

    def _element(self, one: Instruction, given: list[Value]) -> Value:
        index = one.attributes.get("index", "")
        if not given or not _INDEX.fullmatch(index):
            self.source.fail(
                one.at, f"index={index or '(none)'} of {len(given)} operands, expected one and a number"
            )
        whole = given[0]
        # A tuple that one step produces, such as a fusion's: every element waits for that step.
        if isinstance(whole, tuple):
            return whole
        if int(index) >= len(whole):
            self.source.fail(
                one.at, f"index={index} of a tuple of {len(whole)}, expected at most {len(whole) - 1}"
            )
        return whole[int(index)]

    def _loop(self, loop: Instruction, given: list[Value], context: _Context) -> Value:
        body, condition = self.module.callee(loop, "body"), self.module.callee(loop, "condition")
        known = self.trips.of(loop)
        trips = self.assumed if known is None else known
        if known is None:
            self._warn(loop, f"the module does not say how often '{loop.name}' runs, {trips} is assumed")
        copies = self._copies(loop)
        inside = replace(context, depth=context.depth + 1)
        if copies != trips:
            self._warn(
                loop,
                f"'{loop.name}' runs {trips} times: its body stands here once, with {trips} times the costs",
            )
            # Inside another loop that is not unrolled, both counts apply.
            inside = replace(inside, scale=context.scale * trips)
        state = given
        for _ in range(copies):
            # A loop with known trips runs on counters alone: its condition costs nothing, and nothing waits for it.
            # Else the steps that decide on an iteration precede all of it.
            if known is None:
                decided = self._ids([self._computation(condition, state, inside)])
                inside = replace(inside, gate=decided or inside.gate)
            state = [self._computation(body, state, inside)]
        return state[0] if state else ()

    def _branch(self, one: Instruction, given: list[Value], context: _Context) -> Value:
        branches = [computation for _, computation in self.module.callees(one)]
        if not branches or len(given) != len(branches) + 1:
            self.source.fail(
                one.at, f"{len(branches)} branches and {len(given)} operands, expected one more than branches"
            )
        chosen = self.trips.scalar(one.operands[0])
        if chosen is None:
            work = [(self.costs.computation(branch), self._size[branch.name]) for branch in branches]
            chosen = work.index(max(work))
            self._warn(
                one, f"which branch '{one.name}' takes is not known, that with most operations is assumed"
            )
        # The branch for true stands first, and the predicate is 1 for true.
        elif "true_computation" in one.attributes:
            chosen = 1 - chosen
        # XLA takes the last branch for an index out of range.
        if not 0 <= chosen < len(branches):
            chosen = len(branches) - 1
        inside = replace(context, depth=context.depth + 1, gate=self._ids([given[0]]) or context.gate)
        return self._computation(branches[chosen], [given[chosen + 1]], inside)

    def _collective(self, one: Instruction, opcode: str, after: tuple[int, ...], context: _Context) -> Value:
        # Operands 1 to 5 of a ragged all-to-all are the output and the offsets and sizes.
        operands = one.operands[:1] if opcode == "ragged-all-to-all" else one.operands
        size = sum(operand.shape.bytes for operand in operands)
        if opcode == "ragged-all-to-all":
            self._warn(one, "'ragged-all-to-all' is taken to send its whole operand in equal parts")
        if not size:
            return after
        texts = [one.attributes.get(key, "") for key in ("replica_groups", "use_global_device_ids")]
        # Everything that the groups follow from: equal collectives share one part, resolved once.
        key = (opcode, *texts, str("channel_id" in one.attributes))
        if key not in self._parts:
            found = [group for group in self.devices.groups(one) if len(group) > 1]
            self._add_part(key, Part(groups=tuple(found)))
        # A rank in no group copies its operand (read and write); a broadcast gives it zeros (write).
        alone = size if opcode == "collective-broadcast" else 2 * size
        part, operation = self._parts[key], COLLECTIVES[opcode]
        step = Step(COLLECTIVE, one.name, after, (), 0, size, part, operation, 0, alone)
        return self._emit(one, [step], context)

    def _permute(self, one: Instruction, after: tuple[int, ...], context: _Context) -> Value:
        size = sum(operand.shape.bytes for operand in one.operands)
        if not size:
            return after
        part = self._pairs(one, one.attributes.get("source_target_pairs", "{}"))
        # A tag of its own keeps the messages of two permutes between the same ranks apart.
        self._tags += 1
        send = Step(SEND, one.name, after, (), 0, size, part, None, self._tags)
        # A rank that receives nothing gets zeros: one write of the size.
        return self._emit(one, [send, replace(send, kind=RECV, alone=size)], context)

    def _message(self, one: Instruction, opcode: str, after: tuple[int, ...], context: _Context) -> Value:
        pairs = _PAIRS.search(one.attributes.get("frontend_attributes", ""))
        if pairs is None:
            self._warn(
                one, f"'{opcode}' without pairs of devices takes no time here, as if to or from the host"
            )
            return after
        # A recv returns (data, context, token); a send has its data as the first operand.
        shape = one.shape if opcode == "recv" or not one.operands else one.operands[0].shape
        size = shape.leaves[0].bytes if shape.leaves else 0
        if not size:
            return after
        channel = one.attributes.get("channel_id", "0")
        # send and recv are two instructions, which the channel joins.
        if channel not in self._channels:
            self._tags += 1
            self._channels[channel] = self._tags
        kind, part = SEND if opcode == "send" else RECV, self._pairs(one, pairs[1])
        step = Step(kind, one.name, after, (), 0, size, part, None, self._channels[channel], size)
        return self._emit(one, [step], context)

    def _pairs(self, one: Instruction, text: str) -> int:
        key = ("pairs", text, str("channel_id" in one.attributes))
        if key not in self._parts:
            self._add_part(key, Part(pairs=tuple(self.devices.pairs(one, text))))
        return self._parts[key]

    def _add_part(self, key: tuple[str, ...], part: Part) -> None:
        self._parts[key] = len(self.program.parts)
        self.program.parts.append(part)

    def _compute(self, one: Instruction, after: tuple[int, ...], context: _Context) -> Value:
        if one not in self._work:
            parts = self.shared.get(one, 1)
            self._work[one] = -(-self.costs.flops(one) // parts), -(-self.traffic.bytes(one) // parts)
        ops, size = self._work[one]
        if not ops and not size:
            return after
        return self._emit(one, [Step(COMPUTE, one.name, after, (), ops, size)], context)

    def _emit(self, one: Instruction, steps: list[Step], context: _Context) -> tuple[int, ...]:
        """Add steps that run side by side; return their ids."""
        # The steps are added together, so that none of them waits for another.
        first = len(self.program.steps)
        wait = (*context.gate, *self._front) if self.in_order else context.gate
        for step in steps:
            scale = context.scale
            if max(step.ops, step.bytes, step.alone) * scale > _LARGEST:
                self.source.fail(
                    one.at,
                    f"'{one.name}' is more than 2^63 operations or bytes; are its shape and its loops right?",
                )
            after = step.after
            # A step that is a data dependency need not be a control dependency too.
            ctrl = tuple(dict.fromkeys(i for i in wait if i not in after)) if wait else ()
            if ctrl or scale != 1:
                step = replace(
                    step, ctrl=ctrl, ops=step.ops * scale, bytes=step.bytes * scale, alone=step.alone * scale
                )
            self.program.steps.append(step)
        ids = tuple(range(first, len(self.program.steps)))
        if self.in_order and not context.overlap:
            self._front = ids
        return ids

    def _as(self, shape: Shape, value: Value) -> Value:
        """Return `value`, flattened to step ids unless its nesting is that of `shape`."""
        return value if isinstance(value, tuple) or _fits(shape, value) else self._ids([value])

    def _ids(self, values: list[Value]) -> tuple[int, ...]:
        """Return the distinct steps that produce any part of the values."""
        if len(values) == 1 and isinstance(values[0], tuple):
            return values[0]
        found: list[int] = []
        for value in values:
            if isinstance(value, list):
                known = self._flat.get(id(value))
                if known is None:  # the value is kept with its id, so that no other gets that
                    known = self._flat[id(value)] = value, self._ids(value)
                found.extend(known[1])
            else:
                found.extend(value)
        return self._join(found, "join")

    def _join(self, ids: Iterable[int], name: str) -> tuple[int, ...]:
        found = tuple(dict.fromkeys(ids))
        if len(found) <= _JOINED:
            return found
        self.program.steps.append(Step(COMPUTE, name, found, (), 0, 0))
        return (len(self.program.steps) - 1,)

    def _warn(self, one: Instruction, message: str) -> None:
        if (one, message) not in self._warned:
            self._warned.add((one, message))
            self.program.warnings.append(f"{self.source.where(one.at)}: {message}")


def _fits(shape: Shape, value: Value) -> bool:
    if isinstance(value, tuple):
        return True
    if shape.parts is None or len(shape.parts) != len(value):
        return False
    return all(_fits(part, item) for part, item in zip(shape.parts, value, strict=True))
