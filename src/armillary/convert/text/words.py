"""A text file as words with their places."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple, NoReturn

from armillary.base.errors import InputError

INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)
_END = re.compile("\r\n|\r|\n")
_COMMENT = re.compile(r"(?:^|(?<=\s))(?:#|//)")


class Word(NamedTuple):
    """What stands between blanks; line and column count from 1."""

    path: Path
    text: str
    line: int
    column: int

    @property
    def number(self) -> int | None:
        """The whole number it is, if it is one of at most 18 digits."""
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
        text = path.read_bytes().decode("utf-8-sig")
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
