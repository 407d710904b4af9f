"""Read ASTRA-sim 1.0 text workloads, SimAI's variant of them, and LIBRA's, which have no header.

A header is the parallelism kind with its options, then the number of layers; a layer is a line of twelve columns: name,
a reserved number, time, collective and bytes of forward, input gradient and weight gradient, and the update time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NoReturn

from armillary.convert.text.kinds import DLRM, SCOPES, Phase, Scope
from armillary.errors import InputError, nearest, one_of
from armillary.trace import CollectiveType

COLLECTIVES = {
    "NONE": None,
    "ALLREDUCE": CollectiveType.ALL_REDUCE,
    "ALLGATHER": CollectiveType.ALL_GATHER,
    "REDUCESCATTER": CollectiveType.REDUCE_SCATTER,
    "ALLTOALL": CollectiveType.ALL_TO_ALL,
    "BROADCAST": CollectiveType.BROADCAST,
}
SUFFIXES = {"_DP_EP": Scope.DP_EP, "_EP": Scope.EP}
NUMBERS = (
    "model_parallel_NPU_group",
    "ep",
    "pp",
    "vpp",
    "ga",
    "all_gpus",
    "pp_comm",
    "DLRM_LAST_BOTTOM_LAYER",
)
LISTS = ("checkpoints", "checkpoint_initiates")
SIMAI = ("ep", "pp", "vpp", "ga", "all_gpus", "pp_comm")
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d{1,3})?", re.ASCII)
_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)
_LIMIT = 2**62


@dataclass(frozen=True)
class Part:
    """One phase of a layer: compute, then perhaps a collective."""

    ns: int
    collective: CollectiveType | None
    size: int
    scope: Scope | None
    """Named by a suffix of the collective."""


@dataclass(frozen=True)
class Layer:
    """One line."""

    name: str
    parts: tuple[Part, Part, Part]
    update_ns: int
    kind: str
    """Of this layer, in HYBRID_CUSTOMIZED."""


@dataclass(frozen=True)
class Workload:
    """A text workload."""

    path: Path
    kind: str
    options: dict[str, int]
    checkpoints: tuple[int, ...]
    initiates: tuple[int, ...]
    layers: tuple[Layer, ...]
    warnings: tuple[str, ...]

    @property
    def simai(self) -> bool:
        """Whether the header is SimAI's."""
        return any(key in self.options for key in SIMAI)


@dataclass(frozen=True)
class _Word:
    text: str
    line: int
    column: int


def read(path: Path, unit_ns: int = 1, kind: str | None = None) -> Workload:
    """Read a text workload.

    Args:
        path: the file.
        unit_ns: nanoseconds of a unit of time in the file.
        kind: parallelism kind of a file that names none; None: found from its collectives.

    Raises:
        InputError: it cannot be read; names line, column, value and what was expected.
    """
    return _Reader(path, unit_ns).workload(kind)


class _Reader:
    def __init__(self, path: Path, unit_ns: int) -> None:
        self.path = path
        self.unit_ns = unit_ns
        self.warnings: list[str] = []
        self.lines = [words for words in self._words() if words]

    def _words(self) -> list[list[_Word]]:
        try:
            text = self.path.read_bytes().decode("utf-8-sig")
        except OSError as error:
            raise InputError(
                f"{self.path}: {error.strerror or error}, expected a text workload of ASTRA-sim 1.0"
            ) from error
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path}: byte {error.start} is not UTF-8, expected text") from error
        return [
            [_Word(match[0], number, match.start() + 1) for match in re.finditer(r"\S+", line)]
            for number, line in enumerate(text.split("\n"), 1)
        ]

    def fail(self, word: _Word, what: str, expected: str) -> NoReturn:
        raise InputError(
            f"{self.path}: line {word.line}, column {word.column}: {what} is '{word.text}', expected {expected}"
        )

    def workload(self, kind: str | None) -> Workload:
        if not self.lines:
            raise InputError(f"{self.path}: is empty, expected a parallelism kind such as DATA, or layers")
        first = self.lines[0]
        options: dict[str, list[int]] = {}
        found = ""
        if not _is_layer(first) and not (len(first) == 1 and _INTEGER.fullmatch(first[0].text)):
            found = self._kind(first[0], "the parallelism kind")
            options = self._options(found, first)
            self.lines.pop(0)
        layers = self._layers(self._count(), found)
        if not found:
            found = kind or _guess(layers)
            if found not in SCOPES or found in (*DLRM, "HYBRID_CUSTOMIZED"):
                known = [name for name in SCOPES if name not in (*DLRM, "HYBRID_CUSTOMIZED")]
                raise InputError(f"--kind is '{found}', expected {one_of(known)}{nearest(found, known)}")
            self.warnings.append(
                f"the file names no parallelism kind, {found} {'given' if kind else 'assumed'}"
            )
        elif kind:
            raise InputError(
                f"{self.path}: --kind {kind} is given, but the file says {found}; expected one of them"
            )
        single = {key: values[0] for key, values in options.items() if key not in LISTS}
        checkpoints, initiates = (self._named(key, options.get(key, [0])[1:], len(layers)) for key in LISTS)
        if found in DLRM and not 0 <= single.get("DLRM_LAST_BOTTOM_LAYER", -1) < len(layers):
            raise InputError(
                f"{self.path}: line {first[0].line}: {found} names no last bottom layer from 0 to {len(layers) - 1}, "
                f"expected '{found} 4' or the like"
            )
        return Workload(self.path, found, single, checkpoints, initiates, tuple(layers), tuple(self.warnings))

    def _named(self, key: str, numbers: list[int], layers: int) -> tuple[int, ...]:
        for number in numbers:
            if not 0 <= number < layers:
                raise InputError(f"{self.path}: {key} names layer {number}, expected 0 to {layers - 1}")
        return tuple(numbers)

    def _kind(self, word: _Word, what: str) -> str:
        if word.text not in SCOPES:
            self.fail(word, what, f"{one_of(SCOPES)}{nearest(word.text, SCOPES)}")
        return word.text

    def _options(self, kind: str, line: list[_Word]) -> dict[str, list[int]]:
        """Return the numbers after each name of the header, which may end in a colon or not."""
        options: dict[str, list[int]] = {}
        names = {name.lower(): name for name in (*NUMBERS, *LISTS)}
        name = "DLRM_LAST_BOTTOM_LAYER" if kind in DLRM else ""
        at = line[0]
        parts = [
            _Word(match[0], word.line, word.column + match.start())
            for word in line[1:]
            for match in re.finditer(r"[^:]+", word.text)
        ]
        for word in parts:
            if not _INTEGER.fullmatch(word.text):
                self._complete(name, options, at)
                at, name = word, names.get(word.text.lower(), word.text)
                if name in options:
                    self.fail(word, "an option", "each once")
                options[name] = []
            elif not name:
                self.fail(word, "an option", f"a name, such as {NUMBERS[0]}, before the number")
            else:
                options.setdefault(name, []).append(int(word.text))
        self._complete(name, options, at)
        unknown = [name for name in options if name not in (*NUMBERS, *LISTS)]
        if unknown:
            self.warnings.append(f"header: {', '.join(unknown)} not known, ignored")
        return {name: values for name, values in options.items() if name not in unknown}

    def _complete(self, name: str, options: dict[str, list[int]], at: _Word) -> None:
        values = options.get(name)
        if values is None:
            return
        if name in LISTS:
            if not values or len(values) != values[0] + 1:
                self.fail(
                    at, "an option", f"the number of layers and as many layers after it, found {values}"
                )
        elif len(values) != 1 or values[0] < 0:
            self.fail(at, "an option", f"one number from 0 after it, found {values}")

    def _count(self) -> int | None:
        if not self.lines or len(self.lines[0]) != 1:
            return None
        word = self.lines.pop(0)[0]
        if not _INTEGER.fullmatch(word.text) or int(word.text) < 1:
            self.fail(word, "the number of layers", "a whole number from 1")
        return int(word.text)

    def _layers(self, count: int | None, kind: str) -> list[Layer]:
        if not self.lines or len(self.lines) < (count or 1):
            raise InputError(
                f"{self.path}: ends after {len(self.lines)} layers, expected {count or 'at least 1'}"
            )
        if count and len(self.lines) > count:
            self.warnings.append(
                f"{len(self.lines) - count} lines after layer {count} are ignored, the file says {count} layers"
            )
        return [self._layer(words, kind == "HYBRID_CUSTOMIZED") for words in self.lines[:count]]

    def _layer(self, words: list[_Word], customized: bool) -> Layer:
        columns = _COLUMNS + customized * ("kind",)
        if len(words) != len(columns):
            last = words[min(len(words), len(columns) + 1) - 1]
            raise InputError(
                f"{self.path}: line {last.line}, column {last.column}: the layer has {len(words)} columns, the last "
                f"read is '{last.text}', expected {len(columns)}: {', '.join(columns)}"
            )
        parts = [self._part(*words[at : at + 3]) for at in (2, 5, 8)]
        kind = ""
        if customized:
            kind = self._kind(words[12], "the layer's kind")
            if kind == "HYBRID_CUSTOMIZED":
                self.fail(words[12], "the layer's kind", "another kind")
        return Layer(words[0].text, (parts[0], parts[1], parts[2]), self._time(words[11]), kind)

    def _part(self, time: _Word, collective: _Word, size: _Word) -> Part:
        base, suffix = _collective(collective.text)
        if base not in COLLECTIVES:
            self.fail(collective, "the collective", f"{one_of(COLLECTIVES)}{nearest(base, COLLECTIVES)}")
        size_bytes = self._number(size, "the size", "bytes", 1)
        return Part(self._time(time), COLLECTIVES[base], size_bytes, SUFFIXES.get(suffix))

    def _time(self, word: _Word) -> int:
        return self._number(word, "the time", "a time", self.unit_ns)

    def _number(self, word: _Word, what: str, kind: str, scale: int) -> int:
        if not _NUMBER.fullmatch(word.text) or Decimal(word.text) * scale >= _LIMIT:
            self.fail(word, what, f"{kind}, a number from 0, below 2^62 when scaled by {scale}")
        return round(Decimal(word.text) * scale)


_COLUMNS = (
    "name", "reserved", "forward time", "collective", "bytes", "input gradient time", "collective", "bytes",
    "weight gradient time", "collective", "bytes", "update time",
)  # fmt: skip


def _collective(text: str) -> tuple[str, str]:
    """Return a collective's name as in `COLLECTIVES`, if it is one, and its suffix."""
    name = text.upper()
    suffix = next((end for end in SUFFIXES if name.endswith(end)), "")
    return re.sub("[_-]", "", name.removesuffix(suffix)), suffix


def _is_layer(words: list[_Word]) -> bool:
    """Say whether a first line is a layer and no header."""
    if len(words) < 4 or words[0].text in SCOPES:
        return False
    return bool(_INTEGER.fullmatch(words[1].text)) or _collective(words[3].text)[0] in COLLECTIVES


def _guess(layers: list[Layer]) -> str:
    """Return the kind of a file that names none: what its activations and input gradients exchange tells."""
    inside = {
        layer.parts[phase].collective for layer in layers for phase in (Phase.FORWARD, Phase.INPUT_GRADIENT)
    } - {None}
    if not inside:
        return "DATA"
    return "ALL" if inside == {CollectiveType.ALL_TO_ALL} else "HYBRID_TRANSFORMER"
