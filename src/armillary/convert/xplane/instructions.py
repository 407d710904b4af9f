"""What the instructions of a profile communicate, by their HLO.

Profiles hold the modules that ran (``HloProto`` in the plane ``/host:metadata``, xla/service/hlo.proto). On TPUs the
long name of an event is the text of its instruction besides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from armillary.base.errors import InputError
from armillary.convert.hlo.lower import COLLECTIVES, PERMUTE
from armillary.convert.hlo.module import Instruction
from armillary.convert.hlo.shapes import ARRAY, Shape, Shapes
from armillary.convert.hlo.source import Source
from armillary.convert.xplane.space import Plane, Space
from armillary.convert.xplane.wire import Part, Wire

METADATA = "/host:metadata"
OPERAND = "operand"
"""Attribute of our own: the name of the first operand."""
_TEXT = re.compile(r"\s*%?([\w.\-]+) = [^\n]*?\s([a-z][a-z\-]*)\(")
_ATTRIBUTES = (
    re.compile(r"(replica_groups)=(\{(?:\{[\d,]*\},?)*\}|\[[\d,]*\](?:<=\[[\d,]*\](?:T\([\d,]*\))?)?)"),
    re.compile(r"(source_target_pairs)=(\{(?:\{[\d,]*\},?)*\})"),
    re.compile(r"(channel_id)=(\d{1,18})"),
    re.compile(r"(use_global_device_ids)=(true|false)"),
)
_LONGEST = 1 << 16
_BITS = {
    1: 8, 2: 8, 3: 16, 4: 32, 5: 64, 6: 8, 7: 16, 8: 32, 9: 64, 10: 16, 11: 32, 12: 64, 15: 64, 16: 16, 18: 128,
    19: 8, 20: 8, 21: 4, 22: 4, 23: 8, 24: 8, 25: 8, 26: 2, 27: 2, 28: 8, 29: 8, 32: 4, 33: 8,
}  # fmt: skip
"""Bits of an element by PrimitiveType (xla_data.proto); tuples and tokens have none."""
_DEEPEST = 20


@dataclass(frozen=True)
class Assignment:
    """What a program was compiled for: replicas, partitions, and the device of each (replica, partition), in order."""

    replicas: int
    partitions: int
    devices: tuple[int, ...]


@dataclass
class Modules:
    """Instructions by program (its number, or the module's name) and their own name."""

    of: dict[tuple[str, str], Instruction] = field(default_factory=dict)
    devices: dict[str, Assignment] = field(default_factory=dict)
    """By program, as far as they say."""

    def find(self, programs: Sequence[str], name: str) -> Instruction | None:
        """Return the instruction of a name in the first of the programs that has it."""
        return next((found for each in programs if (found := self.of.get((each, name)))), None)

    def read(self, plane: Plane) -> None:
        """Add the modules that a plane of metadata holds.

        Raises:
            InputError: one is damaged.
        """
        for number, kind in plane.kinds().items():
            for data in kind.stats.values():
                if isinstance(data, bytes):
                    where = f"{plane.space.path}: module {kind.name[:60]}"
                    # Programs have their number in the name's brackets, too.
                    names = {str(number), kind.name, kind.name.partition("(")[0]}
                    self._module(Wire(data, where, "an HloProto"), names, plane.space)

    def _module(self, wire: Wire, names: set[str], space: Space) -> None:
        for number, module in wire.messages(wire.whole):
            for what, place in wire.messages(module) if number == 1 else ():
                if what == 15:
                    self.devices |= dict.fromkeys(names, _assignment(wire, place))
                if what == 3:
                    parts = [each for at, each in wire.messages(place) if at == 2]
                    for found in _computation(wire, parts, space):
                        self.of |= {(name, found.name): found for name in names}


def _assignment(wire: Wire, part: Part) -> Assignment:
    # By partition; each lists the devices of its replicas.
    table = [wire.numbers(each, 1) for number, each in wire.messages(part) if number == 3]
    replicas = len(table[0]) if table else 1
    if any(len(row) != replicas for row in table) or not replicas:
        raise wire.damaged(part[0], "expected as many devices for every partition")
    return Assignment(replicas, max(len(table), 1), tuple(row[at] for at in range(replicas) for row in table))


def _computation(wire: Wire, parts: Sequence[Part], space: Space) -> list[Instruction]:
    raw = []
    for part in parts:
        space.count()
        texts = dict(wire.messages(part))
        shape = _shape(wire, texts[3]) if 3 in texts else Shape()
        name, opcode = (wire.text(texts[at]) if at in texts else "" for at in (1, 2))
        raw.append((part, name, opcode, shape, wire.numbers(part, 35)))
    known = {ids[-1]: (name, shape) for _, name, _, shape, ids in raw if ids}
    found = []
    for part, name, opcode, *_ in raw:
        if not communicates(opcode) and not opcode.endswith("-done"):
            found.append(made(name, opcode))
            continue
        operands = [known.get(each, ("", Shape())) for each in wire.numbers(part, 36)]
        attributes = _attributes(wire, part) | ({OPERAND: operands[0][0]} if operands else {})
        found.append(made(name, opcode, tuple(each for _, each in operands), attributes))
    return found


def communicates(opcode: str) -> bool:
    """Whether an instruction is a collective or a permute, its ``-start`` or ``-done`` included."""
    return re.sub("-(start|done)$", "", opcode) in {*COLLECTIVES, PERMUTE}


def _attributes(wire: Wire, part: Part) -> dict[str, str]:
    """Return the attributes as HLO text writes them: devices as lists or iota, pairs, channel."""
    groups, pairs, found = [], [], {}
    for number, place in wire.messages(part):
        if number == 49:
            groups.append(wire.numbers(place, 1))
        elif number == 52:
            ends = [wire.numbers(place, at) for at in (1, 2)]
            # 0 is left out.
            pairs.append([each[-1] if each else 0 for each in ends])
        elif number == 87:
            groups += [wire.numbers(each, 1) for at, each in wire.messages(place) if at == 1]
            for at, each in wire.messages(place):
                if at == 2:
                    found["replica_groups"] = _iota(wire, each)
    if groups:
        found["replica_groups"] = _listed(groups)
    if pairs:
        found["source_target_pairs"] = _listed(pairs)
    if (channel := wire.numbers(part, 26)) and channel[-1] > 0:
        found["channel_id"] = str(channel[-1])
    if any(wire.numbers(part, 71)):
        found["use_global_device_ids"] = "true"
    return found


def _listed(rows: Sequence[Sequence[int]]) -> str:
    return "{" + ",".join("{" + ",".join(map(str, row)) + "}" for row in rows) + "}"


def _iota(wire: Wire, part: Part) -> str:
    counts = [wire.numbers(part, at) for at in (1, 2)]
    dims, order = wire.numbers(part, 3), wire.numbers(part, 4)
    shape = ",".join(str(each[-1]) if each else "0" for each in counts)
    turned = f"T({','.join(map(str, order))})" if order else ""
    return f"[{shape}]<=[{','.join(map(str, dims))}]{turned}"


def _shape(wire: Wire, part: Part, depth: int = 0) -> Shape:
    kind = wire.numbers(part, 2)
    parts = [place for number, place in wire.messages(part) if number == 4]
    if parts and depth < _DEEPEST:
        return Shape(parts=tuple(_shape(wire, each, depth + 1) for each in parts))
    dims = tuple(max(each, 0) for each in wire.numbers(part, 3))
    return Shape(_BITS.get(kind[-1] if kind else 0, 0), dims)


def of_text(text: str) -> Instruction | None:
    """Return the instruction whose text an event has as its name; None if it is none."""
    if len(text) > _LONGEST or not (match := _TEXT.match(text)):
        return None
    found = (pattern.search(text, match.end()) for pattern in _ATTRIBUTES)
    attributes = {each[1]: each[2] for each in found if each}
    depth, end = 1, match.end()
    while depth and end < len(text):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    # Operands stand with their shapes.
    shapes = Shapes(Source(text, "the name of an event"))
    try:
        given = [shapes.read(each.start())[0] for each in ARRAY.finditer(text, match.end(), end)]
    except InputError:
        return None
    if named := re.search(r"%([\w.\-]+)", text[match.end() : end]):
        attributes[OPERAND] = named[1]
    return made(match[1], match[2], tuple(given), attributes)


def made(
    name: str, opcode: str, operands: Sequence[Shape] = (), attributes: Mapping[str, str] | None = None
) -> Instruction:
    """Return an instruction that stands in no module, by the shapes of its operands."""
    given = tuple(Instruction("", "", each, (), "", {}, (), 0) for each in operands)
    return Instruction(name, opcode, Shape(), given, "", attributes or {}, (), 0)
