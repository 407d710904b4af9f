"""Fuse element-wise operations, as every compiler of XLA does: what lies between them is not written to memory.

An element-wise operation, a broadcast or an iota joins the element-wise operation or reduction that alone takes its
result; constants, iotas and broadcasts of one number are computed where they are taken.
"""

from __future__ import annotations

from armillary.convert.hlo.costs import ELEMENT_WISE
from armillary.convert.hlo.module import Computation, Instruction, Module

_JOINS = ELEMENT_WISE | {"broadcast", "iota"}
_TAKES = ELEMENT_WISE | {"reduce"}


class Fusion:
    """Fuses the computations of a module that run, in place; those that others apply to elements stay."""

    def __init__(self, module: Module, shared: dict[Instruction, int]) -> None:
        self.module, self.shared = module, shared
        self.count = 0

    def run(self) -> None:
        """Fuse them all, and put what is fused before who calls it."""
        made: dict[str, Computation] = {}
        for name, each in self.module.computations.items():
            fused = [] if name.startswith("applied.") else self._computation(each)
            made |= {one.name: one for one in fused} | {name: each}
        self.module.computations = made

    def _computation(self, computation: Computation) -> list[Computation]:
        users: dict[Instruction, list[Instruction]] = {}
        for user in computation.instructions:
            for operand in dict.fromkeys(user.operands):
                users.setdefault(operand, []).append(user)
        root_of: dict[Instruction, Instruction] = {}
        for one in reversed(computation.instructions):
            roots = {root_of[user] for user in users.get(one, ())}
            joins = one.opcode in _JOINS and one is not computation.result and len(roots) == 1
            root = next(iter(roots)) if joins else one
            # Counters of loops stay as they are.
            takes = root.opcode in _TAKES and (root.opcode == "reduce" or root.shape.elements > 1)
            root_of[one] = root if joins and takes else one
        members: dict[Instruction, list[Instruction]] = {}
        for one in computation.instructions:
            members.setdefault(root_of[one], []).append(one)
        found, new, replaced = [], [], dict[Instruction, Instruction]()
        for one in computation.instructions:
            if root_of[one] is not one:
                continue
            held = members[one]
            cheap = one.opcode in _TAKES and any(_cheap(each) for each in one.operands)
            if len(held) > 1 or (cheap and one.shape.elements > 1):
                inner, given = self._fused(one, held)
                found.append(inner)
                fusion = Instruction(
                    f"{inner.name}", "fusion", one.shape, given, "", {"calls": inner.name}, (), one.at
                )
                if one in self.shared:
                    self.shared[fusion] = self.shared[one]
                replaced[one] = fusion
                new.append(fusion)
            else:
                new.append(one)
        # Roots come after what they take, so that all of it has been replaced.
        for one in new:
            one.operands = tuple(replaced.get(each, each) for each in one.operands)
        computation.root = replaced.get(computation.result, computation.result)
        taken = {operand for one in new for operand in one.operands} | {computation.root}
        computation.instructions = [one for one in new if one in taken or not _cheap(one)]
        return found

    def _fused(
        self, root: Instruction, held: list[Instruction]
    ) -> tuple[Computation, tuple[Instruction, ...]]:
        """Return the computation of a fusion, and what it is given."""
        self.count += 1
        made = Computation(f"fusion.{self.count}.{root.opcode}", root.at)
        inside: dict[Instruction, Instruction] = {}
        given: dict[Instruction, Instruction] = {}

        def copy(one: Instruction) -> Instruction:
            # What is cheap takes cheap things only, or one number.
            operands = tuple(inside[each] if each in inside else take(each) for each in one.operands)
            new = Instruction(
                one.name, one.opcode, one.shape, operands, one.argument, one.attributes, (), one.at
            )
            made.instructions.append(new)
            inside[one] = new
            return new

        def take(one: Instruction) -> Instruction:
            if _cheap(one):
                return copy(one)
            number = len(given)
            new = Instruction(
                f"{made.name}.{number}", "parameter", one.shape, (), str(number), {}, (), one.at
            )
            made.instructions.append(new)
            made.parameters[number] = given[one] = inside[one] = new
            return new

        for one in held:
            made.root = copy(one)
        return made, tuple(given)


def _cheap(one: Instruction) -> bool:
    if one.opcode == "broadcast":
        return bool(one.operands) and one.operands[0].shape.elements <= 1
    return one.opcode == "iota" or (one.opcode == "constant" and one.shape.elements <= 1)
