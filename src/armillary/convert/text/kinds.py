"""The words of a text file with their positions, and the parallelism kinds with the scopes of their collectives.

Source: ``decode_involved_dimensions`` of ASTRA-sim 1.0, where network dimension 0 is the inner part and the others
are the outer part, and SimAI's suffixes ``_EP`` and ``_DP_EP``.
"""

from __future__ import annotations

import re
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple, NoReturn

from armillary.base.errors import InputError
from armillary.base.reading import decoded, read_plain


class Phase(IntEnum):
    """A part of the step, in the order of the columns."""

    FORWARD = 0
    INPUT_GRADIENT = 1
    WEIGHT_GRADIENT = 2


class Scope(IntEnum):
    """Participants of a collective."""

    ALL = 0
    INNER = 1
    """NPUs next to each other: dimension 0 in ASTRA-sim 1.0, the model-parallel group of a transformer."""
    OUTER = 2
    """NPUs of the same place in their inner group."""
    EP = 3
    """SimAI's expert-parallel group: neighbouring inner groups."""
    DP_EP = 4
    """SimAI's data-parallel group of one expert."""


Scopes = tuple[Scope | None, Scope | None, Scope | None]
"""Participants for each phase; None: ASTRA-sim issues no collective there."""

_DATA: Scopes = (None, None, Scope.ALL)
_MODEL: Scopes = (Scope.ALL, Scope.ALL, None)
_INNER_MODEL: Scopes = (Scope.INNER, Scope.INNER, Scope.OUTER)

SCOPES: dict[str, Scopes] = {
    "MICRO": _DATA,
    "DATA": _DATA,
    "DATA_REORDER": _DATA,
    "MODEL": _MODEL,
    "DISTRIBUTED_INFERENCE": _MODEL,
    "HYBRID_DATA_MODEL": _INNER_MODEL,
    "HYBRID_MODEL_DATA": (Scope.OUTER, Scope.OUTER, Scope.INNER),
    "HYBRID_DLRM": _DATA,
    "HYBRID_DLRM_ENHANCED": _DATA,
    "HYBRID_TRANSFORMER": _INNER_MODEL,
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD": _INNER_MODEL,
    "HYBRID_CUSTOMIZED": (None, None, None),
    "ALL": (Scope.ALL, Scope.ALL, Scope.ALL),
}
"""Scopes by kind; a layer of HYBRID_CUSTOMIZED names another kind. No file names ALL: it is the kind of the embedding
tables of HYBRID_DLRM, its layer 0, which are spread over all NPUs, and of files without a kind (`reader`)."""

DLRM = ("HYBRID_DLRM", "HYBRID_DLRM_ENHANCED")


INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)
# Not str.splitlines, which also splits at form feeds and other characters that editors count as part of a line.
_END = re.compile("\r\n|\r|\n")
_COMMENT = re.compile(r"(?:^|(?<=\s))(?:#|//)")


class Word(NamedTuple):
    """A word between blanks; line and column count from 1."""

    path: Path
    text: str
    line: int
    column: int

    @property
    def number(self) -> int | None:
        """Its value if it is a whole number of at most 18 digits, else None."""
        return int(self.text) if INTEGER.fullmatch(self.text) else None

    def reject(self, what: str, expected: str) -> NoReturn:
        """Raise InputError: `what` is this word, but `expected` was."""
        raise InputError(
            f"{self.path}: line {self.line}, column {self.column}: {what} is '{self.text}', expected {expected}"
        )


def read_lines(path: Path) -> list[list[Word]]:
    """Return the words of every line that is not blank; ``#`` or ``//`` at the start of a word begins a comment.

    Raises:
        InputError: the file cannot be read, or is no UTF-8.
    """
    try:
        # Editors on Windows put a byte order mark first, which would become part of the first word.
        text = decoded(read_plain(path), path)
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror or error}, expected a text workload of ASTRA-sim 1.0"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8, expected text") from error
    lines = [
        [
            Word(path, match[0], number, match.start() + 1)
            for match in re.finditer(r"\S+", _COMMENT.split(line)[0])
        ]
        for number, line in enumerate(_END.split(text), 1)
    ]
    return [words for words in lines if words]
