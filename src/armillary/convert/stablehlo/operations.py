"""Parse the text of MLIR to operations with regions, as far as StableHLO, func and Shardy need it.

An operation is ``%r:2 = dialect.name …`` or ``"dialect.name"(…)``, and ends with its line; a region is a brace at the
end of a line. The text between is kept: operands, attributes and types are found in it where they are needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from armillary.base.counts import MOST_RECORDED, check_count
from armillary.convert.hlo.source import Source

_BLANK = re.compile(r"(?:\s+|//[^\n]*)*+")
_RESULTS = re.compile(r"(%[\w.$\-]+(?::\d{1,6})?(?:\s*,\s*%[\w.$\-]+(?::\d{1,6})?)*)\s*=\s*")
_NAME = re.compile(r"\"([\w.$\-]{1,100})\"|([a-zA-Z_][\w.$\-]{0,100})")
_BLOCK = re.compile(r"\^[\w.$\-]+(?:\(([^\n]*)\))?[ \t]*:[^\n]*\n")
# A region is a brace that ends its line, or one of the generic form with its block's operations behind it.
_STOP = re.compile(r"\"(?:[^\"\\\n]|\\.)*+\"?|//[^\n]*|\{[ \t]*\n|[(\[{<>}\])]|->|\n")
_CONTINUES = re.compile(r"\s*(?:cond\b|reducer\b|attributes\b)")
_OPEN = {"(": ")", "[": "]", "{": "}", "<": ">"}
_DEEPEST = 100


@dataclass(eq=False, slots=True)
class Region:
    """A region of one block: its arguments as text, and its operations."""

    arguments: str
    operations: list[Operation]


@dataclass(eq=False, slots=True)
class Operation:
    """One operation; `text` is all that stands behind the name but regions, which are ``{}`` in it."""

    name: str
    results: tuple[str, ...]
    """Names of the results, ``x#1`` for the second of ``%x:2``."""
    text: str
    at: int
    regions: list[Region] = field(default_factory=list)


def parse(source: Source) -> list[Operation]:
    """Return the operations at the top of a file.

    Raises:
        InputError: with line and column, it is not such text.
    """
    parser = _Parser(source)
    found = parser.block("")
    if parser.at < len(source.text):
        source.fail(parser.at, f"found {source.excerpt(parser.at)}, expected an operation")
    return found


class _Parser:
    """Reads from left to right; `at` is the offset of the next character."""

    def __init__(self, source: Source) -> None:
        self.source, self.text, self.at = source, source.text, 0
        self.count = self.depth = 0

    def blank(self) -> None:
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def block(self, end: str) -> list[Operation]:
        """Return the operations up to a closing brace, or to the end of the file."""
        found: list[Operation] = []
        while True:
            self.blank()
            if self.at >= len(self.text) or (end and self.text.startswith(end, self.at)):
                return found
            if self.text.startswith("^", self.at):
                self.source.fail(self.at, "a second block in a region, expected structured control flow")
            # Names of attributes and locations, which nothing here needs.
            if self.text.startswith("#", self.at) or self.text.startswith("!", self.at):
                line = self.text.find("\n", self.at)
                self.at = line if line >= 0 else len(self.text)
                continue
            found.append(self.operation())

    def operation(self) -> Operation:
        start = self.at
        self.count += 1
        check_count(self.count, MOST_RECORDED, f"{self.source.name}: operations", "a smaller program")
        results: list[str] = []
        if match := _RESULTS.match(self.text, self.at):
            self.at = match.end()
            for each in match[1].split(","):
                name, _, count = each.strip()[1:].partition(":")
                results += [name] if not count else [f"{name}#{at}" for at in range(min(int(count), 100_000))]
        name = _NAME.match(self.text, self.at)
        if name is None:
            self.source.fail(self.at, f"found {self.source.excerpt(self.at)}, expected an operation of MLIR")
        self.at = name.end()
        made = Operation(name[1] or name[2], tuple(results), "", start)
        pieces: list[str] = []
        closing: list[str] = []
        piece = self.at
        while True:
            match = _STOP.search(self.text, self.at)
            if match is None:
                self.at = len(self.text)
                break
            token = match[0]
            if token[0] == "{" and len(token) > 1:
                pieces.append(self.text[piece : match.start()] + "{}")
                self.at = match.end()
                made.regions.append(self.region())
                piece = self.at
                continue
            if token == "}" and not closing:
                self.at = match.start()
                break
            self.at = match.end()
            if token == "\n":
                if not closing and not _CONTINUES.match(self.text, self.at):
                    self.at = match.start()
                    break
            elif token in _OPEN:
                closing.append(_OPEN[token])
                if len(closing) > _DEEPEST:
                    self.source.fail(match.start(), f"brackets are nested deeper than {_DEEPEST}")
            elif closing and token == closing[-1]:
                closing.pop()
            elif token in ")]}":
                self.source.fail(
                    match.start(), f"found '{token}', expected {closing[-1] if closing else 'a new line'}"
                )
        if closing:
            self.source.fail(start, f"'{made.name}' ends without '{closing[-1]}'")
        made.text = "".join([*pieces, self.text[piece : self.at]])
        return made

    def region(self) -> Region:
        self.depth += 1
        if self.depth > _DEEPEST:
            self.source.fail(self.at, f"regions are nested deeper than {_DEEPEST}")
        self.blank()
        arguments = ""
        if match := _BLOCK.match(self.text, self.at):
            arguments, self.at = match[1] or "", match.end()
        found = self.block("}")
        if not self.text.startswith("}", self.at):
            self.source.fail(self.at, "the file ends within a region, expected '}'")
        self.at += 1
        self.depth -= 1
        return Region(arguments, found)
