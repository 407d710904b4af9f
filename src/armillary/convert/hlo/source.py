"""HLO text with positions for messages."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from armillary.base.errors import InputError
from armillary.base.reading import decoded, read_plain

COMMENT = re.compile(r"/\*[^*\n\"]*\*/")

HOW = (
    "HLO text: what jax.jit(f).lower(…).compile().as_text() returns, the files *after_optimizations.txt of "
    "XLA_FLAGS=--xla_dump_to=DIR, or TensorFlow's experimental_get_compiler_ir(…)(stage='optimized_hlo')"
)


class Source:
    """The text of a module; positions are offsets into it."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        # XLA numbers long lists by comments; blanks in their place keep all positions.
        self.text = COMMENT.sub(lambda match: " " * len(match[0]), text) if "/*" in text else text

    def where(self, at: int) -> str:
        """Return file, line and column of a position."""
        line = bisect_right(self._starts, at)
        return f"{self.name}:{line}:{at - self._starts[line - 1] + 1}"

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def fail(self, at: int, message: str) -> NoReturn:
        """Refuse what is at a position.

        Raises:
            InputError: always.
        """
        raise InputError(f"{self.where(at)}: {message}")

    def excerpt(self, at: int) -> str:
        """Return the text at a position as error messages quote it."""
        rest = self.text[at : at + 40].partition("\n")[0].strip()
        if rest:
            return f"'{rest}'"
        return "the end of the file" if at >= len(self.text.rstrip()) else "the end of the line"


def read(path: Path) -> Source:
    """Read a file of HLO text.

    Raises:
        InputError: it cannot be read, is not text, or is StableHLO.
    """
    try:
        data = read_plain(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}, expected a file of HLO text") from error
    try:
        text = decoded(data, path)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not text; expected {HOW}") from error
    start = text[:4096]
    if "HloModule" not in start and re.search(
        r"^\s*(module\b|#loc|func\.func|\"?(stablehlo|mhlo)\.)", start, re.M
    ):
        raise InputError(
            f"{path}: this is StableHLO, which is not compiled yet; `--from stablehlo` reads it, expected {HOW}"
        )
    return Source(text, str(path))
