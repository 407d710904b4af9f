"""Calls of operators and the tensors that they name, as a recorded graph has them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from armillary.base.json_text import json_within
from armillary.convert.pytorch.arguments import UNDEFINED, Arguments, kind_of
from armillary.convert.pytorch.op_schema import Schema
from armillary.lab.extrapolation.recorded.dimensions import Dim
from armillary.trace import Graph


@dataclass(eq=False, slots=True)
class Tensor:
    """A tensor during the lifetime of its memory.

    Attributes:
        dims: Its dimensions.
        storage: Number of its storage, and the offset in it.
        memory: Number of the allocation; a storage gets a new one each time it is allocated.
        at: Node that made it; -1: it existed before the graph began.
        writers: Calls that wrote it.
        integer: Whether its elements are whole numbers or truth values.
        width: Bytes of an element.
    """

    dims: tuple[Dim, ...]
    storage: tuple[int, int]
    memory: int
    at: int
    writers: list[Call] = field(default_factory=list)
    integer: bool = False
    width: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of its dimensions."""
        return tuple(dim.size for dim in self.dims)


Argument = Tensor | list[Any] | None


@dataclass(eq=False)
class Call:
    """A call of an operator.

    Attributes:
        node: Position in the graph.
        name: Such as ``aten::mm``.
        schema: As PyTorch declares it.
        given: Inputs as recorded.
        made: Outputs as recorded.
        inputs: Tensors, lists of them, or None for what is no tensor.
        outputs: Likewise.
        known: Whether a rule says which dimensions are the same.
        inside: Whether it called other operators.
    """

    node: int
    name: str
    schema: Schema
    text: str
    given: Arguments
    made: Arguments
    inputs: list[Argument] = field(default_factory=list)
    outputs: list[Argument] = field(default_factory=list)
    known: bool = False
    inside: bool = False

    def at(self, name: str, default: int) -> int:
        """Return the position of an argument."""
        return self.schema.position.get(name, default)

    def argument(self, name: str, default: int = -1) -> Argument:
        """Return a tensor argument, or a list of some; None where there is none."""
        at = self.at(name, default)
        return self.inputs[at] if 0 <= at < len(self.inputs) else None

    def tensor(self, name: str, default: int = -1) -> Tensor | None:
        """Return a tensor argument."""
        found = self.argument(name, default)
        return found if isinstance(found, Tensor) else None

    def value(self, name: str, default: int = -1) -> Any:
        """Return the recorded value of an argument; None where there is none."""
        at = self.at(name, default)
        return self.given.values[at] if 0 <= at < len(self.given.values) else None

    def result(self, number: int = 0) -> Tensor | None:
        """Return a result."""
        found = self.outputs[number] if number < len(self.outputs) else None
        return found if isinstance(found, Tensor) else None


def flat(argument: Argument) -> Iterator[Tensor]:
    """Yield the tensors of an argument."""
    if isinstance(argument, Tensor):
        yield argument
    elif isinstance(argument, list):
        for each in argument:
            yield from flat(each)


@lru_cache(maxsize=1 << 12)
def _list(text: str) -> list[Any]:
    """Return a list as Python writes it, which a trace has as text; [] where it is none."""
    try:
        # JSON is the fast path: lists differ from it in quotes and constants only, but for a few that
        # `literal_eval` reads.
        found = json_within(
            text.replace("'", '"').replace("True", "true").replace("False", "false").replace("None>", "none>")
        )
    except ValueError:
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return []
    return found if isinstance(found, list) else []


def arguments_of(io: tuple[str, str, str]) -> Arguments:
    """Return the inputs or outputs of a node."""
    values, shapes, types = (_list(text) for text in io)
    return Arguments(values, shapes, types)


def call_of(graph: Graph, node: int, name: str, schema: Schema, text: str) -> Call | None:
    """Return the call that a node records; None where its lists do not fit each other."""
    io = graph.io(node)
    given, made = (arguments_of(io.get(side, ("[]", "[]", "[]"))) for side in ("inputs", "outputs"))
    if any(not len(side.values) == len(side.shapes) == len(side.types) for side in (given, made)):
        return None
    return Call(node, name, schema, text, given, made)


Record = tuple[int, int, int, tuple[int, ...], bool, int]
"""A tensor: number, storage, offset, shape, whole numbers, bytes of an element."""


def records_of(side: Arguments) -> list[Any]:
    """Return the tensors of one side, lists of them, or None."""
    return [
        _record(kind_of(text), value, shape, text)
        for text, value, shape in zip(side.types, side.values, side.shapes, strict=True)
    ]


def _record(kind: Any, value: Any, shape: Any, text: str) -> Any:
    if kind is None or kind == UNDEFINED or not isinstance(value, list):
        return None
    if isinstance(kind, tuple):
        if not isinstance(shape, list) or not len(kind) == len(value) == len(shape):
            return None
        return [_record(*each, text) for each in zip(kind, value, shape, strict=True)]
    if (
        len(value) < 5
        or not isinstance(shape, list)
        or not all(type(each) is int for each in (*value[:5], *shape))
    ):
        return None
    integer = any(word in text for word in ("int", "long", "bool", "short", "char", "byte"))
    return int(value[0]), int(value[1]), int(value[2]), tuple(shape), integer, int(value[4])


def flat_records(records: Any) -> Iterator[Record]:
    """Yield the tensors of `records_of`, also those in lists."""
    for each in records:
        if isinstance(each, list):
            yield from flat_records(each)
        elif each is not None:
            yield each
