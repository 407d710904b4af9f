"""Text from other people's files, made safe for its destination: one function for each kind of destination.

Names of nodes, dimensions, models, files and the like are data. They must not control a terminal, become markup, or
make a spreadsheet compute. Pages have functions of their own in `armillary.base.page`; terminals pass everything
through `printable` (`armillary.base.terminal`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

# All control characters but tab and newline, what turns the direction of writing, and halves of characters.
COMMANDS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
# What XML 1.0 forbids even as a reference.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
# A spreadsheet takes a cell that begins so for a formula; the wide forms stand for the narrow ones there.
_FORMULA = re.compile(r"\s*(?:[=@\uff1d\uff20]|[+\-\uff0b\uff0d](?!$))|[\t\r\n]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)")
# The same behind what separates cells for other readers: a quoted cell of ours may be several of theirs.
_INNER = re.compile(
    r"(?<![;,\s\"])([;,\s\"]++)(?=[=@\uff1d\uff20]|[+\-\uff0b\uff0d](?!\s*[\d.]+\s*(?:[,;)\]}]|$)))"
)
_BETWEEN = re.compile(r"[;,\t\n]")
# Blanks, semicolons and tabs separate cells for some readers.
_QUOTED = re.compile(r'[",;\t\r\n]|^\s|\s$')


def printable(text: str) -> str:
    """Return `text` with characters that control a terminal spelled out as in JSON: a backslash, u and four digits."""
    return COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def on_one_line(text: str) -> str:
    """Return a name with a blank for each character that cannot be printed: it forges no line of its own."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def json_text(value: Any, **options: Any) -> str:
    """Return a value as JSON that is legible, valid UTF-8, and safe on a terminal.

    Args:
        value: Of dictionaries, lists, texts, numbers, None.
        options: Those of ``json.dumps``.
    """
    # Late: `armillary --help` writes no JSON.
    import json

    # Such characters stand only inside strings, where their escapes mean the same.
    return printable(json.dumps(value, ensure_ascii=False, **options))


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV. A text that a spreadsheet would interpret as a formula gets an apostrophe before it.

    Args:
        header: Names of the columns.
        rows: A value for each column: None is empty, numbers stay as they are.
    """
    return "".join(",".join(map(_cell, row)) + "\n" for row in (header, *rows))


def _cell(value: object) -> str:
    if value is None:
        return ""
    # NumPy's numbers are no ints; what is written as a number is one.
    text = printable(str(value))
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    text = _INNER.sub(lambda found: found[1] + "'" * bool(_BETWEEN.search(found[1])), text)
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def xml_text(text: str) -> str:
    """Return text as the content of an XML element; what XML cannot hold becomes U+FFFD."""
    return escape(xml_document(text))


def xml_attribute(text: str) -> str:
    """Return text as the value of an XML attribute, with its quotes."""
    return quoteattr(xml_document(text))


def xml_document(text: str) -> str:
    """Return text, or a whole document that a library made, without the characters that XML forbids."""
    return printable(_NOT_XML.sub("\ufffd", text))


def dot_text(text: str) -> str:
    """Return text as a quoted identifier or label of Graphviz."""
    # Graphviz's own escapes, such as \N, begin with a backslash; a label in angle brackets is HTML only without quotes.
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{xml_document(escaped)}"'
