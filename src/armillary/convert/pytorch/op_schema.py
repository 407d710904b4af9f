"""The schema text of a recorded operator: names of its arguments, and which of them it writes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

LONGEST = 10_000
"""Characters of a schema; PyTorch's longest have a tenth of them."""
_ALIAS = re.compile(r"Tensor\(([^)]*)\)")
_NAME = re.compile(r"(\w+) *(?:=.*)?$", re.DOTALL)


@dataclass(frozen=True)
class Argument:
    """One argument of an operator."""

    name: str
    written: bool
    """Whether the call updates it in place or fills it."""
    result_only: bool = False
    """Whether its prior contents do not matter: ``out=`` and the outputs of a collective."""


@dataclass(frozen=True)
class Schema:
    """A parsed schema, such as ``aten::add_.Tensor(Tensor(a!) self, …) -> Tensor(a!)``."""

    name: str
    """Without the overload: ``aten::add_``."""
    arguments: tuple[Argument, ...]
    new_results: tuple[bool, ...]
    """For each result, whether it is a new tensor rather than an alias of an argument."""

    @cached_property
    def position(self) -> dict[str, int]:
        """Position of every argument by its name."""
        return {argument.name: at for at, argument in enumerate(self.arguments) if argument.name}

    @cached_property
    def view(self) -> bool:
        """Whether all its results are views of arguments, and nothing is written."""
        written = any(argument.written for argument in self.arguments)
        return bool(self.new_results) and not any(self.new_results) and not written


@lru_cache(maxsize=1 << 14)
def parse_schema(text: str) -> Schema | None:
    """Return the schema that `text` is; None if it is not one, as for user annotations and autograd nodes."""
    if not isinstance(text, str) or len(text) > LONGEST:
        return None
    head, found, rest = text.partition("(")
    # The overload goes: ``add_.Tensor`` and ``add_.Scalar`` have one rule.
    name = head.partition(".")[0]
    end = _closing(rest)
    if not found or "::" not in name or end < 0:
        return None
    arguments: list[Argument] = []
    keyword_only = False
    for part in _split(rest[:end]):
        keyword_only = keyword_only or part == "*"
        match = _NAME.search(part)
        if part == "*" or match is None:
            continue
        # ``Tensor(a!)`` is written, ``Tensor(a)`` an alias that is only read.
        written = any("!" in alias for alias in _ALIAS.findall(part))
        # Written arguments behind ``*`` are ``out=`` tensors; before it they are updated in place.
        arguments.append(_collective(name, Argument(match[1], written, written and keyword_only)))
    results = rest[end + 1 :].partition("->")[2].strip()
    if results.startswith("(") and results.endswith(")"):
        results = results[1:-1]
    return Schema(name, tuple(arguments), tuple(not _ALIAS.search(result) for result in _split(results)))


def _collective(operator: str, argument: Argument) -> Argument:
    """Mark the arguments that a c10d collective writes: its schemas do not."""
    if not operator.startswith("c10d::"):
        return argument
    # The naming convention of c10d's ops: ``output_tensors`` are filled, ``tensors`` are reduced or
    # received in place.
    filled = argument.name.startswith("output") or operator == "c10d::recv_"
    updated = argument.name == "tensors" and operator != "c10d::send"
    return Argument(argument.name, filled or updated, filled)


def _closing(text: str) -> int:
    depth = 0
    for at, character in enumerate(text):
        if character == "(":
            depth += 1
        elif character == ")":
            if not depth:
                return at
            depth -= 1
    return -1


def _split(text: str) -> list[str]:
    """Return the parts of `text` between commas outside brackets."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    return [part for part in [*parts, text[start:].strip()] if part]
