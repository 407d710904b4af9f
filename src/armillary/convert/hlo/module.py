"""A parsed HLO module."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from armillary.base.json_text import json_within
from armillary.convert.hlo.shapes import Shape
from armillary.convert.hlo.source import Source

CALLS = ("calls", "to_apply", "condition", "body", "branch_computations", "true_computation", "false_computation",
         "called_computations", "select", "scatter")  # fmt: skip
"""Attributes that name computations."""

_NAME = re.compile(r"[\w.\-]+")
_NUMBER = re.compile(r"\d{1,18}")


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in the text of an attribute."""
    return tuple(int(number) for number in _NUMBER.findall(text))


@dataclass(eq=False, slots=True)
class Instruction:
    """One instruction; `attributes` are texts by name."""

    name: str
    opcode: str
    shape: Shape
    operands: tuple[Instruction, ...]
    argument: str
    """The text in the parentheses: a parameter's number, a constant's value."""
    attributes: Mapping[str, str]
    predecessors: tuple[Instruction, ...]
    """Instructions that it must follow without reading their values."""
    at: int
    """Its offset in the source."""

    def called(self, attribute: str) -> list[str]:
        """Return the names of the computations that an attribute names."""
        return _NAME.findall(self.attributes.get(attribute, ""))

    def config(self) -> Any:
        """Return ``backend_config`` if it is JSON, else an empty object."""
        text = self.attributes.get("backend_config", "{}")
        try:
            # JSON, or a text in quotes that holds JSON.
            found = json_within(text)
            return json_within(found) if isinstance(found, str) else found
        except ValueError:
            return {}


@dataclass(eq=False, slots=True)
class Computation:
    """Instructions in the order of the text, which is the schedule if the module has one."""

    name: str
    at: int
    instructions: list[Instruction] = field(default_factory=list)
    root: Instruction | None = None
    """The last one where none is marked."""
    parameters: dict[int, Instruction] = field(default_factory=dict)

    @property
    def result(self) -> Instruction:
        """The instruction whose value the computation returns."""
        # XLA marks the root; hand-written modules may leave the mark out.
        return self.root or self.instructions[-1]


@dataclass(eq=False, slots=True)
class Module:
    """Computations by name, each after all that it calls."""

    name: str
    source: Source
    attributes: Mapping[str, str]
    computations: dict[str, Computation]
    entry: Computation

    def callees(self, instruction: Instruction) -> Iterator[tuple[str, Computation]]:
        """Yield the computations that an instruction names, with the attribute."""
        for attribute in CALLS:
            if attribute in instruction.attributes:
                for name in instruction.called(attribute):
                    yield attribute, self.computations[name]

    def callee(self, instruction: Instruction, *attributes: str) -> Computation:
        """Return the computation that the first of these attributes names.

        Raises:
            InputError: there is none.
        """
        names = [name for attribute in attributes for name in instruction.called(attribute)]
        if not names:
            self.source.fail(
                instruction.at,
                f"'{instruction.opcode}' names no computation, expected {' or '.join(attributes)}=",
            )
        return self.computations[names[0]]
