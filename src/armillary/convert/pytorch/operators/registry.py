"""The rules that compute the work of an operator, by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from armillary.convert.pytorch.arguments import Arguments, MalformedError, held, kind_of, measure
from armillary.convert.pytorch.op_schema import Argument, Schema


@dataclass(frozen=True, slots=True)
class Work:
    """What an operator computes and moves."""

    flops: int
    """Floating-point operations, a multiply-add being two."""
    bytes: int
    """Bytes of memory read and written."""


class Operator:
    """One recorded call, as the rules see it."""

    def __init__(self, name: str, schema: Schema | None, inputs: Arguments, outputs: Arguments) -> None:
        self.name = name
        self.schema = schema or _guess(name, inputs, outputs)
        self.inputs = inputs
        self.outputs = outputs

    def at(self, name: str, position: int) -> int:
        """Return the position of the argument `name`; `position` if the schema has no such name."""
        return self.schema.position.get(name, position)

    def value(self, name: str, position: int) -> Any:
        """Return the recorded value of an argument."""
        return self.inputs.values[self.at(name, position)]

    def shape(self, name: str, position: int) -> list[int]:
        """Return the shape of a tensor argument."""
        return _checked(self.inputs.shapes[self.at(name, position)])

    def result_shape(self, position: int = 0) -> list[int]:
        """Return the shape of a result."""
        return _checked(self.outputs.shapes[position])

    def size(self, name: str, position: int) -> tuple[int, int]:
        """Return the elements and the bytes of all tensors of an argument; 0 where there is no tensor."""
        return self._measure(self.inputs, self.at(name, position))

    def result_size(self, position: int = 0) -> tuple[int, int]:
        """Return the elements and the bytes of all tensors of a result."""
        return self._measure(self.outputs, position)

    def _measure(self, side: Arguments, at: int) -> tuple[int, int]:
        kind, value, shape = kind_of(side.types[at]), side.values[at], side.shapes[at]
        found = measure(kind, value, shape)
        strides = side.strides
        if strides and at < len(strides) and (dense := held(shape, strides[at])) != shape:
            return found[0], measure(kind, value, dense)[1]
        return found

    @cached_property
    def traffic(self) -> tuple[int, int, int]:
        """Bytes read, bytes written, and elements of the first tensor or list of tensors written."""
        read = written = 0
        elements = -1
        inputs, outputs, arguments = self.inputs, self.outputs, self.schema.arguments
        for side in (inputs, outputs):
            if not len(side.types) == len(side.values) == len(side.shapes):
                raise MalformedError(side.types)
        for at, text in enumerate(inputs.types):
            if kind_of(text) is None:
                continue
            count, size = self._measure(inputs, at)
            if at < len(arguments) and arguments[at].written:
                written += size
                # The first written tensor alone: further ones, such as the mask of dropout, are by-products.
                elements = count if elements < 0 else elements
                if arguments[at].result_only:
                    continue
            read += size
        new = self.schema.new_results
        for at, text in enumerate(outputs.types):
            # An alias of an argument was counted with that argument.
            if kind_of(text) is None or (at < len(new) and not new[at]):
                continue
            count, size = self._measure(outputs, at)
            written += size
            elements = count if elements < 0 else elements
        return read, written, max(elements, 0)

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.traffic[0] + self.traffic[1]

    @property
    def elements(self) -> int:
        """Elements of the first tensor or list of tensors written."""
        return self.traffic[2]


def _checked(shape: Any) -> list[int]:
    if type(shape) is not list or any(type(size) is not int or size < 0 for size in shape):
        raise MalformedError(shape)
    return shape


def _guess(name: str, inputs: Arguments, outputs: Arguments) -> Schema:
    """Return a schema for `name` by PyTorch's convention: a trailing underscore writes the first argument."""
    in_place = name.endswith("_") and not name.endswith("__")
    arguments = tuple(Argument("", in_place and not at) for at in range(len(inputs.types)))
    return Schema(name, arguments, tuple(not in_place for _ in outputs.types))


Rule = Callable[[Operator], int | Work]
"""Returns FLOPs, to which bytes read and written are added, or both."""

R = TypeVar("R", bound=Rule)

_RULES: dict[str, tuple[str, Rule]] = {}


def rule(family: str, *names: str) -> Callable[[R], R]:
    """Register a rule for the operators `names` of ``aten``, or of another namespace if they name it.

    It also serves their in-place forms (``add_``) and their forms for lists (``_foreach_add``).
    """

    def register(function: R) -> R:
        for name in names:
            key = name if "::" in name else f"aten::{name}"
            # Two rules would make the work depend on the order of imports.
            if key in _RULES:
                raise ValueError(f"two rules for {key}: {_RULES[key][0]} and {family}")
            _RULES[key] = family, function
        return function

    return register


def rule_of(name: str) -> tuple[str, Rule] | None:
    """Return the family and the rule of the operator `name`, such as ``aten::mm``."""
    # From specific to general: an operator may have a rule of its own for its in-place or list form;
    # ``__iand__`` ends with underscores but is no in-place form.
    base = name.replace("::_foreach_", "::", 1)
    for key in (name, base, base[:-1] if base.endswith("_") and not base.endswith("__") else base):
        if key in _RULES:
            return _RULES[key]
    return None
