"""JSON documents with one long list of records, read a record at a time, errors with line and column."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from armillary.base.errors import InputError
from armillary.base.packing import read_unpacked

_BLANK = re.compile(r"[ \t\n\r]*")
_MOST_RECORD = 1 << 24
"""Characters of one record, or of one of the other members: 500 times the longest we know. As objects a value takes up
to 24 times its characters, so this bounds what one can take."""
_LAST = 16
"""Characters before the end of a part in which the decoder finds that it is cut off."""
_COMMA = re.compile(r"[ \t\n\r]*,")


def read_text(path: str | Path) -> str:
    """Return the text of a file, plain or gzip.

    Raises:
        InputError: it cannot be read, or is damaged.
    """
    try:
        data = read_unpacked(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}, expected a readable JSON file") from error
    # Names of operators are written as they are; a stray byte in one is no reason to refuse the trace.
    return str(data, "utf-8", "replace").removeprefix("\ufeff")


class Records:
    """Reader of one JSON object that passes on the list `key` record by record and returns the other members.

    A comma after the last member or record is allowed, as Chrome's trace format has it.
    """

    def __init__(self, path: str | Path, key: str, text: str | None = None) -> None:
        self.path = path
        self.key = key
        self.text = read_text(path) if text is None else text
        self.at = 0
        # A part of the text of at most `_MOST_RECORD` characters, and where it begins.
        self._part, self._from = self.text[:_MOST_RECORD], 0
        # One record at a time through the C decoder. This gives a position for every error, and no second
        # copy of the document as objects.
        self._decode = json.JSONDecoder().raw_decode

    def read(self, each: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Call `each` for every record and return the other members.

        Raises:
            InputError: not JSON, cut off, or the list is missing; names line and column.
        """
        header: dict[str, Any] = {}
        found, others = False, 0
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
                begin = self.at
                header[name] = self._value()
                others += self.at - begin
                if others > _MOST_RECORD:
                    raise self._error(f"more than {_MOST_RECORD:,} characters beside the list '{self.key}'")
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
            return self._decoded()
        except json.JSONDecodeError as error:
            at = self._from + error.pos
            # The part may have ended in the middle of the value: a new one begins with it.
            if self._from < self.at and self._from + len(self._part) < len(self.text):
                self._from, self._part = self.at, self.text[self.at : self.at + _MOST_RECORD]
                return self._value()
            ends = at >= self._from + len(self._part) - _LAST or error.msg.startswith("Unterminated")
            if ends and self._from + len(self._part) < len(self.text):
                raise self._error(
                    f"a record of more than {_MOST_RECORD:,} characters, expected many short ones"
                ) from error
            self.at = at
            raise self._error(f"not JSON: {error.msg}") from error
        except RecursionError as error:
            raise self._error("nested too deeply") from error
        except ValueError as error:  # an integer of thousands of digits
            raise self._error(str(error)) from error

    def _decoded(self) -> Any:
        """Decode the value that begins here, within the part."""
        value, end = self._decode(self._part, self.at - self._from)
        # A number at the end of the part may go on behind it.
        if end > len(self._part) - _LAST and self._from + len(self._part) < len(self.text):
            raise json.JSONDecodeError("cut off", self._part, end)
        self.at = self._from + end
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
