"""Iterations of while loops: noted by the compiler, or counted by evaluating the loop's own scalars."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from armillary.convert.hlo.module import Computation, Instruction, Module

_INTEGER = re.compile(r"-?\d{1,18}")
_INDEX = re.compile(r"\d{1,9}")
_DEEPEST = 60
_EVALUATIONS = 300_000
"""Most instructions evaluated for one module; loops that are not counted by then have unknown trips."""

_BINARY: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "maximum": max,
    "minimum": min,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
}
_SAME = frozenset(("copy", "bitcast", "convert", "reshape"))

Known = Any
"""A scalar, a list of them for a tuple, or None for an unknown value."""


class Trips:
    """Finds the number of iterations of the loops of a module."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._left = _EVALUATIONS
        self._of: dict[Instruction, int | None] = {}

    def of(self, loop: Instruction) -> int | None:
        """Return the iterations of a while loop, None where they depend on more than constants and counters."""
        if loop not in self._of:
            noted = _noted(loop)
            self._of[loop] = self._count(loop) if noted is None else noted
        return self._of[loop]

    def scalar(self, one: Instruction) -> int | None:
        """Return the value of an instruction if it follows from constants alone, else None."""
        found = self._value(one, {}, 0)
        return found if isinstance(found, int) else None

    def _count(self, loop: Instruction) -> int | None:
        condition, body = self.module.callee(loop, "condition"), self.module.callee(loop, "body")
        state = self._value(loop.operands[0], {}, 0) if loop.operands else None
        # Only the elements that the condition reads are followed: the others are mostly arrays. A counter
        # that depends on another element becomes unknown, and with it the number of trips.
        used = [
            int(one.attributes["index"])
            for one in condition.instructions
            if one.opcode == "get-tuple-element" and _INDEX.fullmatch(one.attributes.get("index", ""))
        ]
        count = 0
        while isinstance(state, list):
            go_on = self._run(condition, [state], 0)
            if not isinstance(go_on, int):
                return None
            if not go_on:
                return count
            count += 1
            state = self._step(body, state, used)
        return None

    def _step(self, body: Computation, state: list[Known], used: list[int]) -> list[Known]:
        """Return the next state; elements that are not in `used` are unknown (None)."""
        memo: dict[Instruction, Known] = dict.fromkeys(body.parameters.values(), state)
        after: list[Known] = [None] * len(state)
        results = body.result.operands if body.result.opcode == "tuple" else ()
        for index in used:
            if index < min(len(results), len(state)):
                after[index] = self._value(results[index], memo, 0)
        return after

    def _run(self, computation: Computation, arguments: Sequence[Known], depth: int) -> Known:
        given = computation.parameters.items()
        memo = {one: arguments[number] for number, one in given if number < len(arguments)}
        return self._value(computation.result, memo, depth)

    def _value(self, one: Instruction, memo: dict[Instruction, Known], depth: int) -> Known:
        if one not in memo:
            # Remains so where the evaluation is too deep or too long.
            memo[one] = None
            self._left -= 1
            if depth < _DEEPEST and self._left > 0:
                memo[one] = self._evaluate(one, memo, depth + 1)
        return memo[one]

    def _evaluate(self, one: Instruction, memo: dict[Instruction, Known], depth: int) -> Known:
        if one.opcode == "constant":
            text = {"true": "1", "false": "0"}.get(one.argument, one.argument)
            return int(text) if not one.shape.dims and _INTEGER.fullmatch(text) else None
        if one.opcode == "get-tuple-element" and one.operands:
            whole, index = self._value(one.operands[0], memo, depth), one.attributes.get("index", "")
            inside = isinstance(whole, list) and _INDEX.fullmatch(index) and int(index) < len(whole)
            return whole[int(index)] if inside else None
        if one.opcode == "tuple":
            return [self._value(operand, memo, depth) for operand in one.operands]
        if one.shape.parts or one.shape.dims:
            return None
        name = one.attributes.get("direction", "") if one.opcode == "compare" else one.opcode
        if name not in _BINARY and name not in _SAME and name not in ("fusion", "call"):
            return None
        given = [self._value(operand, memo, depth) for operand in one.operands]
        if name in ("fusion", "call"):
            return self._run(self.module.callee(one, "calls", "to_apply"), given, depth)
        if not all(isinstance(value, int) for value in given):
            return None
        if name in _SAME:
            return given[0] if len(given) == 1 else None
        result = int(_BINARY[name](*given)) if len(given) == 2 else None
        # XLA's integers would wrap around; Python's grow instead, so that large results are left unknown.
        return result if result is not None and abs(result) < 1 << 62 else None


def _noted(loop: Instruction) -> int | None:
    """Return ``known_trip_count`` of ``backend_config``."""
    config = loop.config()
    count = config.get("known_trip_count") if isinstance(config, dict) else None
    number = str(count.get("n")) if isinstance(count, dict) else ""
    return int(number) if re.fullmatch(r"\d{1,18}", number) else None
