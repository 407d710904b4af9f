"""Bytes that an instruction reads and writes in memory; a fusion moves only what crosses its boundary, once."""

from __future__ import annotations

from armillary.convert.hlo.module import Computation, Instruction, Module
from armillary.convert.hlo.shapes import Shape

_SLICES = frozenset(("dynamic-slice", "slice", "gather"))
_SAME = frozenset(("bitcast", "reshape", "get-tuple-element"))


class Traffic:
    """Bytes moved, by instruction; the boundary of each fused computation is analysed once."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._boundaries: dict[str, tuple[dict[int, int], int]] = {}

    def bytes(self, instruction: Instruction) -> int:
        """Return bytes read plus bytes written; each operand is read once, a sliced one only in the slice."""
        opcode = instruction.opcode.removesuffix("-start")
        operands = instruction.operands
        if opcode == "fusion":
            return self._fusion(instruction)
        if opcode in _SLICES and operands:
            # The slice is read and written; the start indices are read.
            return 2 * instruction.shape.bytes + sum(index.shape.bytes for index in operands[1:])
        if opcode == "dynamic-update-slice" and len(operands) > 1:
            # In place: update and indices are read, the update is written.
            return operands[1].shape.bytes + sum(one.shape.bytes for one in operands[1:])
        if opcode == "scatter" and operands:
            # In place: the addressed elements are read and written; indices and updates are read.
            return 2 * _updates(instruction) + sum(one.shape.bytes for one in _added(instruction))
        # x · x reads x once.
        read = sum(one.shape.bytes for one in dict.fromkeys(operands))
        if opcode == "copy":  # copy-start gives the copy, the original and a context
            return 2 * read
        return read + instruction.shape.bytes

    def _fusion(self, instruction: Instruction) -> int:
        computation = self.module.callee(instruction, "calls", "to_apply")
        if computation.name not in self._boundaries:
            self._boundaries[computation.name] = _boundary(computation)
        sliced, written = self._boundaries[computation.name]
        read: dict[Instruction, int] = {}
        for number, operand in enumerate(instruction.operands):
            used = min(sliced.get(number, operand.shape.bytes), operand.shape.bytes)
            # An operand passed twice is read once, by the parameter that reads more of it.
            read[operand] = max(read.get(operand, 0), used)
        return sum(read.values()) + written


def _boundary(computation: Computation) -> tuple[dict[int, int], int]:
    """Return (bytes read of each parameter that is not read whole, by number; bytes written)."""
    users: dict[Instruction, list[Instruction]] = {}
    for user in computation.instructions:
        for operand in dict.fromkeys(user.operands):
            users.setdefault(operand, []).append(user)
    sliced = {}
    for number, parameter in computation.parameters.items():
        read: int | None = 0
        values = [parameter]
        # The list grows while it is walked: a value by another name is followed to its users.
        for value in values:
            for user in users.get(value, ()):
                if user.opcode in _SAME:
                    values.append(user)
                elif read is not None:
                    part = _part(user, value)
                    read = None if part is None else read + part
        # A parameter that is also the result is copied whole.
        if read is not None and parameter is not computation.result:
            sliced[number] = read
    return sliced, sum(_written(value) for value in _results(computation.result))


def _part(user: Instruction, value: Instruction) -> int | None:
    """Return the bytes that `user` reads of `value`; None: all of it."""
    if value in user.operands[1:] or not user.operands:
        return None
    if user.opcode in _SLICES:
        return user.shape.bytes
    if user.opcode == "dynamic-update-slice":
        return 0  # what is not updated stays where it is
    return _updates(user) if user.opcode == "scatter" else None


def _results(root: Instruction) -> list[Instruction]:
    found = [root]
    for one in found:
        if one.opcode == "tuple":
            found.extend(one.operands)
    return [one for one in found if one.opcode != "tuple"]


def _written(value: Instruction) -> int:
    shape: Shape = value.shape
    # Behind other names the result may be an update in place, which writes only what it updates.
    while value.opcode in _SAME and value.operands:
        value = value.operands[0]
    if value.opcode == "dynamic-update-slice" and len(value.operands) > 1:
        return value.operands[1].shape.bytes
    return _updates(value) if value.opcode == "scatter" else shape.bytes


def _added(scatter: Instruction) -> tuple[Instruction, ...]:
    """Return the indices and updates of a scatter: n operands, indices, n updates."""
    return scatter.operands[len(scatter.operands) // 2 :]


def _updates(scatter: Instruction) -> int:
    return sum(one.shape.bytes for one in _added(scatter)[1:])
