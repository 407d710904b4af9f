"""Symbols of tokens: what describes a node besides numbers (its kind, its operator, and how it communicates)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from armillary.base.errors import InputError
from armillary.lab.learned.archive import whole
from armillary.trace import CollectiveType, NodeType
from armillary.trace.attention import ATTENTION, Attention
from armillary.trace.columns import INTEGER_KINDS, KINDS
from armillary.trace.gemm import GEMM

GEMMS = 2
"""GEMMs of a node that have columns."""
GEMM_COLUMNS = tuple(f"gemm.{at}.{name}" for at in range(GEMMS) for name in ("calls", "batch", "m", "n", "k"))
ATTENTION_COLUMNS = tuple(f"attention.{name}" for name in Attention._fields)
VALUES = (
    "duration_ns", "num_ops", "tensor_size", "comm_size", "comm_tag", "comm_src", "comm_dst", "comm_root",
    "comm_priority", "stream", "tid", "gap", "delay_ns", "layer", "micro_batch",
)  # fmt: skip
"""Attributes that are columns of numbers."""
CONSTANTS = (
    "is_cpu_op", "comm_type", "pg_name", "comm_axis", "precision", "in_switch", "tensor_loc", "involved_dim",
)  # fmt: skip
"""Attributes that belong to the symbol; so do the ends of a message that goes along an axis."""
COLUMNS = ("number", "duration_micros", *VALUES, *GEMM_COLUMNS, *ATTENTION_COLUMNS)
"""Numeric columns of a token; `number` is the first number in the node's name."""
AT = {name: at for at, name in enumerate(COLUMNS)}
GEMM_AT, ATTENTION_AT = AT[GEMM_COLUMNS[0]], AT[ATTENTION_COLUMNS[0]]
LISTS = {GEMM: (GEMM_AT, 5), ATTENTION: (ATTENTION_AT, len(ATTENTION_COLUMNS))}
"""Attributes that are lists of numbers in columns: the first column, and the numbers of one entry."""
NUMBERS = 2**31
"""Bound of the numbers in names."""
Entry = tuple[str, str, Any]
"""An attribute: name, kind, and its constant value; None: it is in a column (of `LISTS`: how many entries)."""


@dataclass(frozen=True)
class Symbol:
    """The class of a token.

    Attributes:
        kind: `NodeType`.
        name: Name of the node, with ``#`` for the first number in it.
        layout: Its attributes, in order.
    """

    kind: int
    name: str
    layout: tuple[Entry, ...]

    def constant(self, name: str, default: Any = None) -> Any:
        """Return the value of a constant attribute."""
        return next((value for key, _, value in self.layout if key == name and value is not None), default)

    @property
    def columns(self) -> tuple[int, ...]:
        """Numeric columns that the symbol uses."""
        found = [AT["number"]] if "#" in self.name else []
        for key, _, value in self.layout:
            if key in LISTS:
                first, size = LISTS[key]
                found += range(first, first + size * value)
            elif value is None:
                found.append(AT[key])
        return tuple(found)

    @property
    def group(self) -> str | None:
        """Axis set or number of the group of a collective, "" for all ranks; None for other nodes."""
        return str(self.constant("pg_name", "")) if self.kind == NodeType.COMM_COLL_NODE else None

    @property
    def role(self) -> str:
        """How it communicates, as text: type and group, or axis and steps; "" for other nodes."""
        if self.kind == NodeType.COMM_COLL_NODE:
            kind = CollectiveType(self.constant("comm_type", 0)).name.lower().replace("_", "-")
            return f"{kind} {self.group or 'all'}"
        if self.kind in (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE):
            steps = self.constant("comm_dst", self.constant("comm_src"))
            end = f" {self.constant('comm_axis', '')}{steps:+d}" if steps is not None else ""
            return ("send" if self.kind == NodeType.COMM_SEND_NODE else "recv") + end
        return ""


class Vocabulary:
    """Symbols and their numbers; it grows while traces are read."""

    def __init__(self, symbols: Iterable[Symbol] = ()) -> None:
        self.symbols: list[Symbol] = []
        self._index: dict[Symbol, int] = {}
        self._kinds = self._groups = np.zeros(0, np.int64)
        for symbol in symbols:
            self.number(symbol)

    def __len__(self) -> int:
        return len(self.symbols)

    def number(self, symbol: Symbol) -> int:
        """Return the number of a symbol, a new one if it has none yet."""
        if symbol not in self._index:
            self._index[symbol] = len(self.symbols)
            self.symbols.append(symbol)
        return self._index[symbol]

    def kinds(self) -> NDArray[np.int64]:
        """Return the node type of every symbol."""
        # The vocabulary only grows, so its length tells whether the cached array is complete.
        if len(self._kinds) != len(self):
            self._kinds = np.array([symbol.kind for symbol in self.symbols], np.int64)
        return self._kinds

    def groups(self) -> NDArray[np.int64]:
        """Return a number for the group of every symbol, -1: none."""
        if len(self._groups) != len(self):
            known: dict[str, int] = {}
            names = [symbol.group for symbol in self.symbols]
            found = [-1 if name is None else known.setdefault(name, len(known)) for name in names]
            self._groups = np.array(found, np.int64)
        return self._groups

    def to_json(self) -> list[Any]:
        """Return the symbols as plain JSON values."""
        return [[each.kind, each.name, [list(entry) for entry in each.layout]] for each in self.symbols]

    @classmethod
    def from_json(cls, found: Sequence[Any], where: str) -> Vocabulary:
        """Return the vocabulary that `to_json` described.

        Raises:
            InputError: it cannot be read; `where` names the file.
        """
        try:
            return cls(_symbol(each) for each in found)
        except (TypeError, ValueError, KeyError) as error:
            raise InputError(
                f"{where}: the vocabulary cannot be read, expected that of `armillary generate learn`"
            ) from error


def split_name(name: str) -> tuple[str, int]:
    """Return a name with ``#`` for the first number in it, and that number; 0: it has none."""
    # A name that has a # of its own gets ♯ for it, so that # always stands for the number. Numbers with
    # leading zeros stay text, since they would come back without them.
    if "#" in name or (found := re.search(r"(?<![0-9])(?:0|[1-9][0-9]{0,8})(?![0-9])", name)) is None:
        return name.replace("#", "♯"), 0
    return f"{name[: found.start()]}#{name[found.end() :]}", int(found.group())


def token_keys(symbols: Sequence[int], vocabulary: Vocabulary) -> list[tuple[str, int, int]]:
    """Return name, kind and occurrence of every token of a piece."""
    known: dict[tuple[str, int], int] = {}
    found = []
    for at in symbols:
        symbol = vocabulary.symbols[at]
        key = (symbol.name, int(symbol.kind))
        found.append((*key, known.get(key, 0)))
        known[key] = known.get(key, 0) + 1
    return found


def _symbol(found: Any) -> Symbol:
    kind, name, layout = found
    entries = []
    for key, attribute, value in layout:
        # No value means a column, which constants do not have.
        known = key in CONSTANTS or key in VALUES or key in LISTS
        if not known or attribute not in KINDS or (key in CONSTANTS and value is None):
            raise ValueError(key)
        if key in LISTS:
            whole(value, key, 1, GEMMS if key == GEMM else 1)
        elif value is None:
            if KINDS[attribute] not in INTEGER_KINDS:
                raise ValueError(f"{key}: {attribute}, expected a kind of integer")
        else:
            _check_constant(key, attribute, value)
        entries.append((key, attribute, tuple(value) if isinstance(value, list) else value))
    return Symbol(NodeType(kind), str(name), tuple(entries))


def _check_constant(key: str, attribute: str, value: Any) -> None:
    """Check that a constant is of its kind.

    Raises:
        ValueError: it is not.
    """
    if attribute == "string":
        fits = isinstance(value, str)
    elif attribute.endswith("_list"):
        fits = isinstance(value, list) and all(isinstance(each, int) for each in value)
    else:
        fits = isinstance(value, int) and KINDS[attribute] in INTEGER_KINDS
    if not fits:
        raise ValueError(f"{key}: {value!r:.40}, expected a value of kind {attribute}")
