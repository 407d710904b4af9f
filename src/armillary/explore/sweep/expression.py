"""Expressions of sweep files: arithmetic and comparisons over named numbers only."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from types import CodeType
from typing import Any

from armillary.base import portable
from armillary.base.errors import InputError, nearest, one_of
from armillary.explore.sweep.quantity import base_units, number_of

Number = int | float | bool


def _log2(x: Any) -> float:
    _numbers(x)
    if x <= 0:
        raise ValueError("expected a number above 0")
    return portable.log2(float(x))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min, "max": max, "abs": abs, "ceil": math.ceil, "floor": math.floor,
    "log2": _log2,
}  # fmt: skip
LONGEST = 1000
"""Most characters of an expression."""
_MOST_BITS = 1024
# A list of what is allowed, not of what is not: attributes, subscripts and lambdas, by which
# Python code escapes a sandbox, are refused with everything else.
_NODES = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.BinOp, ast.Add,
    ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE,
    ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.IfExp, ast.Call, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.List,
)  # fmt: skip
_QUANTITY = re.compile(
    r"'[^']*'|\"[^\"]*\"|"  # texts stay as they are
    # A number that ends no name, and a unit after it; % is a unit unless an operand follows.
    r"(?<![\w.])(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)(?![\d.]|[eE][+-]?\d)"
    r"\s*(?P<unit>%(?!\s*[\w(.])|[A-Za-zµμ]\w*(?:/s)?)"
)
_WORDS = ("and", "or", "not", "in", "if", "else", "is")


class Expression:
    """A checked expression.

    It may contain numbers, texts in quotes, ``+ - * / // % **``, comparisons, ``and or not in``, ``a if b else c``, the
    `FUNCTIONS` and names. Quantities such as ``60 GiB`` are numbers in base units (bytes, s, byte/s, FLOP/s).

    Attributes:
        text: As written.
        names: Names that it reads.
    """

    def __init__(self, text: str) -> None:
        """Read an expression.

        Raises:
            InputError: it is malformed, or has something else in it.
        """
        self.text = " ".join(text.split())
        if not self.text or len(self.text) > LONGEST:
            raise InputError(f"got {len(self.text)} characters, expected an expression of 1 to {LONGEST}")
        # Units become plain numbers before Python parses the text.
        self._source = _QUANTITY.sub(_plain, self.text)
        self.names = frozenset(
            node.id for node in ast.walk(self._tree()) if isinstance(node, ast.Name)
        ) - frozenset(FUNCTIONS)

    def __getstate__(self) -> dict[str, Any]:
        # Code objects cannot be pickled; `_code` is compiled again where it is needed.
        return {"text": self.text, "_source": self._source, "names": self.names}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def _tree(self) -> ast.Expression:
        try:
            tree = ast.parse(self._source, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            why = error.msg if isinstance(error, SyntaxError) else "too long"
            raise InputError(f"'{self.text}' is no expression: {why}") from None
        for node in ast.walk(tree):
            _check(node, self.text)
        return tree

    @cached_property
    def _code(self) -> CodeType:
        # The tree was checked before the guards came in, so a text cannot name them itself.
        tree = ast.fix_missing_locations(_Guard().visit(self._tree()))
        return compile(tree, "<expression>", "eval")

    def check_names(self, known: Mapping[str, object] | frozenset[str] | set[str]) -> None:
        """Check that every name is known.

        Raises:
            InputError: one is not; it names the nearest.
        """
        for name in sorted(self.names):
            if name not in known:
                raise InputError(f"'{self.text}': no such name '{name}'{nearest(name, known)}")

    def value(self, names: Mapping[str, Any]) -> Any:
        """Return the value; `names` holds at least `self.names`.

        Raises:
            InputError: there is no such value: a division by zero, a text as a number, a name without a value.
        """
        try:
            found = eval(self._code, dict(_GLOBALS), names)
        except NameError as error:
            raise InputError(f"'{self.text}': {error.name} is not known here") from None
        except (ArithmeticError, TypeError, ValueError) as error:
            # An absent value (None) causes most type errors, so name it instead.
            nothing = [name for name in sorted(self.names) if names.get(name) is None]
            why = f"{', '.join(nothing)} has no value" if nothing else str(error)
            raise InputError(f"'{self.text}': {why}") from None
        if isinstance(found, complex) or (isinstance(found, float) and not math.isfinite(found)):
            raise InputError(f"'{self.text}' = {found}, expected a finite number")
        return found


class _Guard(ast.NodeTransformer):
    """Bounds operations whose results can grow without limit, and parses quoted quantities like values of axes."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant(number_of(node.value))

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Pow | ast.Mult):
            return node
        # Only these two can make integers of any size from short texts; + adds a bit.
        name = "_power" if isinstance(node.op, ast.Pow) else "_product"
        return ast.Call(ast.Name(name, ast.Load()), [node.left, node.right], [])


def _power(a: Any, b: Any) -> Any:
    _numbers(a, b)
    # The result has about bits(a) × b bits: 9**9**9 would never end.
    if isinstance(a, int) and isinstance(b, int) and abs(a).bit_length() * max(b, 1) > _MOST_BITS:
        raise OverflowError("too large")
    if a <= 0 or (isinstance(a, int) and isinstance(b, int) and b >= 0):
        return a**b
    # Powers of floats are the C library's, which differ from machine to machine in the last bit.
    if math.isinf(found := portable.power(float(a), float(b))):
        raise OverflowError("out of range")
    return found


def _product(a: Any, b: Any) -> Any:
    _numbers(a, b)
    if isinstance(a, int) and isinstance(b, int) and a.bit_length() + b.bit_length() > 2 * _MOST_BITS:
        raise OverflowError("too large")
    return a * b


def _numbers(*values: Any) -> None:
    for value in values:
        if not isinstance(value, int | float):
            raise TypeError(f"got {value!r}, expected a number")


_GLOBALS = {"__builtins__": {}, "_power": _power, "_product": _product, **FUNCTIONS}


def _plain(match: re.Match[str]) -> str:
    # Quoted texts, and words such as `and` that follow a number, are no units.
    if match["unit"] is None or match["unit"] in _WORDS:
        return match[0]
    value = base_units(match[0])
    if value is None:
        raise InputError(f"'{match[0]}': no such unit, expected e.g. '60 GiB', '10 s', '50 GB/s' or '10 %'")
    # In parentheses, so that a number before or after it does not merge with it.
    return f"({value[0]!r})"


def _check(node: ast.AST, text: str) -> None:
    if not isinstance(node, _NODES):
        what = type(node).__name__.lower()
        raise InputError(
            f"'{text}': {what} is not allowed, expected arithmetic, comparisons and {one_of(FUNCTIONS)}"
        )
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS or node.keywords:
            called, hint = name or ast.unparse(node.func), nearest(name, FUNCTIONS)
            raise InputError(f"'{text}': a call of '{called}', expected {one_of(FUNCTIONS)}{hint}")
    if isinstance(node, ast.Constant) and not isinstance(node.value, int | float | str):
        raise InputError(f"'{text}': got {node.value!r}, expected numbers and texts in quotes")
    # Names of the guards, and dunder names, are out of reach.
    if isinstance(node, ast.Name) and node.id.startswith("_"):
        raise InputError(f"'{text}': no such name '{node.id}'")
