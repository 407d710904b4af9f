"""Text from other people's files, made safe for its destination: one function for each kind of destination.

Names of nodes, dimensions, models, files and the like are data. They must not control a terminal, become markup, or
make a spreadsheet compute. Terminals get everything through `printable` (`printable_output`, `console`); pages have
functions of their own in `armillary.base.page`.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, TextIO
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from rich.console import Console

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


class _Printable(io.TextIOWrapper):
    """Standard output or standard error, through `printable`."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        stream.flush()
        super().__init__(
            stream.buffer, stream.encoding, stream.errors, line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )  # fmt: skip
        self.unfiltered = stream

    def write(self, text: str, /) -> int:
        """Write; returns the length of what was given."""
        super().write(printable(text))
        return len(text)


@contextmanager
def printable_output() -> Iterator[None]:
    """Prevent printed text from controlling the terminal, except through `console` and `unfiltered`."""
    before = sys.stdout, sys.stderr
    wrapped = [_Printable(each) if isinstance(each, io.TextIOWrapper) else each for each in before]
    sys.stdout, sys.stderr = wrapped
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for each in wrapped:
            if isinstance(each, _Printable):
                with suppress(BrokenPipeError):
                    # Detached, or the stream below would be closed with the wrapper.
                    each.detach()


def unfiltered(stream: TextIO) -> TextIO:
    """Return the stream that `printable_output` wraps, for bars and spinners, which do control the terminal."""
    if isinstance(stream, _Printable):
        stream.flush()
        return stream.unfiltered
    return stream


def console(file: TextIO | None = None, **options: Any) -> Console:
    """Return a rich console that reads no markup in strings and passes no control characters on.

    Args:
        file: Where to; by default standard output.
        options: Those of rich's ``Console``.
    """
    known = {"highlight": False, "markup": False, "emoji": False} | options
    made: Console = _literal()(file=unfiltered(file or sys.stdout), **known)
    return made


@cache
def _literal() -> Any:
    from rich.console import Console
    from rich.segment import Segment
    from rich.text import Text

    class Literal(Console):
        """Its strings and texts hold no commands; those of rich itself, such as colours, are no part of them."""

        def print(self, *objects: Any, **options: Any) -> None:
            # What is printed as such may have lines.
            texts = (Text(printable(each)) if isinstance(each, str) else each for each in objects)
            super().print(*texts, **options)

        def render_str(self, text: str, **options: Any) -> Any:
            # A cell, a title, a heading: a name in it forges no row. What has lines of its own is a Text.
            return super().render_str(printable(text).replace("\n", " "), **options)

        def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                # Control segments are rich's own, e.g. the movement of a progress bar.
                if segment.control is None and COMMANDS.search(segment.text):
                    yield Segment(printable(segment.text), segment.style)
                else:
                    yield segment

    return Literal
