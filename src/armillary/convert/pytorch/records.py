"""JSON documents with one long list of records, read a record at a time, errors with line and column."""

from __future__ import annotations

import gc
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError

_BLANK = re.compile(r"[ \t\n\r]*")
_COMMA = re.compile(r"[ \t\n\r]*,")


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause garbage collection: the search for cycles among millions of new objects takes half of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def read_text(path: str | Path) -> str:
    """Return the text of a file, plain or gzip.

    Raises:
        InputError: it cannot be read, or is damaged.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected a readable JSON file") from error
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{path}: damaged gzip file ({error})") from error
    # Names of operators are written as they are; a stray byte in one is no reason to refuse the trace.
    return data.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")


class Records:
    """Reader of one JSON object that passes on the list `key` record by record and returns the other members.

    A comma after the last member or record is allowed, as Chrome's trace format has it.
    """

    def __init__(self, path: str | Path, key: str, text: str | None = None) -> None:
        self.path = path
        self.key = key
        self.text = read_text(path) if text is None else text
        self.at = 0
        # One record at a time through the C decoder. This gives a position for every error, and no second
        # copy of the document as objects.
        self._decode = json.JSONDecoder().raw_decode

    def read(self, each: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Call `each` for every record and return the other members.

        Raises:
            InputError: not JSON, cut off, or the list is missing; names line and column.
        """
        header: dict[str, Any] = {}
        found = False
        if self._next() == "[":  # old device traces are the bare list
            self._list(each)
            self._end()
            return header
        self._expect("{", "a JSON object")
        while self._next() != "}":
            name = self._value()
            if not isinstance(name, str):
                raise self._error("expected a key in double quotes")
            self._expect(":", "':' after the key")
            if self._next() == "[" and name == self.key:
                self._list(each)
                found = True
            else:
                header[name] = self._value()
            # A missing comma is an error; one before the closing brace is not.
            if self._next() != "}":
                self._expect(",", "',' or '}'")
        self.at += 1
        self._end()
        if not found:
            raise InputError(
                f"{self.path}: has no list '{self.key}', found keys {', '.join(header) or 'none'}"
            )
        return header

    def _list(self, each: Callable[[dict[str, Any]], object]) -> None:
        self._expect("[", "a list")
        while self._next() != "]":
            record = self._value()
            if not isinstance(record, dict):
                raise self._error(f"expected an object in '{self.key}', found {type(record).__name__}")
            each(record)
            # The common case in one match: a comma separates millions of records.
            comma = _COMMA.match(self.text, self.at)
            if comma:
                self.at = comma.end()
            elif self._next() != "]":
                self._expect(",", "',' or ']'")
        self.at += 1

    def _end(self) -> None:
        found = self._next()
        if found:
            raise self._error(f"expected the end of the file, found {found!r}")

    def _next(self) -> str:
        match = _BLANK.match(self.text, self.at)
        assert match is not None  # the pattern matches the empty text
        self.at = match.end()
        return self.text[self.at : self.at + 1]

    def _value(self) -> Any:
        try:
            value, self.at = self._decode(self.text, self.at)
        except json.JSONDecodeError as error:
            # The decoder counts from the start of the text, so its position gives line and column directly.
            self.at = error.pos
            raise self._error(f"not JSON: {error.msg}") from error
        except RecursionError as error:
            raise self._error("nested too deeply") from error
        except ValueError as error:  # an integer of thousands of digits
            raise self._error(str(error)) from error
        return value

    def _expect(self, sign: str, what: str) -> None:
        found = self._next()
        if found != sign:
            raise self._error(f"expected {what}, found {f'{found!r}' if found else 'the end of the file'}")
        self.at += 1

    def _error(self, message: str) -> InputError:
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - self.text.rfind("\n", 0, self.at)
        return InputError(f"{self.path}, line {line}, column {column}: {message}")
