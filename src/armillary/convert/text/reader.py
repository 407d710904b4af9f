"""Read ASTRA-sim 1.0 text workloads, SimAI's variant of them, and LIBRA's, which have no header.

A header is the parallelism kind with its options, then the number of layers; a layer is a line of twelve columns: name,
a reserved number, time, collective and bytes of forward, input gradient and weight gradient, and the update time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from armillary.base.errors import InputError, nearest, one_of
from armillary.convert.text.header import LISTS, Options, read_kind, read_options
from armillary.convert.text.kinds import DLRM, SCOPES, Phase, Scope, Word, read_lines
from armillary.trace import CollectiveType

COLLECTIVES = {
    "NONE": None,
    "ALLREDUCE": CollectiveType.ALL_REDUCE,
    "ALLGATHER": CollectiveType.ALL_GATHER,
    "REDUCESCATTER": CollectiveType.REDUCE_SCATTER,
    "ALLTOALL": CollectiveType.ALL_TO_ALL,
    "BROADCAST": CollectiveType.BROADCAST,
}
# The longer one first: _DP_EP ends in _EP.
SUFFIXES = {"_DP_EP": Scope.DP_EP, "_EP": Scope.EP}
SIMAI = ("ep", "pp", "vpp", "ga", "all_gpus", "pp_comm")
_NUMBER = re.compile(r"\d+(\.\d*)?([eE][+-]?\d{1,3})?", re.ASCII)
_LIMIT = 2**62


@dataclass(frozen=True)
class Part:
    """One phase of a layer: compute, then perhaps a collective."""

    ns: int
    collective: CollectiveType | None
    size: int
    scope: Scope | None
    """Scope named by a suffix of the collective, which overrides that of the kind."""


@dataclass(frozen=True)
class Layer:
    """One line."""

    name: str
    parts: tuple[Part, Part, Part]
    update_ns: int
    kind: str
    """Parallelism kind of this layer in HYBRID_CUSTOMIZED, else empty."""


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


def read(path: Path, unit_ns: int = 1, kind: str | None = None) -> Workload:
    """Read a text workload.

    Args:
        path: the file.
        unit_ns: nanoseconds of a unit of time in the file.
        kind: parallelism kind of a file that names none; None: inferred from its collectives.

    Raises:
        InputError: it cannot be read; names line, column, value and what was expected.
    """
    lines = read_lines(path)
    if not lines:
        raise InputError(f"{path}: is empty, expected a parallelism kind such as DATA, or layers")
    options: Options = {}
    warnings = []
    found = ""
    # LIBRA's files have no header: they begin with a layer or with the number of layers.
    if not _is_layer(lines[0]) and not (len(lines[0]) == 1 and lines[0][0].number is not None):
        first = lines.pop(0)
        found = read_kind(first[0], "the parallelism kind")
        options, unknown = read_options(found, first)
        if unknown:
            warnings.append(f"header: {', '.join(unknown)} not known, ignored")
        if kind:
            raise InputError(f"{path}: the file says {found}, expected no --kind, but it is {kind}")
    count = _count(lines)
    if not lines or len(lines) < (count or 1):
        raise InputError(f"{path}: ends after {len(lines)} layers, expected {count or 'at least 1'}")
    if count and len(lines) > count:
        warnings.append(f"the file says {count} layers: lines after them ignored ({len(lines) - count})")
    columns = len(_COLUMNS) + (found == "HYBRID_CUSTOMIZED")
    if wide := sum(len(words) > columns for words in lines[:count]):
        warnings.append(f"columns after the first {columns} ignored, on {wide} lines")
    layers = tuple(_layer(words, found == "HYBRID_CUSTOMIZED", unit_ns) for words in lines[:count])
    if not found and kind:
        found = _headless(kind)
    elif not found:
        found = _guess(layers)
        warnings.append(f"the file names no parallelism kind, {found} assumed")
    numbers = {key: values[0].number or 0 for key, values in options.items() if key not in LISTS}
    if found in DLRM and not 0 <= numbers.get("DLRM_LAST_BOTTOM_LAYER", -1) < len(layers):
        # Only a header can say DLRM (`_headless` refuses it), so `first` is bound.
        first[0].reject("the kind", f"its last bottom layer after it, from 0 to {len(layers) - 1}")
    checkpoints, initiates = (_numbers_of_layers(options.get(key, [])[1:], len(layers)) for key in LISTS)
    return Workload(path, found, numbers, checkpoints, initiates, layers, tuple(warnings))


def _count(lines: list[list[Word]]) -> int | None:
    """Remove the line with the number of layers from `lines` and return the number; None if there is no such line."""
    if not lines or len(lines[0]) != 1:
        return None
    word = lines.pop(0)[0]
    if word.number is None or word.number < 1:
        word.reject("the number of layers", "a whole number from 1")
    return word.number


def _numbers_of_layers(words: list[Word], layers: int) -> tuple[int, ...]:
    for word in words:
        if not 0 <= (word.number or 0) < layers:
            word.reject("the layer", f"0 to {layers - 1}")
    return tuple(word.number or 0 for word in words)


def _layer(words: list[Word], customized: bool, unit_ns: int) -> Layer:
    columns = _COLUMNS + customized * ("kind",)
    if len(words) < len(columns):
        words[-1].reject(f"word {len(words)} of {len(words)}", f"{len(columns)}: {', '.join(columns)}")
    forward, input_gradient, weight_gradient = (_part(words[at : at + 3], unit_ns) for at in (2, 5, 8))
    kind = read_kind(words[12], "the layer's kind") if customized else ""
    if kind == "HYBRID_CUSTOMIZED":
        words[12].reject("the layer's kind", "another kind")
    update = _number(words[11], "the time", unit_ns)
    return Layer(words[0].text, (forward, input_gradient, weight_gradient), update, kind)


def _part(words: list[Word], unit_ns: int) -> Part:
    time, collective, size = words
    base, suffix = _collective(collective.text)
    if base not in COLLECTIVES:
        collective.reject("the collective", f"{one_of(COLLECTIVES)}{nearest(base, COLLECTIVES)}")
    ns = _number(time, "the time", unit_ns)
    return Part(ns, COLLECTIVES[base], _number(size, "the size", 1), SUFFIXES.get(suffix))


def _number(word: Word, what: str, scale: int) -> int:
    if not _NUMBER.fullmatch(word.text) or Decimal(word.text) * scale >= _LIMIT:
        word.reject(what, f"a number from 0, below {_LIMIT // scale}")
    # Not float, which rounds above 2^53.
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


def _is_layer(words: list[Word]) -> bool:
    """Return whether a first line is a layer rather than a header."""
    if len(words) < 4 or words[0].text.upper() in SCOPES:
        return False
    # A layer has the reserved number second and a collective fourth; a header may have neither there.
    return words[1].number is not None or _collective(words[3].text)[0] in COLLECTIVES


def _headless(kind: str) -> str:
    known = [name for name in SCOPES if name not in (*DLRM, "HYBRID_CUSTOMIZED")]
    if kind not in known:
        raise InputError(f"--kind is '{kind}', expected {one_of(known)}{nearest(kind, known)}")
    return kind


def _guess(layers: tuple[Layer, ...]) -> str:
    """Return the kind of a file that names none, inferred from the collectives of activations and input gradients."""
    inside = {
        layer.parts[phase].collective for layer in layers for phase in (Phase.FORWARD, Phase.INPUT_GRADIENT)
    } - {None}
    if not inside:
        return "DATA"
    return "ALL" if inside == {CollectiveType.ALL_TO_ALL} else "HYBRID_TRANSFORMER"
