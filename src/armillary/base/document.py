"""Configuration files as values that remember the line of each key, so that errors can name it."""

from __future__ import annotations

import functools
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from armillary.base.errors import InputError, nearest, one_of
from armillary.base.hints import KeyPath, key_text, misspelt, show
from armillary.base.json_text import parse_json
from armillary.base.reading import MOST_TEXT, MOST_YAML, decoded, read_plain
from armillary.base.units import whole
from armillary.base.yaml_text import load_yaml, yaml_nodes

Source = str | Path | Mapping[str, Any]
"""A configuration: the path of a file, or its already-parsed content."""


_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+|\n')


@dataclass(frozen=True)
class Document:
    """One parsed configuration.

    Attributes:
        name: What errors call it: the file's path, or e.g. ``network configuration``.
        data: The parsed mapping.
        path: The file, or None when the content was given directly.
        text: The file's text, empty when the content was given directly.
        syntax: ``yaml`` or ``json``.
        duplicates: Keys given more than once (JSON only; the last one counts).
    """

    name: str
    data: dict[Any, Any]
    path: Path | None = None
    text: str = ""
    syntax: str = "json"
    duplicates: tuple[str, ...] = ()

    @functools.cached_property
    def _lines(self) -> dict[KeyPath, int]:
        if not self.text:
            return {}
        return _json_lines(self.text) if self.syntax == "json" else _yaml_lines(self.text)

    def where(self, path: KeyPath = ()) -> str:
        """Return ``FILE:LINE`` of `path`, or of the nearest enclosing key that has a line."""
        # A default or a missing key has no line of its own: the enclosing mapping has.
        while path not in self._lines:
            if not path:
                return self.name
            path = path[:-1]
        return f"{self.name}:{self._lines[path]}"

    def error(self, path: KeyPath, problem: str) -> InputError:
        """Return an InputError that names the file, the line and the key path."""
        key = key_text(path)
        return InputError(f"{self.where(path)}: {key + ': ' if key else ''}{problem}")

    def reject(self, path: KeyPath, value: object, expected: str, hint: str = "") -> NoReturn:
        """Raise: `value` stands at `path` where `expected` should."""
        raise self.error(path, f"got {show(value)}, expected {expected}{hint}")

    def check_keys(self, known: Iterable[str], *, ignored: Iterable[str] = ()) -> list[str]:
        """Return the ignored keys in use.

        Raises:
            InputError: A key is neither known nor ignored.
        """
        known, ignored = tuple(known), frozenset(ignored)
        for key in self.data:
            if key not in known and key not in ignored:
                hint = nearest(str(key), (*known, *ignored)) or f"; known keys: {', '.join(known)}"
                raise self.error((key,), f"unknown key{hint}")
        return [key for key in self.data if key in ignored]

    def require(self, key: str, why: str = "") -> Any:
        """Return the value of a key that must be there.

        Raises:
            InputError: It is not there.
        """
        if key not in self.data:
            hint = misspelt(key, map(str, self.data))
            raise InputError(f"{self.name}: missing key '{key}'{': ' + why if why else ''}{hint}")
        return self.data[key]

    def number(
        self, path: KeyPath, value: object, expected: str, *, low: float, exclusive: bool = False
    ) -> float:
        """Return `value` as a finite float of at least `low` (more than `low` if `exclusive`), below 2**63.

        Raises:
            InputError: It is not such a number.
        """
        if self.syntax == "yaml" and isinstance(value, str):  # YAML 1.1 reads 1e3 as text, others as a number
            try:
                value = float(value)
            except ValueError:
                self.reject(path, value, expected)
        # In Python True is an int.
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.reject(path, value, expected)
        # The range test comes first: an integer may be too large for a float.
        if not low <= value < 2**63 or (exclusive and value == low) or not math.isfinite(value):
            self.reject(path, value, expected)
        return float(value)

    def whole(self, path: KeyPath, value: object, low: int, high: int = 2**31 - 1) -> int:
        """Return `value` as a whole number from `low` to `high`.

        Raises:
            InputError: It is not.
        """
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.reject(path, value, f"a whole number from {low} to {high}")
        return value

    def choice(self, path: KeyPath, value: object, choices: Iterable[str]) -> str:
        """Return `value` if it is one of `choices`.

        Raises:
            InputError: It is not; the message names the nearest one.
        """
        choices = tuple(choices)
        if value not in choices:
            self.reject(path, value, one_of(choices), nearest(str(value), choices))
        return str(value)


def read_document(source: Source, kind: str, syntax: str, *, listed: str = "") -> Document:
    """Parse a file, or wrap an already-parsed mapping.

    Args:
        source: A path, or a mapping.
        kind: What it is, e.g. ``network configuration``: the name in errors when there is no file.
        syntax: ``yaml`` or ``json``.
        listed: Key under which a list stands in the mapping; empty: a list is refused.

    Raises:
        InputError: The file cannot be read or parsed, or is not a mapping.
    """
    if isinstance(source, Mapping):
        return Document(kind, dict(source), syntax=syntax)
    check_path(source, kind)
    path = Path(source)
    text = read_text(path, kind, MOST_YAML if syntax == "yaml" else MOST_TEXT)
    duplicates: list[str] = []
    data = _load_json(text, path, duplicates) if syntax == "json" else load_yaml(text, path)
    if listed and isinstance(data, list):
        data = {listed: data}
    if not isinstance(data, dict):
        raise InputError(f"{path}: got {show(data)}, expected a mapping of keys to values (a {kind})")
    return Document(str(path), data, path, text, syntax, tuple(duplicates))


def check_path(source: object, kind: str) -> None:
    """Refuse anything that is not a path; an empty one would be the folder in which a command runs.

    Raises:
        InputError: names the value and the kind of file that was expected.
    """
    if not isinstance(source, str | os.PathLike) or not os.fspath(source):
        raise InputError(f"{kind}: got {show(source)}, expected its path, or what it holds")


def read_text(path: Path, kind: str, most: float = MOST_TEXT) -> str:
    """Return the text of a file.

    Raises:
        InputError: It is missing (the nearest file name is given), unreadable, not UTF-8, or longer than `most` bytes.
    """
    try:
        # Windows editors put a byte order mark first, and end lines in two characters.
        return decoded(read_plain(path, most), path).replace("\r\n", "\n").replace("\r", "\n")
    except FileNotFoundError:
        folder = path.parent
        # A misspelt file name is the usual mistake.
        names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
        raise InputError(f"{path}: no such file ({kind}){nearest(path.name, names)}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file: byte {error.start} is not UTF-8 ({kind})") from None
    except OSError as error:
        raise InputError(
            f"{path}: cannot read the {kind}: {(error.strerror or str(error)).lower()}"
        ) from None
    except ValueError as error:
        raise InputError(f"{str(path)!r}: not a file name ({kind}): {error}") from None


def is_there(path: str | Path) -> bool:
    """Return whether a file exists; a name the system cannot hold does not."""
    try:
        return Path(path).exists()
    except OSError:
        return False


def _load_json(text: str, path: Path, duplicates: list[str]) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) < len(items):
            keys = [key for key, _ in items]
            # JSON leaves open what a repeated key means; the reader of the format decides whether it is an
            # error.
            duplicates.extend(key for key in result if keys.count(key) > 1)
        return result

    def constant(word: str) -> NoReturn:
        # NaN and Infinity: Python reads them, JSON has none.
        line = text.count("\n", 0, text.index(word)) + 1
        raise InputError(
            f"{path}:{line}: got {word}, which is not a number in JSON, expected a finite number"
        )

    try:
        return parse_json(text, path, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        # Of a number that is too long Python does not say the place.
        place = f":{error.lineno}:{error.colno}" if error.doc or not text else ""
        raise InputError(f"{path}{place}: not valid JSON: {error.msg.lower()}") from None


def _yaml_lines(text: str) -> dict[KeyPath, int]:
    import yaml

    lines: dict[KeyPath, int] = {}
    walked: set[int] = set()  # an alias may lead back to what holds it

    def walk(node: Any, path: KeyPath) -> None:
        lines.setdefault(path, node.start_mark.line + 1)
        if id(node) in walked:
            return
        walked.add(id(node))
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    number = whole(key.value) if key.tag.endswith(":int") else None
                    name = key.value if number is None else number
                    lines[*path, name] = key.start_mark.line + 1
                    walk(value, (*path, name))
        elif isinstance(node, yaml.SequenceNode):
            for position, value in enumerate(node.value):
                walk(value, (*path, position))

    walk(yaml_nodes(text), ())
    return lines


def _json_lines(text: str) -> dict[KeyPath, int]:
    """Return the line of every key and list element of a text known to be valid JSON."""
    lines: dict[KeyPath, int] = {}
    line = 1
    stack: list[str | int | None] = []  # the open containers: a key, a position, or None before a key
    for token in _JSON_TOKEN.findall(text):
        if token == "\n":
            line += 1
        elif token in "}]":
            stack.pop()
        elif token == ",":
            stack[-1] = stack[-1] + 1 if isinstance(stack[-1], int) else None
        elif token != ":":
            if stack and stack[-1] is None:
                stack[-1] = json.loads(token)
            lines.setdefault(tuple(part for part in stack if part is not None), line)
            if token in "{[":
                stack.append(None if token == "{" else 0)
    return lines
