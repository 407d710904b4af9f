"""Tables of Markdown files, with the text around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from armillary.base.errors import InputError
from armillary.base.reading import decoded, read_plain

LARGEST = 4 * 2**20
LONGEST = 400
"""Characters of a word that are read: no fact is longer, and searching takes their square."""
"""Bytes of a page, at most."""
MOST_ROWS = 10_000
"""Rows of all tables of a page, at most."""


@dataclass(frozen=True)
class TableText:
    """A table of a page.

    Attributes:
        line: Number of its header's line, from 1.
        header: Names of the columns.
        rows: Number of the line and cells of each row, as many as the header has.
        caption: The paragraph above it.
        section: All text under its heading, with the heading.
        page: All text.
    """

    line: int
    header: tuple[str, ...]
    rows: tuple[tuple[int, tuple[str, ...]], ...]
    caption: str
    section: str
    page: str


def page_text(path: Path) -> str:
    """Return the text of a page, its words `LONGEST` characters long at most and one blank apart; see `whole_text`."""
    return "\n".join(map(_short, whole_text(path).splitlines()))


def whole_text(path: Path) -> str:
    """Return the text of a file.

    Raises:
        InputError: it cannot be read, is not text, or is larger than `LARGEST`.
    """
    try:
        return decoded(read_plain(path, LARGEST), path).replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not text, expected a Markdown file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def _short(line: str) -> str:
    # Indentation tells code from headings.
    indent = line[: len(line) - len(line.lstrip())]
    return indent[:LONGEST] + " ".join(word[:LONGEST] for word in line.split())


def tables(path: Path) -> Iterator[TableText]:
    """Yield the tables of a page.

    Raises:
        InputError: the page cannot be read or is too large; a row has more cells than the header.
    """
    page = page_text(path)
    lines = page.splitlines()
    found = 0
    at = 0
    while at + 1 < len(lines):
        if not (_is_row(lines[at]) and _is_rule(lines[at + 1])):
            at += 1
            continue
        header, start, rows = _cells(lines[at]), at, []
        at += 2
        while at < len(lines) and _is_row(lines[at]):
            cells = _cells(lines[at])
            if len(cells) > len(header):
                raise InputError(
                    f"{path}:{at + 1}: {len(cells)} cells, expected at most the {len(header)} of the header"
                )
            rows.append((at + 1, (*cells, *[""] * (len(header) - len(cells)))))
            at += 1
        found += len(rows)
        if found > MOST_ROWS:
            raise InputError(f"{path}:{at}: more than {MOST_ROWS:,} rows of tables")
        yield TableText(
            start + 1, header, tuple(rows), _paragraph(lines, start), _section(lines, start), page
        )


def _is_row(line: str) -> bool:
    return line.lstrip().startswith("|")


def _is_rule(line: str) -> bool:
    return _is_row(line) and "-" in line and not line.strip().strip("|-: ")


def _cells(line: str) -> tuple[str, ...]:
    # A last bar may be missing, as it may in Markdown.
    text = line.strip().removeprefix("|")
    text = text[:-1] if text.endswith("|") and not text.endswith("\\|") else text
    return tuple(cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", text))


def _paragraph(lines: list[str], start: int) -> str:
    """Return the nearest paragraph above line `start`, unless that is a heading or another table."""
    end = start
    while end > 0 and not lines[end - 1].strip():
        end -= 1
    begin = end
    while (
        begin > 0
        and lines[begin - 1].strip()
        and not _is_row(lines[begin - 1])
        and not _heading(lines[begin - 1])
    ):
        begin -= 1
    return " ".join(lines[begin:end])


def _heading(line: str) -> int:
    """Return the level of a heading, 0: it is none."""
    found = re.match(r"(#{1,6})\s", line)
    return len(found[1]) if found else 0


def _section(lines: list[str], start: int) -> str:
    """Return the text from the heading above line `start` to the next heading, without tables.

    Where there are several tables, only what stands above the first and is not its caption: the rest is of others.
    """
    begin = next((at for at in range(start, -1, -1) if _heading(lines[at])), 0)
    end = next((at for at in range(start, len(lines)) if _heading(lines[at])), len(lines))
    rules = [at for at in range(begin, end) if _is_rule(lines[at])]
    if len(rules) > 1:
        first = rules[0] - 1
        end = first
        while end > begin and not lines[end - 1].strip():
            end -= 1
        while end > begin and lines[end - 1].strip() and not _heading(lines[end - 1]):
            end -= 1
    return "\n".join(line for line in lines[begin:end] if not _is_row(line))
